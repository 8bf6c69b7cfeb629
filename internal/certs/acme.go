package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/carrel-dev/carrel"
)

// ACMEOptions configures [ACME]. Dir and Domains are required.
type ACMEOptions struct {
	// Dir keeps the account and the certificates, with their keys.
	Dir string
	// Domains are the names whose certificates are obtained at once.
	Domains []string
	// Email is the address for messages from the authority.
	Email string
	// CA is the authority's directory; "" is Let's Encrypt's.
	CA string
	// CARoots is a PEM file with the roots for the authority's own HTTPS, for example of a
	// company's authority; "" means the system's roots.
	CARoots string
	// Addr is where the daemon serves TLS. The authority connects to port 443 of each name, which
	// must lead there. This is TLS-ALPN-01.
	Addr net.Addr
	// HTTPAddr, if not "", is the address to listen on for HTTP-01. Port 80 of each name must lead
	// there. Requests that are no challenge are redirected to https.
	HTTPAddr string
	// Allow decides, at the first request for a host name outside Domains, whether to obtain a
	// certificate for it; nil allows none.
	Allow func(ctx context.Context, host string) error
	// HostsPerHour bounds the certificates for such names; 0 is 20.
	HostsPerHour int
	Log          *slog.Logger
}

// acme obtains certificates from an authority.
type acme struct {
	opts   ACMEOptions
	cache  *certmagic.Cache
	fixed  *certmagic.Config // for Domains, obtained in advance
	serve  *certmagic.Config // for the listener; also for names that Allow allows
	http   net.Listener
	server *http.Server
}

// ACME obtains and renews certificates from an authority. It listens on HTTPAddr until Close. It
// starts to obtain certificates with Run. Errors: Invalid, Unavailable (HTTPAddr).
func ACME(opts ACMEOptions) (Source, error) {
	if opts.HostsPerHour <= 0 {
		opts.HostsPerHour = 20
	}
	if len(opts.Domains) == 0 {
		return nil, &carrel.Error{Op: "get certificates", Kind: carrel.Invalid, Field: "acme-domain", Err: errors.New("no name is given")}
	}
	roots, err := loadRoots(opts.CARoots)
	if err != nil {
		return nil, err
	}
	a := &acme{opts: opts}
	log := zapLogger(opts.Log)
	a.cache = certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(c certmagic.Certificate) (*certmagic.Config, error) {
			if slices.ContainsFunc(c.Names, a.isFixed) {
				return a.fixed, nil
			}
			return a.serve, nil
		},
		Logger: log,
	})
	issuer := certmagic.ACMEIssuer{
		CA: opts.CA, TestCA: opts.CA, Email: opts.Email, Agreed: true, TrustedRoots: roots,
		DisableHTTPChallenge: opts.HTTPAddr == "", Logger: log,
	}
	if issuer.CA == "" {
		issuer.CA, issuer.TestCA = certmagic.LetsEncryptProductionCA, certmagic.LetsEncryptStagingCA
	}
	if tcp, ok := opts.Addr.(*net.TCPAddr); ok {
		// The library checks whether something listens on this port, and takes that for its own
		// server.
		issuer.AltTLSALPNPort = tcp.Port
		if !tcp.IP.IsUnspecified() {
			issuer.ListenHost = tcp.IP.String()
		}
	}
	if opts.HTTPAddr != "" {
		if a.http, err = net.Listen("tcp", opts.HTTPAddr); err != nil {
			a.cache.Stop()
			return nil, &carrel.Error{Op: "listen for ACME challenges", Kind: carrel.Unavailable, Field: "acme-http-listen", Err: err}
		}
		issuer.AltHTTPPort = a.http.Addr().(*net.TCPAddr).Port
	}
	limit := hourly{most: opts.HostsPerHour}
	template := certmagic.Config{Storage: newStorage(opts.Dir), Logger: log}
	config := func(onDemand *certmagic.OnDemandConfig) *certmagic.Config {
		template.OnDemand = onDemand
		cfg := certmagic.New(a.cache, template)
		cfg.Issuers = []certmagic.Issuer{certmagic.NewACMEIssuer(cfg, issuer)}
		return cfg
	}
	a.fixed = config(nil)
	a.serve = config(&certmagic.OnDemandConfig{DecisionFunc: func(ctx context.Context, name string) error { return a.allow(ctx, name, &limit) }})
	if a.http != nil {
		a.server = &http.Server{
			Handler:           a.fixed.Issuers[0].(*certmagic.ACMEIssuer).HTTPChallengeHandler(http.HandlerFunc(toHTTPS)),
			ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10,
			ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		}
	}
	return a, nil
}

// isFixed reports whether the certificate for this name is always kept.
func (a *acme) isFixed(name string) bool {
	return slices.ContainsFunc(a.opts.Domains, func(d string) bool { return strings.EqualFold(d, name) })
}

// allow decides whether to obtain a certificate for a requested name.
func (a *acme) allow(ctx context.Context, name string, limit *hourly) error {
	if a.isFixed(name) {
		return nil
	}
	if a.opts.Allow == nil {
		return fmt.Errorf("no certificate is got for %s", name)
	}
	if err := a.opts.Allow(ctx, name); err != nil {
		return err
	}
	if !limit.take(time.Now(), name) {
		a.opts.Log.Warn("no more certificates for sandboxes' host names this hour", "name", name, "limit", a.opts.HostsPerHour)
		return errors.New("too many new names this hour")
	}
	return nil
}

// TLSConfig implements Source. A connection without a name, as when a client dials an address, gets
// the first domain's certificate.
func (a *acme) TLSConfig() *tls.Config {
	cfg := base()
	magic := a.serve.TLSConfig()
	cfg.NextProtos = append([]string{"h2", "http/1.1"}, magic.NextProtos...)
	cfg.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if hello.ServerName == "" {
			named := *hello
			named.ServerName = a.opts.Domains[0]
			hello = &named
		}
		return magic.GetCertificate(hello)
	}
	return cfg
}

// Run implements Source. It obtains missing certificates, and renews in the background.
func (a *acme) Run(ctx context.Context) error {
	served := make(chan struct{})
	if a.server != nil {
		go func() {
			defer close(served)
			_ = a.server.Serve(a.http) // ends with Close
		}()
	} else {
		close(served)
	}
	if err := a.fixed.ManageAsync(ctx, a.opts.Domains); err != nil {
		a.opts.Log.Error("get certificates", "err", err)
	}
	<-ctx.Done()
	if a.server != nil {
		_ = a.server.Close()
	}
	<-served
	return nil
}

// Close implements Source.
func (a *acme) Close() error {
	if a.server != nil {
		_ = a.server.Close()
		_ = a.http.Close() // when it was never served
	}
	a.cache.Stop()
	return nil
}

// toHTTPS sends a browser on.
func toHTTPS(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "only https is served", http.StatusForbidden)
		return
	}
	host := r.Host
	if h, port, err := net.SplitHostPort(r.Host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			http.Error(w, "bad host", http.StatusBadRequest)
			return
		}
		host = h
	}
	http.Redirect(w, r, "https://"+host+r.URL.RequestURI(), http.StatusPermanentRedirect)
}

// loadRoots reads a file of root certificates; "" means the system's.
func loadRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(file)
	if err == nil {
		pool := x509.NewCertPool()
		if pool.AppendCertsFromPEM(raw) {
			return pool, nil
		}
		err = fmt.Errorf("%s holds no certificate", file)
	}
	return nil, &carrel.Error{Op: "load the ACME authority's roots", Kind: carrel.Invalid, Field: "acme-ca-root", Err: err}
}
