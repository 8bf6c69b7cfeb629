package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/certs"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/gateway"
)

// Authority is the file of the development authority's certificate in a data directory.
func Authority(dataDir string) string { return certs.AuthorityFile(authorityDir(dataDir)) }

func authorityDir(dataDir string) string { return filepath.Join(dataDir, "tls", "authority") }

// openCertificates opens the source of certificates, if the daemon serves TLS. addr is the daemon's
// listening address.
func (d *Daemon) openCertificates(addr net.Addr) (err error) {
	switch in := d.cfg.Ingress; {
	case d.cfg.TLSCert != "":
		d.certs, err = certs.Files(d.cfg.TLSCert, d.cfg.TLSKey, d.log)
	case in.SelfSigned:
		d.certs, err = certs.SelfSigned(authorityDir(d.cfg.DataDir), ownNames(d.cfg, addr))
	case len(in.ACMEDomains) > 0:
		opts := certs.ACMEOptions{
			Dir: filepath.Join(d.cfg.DataDir, "tls", "acme"), Domains: in.ACMEDomains, Email: in.ACMEEmail,
			CA: in.ACMECA, CARoots: in.ACMERoots, Addr: addr, HTTPAddr: in.ACMEHTTPListen, Log: d.log,
		}
		if in.ACMEOnDemand {
			opts.Allow = d.knownHost
		}
		d.certs, err = certs.ACME(opts)
	default:
		warnPlain(d, addr)
		return nil
	}
	if err != nil {
		return err
	}
	d.undo.Add(func() { _ = d.certs.Close() })
	return nil
}

// ownNames are the names of a development certificate: the domain, all names below it, and this
// host's own names.
func ownNames(cfg config.Config, addr net.Addr) []string {
	names := []string{"localhost", "127.0.0.1", "::1"}
	if domain, _, _ := strings.Cut(cfg.Domain, ":"); domain != "" {
		names = append(names, domain, "*."+domain)
	}
	if tcp, ok := addr.(*net.TCPAddr); ok && !tcp.IP.IsUnspecified() && !slices.Contains(names, tcp.IP.String()) {
		names = append(names, tcp.IP.String())
	}
	return names
}

// warnPlain warns the user who starts a daemon that others can reach without TLS.
func warnPlain(d *Daemon, addr net.Addr) {
	if tcp, ok := addr.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
		d.log.Warn("plain HTTP on an address that others reach: keys and tokens can be read on the way",
			"addr", addr.String(), "hint", "serve TLS with --tls-cert, --acme-domain or --tls-self-signed, or listen on 127.0.0.1 behind a proxy that does")
	}
}

// knownHost decides whether to obtain a certificate for a host name. It allows only names of
// existing sandboxes.
func (d *Daemon) knownHost(ctx context.Context, host string) error {
	domain, _, _ := strings.Cut(d.cfg.Domain, ":")
	label, ok := strings.CutSuffix(strings.ToLower(host), "."+strings.ToLower(domain))
	if !ok || strings.Contains(label, ".") {
		return fmt.Errorf("%s is not below %s", host, domain)
	}
	target, ok, err := gateway.Route(host, nil)
	if err != nil || !ok {
		return fmt.Errorf("%s is not the host name of a sandbox", host)
	}
	if d.parts == nil {
		return errors.New("not ready")
	}
	sb, err := d.parts.Service.Get(ctx, target.ID)
	if err != nil {
		return err
	}
	if sb.State == carrel.Starting {
		return errors.New("the sandbox is starting")
	}
	return nil
}

// runCertificates renews the certificates until ctx ends.
func (d *Daemon) runCertificates(ctx context.Context) {
	if err := d.certs.Run(ctx); err != nil {
		d.log.Error("certificates are not kept fresh", "err", err)
	}
}

// strictListener adds TLS to the listener, if it is served, and then the check of requests.
func (d *Daemon) strictListener() net.Listener {
	l := d.listener
	if d.certs != nil {
		l = newTLSListener(l, d.certs.TLSConfig())
	}
	return gateway.StrictListener(l)
}
