package certs

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
)

// lookEvery is the time between two checks of the files. Certificates are renewed weeks before
// their end, so this is often enough, and nobody has to notify the daemon.
const lookEvery = 5 * time.Second

// files is a certificate and its key, in files that another program writes.
type files struct {
	cert, key string
	log       *slog.Logger
	every     time.Duration
	current   atomic.Pointer[loaded]
}

// loaded is a pair, with the checksum of the files.
type loaded struct {
	pair tls.Certificate
	sum  [sha256.Size]byte
}

// Files takes a certificate (a chain, leaf first) and its key from PEM files. While it runs, it
// reads them again when they change, and on SIGHUP. If a pair can't be used, for example because
// only one file was written yet, the old pair stays in use. Error: Invalid.
func Files(cert, key string, log *slog.Logger) (Source, error) {
	f := &files{cert: cert, key: key, log: log, every: lookEvery}
	if _, err := f.load(); err != nil {
		return nil, err
	}
	return f, nil
}

// load reads the files and reports whether they hold a new pair.
func (f *files) load() (changed bool, err error) {
	fail := func(field string, err error) (bool, error) {
		return false, &carrel.Error{Op: "load certificate", Kind: carrel.Invalid, Field: field, Err: err,
			Hint: "give PEM files of a certificate and its key"}
	}
	cert, err := os.ReadFile(f.cert)
	if err != nil {
		return fail("tls-cert", err)
	}
	key, err := os.ReadFile(f.key)
	if err != nil {
		return fail("tls-key", err)
	}
	sum := sha256.Sum256(append(append([]byte{}, cert...), key...))
	if old := f.current.Load(); old != nil && old.sum == sum {
		return false, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fail("tls-cert", err)
	}
	f.current.Store(&loaded{pair: pair, sum: sum})
	return true, nil
}

// TLSConfig implements Source.
func (f *files) TLSConfig() *tls.Config {
	cfg := base()
	cfg.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &f.current.Load().pair, nil }
	return cfg
}

// Run implements Source.
func (f *files) Run(ctx context.Context) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	tick := time.NewTicker(f.every)
	defer tick.Stop()
	told := "" // one bad pair is told once
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hup:
			told = ""
		case <-tick.C:
		}
		changed, err := f.load()
		switch {
		case err != nil && err.Error() != told:
			told = err.Error()
			f.log.Error("the certificate's files can't be used; the one before stays", "err", err)
		case err == nil:
			told = ""
		}
		if changed {
			f.log.Info("certificate loaded again", "file", f.cert)
		}
	}
}

// Close implements Source.
func (f *files) Close() error { return nil }
