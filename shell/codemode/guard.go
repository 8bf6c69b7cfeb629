package codemode

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Decision is the decision about one call.
type Decision struct {
	Time    time.Time       `json:"time"`
	Method  string          `json:"method"`
	Args    json.RawMessage `json:"args"`
	Allowed bool            `json:"allowed"`
	Rule    int             `json:"rule"`             // of Rules.Allow, -1 for none
	Reason  string          `json:"reason,omitempty"` // why not
}

// Guard judges calls by rules, and counts them. It is safe for concurrent use.
type Guard struct {
	rules *Rules
	audit func(Decision)
	now   func() time.Time

	mu     sync.Mutex
	calls  int64
	counts []int64
	totals []map[string]float64
}

// NewGuard returns a guard. It passes every decision, allowed or not, to audit before the call is
// made. audit may be nil.
func NewGuard(r *Rules, audit func(Decision)) *Guard {
	if audit == nil {
		audit = func(Decision) {}
	}
	return &Guard{rules: r, audit: audit, now: time.Now, counts: make([]int64, len(r.Allow)), totals: make([]map[string]float64, len(r.Allow))}
}

// Denied is the refusal of a call.
type Denied struct {
	Method, Reason string
}

// Error implements error.
func (d *Denied) Error() string { return "denied: " + d.Method + ": " + d.Reason }

// Check judges a call whose arguments are a JSON object. It counts an allowed call. The error is a
// [Denied].
func (g *Guard) Check(method string, args json.RawMessage) error {
	rule, reason := g.decide(method, args)
	g.audit(Decision{Time: g.now(), Method: method, Args: args, Allowed: reason == "", Rule: rule, Reason: reason})
	if reason != "" {
		return &Denied{Method: method, Reason: reason}
	}
	return nil
}

// decide finds the rule that allows a call, or the reason why none does.
func (g *Guard) decide(method string, args json.RawMessage) (rule int, reason string) {
	var values map[string]any
	if err := json.Unmarshal(args, &values); err != nil || values == nil {
		return -1, "the arguments are no object"
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.rules.MaxCalls != nil && g.calls >= *g.rules.MaxCalls {
		return -1, fmt.Sprintf("more than %d calls", *g.rules.MaxCalls)
	}
	reason, rule = "no rule allows this tool", -1
	for i := range g.rules.Allow {
		r := &g.rules.Allow[i]
		if !slices.ContainsFunc(r.Methods, func(p string) bool { return match(p, method) }) {
			continue
		}
		why := g.fits(i, r, values)
		if why == "" {
			g.count(i, r, values)
			return i, ""
		}
		if rule < 0 {
			rule, reason = i, why // report the reason of the first matching rule
		}
	}
	return rule, reason
}

// fits returns the reason why a rule does not allow a call, or "" when it does.
func (g *Guard) fits(i int, r *Rule, values map[string]any) string {
	if r.MaxCalls != nil && g.counts[i] >= *r.MaxCalls {
		return fmt.Sprintf("more than %d calls by this rule", *r.MaxCalls)
	}
	for _, name := range sortedNames(r.Params) {
		c := r.Params[name]
		v, there := at(values, name)
		if why := c.holds(v, there); why != "" {
			return name + ": " + why
		}
		if c.Total != nil && there {
			f, ok := v.(float64)
			if !ok || f < 0 || math.IsNaN(f) {
				return name + ": it has a total, and is no number from 0 on"
			}
			if sum := g.totals[i][name] + f; sum > *c.Total {
				return fmt.Sprintf("%s: the total would be %v, more than %v", name, sum, *c.Total)
			}
		}
	}
	if len(r.Params) > 0 && !r.Others {
		if name := unnamed(values, "", r.Params); name != "" {
			return name + ": no rule names this parameter"
		}
	}
	return ""
}

// count counts an allowed call.
func (g *Guard) count(i int, r *Rule, values map[string]any) {
	g.calls++
	g.counts[i]++
	for name, c := range r.Params {
		if v, there := at(values, name); c.Total != nil && there {
			if g.totals[i] == nil {
				g.totals[i] = map[string]float64{}
			}
			g.totals[i][name] += v.(float64) // fits has seen to that
		}
	}
}

func sortedNames(m map[string]*Constraint) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// at finds a value by its path. A key that contains dots is first searched as a whole.
func at(values map[string]any, path string) (any, bool) {
	if v, ok := values[path]; ok {
		return v, true
	}
	first, rest, more := strings.Cut(path, ".")
	v, ok := values[first]
	if !more {
		return v, ok
	}
	inner, isObject := v.(map[string]any)
	if !ok || !isObject {
		return nil, false
	}
	return at(inner, rest)
}

// unnamed finds an argument that no parameter names. A parameter also names everything inside its
// value.
func unnamed(values map[string]any, prefix string, params map[string]*Constraint) string {
	keys := make([]string, 0, len(values))
	for k := range values {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		path := prefix + k
		if _, ok := params[path]; ok {
			continue
		}
		inside := false
		for p := range params {
			inside = inside || strings.HasPrefix(p, path+".")
		}
		inner, isObject := values[k].(map[string]any)
		if !inside || !isObject {
			return path
		}
		if name := unnamed(inner, path+".", params); name != "" {
			return name
		}
	}
	return ""
}

// kindOf returns a value's JSON type.
func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return "string"
	case bool:
		return "boolean"
	case float64:
		if v == math.Trunc(v) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

// holds returns the reason why a constraint does not hold, or "" when it does.
func (c *Constraint) holds(v any, there bool) string {
	switch {
	case c.Exists != nil && !*c.Exists && there:
		return "it may not be given"
	case !there && (c.Optional || c.Exists != nil && !*c.Exists):
		return ""
	case !there:
		return "it is missing"
	}
	kind := kindOf(v)
	if c.Type != "" && c.Type != kind && (c.Type != "number" || kind != "integer") {
		return fmt.Sprintf("it is of type %s, not %s", kind, c.Type)
	}
	if c.Eq.Set && !reflect.DeepEqual(v, c.Eq.Any) {
		return "it is not " + show(c.Eq.Any)
	}
	if c.Ne.Set && reflect.DeepEqual(v, c.Ne.Any) {
		return "it is " + show(c.Ne.Any)
	}
	for _, cmp := range []struct {
		with Value
		ok   func(int) bool
		word string
	}{
		{c.Lt, func(n int) bool { return n < 0 }, "less than"}, {c.Le, func(n int) bool { return n <= 0 }, "at most"},
		{c.Gt, func(n int) bool { return n > 0 }, "more than"}, {c.Ge, func(n int) bool { return n >= 0 }, "at least"},
	} {
		if !cmp.with.Set {
			continue
		}
		if n, comparable := compare(v, cmp.with.Any); !comparable || !cmp.ok(n) {
			return "it is not " + cmp.word + " " + show(cmp.with.Any)
		}
	}
	same := func(x any) bool { return reflect.DeepEqual(v, x) }
	if c.In != nil && !slices.ContainsFunc(c.In, same) {
		return "it is none of " + show(c.In)
	}
	if slices.ContainsFunc(c.NotIn, same) {
		return "it is one of " + show(c.NotIn)
	}
	if why := c.text(v); why != "" {
		return why
	}
	if why := c.length(v); why != "" {
		return why
	}
	return c.inner(v)
}

// compare compares numbers, or strings by their bytes.
func compare(v, with any) (int, bool) {
	switch w := with.(type) {
	case float64:
		f, ok := v.(float64)
		switch {
		case !ok || math.IsNaN(f):
			return 0, false
		case f < w:
			return -1, true
		case f > w:
			return 1, true
		}
		return 0, true
	case string:
		s, ok := v.(string)
		return strings.Compare(s, w), ok
	}
	return 0, false
}

// text checks a constraint's conditions for strings.
func (c *Constraint) text(v any) string {
	for _, t := range []struct {
		want *string
		ok   func(s, want string) bool
		word string
	}{
		{c.StartsWith, strings.HasPrefix, "it does not start with "}, {c.EndsWith, strings.HasSuffix, "it does not end with "},
		{c.Contains, strings.Contains, "it does not contain "},
		{c.NotContains, func(s, want string) bool { return !strings.Contains(s, want) }, "it contains "},
		{c.Pattern, func(s, _ string) bool { return c.pattern.MatchString(s) }, "it does not match "},
	} {
		if t.want == nil {
			continue
		}
		if s, ok := v.(string); !ok || !t.ok(s, *t.want) {
			return t.word + show(*t.want)
		}
	}
	return ""
}

// length checks a constraint's conditions for lengths.
func (c *Constraint) length(v any) string {
	if c.MinLength == nil && c.MaxLength == nil {
		return ""
	}
	var n int64
	switch v := v.(type) {
	case string:
		n = int64(utf8.RuneCountInString(v))
	case []any:
		n = int64(len(v))
	case map[string]any:
		n = int64(len(v))
	default:
		return "it has no length"
	}
	switch {
	case c.MinLength != nil && n < *c.MinLength:
		return fmt.Sprintf("its length is %d, less than %d", n, *c.MinLength)
	case c.MaxLength != nil && n > *c.MaxLength:
		return fmt.Sprintf("its length is %d, more than %d", n, *c.MaxLength)
	}
	return ""
}

// inner checks the constraints within a constraint.
func (c *Constraint) inner(v any) string {
	if c.Each != nil {
		list, ok := v.([]any)
		if !ok {
			return "it is no array"
		}
		for i, e := range list {
			if why := c.Each.holds(e, true); why != "" {
				return fmt.Sprintf("element %d: %s", i, why)
			}
		}
	}
	for _, one := range c.And {
		if why := one.holds(v, true); why != "" {
			return why
		}
	}
	if c.Or != nil {
		var whys []string
		for _, one := range c.Or {
			why := one.holds(v, true)
			if why == "" {
				whys = nil
				break
			}
			whys = append(whys, why)
		}
		if whys != nil {
			return strings.Join(whys, ", and ")
		}
	}
	if c.Not != nil && c.Not.holds(v, true) == "" {
		return "it is what it may not be"
	}
	return ""
}

// show formats a value for a reason.
func show(v any) string {
	b, err := json.Marshal(v)
	const most = 200
	switch {
	case err != nil:
		return "?"
	case len(b) > most:
		return string(b[:most]) + "…"
	}
	return string(b)
}
