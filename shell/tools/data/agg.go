package data

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// aggregate is one call of an aggregation function.
type aggregate struct {
	kind string
	arg  expr // nil for count()
	sep  string
	at   *group // whose state is asked for
	slot int
}

// group is the rows with one key. It stores only what the aggregates need.
type group struct {
	key    []string
	states []aggState
}

// aggState is the state of one aggregate for a group.
type aggState struct {
	n, empty    int
	sum, square float64
	min, max    string
	fmin, fmax  float64
	numbers     int
	first, last string
	all         []string
	counts      map[string]int
	order       []string
	truths      int
}

var aggregates = map[string]string{"count": "count", "sum": "sum", "mean": "mean", "avg": "mean", "min": "min", "max": "max", "median": "median", "stddev": "stddev", "var": "var",
	"variance": "var", "first": "first", "last": "last", "mode": "mode", "cardinality": "cardinality", "distinct": "cardinality", "values": "values", "distinct_values": "distinct_values",
	"count_empty": "count_empty", "any": "any", "all": "all", "collect": "values", "q1": "q1", "q3": "q3", "top": "mode", "unique": "distinct_values"}

// aggregate compiles a call of an aggregation function. ok is false when name is not one.
func (p *exprParser) aggregate(name string) (expr, bool, error) {
	kind, ok := aggregates[name]
	if !ok {
		return nil, false, nil
	}
	saved := p.aggs
	p.aggs = nil // none within another
	args, err := p.list(")")
	p.aggs = saved
	if err != nil {
		return nil, true, err
	}
	a := &aggregate{kind: kind, sep: "|", slot: len(*p.aggs)}
	if len(args) > 0 {
		a.arg = args[0]
	} else if kind != "count" {
		return nil, true, fmt.Errorf("wrong number of arguments of %s", name)
	}
	if len(args) > 1 {
		v, err := args[1](nil)
		if err != nil {
			return nil, true, err
		}
		a.sep = textOf(v)
	}
	*p.aggs = append(*p.aggs, a)
	return func([]string) (any, error) { return a.result(&a.at.states[a.slot]), nil }, true, nil
}

// take adds a row.
func (a *aggregate) take(s *aggState, row []string) (kept int, err error) {
	if a.arg == nil {
		s.n++
		return 0, nil
	}
	v, err := a.arg(row)
	if err != nil {
		return 0, err
	}
	text := textOf(v)
	if b, ok := v.(bool); ok && a.kind == "count" && !b {
		return 0, nil
	}
	if text == "" {
		s.empty++
		return 0, nil
	}
	s.n++
	if truthy(v) {
		s.truths++
	}
	if s.n == 1 {
		s.first, s.min, s.max = text, text, text
	}
	s.last, s.min, s.max = text, min(s.min, text), max(s.max, text)
	if f, ok := numberOf(v); ok {
		if s.numbers++; s.numbers == 1 {
			s.fmin, s.fmax = f, f
		}
		s.sum += f
		s.square += f * f
		s.fmin, s.fmax = min(s.fmin, f), max(s.fmax, f)
	}
	switch a.kind {
	case "median", "values", "q1", "q3":
		s.all = append(s.all, text)
		return len(text) + 16, nil
	case "mode", "cardinality", "distinct_values":
		if s.counts == nil {
			s.counts = map[string]int{}
		}
		if s.counts[text]++; s.counts[text] == 1 {
			s.order = append(s.order, text)
			return 2*len(text) + 64, nil
		}
	}
	return 0, nil
}

// result returns an aggregate's value.
func (a *aggregate) result(s *aggState) any {
	mean := s.sum / float64(s.numbers)
	variance := s.square/float64(s.numbers) - mean*mean
	switch a.kind {
	case "count":
		return float64(s.n)
	case "count_empty":
		return float64(s.empty)
	case "sum":
		return s.sum
	case "any":
		return s.truths > 0
	case "all":
		return s.truths == s.n+s.empty
	case "cardinality":
		return float64(len(s.order))
	case "values":
		return strings.Join(s.all, a.sep)
	case "distinct_values":
		slices.Sort(s.order)
		return strings.Join(s.order, a.sep)
	}
	if s.n == 0 {
		return nil
	}
	switch a.kind {
	case "first":
		return s.first
	case "last":
		return s.last
	case "min", "max":
		if s.numbers == s.n {
			return map[string]any{"min": s.fmin, "max": s.fmax}[a.kind]
		}
		return map[string]any{"min": s.min, "max": s.max}[a.kind]
	case "mode":
		best := s.order[0]
		for _, v := range s.order {
			if s.counts[v] > s.counts[best] || s.counts[v] == s.counts[best] && v < best {
				best = v
			}
		}
		return best
	case "median", "q1", "q3":
		return quantile(s.all, map[string]float64{"median": 0.5, "q1": 0.25, "q3": 0.75}[a.kind])
	}
	if s.numbers == 0 {
		return nil
	}
	switch a.kind {
	case "mean":
		return mean
	case "var":
		return max(variance, 0)
	}
	return math.Sqrt(max(variance, 0))
}

func quantile(all []string, q float64) any {
	var fs []float64
	for _, s := range all {
		if f, ok := numberOf(s); ok {
			fs = append(fs, f)
		}
	}
	if len(fs) == 0 {
		return nil
	}
	slices.Sort(fs)
	at := q * float64(len(fs)-1)
	i := int(at)
	if i+1 >= len(fs) {
		return fs[len(fs)-1]
	}
	return fs[i] + (fs[i+1]-fs[i])*(at-float64(i))
}

// named is one result column of agg, groupby or map.
type named struct {
	name string
	run  expr
}

// parseNamed reads "expression as name, …".
func (p *exprParser) parseNamed() ([]named, error) {
	var out []named
	for {
		p.space()
		start := p.pos
		x, err := p.parse(0)
		if err != nil {
			return nil, err
		}
		n := named{strings.TrimSpace(p.src[start:p.pos]), x}
		if p.accept("as") != "" {
			p.space()
			switch {
			case p.pos < len(p.src) && strings.IndexByte("\"'`", p.src[p.pos]) >= 0:
				if n.name, err = p.quoted(p.src[p.pos]); err != nil {
					return nil, err
				}
			default:
				start := p.pos
				for p.pos < len(p.src) && (isWord(p.src[p.pos]) || p.src[p.pos] >= 0x80) {
					p.pos++
				}
				n.name = p.src[start:p.pos]
			}
			if n.name == "" {
				return nil, errors.New("missing name after as")
			}
		}
		out = append(out, n)
		if p.accept(",") == "" {
			break
		}
	}
	if p.space(); p.pos < len(p.src) {
		return nil, fmt.Errorf("unexpected %q in expression", p.src[p.pos:])
	}
	return out, nil
}
