package codemode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// Rules say which tools may be called with which arguments. Make them with [ParseRules].
type Rules struct {
	// MaxCalls limits all calls together; nil is no limit.
	MaxCalls *int64 `json:"max_calls,omitempty"`
	// Allow has the rules. The first rule that fits allows a call.
	Allow []Rule `json:"allow"`
}

// Rule allows calls.
type Rule struct {
	Methods  []string               `json:"methods"`
	MaxCalls *int64                 `json:"max_calls,omitempty"`
	Params   map[string]*Constraint `json:"params,omitempty"`
	Others   bool                   `json:"others,omitempty"`
}

// Constraint is a condition for one parameter.
type Constraint struct {
	Type        string        `json:"type,omitempty"`
	Eq          Value         `json:"eq,omitzero"`
	Ne          Value         `json:"ne,omitzero"`
	Lt          Value         `json:"lt,omitzero"`
	Le          Value         `json:"le,omitzero"`
	Gt          Value         `json:"gt,omitzero"`
	Ge          Value         `json:"ge,omitzero"`
	In          []any         `json:"in,omitempty"`
	NotIn       []any         `json:"not_in,omitempty"`
	StartsWith  *string       `json:"starts_with,omitempty"`
	EndsWith    *string       `json:"ends_with,omitempty"`
	Contains    *string       `json:"contains,omitempty"`
	NotContains *string       `json:"not_contains,omitempty"`
	Pattern     *string       `json:"pattern,omitempty"`
	MinLength   *int64        `json:"min_length,omitempty"`
	MaxLength   *int64        `json:"max_length,omitempty"`
	Exists      *bool         `json:"exists,omitempty"`
	Optional    bool          `json:"optional,omitempty"`
	Each        *Constraint   `json:"each,omitempty"`
	And         []*Constraint `json:"and,omitempty"`
	Or          []*Constraint `json:"or,omitempty"`
	Not         *Constraint   `json:"not,omitempty"`
	Total       *float64      `json:"total,omitempty"`

	pattern *regexp.Regexp
}

// Value is a value that may be null or missing.
type Value struct {
	Set bool
	Any any
}

// UnmarshalJSON implements json.Unmarshaler.
func (v *Value) UnmarshalJSON(b []byte) error {
	v.Set = true
	return json.Unmarshal(b, &v.Any)
}

// MarshalJSON implements json.Marshaler.
func (v Value) MarshalJSON() ([]byte, error) { return json.Marshal(v.Any) }

// nulls finds a null that is not a value to compare with. Parsing would take such a null as a
// missing field, so the rule would allow more than it seems to.
func nulls(v any, path string) error {
	switch v := v.(type) {
	case nil:
		return fmt.Errorf("rules: %s is null", path)
	case []any:
		for i, e := range v {
			if err := nulls(e, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case map[string]any:
		for k, e := range v {
			if k == "eq" || k == "ne" || k == "in" || k == "not_in" {
				if _, list := e.([]any); list || e != nil || k == "eq" || k == "ne" {
					continue
				}
			}
			if err := nulls(e, path+"."+k); err != nil {
				return err
			}
		}
	}
	return nil
}

// The bounds of rules.
const (
	maxRules      = 1 << 20 // bytes
	maxConstraint = 16      // nesting
)

// ParseRules reads rules. It refuses unknown fields, text after the object, and invalid conditions:
// an unknown type, a pattern that does not compile, a comparison with a value that can't be
// compared.
func ParseRules(data []byte) (*Rules, error) {
	if len(data) > maxRules {
		return nil, fmt.Errorf("rules: more than %d bytes", maxRules)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var r *Rules
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("rules: there is something behind the object")
	}
	var all any
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	if err := nulls(all, "rules"); err != nil {
		return nil, err
	}
	if r.MaxCalls != nil && *r.MaxCalls < 0 {
		return nil, errors.New("rules: max_calls is negative")
	}
	for i := range r.Allow {
		if err := r.Allow[i].check(); err != nil {
			return nil, fmt.Errorf("rules: allow[%d]: %w", i, err)
		}
	}
	return r, nil
}

func (r *Rule) check() error {
	if len(r.Methods) == 0 {
		return errors.New("it has no methods")
	}
	for _, m := range r.Methods {
		if m == "" || strings.Contains(m, "***") {
			return fmt.Errorf("%q is no pattern for methods", m)
		}
	}
	if r.MaxCalls != nil && *r.MaxCalls < 0 {
		return errors.New("max_calls is negative")
	}
	for name, c := range r.Params {
		if name == "" || strings.Contains("."+name+".", "..") {
			return fmt.Errorf("%q is no parameter", name)
		}
		if err := c.check(0); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

var jsonTypes = []string{"string", "number", "integer", "boolean", "object", "array", "null"}

// check checks a constraint and compiles its pattern.
func (c *Constraint) check(depth int) (err error) {
	switch {
	case c == nil:
		return errors.New("a constraint is null")
	case depth > maxConstraint:
		return errors.New("constraints are nested too deep")
	case c.Type != "" && !contains(jsonTypes, c.Type):
		return fmt.Errorf("%q is no type", c.Type)
	case c.Exists != nil && c.Optional:
		return errors.New("exists and optional contradict each other")
	case c.MinLength != nil && *c.MinLength < 0, c.MaxLength != nil && *c.MaxLength < 0:
		return errors.New("a length is negative")
	case depth > 0 && c.Total != nil:
		return errors.New("total stands at the top of a parameter only")
	}
	for name, v := range map[string]Value{"lt": c.Lt, "le": c.Le, "gt": c.Gt, "ge": c.Ge} {
		if !v.Set {
			continue
		}
		switch v.Any.(type) {
		case float64, string:
		default:
			return fmt.Errorf("%s is neither a number nor a string", name)
		}
	}
	if c.Pattern != nil {
		if len(*c.Pattern) > 4096 {
			return errors.New("the pattern is too long")
		}
		if c.pattern, err = regexp.Compile(`\A(?:` + *c.Pattern + `)\z`); err != nil {
			return fmt.Errorf("pattern: %w", err)
		}
	}
	for _, list := range [][]*Constraint{c.And, c.Or} {
		for _, inner := range list {
			if err := inner.check(depth + 1); err != nil {
				return err
			}
		}
	}
	if c.Or != nil && len(c.Or) == 0 {
		return errors.New("or is empty: nothing can hold")
	}
	for _, inner := range []*Constraint{c.Each, c.Not} {
		if inner != nil {
			if err := inner.check(depth + 1); err != nil {
				return err
			}
		}
	}
	return nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// match reports whether a method's name matches a pattern: * matches anything without a slash, **
// anything.
func match(pattern, name string) bool {
	// back is the position to try next when the text after the last star does not match.
	p, n := 0, 0
	type star struct{ p, n int }
	one, any := star{-1, 0}, star{-1, 0}
	for n < len(name) || p < len(pattern) {
		switch {
		case p+1 < len(pattern) && pattern[p] == '*' && pattern[p+1] == '*':
			any, one = star{p + 2, n}, star{-1, 0}
			p += 2
			continue
		case p < len(pattern) && pattern[p] == '*':
			one = star{p + 1, n}
			p++
			continue
		case p < len(pattern) && n < len(name) && pattern[p] == name[n]:
			p++
			n++
			continue
		case one.p >= 0 && one.n < len(name) && name[one.n] != '/':
			one.n++
			p, n = one.p, one.n
			continue
		case any.p >= 0 && any.n < len(name):
			any.n++
			p, n, one = any.p, any.n, star{-1, 0}
			continue
		}
		return false
	}
	return true
}
