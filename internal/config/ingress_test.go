package config

import (
	"errors"
	"testing"

	"github.com/carrel-dev/carrel"
)

func TestIngress(t *testing.T) {
	for name, c := range map[string]struct {
		field string // "" is good
		set   func(*Config)
	}{
		"nothing":     {"", func(*Config) {}},
		"self-signed": {"", func(c *Config) { c.Ingress.SelfSigned = true }},
		"acme":        {"", func(c *Config) { c.Ingress.ACMEDomains = []string{"a.example.com", "api.a.example.com"} }},
		"acme, all of it": {"", func(c *Config) {
			c.Domain = "a.example.com"
			c.Ingress = Ingress{ACMEDomains: []string{"a.example.com"}, ACMEEmail: "x@example.com", ACMECA: "https://ca.example.com/dir", ACMEHTTPListen: ":80", ACMEOnDemand: true}
		}},
		"ssh":                  {"", func(c *Config) { c.Ingress.SSHListen = "127.0.0.1:2222" }},
		"two sources":          {"tls-cert", func(c *Config) { c.TLSCert, c.TLSKey, c.Ingress.SelfSigned = "c", "k", true }},
		"two others":           {"tls-self-signed", func(c *Config) { c.Ingress.SelfSigned, c.Ingress.ACMEDomains = true, []string{"a.example.com"} }},
		"a wildcard":           {"acme-domain", func(c *Config) { c.Ingress.ACMEDomains = []string{"*.a.example.com"} }},
		"no name":              {"acme-domain", func(c *Config) { c.Ingress.ACMEDomains = []string{""} }},
		"a name with port":     {"acme-domain", func(c *Config) { c.Ingress.ACMEDomains = []string{"a.example.com:443"} }},
		"an email alone":       {"acme-domain", func(c *Config) { c.Ingress.ACMEEmail = "x@example.com" }},
		"on demand of nothing": {"domain", func(c *Config) { c.Ingress.ACMEDomains, c.Ingress.ACMEOnDemand = []string{"a.example.com"}, true }},
		"a plain authority": {"acme-ca", func(c *Config) {
			c.Ingress.ACMEDomains, c.Ingress.ACMECA = []string{"a.example.com"}, "http://ca.example.com"
		}},
		"a third":       {"metrics-listen", func(c *Config) { c.MetricsListen = "9464" }},
		"a bad address": {"ssh-listen", func(c *Config) { c.Ingress.SSHListen = "2222" }},
		"another":       {"acme-http-listen", func(c *Config) { c.Ingress.ACMEDomains, c.Ingress.ACMEHTTPListen = []string{"a.example.com"}, "80" }},
	} {
		cfg := Default()
		c.set(&cfg)
		err := cfg.Validate()
		var e *carrel.Error
		switch {
		case c.field == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.field != "" && (!errors.As(err, &e) || e.Field != c.field || e.Kind != carrel.Invalid):
			t.Errorf("%s: %v, want field %s", name, err, c.field)
		}
	}
	cfg := Default()
	env := map[string]string{"CARREL_ACME_DOMAIN": "a.example.com,b.example.com", "CARREL_SSH_LISTEN": ":22", "CARREL_ACME_ON_DEMAND": "true", "CARREL_TLS_SELF_SIGNED": "false"}
	if err := applyEnv(&cfg, func(name string) string { return env[name] }); err != nil {
		t.Fatal(err)
	}
	if i := cfg.Ingress; len(i.ACMEDomains) != 2 || i.SSHListen != ":22" || !i.ACMEOnDemand || i.SelfSigned || !cfg.TLS() {
		t.Errorf("%+v", i)
	}
}
