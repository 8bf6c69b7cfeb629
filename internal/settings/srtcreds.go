package settings

import (
	"errors"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/carrel-dev/carrel"
)

// cause returns the reason in an error, without the operation.
func cause(err error) string {
	var e *carrel.Error
	if errors.As(err, &e) && e.Err != nil {
		return e.Err.Error()
	}
	return err.Error()
}

// credentials reads the list of credentials to hide from the command. srt replaces a masked
// credential on its way out, anywhere in a request. Carrel's wire puts secrets only into named
// fields of requests, and these settings name no fields. So Carrel denies a masked credential,
// which is the safe half of the meaning.
func (p *srtReader) credentials(n *yaml.Node, at string) {
	p.mapping(n, at, fields{
		"files": p.each(func(n *yaml.Node, at string) { p.credential(n, at, "path") }), "envVars": p.each(func(n *yaml.Node, at string) { p.credential(n, at, "name") }),
		"allowPlaintextInject": p.ignored(yaml.ScalarNode), "awsPairs": p.ignored(yaml.SequenceNode), "sigv4": p.ignored(yaml.MappingNode),
	})
}

// each reads a list with fn.
func (p *srtReader) each(fn field) field {
	return func(n *yaml.Node, at string) {
		if n = p.take(n, at); n == nil {
			return
		}
		if n.Kind != yaml.SequenceNode {
			p.wrong(n, at, "", "%s given, a list needed", kindOf(n))
			return
		}
		for _, e := range n.Content {
			if p.err == nil {
				fn(e, at)
			}
		}
	}
}

// credential reads one file or variable; key is the key of its name.
func (p *srtReader) credential(n *yaml.Node, at, key string) {
	var name, mode string
	var hosts []string
	var text string
	p.object(n, at, fields{
		key: p.text(&name), "mode": p.word(&mode, "deny", "mask"), "injectHosts": p.texts(&hosts),
		"extract": p.text(&text), "onExtractNoMatch": p.word(&text, "warn", "deny", "error"), "decode": p.word(&text, "jwt"), "maskClaims": p.texts(new([]string)), "maskDuplicates": p.truth(new(*bool)),
	}, key, "mode")
	if p.err != nil {
		return
	}
	if hosts != nil && len(hosts) == 0 && mode == "mask" {
		p.wrong(n, at+".injectHosts", "", "it is empty: the credential would be masked and never put in")
		return
	}
	if mode == "mask" {
		p.note("!%s: %s is denied and not masked: a secret is put into requests by network.policy's inject", at, show(name))
	}
	if key == "name" {
		if !plainVariable(name) {
			p.wrong(n, at, "", "%s is no name of a variable", show(name))
		}
		p.s.Env.Strip = append(p.s.Env.Strip, name)
		return
	}
	if strings.HasSuffix(name, "/") && (mode == "mask" || strings.ContainsAny(name, "*?")) {
		p.wrong(n, at, "", "%s ends with a slash", show(name))
		return
	}
	if !strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "~") {
		name = "./" + name
	}
	if !slices.Contains(p.s.Read.Deny, name) {
		p.s.Read.Deny = append(p.s.Read.Deny, name)
	}
}

// plainVariable reports whether shells accept a name as a variable.
func plainVariable(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
