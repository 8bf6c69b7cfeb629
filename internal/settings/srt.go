package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/carrel-dev/carrel/internal/policy"
)

// srtOnly are entries of sandbox-runtime's settings that our settings do not have.
type srtOnly struct {
	literals []string          // patterns that are literal names
	reasons  map[string]string // of denied domains
	depth    int               // of the search, 0 for ours
}

// ParseSRT reads the settings of sandbox-runtime (srt), with their meaning:
//
//   - Reading is open except for denyRead; allowRead opens again inside it.
//   - Writing is closed except for allowWrite; denyWrite wins over it.
//   - Only allowed domains can be reached; an empty list allows none.
//
// Paths are relative to the working directory. Carrel's built-in protections hold in addition. As
// in srt, these are errors: missing required keys, domains with a protocol or too wide a wildcard,
// empty paths and values of another type. notes lists entries without a meaning here.
func ParseSRT(name string, data []byte) (s Settings, notes []string, err error) {
	if err := checkText(name, data); err != nil {
		return Settings{}, nil, err
	}
	if !json.Valid(bytes.TrimPrefix(data, []byte("\ufeff"))) {
		return Settings{}, nil, invalid(name, "sandbox-runtime's settings are JSON, without comments", "the file is no JSON")
	}
	root, err := policy.ReadTree(name, data)
	if err != nil {
		return Settings{}, nil, within(name, err)
	}
	p := &srtReader{reader: reader{name: name, left: maxValues, has: map[string]bool{}, strict: true}, s: &s}
	s.srt = &srtOnly{reasons: map[string]string{}}
	p.object(root, "", map[string]field{
		"network": p.network, "filesystem": p.filesystem, "credentials": p.credentials, "mandatoryDenySearchDepth": p.depth,
		"ignoreViolations": p.ignored(yaml.MappingNode), "enableWeakerNestedSandbox": p.ignored(yaml.ScalarNode), "allowNestedUserNamespaces": p.ignored(yaml.ScalarNode),
		"enableWeakerNetworkIsolation": p.ignored(yaml.ScalarNode), "allowAppleEvents": p.ignored(yaml.ScalarNode), "allowPty": p.ignored(yaml.ScalarNode),
		"ripgrep": p.ignored(yaml.MappingNode), "seccomp": p.ignored(yaml.MappingNode), "windows": p.ignored(yaml.MappingNode), "git": p.ignored(yaml.MappingNode),
		"bwrapPath": p.ignored(yaml.ScalarNode), "socatPath": p.ignored(yaml.ScalarNode), "javaAgentJarPath": p.ignored(yaml.ScalarNode),
	}, "network", "filesystem")
	if p.err != nil {
		return Settings{}, nil, p.err
	}
	return s, p.notes, nil
}

// looksSRT reports whether a file has sandbox-runtime's form and not ours.
func looksSRT(data []byte) bool {
	var top struct {
		Filesystem, Credentials json.RawMessage
		Network                 map[string]json.RawMessage
	}
	if json.Unmarshal(data, &top) != nil {
		return false
	}
	_, allowed := top.Network["allowedDomains"]
	_, denied := top.Network["deniedDomains"]
	return top.Filesystem != nil || top.Credentials != nil || allowed || denied
}

// srtReader fills Settings.
type srtReader struct {
	reader
	s     *Settings
	notes []string
}

func (p *srtReader) note(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

// object reads a mapping. It notes unknown keys, because srt ignores them.
func (p *srtReader) object(n *yaml.Node, at string, keys fields, must ...string) {
	given := map[string]bool{}
	p.pairs(n, at, func(key string, _, v *yaml.Node) {
		given[key] = true
		if f, ok := keys[key]; ok {
			f(v, join(at, key))
			return
		}
		hint := ""
		if k := near(key, sortedKeys(keys)); k != "" {
			hint = ": did you mean " + k + "?"
		}
		p.note("!%s is no key of sandbox-runtime's settings and was left out%s", join(at, show(key)), hint)
	})
	for _, k := range must {
		if !given[k] {
			p.wrong(n, join(at, k), "", "the field is missing")
		}
	}
}

// ignored accepts a value that has no meaning for Carrel.
func (p *srtReader) ignored(kind yaml.Kind) field {
	return func(n *yaml.Node, at string) {
		if n = p.take(n, at); n == nil {
			return
		}
		if n.Kind != kind {
			p.wrong(n, at, "", "%s given, another kind of value needed", kindOf(n))
			return
		}
		if n.Kind == yaml.ScalarNode && n.Value == "false" {
			return
		}
		p.note("%s has no meaning here", at)
	}
}

func (p *srtReader) depth(n *yaml.Node, at string) {
	if n = p.take(n, at); n == nil {
		return
	}
	d, err := strconv.Atoi(n.Value)
	if n.ShortTag() != "!!int" || err != nil || d < 1 || d > 10 {
		p.wrong(n, at, "", "%s is no whole number between 1 and 10", kindOf(n))
		return
	}
	p.s.srt.depth = d
}

func (p *srtReader) network(n *yaml.Node, at string) {
	w := &p.s.Network
	var resolved, sockets []string
	var all, binding *bool
	no := func(kind yaml.Kind) field { return p.ignored(kind) }
	p.object(n, at, fields{
		"allowedDomains": p.domains(&w.Allow, false), "deniedDomains": p.domains(&w.Deny, true), "deniedDomainReasons": p.reasons,
		"deniedResolvedAddresses": p.texts(&resolved), "allowUnixSockets": p.texts(&sockets), "allowAllUnixSockets": p.truth(&all), "allowLocalBinding": p.truth(&binding),
		"strictAllowlist": no(yaml.ScalarNode), "allowMachLookup": no(yaml.SequenceNode), "httpProxyPort": no(yaml.ScalarNode), "socksProxyPort": no(yaml.ScalarNode), "mitmProxy": no(yaml.MappingNode),
		"allowPlaintextHeaderSet": no(yaml.ScalarNode), "stripResponseHeaders": no(yaml.SequenceNode), "refuseOpaqueTunnels": no(yaml.ScalarNode), "requireHostMatch": no(yaml.ScalarNode),
		"ambiguousRequestTarget": no(yaml.ScalarNode), "tlsTerminate": no(yaml.MappingNode), "parentProxy": no(yaml.MappingNode),
	}, "allowedDomains", "deniedDomains")
	for i, a := range resolved {
		if _, err := netip.ParsePrefix(a); err != nil {
			if _, err := netip.ParseAddr(a); err != nil {
				p.wrong(nil, fmt.Sprintf("%s.deniedResolvedAddresses[%d]", at, i), "", "%s is neither an address nor a range", show(a))
			}
		}
		w.Deny = append(w.Deny, a)
	}
	w.Sockets = sockets
	if all != nil && *all {
		w.Sockets = []string{"*"}
	}
	w.Bind = binding
}

func (p *srtReader) reasons(n *yaml.Node, at string) {
	p.pairs(n, at, func(key string, _, v *yaml.Node) {
		var text string
		p.text(&text)(v, join(at, show(key)))
		p.s.srt.reasons[key] = text
	})
}

// domains reads a list of domains, with srt's rules for them.
func (p *srtReader) domains(into *[]string, deny bool) field {
	return func(n *yaml.Node, at string) {
		var list []string
		p.texts(&list)(n, at)
		out := []string{}
		for i, d := range list {
			here := fmt.Sprintf("%s[%d]", at, i)
			if why := badDomain(d, deny); why != "" {
				p.wrong(n, here, `write "example.com", "*.example.com" or "[2001:db8::1]:443"`, "%s is no domain: %s", show(d), why)
				return
			}
			// In srt every protocol goes through a proxy by name. Carrel allows protocols that give
			// no name by their port.
			forms := []string{d}
			if host, port := splitPorts(d); !deny && port != "" && port != "80" && port != "443" && host != "*" {
				forms = append(forms, "tcp://"+d)
			}
			var wrong error
			before := len(out)
			for _, f := range forms {
				if _, err := Destination(at, f, deny); err != nil {
					wrong = err
					continue
				}
				out = append(out, f)
			}
			if len(out) == before {
				p.note("!%s: %s was left out: %s", here, show(d), cause(wrong))
			}
		}
		*into = out
	}
}

// badDomain returns srt's objection to a domain, "" for none.
func badDomain(d string, deny bool) string {
	if strings.Count(d, ":") > 1 && !strings.HasPrefix(d, "[") {
		if strings.Contains(d, "://") {
			return "it has a protocol"
		}
		return "IPv6 addresses are written in brackets"
	}
	host, port := splitPorts(d)
	if inner, ok := strings.CutPrefix(d, "["); ok {
		a, _, closed := strings.Cut(inner, "]")
		addr, err := netip.ParseAddr(a)
		if !closed || err != nil || !addr.Is6() {
			return "what is in the brackets is no IPv6 address"
		}
	} else if strings.Contains(d, "://") || strings.Contains(host, "/") {
		return "it has a protocol or a path"
	}
	if port != "" || strings.HasSuffix(d, ":") {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > math.MaxUint16 || port[0] == '0' {
			return "the port is not between 1 and 65535"
		}
	}
	switch name, wild := strings.CutPrefix(host, "*."); {
	case strings.HasPrefix(d, "["), host == "localhost", deny && host == "*":
		return ""
	case strings.Contains(name, "*"):
		return "a * stands in front, as in *.example.com"
	case !strings.Contains(name, "."):
		if wild {
			return "the wildcard is too wide"
		}
		return "it has no dot"
	case strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") || strings.Contains(name, ".."):
		return "an empty part between its dots"
	}
	return ""
}

func (p *srtReader) filesystem(n *yaml.Node, at string) {
	s := p.s
	var disabled, gitConfig *bool
	p.object(n, at, fields{
		"disabled": p.truth(&disabled), "allowGitConfig": p.truth(&gitConfig),
		"denyRead": p.list(&s.Read.Deny, true), "allowRead": p.list(&s.Read.Allow, false), "allowWrite": p.list(&s.Write.Allow, false), "denyWrite": p.list(&s.Write.Deny, true),
	}, "denyRead", "allowWrite", "denyWrite")
	if gitConfig != nil && *gitConfig {
		s.Write.Unprotect = []string{".git/config"}
	}
	if disabled != nil && *disabled {
		s.Read, s.Write = PathRules{Default: "allow"}, PathRules{Default: "allow", Unprotect: s.Write.Unprotect}
		p.note("!filesystem.disabled: every file may be read and written, but for what is protected here")
	}
}

// list reads paths: texts, or {path, literal: true}.
func (p *srtReader) list(into *[]string, deny bool) field {
	return func(n *yaml.Node, at string) {
		if n = p.take(n, at); n == nil {
			return
		}
		if n.Kind != yaml.SequenceNode {
			p.wrong(n, at, "", "%s given, a list needed", kindOf(n))
			return
		}
		out := []string{}
		for i, e := range n.Content {
			here := fmt.Sprintf("%s[%d]", at, i)
			path, literal := "", false
			if e.Kind == yaml.MappingNode {
				path, literal = p.marked(e, here), true
			} else {
				p.text(&path)(e, here)
			}
			if p.err != nil {
				return
			}
			if !literal && deny && strings.HasSuffix(path, "/") && strings.ContainsAny(path, "*?") {
				p.wrong(e, here, "write /data/*, without the slash", "a pattern that ends with a slash matches nothing")
				return
			}
			if !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "~") {
				path = "./" + path // a name only in the working directory
			}
			if literal {
				p.s.srt.literals = append(p.s.srt.literals, path)
			}
			out = append(out, path)
		}
		*into = out
	}
}

// marked reads {path, literal: true}.
func (p *srtReader) marked(n *yaml.Node, at string) string {
	var path string
	var literal *bool
	p.mapping(n, at, fields{"path": p.text(&path), "literal": p.truth(&literal)})
	if p.err == nil && (path == "" || literal == nil || !*literal) {
		p.wrong(n, at, "", `a path, or { "path": "<path>", "literal": true } needed`)
	}
	return path
}
