package config

import (
	"net"
	"net/url"
	"strings"
)

// Ingress has the settings for traffic in, besides Listen, TLSCert and TLSKey.
type Ingress struct {
	// SelfSigned serves TLS with a certificate authority of the daemon's own, for development.
	SelfSigned bool
	// ACMEDomains are names for which an ACME authority gives certificates.
	ACMEDomains []string
	// ACMEEmail is the address that the authority may write to.
	ACMEEmail string
	// ACMECA is the URL of the authority's directory; "" is Let's Encrypt.
	ACMECA string
	// ACMERoots is a PEM file that vouches for the authority's own HTTPS.
	ACMERoots string
	// ACMEHTTPListen is the address that answers HTTP-01 challenges; "" is none.
	ACMEHTTPListen string
	// ACMEOnDemand also gets a certificate for each host name of a running or paused sandbox, on
	// its first use.
	ACMEOnDemand bool
	// SSHListen is the address that serves SSH; "" is none.
	SSHListen string
}

// TLS reports whether the daemon serves TLS, with a certificate from any source.
func (c Config) TLS() bool {
	return c.TLSCert != "" || c.Ingress.SelfSigned || len(c.Ingress.ACMEDomains) > 0
}

// checkIngress checks the fields.
func (c Config) checkIngress() error {
	i := c.Ingress
	acme := len(i.ACMEDomains) > 0
	switch {
	case c.TLSCert != "" && (i.SelfSigned || acme):
		return bad("tls-cert", "the certificate comes from one place: files, an ACME authority or an authority of our own")
	case i.SelfSigned && acme:
		return bad("tls-self-signed", "the certificate comes from one place: an ACME authority or an authority of our own")
	case !acme && (i.ACMEEmail != "" || i.ACMECA != "" || i.ACMERoots != "" || i.ACMEHTTPListen != "" || i.ACMEOnDemand):
		return bad("acme-domain", "needed by the other acme settings")
	case i.ACMEOnDemand && c.Domain == "":
		return bad("domain", "acme-on-demand needs the domain of sandboxes' host names")
	}
	for _, d := range i.ACMEDomains {
		if strings.HasPrefix(d, "*.") {
			return bad("acme-domain", "%q: a wildcard is given only against a DNS-01 challenge; have certbot or lego get it, and name its files with --tls-cert and --tls-key: they are read again when they change", d)
		}
		if err := checkDomain(d); err != nil || d == "" || strings.Contains(d, ":") {
			return bad("acme-domain", "%q is not a DNS name", d)
		}
	}
	if i.ACMECA != "" {
		if u, err := url.Parse(i.ACMECA); err != nil || u.Scheme != "https" || u.Host == "" {
			return bad("acme-ca", "%q is not an https URL", i.ACMECA)
		}
	}
	for _, l := range []struct{ field, addr string }{{"acme-http-listen", i.ACMEHTTPListen}, {"ssh-listen", i.SSHListen},
		{"metrics-listen", c.MetricsListen}} {
		if l.addr == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(l.addr); err != nil {
			return bad(l.field, "%q is not host:port", l.addr)
		}
	}
	return nil
}
