package jq

import (
	"strings"

	"github.com/itchyny/gojq"
)

// term compiles a term with its suffixes.
func (c *compiler) term(s *scope, t *gojq.Term) (fn, error) {
	if c.depth++; c.depth > maxNesting {
		return nil, &CompileError{"program is nested too deeply"}
	}
	defer func() { c.depth-- }()
	run, err := c.bare(s, t)
	if err != nil {
		return nil, err
	}
	for _, x := range t.SuffixList {
		switch {
		case x.Optional:
			run = c.m.try(run, nil)
		case x.Iter:
			run = c.m.iterate(run)
		case x.Index != nil:
			if run, err = c.index(s, run, x.Index); err != nil {
				return nil, err
			}
		}
		if len(t.SuffixList) > maxNesting {
			return nil, &CompileError{"program is nested too deeply"}
		}
	}
	return run, nil
}

func (c *compiler) bare(s *scope, t *gojq.Term) (fn, error) {
	switch t.Type {
	case gojq.TermTypeIdentity:
		return identity, nil
	case gojq.TermTypeRecurse:
		return c.m.recurse(c.m.try(c.m.iterate(identity), nil)), nil
	case gojq.TermTypeNull:
		return constant(nil), nil
	case gojq.TermTypeTrue:
		return constant(true), nil
	case gojq.TermTypeFalse:
		return constant(false), nil
	case gojq.TermTypeNumber:
		n, ok := parseNumber(t.Number)
		if !ok {
			return nil, compileErrorf("invalid number %s", t.Number)
		}
		return constant(n), nil
	case gojq.TermTypeIndex:
		return c.index(s, identity, t.Index)
	case gojq.TermTypeFunc:
		return c.call(s, t.Func)
	case gojq.TermTypeObject:
		return c.object(s, t.Object)
	case gojq.TermTypeArray:
		return c.array(s, t.Array)
	case gojq.TermTypeUnary:
		run, err := c.term(s, t.Unary.Term)
		if err != nil || t.Unary.Op != gojq.OpSub {
			return run, err
		}
		return c.m.simple(run, negate), nil
	case gojq.TermTypeFormat:
		return c.format(s, t)
	case gojq.TermTypeString:
		return c.str(s, t.Str, toText)
	case gojq.TermTypeIf:
		return c.cond(s, t.If)
	case gojq.TermTypeTry:
		return c.tryCatch(s, t.Try)
	case gojq.TermTypeReduce, gojq.TermTypeForeach:
		return c.fold(s, t)
	case gojq.TermTypeLabel:
		body, err := c.query(&scope{s, "*" + t.Label.Ident, -1, nil}, t.Label.Body)
		if err != nil {
			return nil, err
		}
		return labelled(body), nil
	case gojq.TermTypeBreak:
		hops, _, ok := s.lookup("*"+t.Break, -1)
		if !ok {
			return nil, compileErrorf("$*label-%s is not defined", strings.TrimPrefix(t.Break, "$"))
		}
		return func(e *env, _ *path, _ any, _ out) error { return &breaking{e.hop(hops)} }, nil
	case gojq.TermTypeQuery:
		return c.query(s, t.Query)
	}
	return nil, compileErrorf("syntax is not supported")
}

// labelled runs a body that break can leave.
func labelled(body fn) fn {
	return func(e *env, p *path, v any, out out) error {
		at := &env{up: e}
		err := body(at, p, v, out)
		if b, ok := err.(*breaking); ok && b.label == at {
			return nil
		}
		return err
	}
}

func (c *compiler) array(s *scope, a *gojq.Array) (fn, error) {
	if a.Query == nil {
		return constant([]any{}), nil
	}
	run, err := c.query(s, a.Query)
	if err != nil {
		return nil, err
	}
	m := c.m
	return func(e *env, p *path, v any, out out) error {
		all, err := m.collect(run, e, v)
		if err != nil {
			return err
		}
		return out(p.lost(), all)
	}, nil
}

// collectPart is the number of results in one piece. If one array grew instead, it would be in
// memory twice at each growth.
const collectPart = 1024

// collect makes an array from all results.
func (m *vm) collect(run fn, e *env, v any) ([]any, error) {
	var parts [][]any
	all := []any{}
	paid := int64(0)
	pay := func(n int64) error {
		paid += n
		return m.pay(n)
	}
	err := run(e, nil, v, func(_ *path, x any) error {
		if all = append(all, x); len(all)&255 != 0 {
			return nil
		}
		n := size(all[len(all)-256:], 1<<62)
		if len(all) == collectPart {
			parts, all = append(parts, all), make([]any, 0, collectPart)
		}
		return pay(n)
	})
	if err == nil && len(parts) > 0 {
		n := len(parts)*collectPart + len(all)
		if err = pay(int64(n) * refCost); err == nil {
			joined := make([]any, 0, n)
			for i := range parts {
				joined, parts[i] = append(joined, parts[i]...), nil
			}
			all = append(joined, all...)
		}
	}
	if paid > 0 {
		_ = m.pay(-paid)
	}
	if err != nil {
		return nil, err
	}
	return all, m.value(all)
}

func (c *compiler) format(s *scope, t *gojq.Term) (fn, error) {
	f, ok := formats[t.Format]
	if !ok {
		return nil, compileErrorf("%s is not a valid format", strings.TrimPrefix(t.Format, "@"))
	}
	if t.Str == nil {
		return c.m.simple(identity, func(v any) (any, error) { return f(c.m, v) }), nil
	}
	return c.str(s, t.Str, f)
}

// str compiles a string with expressions in it.
func (c *compiler) str(s *scope, str *gojq.String, format func(*vm, any) (string, error)) (fn, error) {
	if str.Queries == nil {
		return constant(str.Str), nil
	}
	m := c.m
	run := func(_ *env, _ *path, _ any, out out) error { return out(nil, "") }
	for _, q := range str.Queries {
		before := run
		if q.Term != nil && q.Term.Type == gojq.TermTypeString && q.Term.Str.Queries == nil && len(q.Term.SuffixList) == 0 {
			text := q.Term.Str.Str
			run = func(e *env, _ *path, v any, out out) error {
				return before(e, nil, v, func(_ *path, x any) error { return out(nil, x.(string)+text) })
			}
			continue
		}
		part, err := c.query(s, q)
		if err != nil {
			return nil, err
		}
		// The outer loop is over the last expression.
		run = func(e *env, _ *path, v any, out out) error {
			return part(e, nil, v, func(_ *path, x any) error {
				text, err := format(m, x)
				if err != nil {
					return err
				}
				return before(e, nil, v, func(_ *path, y any) error {
					s, err := m.str(y.(string) + text)
					if err != nil {
						return err
					}
					return out(nil, s)
				})
			})
		}
	}
	return func(e *env, p *path, v any, out out) error {
		return run(e, nil, v, func(_ *path, x any) error { return out(p.lost(), x) })
	}, nil
}

func (c *compiler) cond(s *scope, i *gojq.If) (fn, error) {
	var conds, bodies []fn
	add := func(cond, then *gojq.Query) error {
		f, err := c.query(s, cond)
		if err != nil {
			return err
		}
		g, err := c.query(s, then)
		conds, bodies = append(conds, f), append(bodies, g)
		return err
	}
	if err := add(i.Cond, i.Then); err != nil {
		return nil, err
	}
	for _, x := range i.Elif {
		if err := add(x.Cond, x.Then); err != nil {
			return nil, err
		}
	}
	last := fn(identity)
	if i.Else != nil {
		var err error
		if last, err = c.query(s, i.Else); err != nil {
			return nil, err
		}
	}
	for n := len(conds) - 1; n >= 0; n-- {
		cond, then, other := conds[n], bodies[n], last
		last = func(e *env, p *path, v any, out out) error {
			return cond(e, nil, v, func(_ *path, x any) error {
				if Truthy(x) {
					return then(e, p, v, out)
				}
				return other(e, p, v, out)
			})
		}
	}
	return last, nil
}

func (c *compiler) tryCatch(s *scope, t *gojq.Try) (fn, error) {
	body, err := c.query(s, t.Body)
	if err != nil || t.Catch == nil {
		return c.m.try(body, nil), err
	}
	catch, err := c.query(s, t.Catch)
	return c.m.try(body, catch), err
}

// try runs a body. When the body fails, it runs catch with the error's value. It does not catch
// errors of the code after it.
func (m *vm) try(body, catch fn) fn {
	return func(e *env, p *path, v any, out out) error {
		var down error
		depth := m.depth
		err := body(e, p, v, func(p *path, v any) error {
			down = out(p, v)
			return down
		})
		if err == nil || down != nil || fatal(err) {
			return err
		}
		m.depth = depth
		x := errorValue(err)
		if o, ok := x.(*Object); ok {
			if b, has := o.Get("__jq"); has && b != nil {
				return nil // jq's own break
			}
		}
		if catch == nil {
			return nil
		}
		return catch(e, p.lost(), x, out)
	}
}

func (c *compiler) object(s *scope, o *gojq.Object) (fn, error) {
	type pair struct{ key, val fn }
	var pairs []pair
	for _, kv := range o.KeyVals {
		var x pair
		var err error
		switch {
		case kv.Key != "" && kv.Key[0] == '$':
			if x.key = constant(kv.Key[1:]); kv.Val != nil { // a variable's value is the key
				x.key, err = c.call(s, &gojq.Func{Name: kv.Key})
				break
			}
			x.val, err = c.call(s, &gojq.Func{Name: kv.Key})
		case kv.Key != "":
			x.key = constant(kv.Key)
			x.val, err = c.index(s, identity, &gojq.Index{Name: kv.Key})
		case kv.KeyString != nil:
			if x.key, err = c.str(s, kv.KeyString, toText); err == nil {
				x.val, err = c.index(s, identity, &gojq.Index{Str: kv.KeyString})
			}
		default:
			if n := kv.KeyQuery.Term; n != nil && n.Type == gojq.TermTypeNumber && len(n.SuffixList) == 0 {
				return nil, compileErrorf("Cannot use number (%s) as object key", n.Number)
			}
			x.key, err = c.query(s, kv.KeyQuery)
		}
		if err == nil && kv.Val != nil {
			x.val, err = c.query(s, kv.Val)
		}
		if err != nil {
			return nil, err
		}
		if x.val == nil {
			return nil, &CompileError{"object key without a value"}
		}
		pairs = append(pairs, x)
	}
	m := c.m
	var build func(e *env, v any, i int, keys []string, vals []any, out func([]string, []any) error) error
	build = func(e *env, v any, i int, keys []string, vals []any, out func([]string, []any) error) error {
		if i == len(pairs) {
			return out(keys, vals)
		}
		return pairs[i].key(e, nil, v, func(_ *path, k any) error {
			name, ok := k.(string)
			if !ok {
				return errorf("Cannot use %s (%s) as object key", TypeName(k), clip(k))
			}
			return pairs[i].val(e, nil, v, func(_ *path, x any) error {
				keys[i], vals[i] = name, x
				return build(e, v, i+1, keys, vals, out)
			})
		})
	}
	return func(e *env, p *path, v any, out out) error {
		if err := m.step(1 + len(pairs)); err != nil {
			return err
		}
		return build(e, v, 0, make([]string, len(pairs)), make([]any, len(pairs)), func(keys []string, vals []any) error {
			o := NewObject(len(keys))
			for i, k := range keys {
				o.Set(k, vals[i])
			}
			if err := m.value(o); err != nil {
				return err
			}
			return out(p.lost(), o)
		})
	}, nil
}
