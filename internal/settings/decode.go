package settings

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/carrel-dev/carrel/internal/policy"
)

// reader fills Settings from the tree of one file. It stops at the first error.
type reader struct {
	name string // of the file
	err  error
	left int // allowed number of further values; aliases count each time
	has  map[string]bool
	// strict refuses a number where a text is needed.
	strict bool
}

// maxValues bounds the number of values in a file, with its aliases expanded.
const maxValues = 100_000

// parse reads a file of our own form. has holds the keys that are in the file.
func parse(name string, data []byte) (Settings, map[string]bool, error) {
	if err := checkText(name, data); err != nil {
		return Settings{}, nil, err
	}
	root, err := policy.ReadTree(name, data)
	if err != nil {
		return Settings{}, nil, within(name, err)
	}
	r := &reader{name: name, left: maxValues, has: map[string]bool{}}
	var s Settings
	r.mapping(root, "", fields{
		"profiles": r.texts(&s.Profiles),
		"tier":     r.word(&s.Tier, "ns", "gvisor", "sim"),
		"read":     r.paths(&s.Read, false),
		"write":    r.paths(&s.Write, true),
		"network":  r.network(&s.Network),
		"env":      r.env(&s.Env),
		"limits":   r.limits(&s.Limits),
		"overlay":  r.truth(&s.Overlay),
		"terminal": r.word(&s.Terminal, "own", "none"),
		"walls":    r.word(&s.Walls, "full", "light"),
	})
	if r.err == nil {
		r.err = check(name, s)
	}
	if r.err != nil {
		return Settings{}, nil, r.err
	}
	return s, r.has, nil
}

// field reads one value; at is its place in the file: "read.allow[2]".
type field func(n *yaml.Node, at string)

// fields are the keys of a mapping.
type fields map[string]field

func (r *reader) wrong(n *yaml.Node, at, hint, format string, args ...any) {
	if r.err == nil {
		where := r.name
		if at != "" {
			where += ": " + at
		}
		if n != nil && n.Line > 0 {
			format = "line %d: " + format
			args = append([]any{n.Line}, args...)
		}
		r.err = invalid(where, hint, format, args...)
	}
}

// take counts a value and follows an alias; it returns nil if the reader has stopped.
func (r *reader) take(n *yaml.Node, at string) *yaml.Node {
	if r.left--; r.left < 0 {
		r.wrong(n, at, "", "the file comes to more than %d values", maxValues)
	}
	if r.err != nil {
		return nil
	}
	r.has[at] = true
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func (r *reader) mapping(n *yaml.Node, at string, keys fields) {
	r.pairs(n, at, func(key string, k, v *yaml.Node) {
		f, ok := keys[key]
		if !ok {
			r.unknown(k, at, key, keys)
			return
		}
		f(v, join(at, key))
	})
}

func (r *reader) unknown(k *yaml.Node, at, key string, keys fields) {
	known := sortedKeys(keys)
	hint := "the keys here are " + strings.Join(known, ", ")
	if n := near(key, known); n != "" {
		hint = "did you mean " + n + "?"
	} else if place := elsewhere[strings.ToLower(key)]; place != "" {
		hint = "did you mean " + place + "?"
	}
	r.wrong(k, join(at, show(key)), hint, "there is no key %s here", show(key))
}

// elsewhere are keys that users often put in the wrong place, or know by another tool's name.
var elsewhere = map[string]string{
	"filesystem": "read and write, or an srt file given with --settings", "alloweddomains": "network.allow", "denieddomains": "network.deny",
	"denyread": "read.deny", "allowread": "read.allow", "allowwrite": "write.allow", "denywrite": "write.deny", "allow": "read.allow, write.allow or network.allow",
	"deny": "read.deny, write.deny or network.deny", "memory": "limits.memory", "cpus": "limits.cpus", "pids": "limits.pids", "timeout": "limits.timeout",
	"policy": "network.policy", "sockets": "network.sockets", "domains": "network.allow", "hosts": "network.allow", "environment": "env", "profile": "profiles",
}

func join(at, key string) string {
	if at == "" {
		return key
	}
	return at + "." + key
}

// pairs calls fn for the entries of a mapping. A key that occurs twice is an error.
func (r *reader) pairs(n *yaml.Node, at string, fn func(key string, k, v *yaml.Node)) {
	if n = r.take(n, at); n == nil {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.wrong(n, at, "", "%s given, a mapping needed", kindOf(n))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content) && r.err == nil; i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		switch {
		case k.Kind != yaml.ScalarNode || k.ShortTag() != "!!str":
			r.wrong(k, at, "", "a key that is no text")
		case seen[k.Value]:
			r.wrong(k, join(at, show(k.Value)), "", "the key comes twice")
		default:
			seen[k.Value] = true
			fn(k.Value, k, v)
		}
	}
}

// texts reads a list of texts that are not empty. For an empty list it sets an empty slice, not
// nil.
func (r *reader) texts(into *[]string) field {
	return func(n *yaml.Node, at string) {
		if n = r.take(n, at); n == nil {
			return
		}
		if n.Kind != yaml.SequenceNode {
			hint := ""
			if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
				hint = "write [" + show(n.Value) + "]"
			}
			r.wrong(n, at, hint, "%s given, a list needed", kindOf(n))
			return
		}
		list := []string{}
		for i, e := range n.Content {
			list = append(list, "")
			r.text(&list[i])(e, fmt.Sprintf("%s[%d]", at, i))
		}
		*into = list
	}
}

func (r *reader) text(into *string) field {
	return func(n *yaml.Node, at string) {
		if n = r.take(n, at); n == nil {
			return
		}
		switch {
		case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && n.Value != "":
			*into = n.Value
		case n.Kind == yaml.ScalarNode && !r.strict && (n.ShortTag() == "!!int" || n.ShortTag() == "!!float"):
			*into = n.Value // a port, or a variable's value
		case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str":
			r.wrong(n, at, "", "an empty text")
		default:
			r.wrong(n, at, "", "%s given, text needed", kindOf(n))
		}
	}
}

// word reads one of some words.
func (r *reader) word(into *string, words ...string) field {
	return func(n *yaml.Node, at string) {
		r.text(into)(n, at)
		r.oneOf(n, at, *into, words)
	}
}

func (r *reader) oneOf(n *yaml.Node, at, s string, words []string) {
	if r.err != nil {
		return
	}
	for _, w := range words {
		if s == w {
			return
		}
	}
	hint := "one of: " + strings.Join(words, ", ")
	if w := near(s, words); w != "" {
		hint = "did you mean " + w + "?"
	}
	r.wrong(n, at, hint, "%s is none of the words that may stand here", show(s))
}

func (r *reader) truth(into **bool) field {
	return func(n *yaml.Node, at string) {
		if n = r.take(n, at); n == nil {
			return
		}
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || n.Value != "true" && n.Value != "false" {
			r.wrong(n, at, "", "%s given, true or false needed", kindOf(n))
			return
		}
		v := n.Value == "true"
		*into = &v
	}
}

func (r *reader) plainTruth(into *bool) field {
	return func(n *yaml.Node, at string) {
		var p *bool
		r.truth(&p)(n, at)
		if p != nil {
			*into = *p
		}
	}
}

func (r *reader) paths(into *PathRules, write bool) field {
	return func(n *yaml.Node, at string) {
		keys := fields{"allow": r.texts(&into.Allow), "deny": r.texts(&into.Deny), "default": r.word(&into.Default, "allow", "deny")}
		if write {
			keys["protect"], keys["unprotect"] = r.texts(&into.Protect), r.texts(&into.Unprotect)
		}
		r.mapping(n, at, keys)
	}
}

func (r *reader) network(into *NetworkRules) field {
	return func(n *yaml.Node, at string) {
		r.mapping(n, at, fields{
			"allow": r.texts(&into.Allow), "deny": r.texts(&into.Deny), "policy": r.policy(into), "sockets": r.texts(&into.Sockets),
			"bind": r.truth(&into.Bind), "publish": r.texts(&into.Publish), "host": r.plainTruth(&into.Host),
		})
	}
}

// policy reads a policy, or the name of one.
func (r *reader) policy(into *NetworkRules) field {
	return func(n *yaml.Node, at string) {
		if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
			r.text(&into.PolicyRef)(n, at)
			return
		}
		if n = r.take(n, at); n == nil {
			return
		}
		p, err := policy.ParseNode(r.name, n)
		if err != nil && r.err == nil {
			r.err = within(r.name+": "+at, err)
		}
		into.Policy = &p
	}
}

func (r *reader) env(into *EnvRules) field {
	return func(n *yaml.Node, at string) {
		r.mapping(n, at, fields{
			"pass": r.texts(&into.Pass), "strip": r.texts(&into.Strip), "clear": r.plainTruth(&into.Clear),
			"set": func(n *yaml.Node, at string) {
				into.Set = map[string]string{}
				r.pairs(n, at, func(key string, _, v *yaml.Node) {
					if v = r.take(v, join(at, key)); v == nil {
						return
					}
					if v.Kind != yaml.ScalarNode || v.ShortTag() == "!!null" {
						r.wrong(v, join(at, show(key)), "", "%s given, text needed", kindOf(v))
						return
					}
					into.Set[key] = v.Value
				})
			},
		})
	}
}

func (r *reader) limits(into *Limits) field {
	return func(n *yaml.Node, at string) {
		r.mapping(n, at, fields{
			"cpus": r.number(func(f float64) { into.CPUs = &f }), "pids": r.whole(&into.Pids), "openFiles": r.whole(&into.OpenFiles),
			"memory": r.size(&into.MemoryMB), "file": r.size(&into.FileMB), "tmp": r.size(&into.TmpMB), "timeout": r.duration(&into.Timeout),
		})
	}
}

// limit reads a scalar with fn; "none" means no limit.
func (r *reader) limit(fn func(text string) error) field {
	return func(n *yaml.Node, at string) {
		var text string
		r.text(&text)(n, at)
		if r.err != nil {
			return
		}
		if text == "none" {
			text = ""
		}
		if err := fn(text); err != nil {
			r.wrong(n, at, "", "%w", err)
		}
	}
}

func (r *reader) number(set func(float64)) field {
	return r.limit(func(text string) error {
		f, err := strconv.ParseFloat(text, 64)
		if text == "" {
			f, err = 0, nil
		} else if err == nil && (math.IsNaN(f) || f < 0.01 || f > 4096) {
			err = fmt.Errorf("%s is not between 0.01 and 4096", text)
		}
		if err != nil {
			return fmt.Errorf("%s is no such number", show(text))
		}
		set(f)
		return nil
	})
}

func (r *reader) whole(into **int) field {
	return r.limit(func(text string) error {
		v, err := strconv.Atoi(text)
		if text == "" {
			v, err = 0, nil
		} else if err == nil && (v < 1 || v > 1<<30) {
			err = strconv.ErrRange
		}
		if err != nil {
			return fmt.Errorf("%s is no whole number between 1 and %d", show(text), 1<<30)
		}
		*into = &v
		return nil
	})
}

func (r *reader) size(into **int) field {
	return r.limit(func(text string) error {
		v, err := 0, error(nil)
		if text != "" {
			v, err = ParseSize(text)
		}
		if err == nil {
			*into = &v
		}
		return err
	})
}

func (r *reader) duration(into **time.Duration) field {
	return r.limit(func(text string) error {
		v, err := time.Duration(0), error(nil)
		if text != "" {
			v, err = ParseDuration(text)
		}
		if err == nil {
			*into = &v
		}
		return err
	})
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		if n.ShortTag() == "!!null" {
			return "nothing"
		}
		return show(n.Value)
	}
	return "something else"
}
