package eval

import (
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/shell/tools/awk/resolve"
)

// byFunc compares elements of an array for sorting.
type byFunc func(a, b *cell) int

// orders are the named orders.
var orders = map[string]func(m *machine) byFunc{
	"@ind_str_asc":  func(m *machine) byFunc { return m.byIndex },
	"@ind_str_desc": func(m *machine) byFunc { return reversed(m.byIndex) },
	"@ind_num_asc":  func(m *machine) byFunc { return m.byIndexNumber },
	"@ind_num_desc": func(m *machine) byFunc { return reversed(m.byIndexNumber) },
	"@val_str_asc":  func(m *machine) byFunc { return m.byText },
	"@val_str_desc": func(m *machine) byFunc { return reversed(m.byText) },
	"@val_num_asc":  func(m *machine) byFunc { return m.byNumber },
	"@val_num_desc": func(m *machine) byFunc { return reversed(m.byNumber) },
	"@val_type_asc": func(m *machine) byFunc { return m.byType },
	"@val_type_desc": func(m *machine) byFunc {
		return reversed(m.byType)
	},
	"@unsorted": func(*machine) byFunc { return nil },
}

func reversed(f byFunc) byFunc { return func(a, b *cell) int { return f(b, a) } }

// compareTexts compares texts as strings. It follows IGNORECASE.
func (m *machine) compareTexts(a, b string) int {
	if m.ignoreCase {
		return foldOrder(a, b)
	}
	return strings.Compare(a, b)
}

func (m *machine) byIndex(a, b *cell) int { return m.compareTexts(a.key, b.key) }

// compareNumbers compares numbers. NaN comes last.
func compareNumbers(a, b float64) int {
	o := orderNumbers(a, b)
	if o == unordered {
		switch {
		case a == a:
			return -1
		case b == b:
			return 1
		}
		return 0
	}
	return o
}

func (m *machine) byIndexNumber(a, b *cell) int {
	if o := compareNumbers(leadingNumber(a.key), leadingNumber(b.key)); o != 0 {
		return o
	}
	return m.byIndex(a, b)
}

// arraysLast sorts arrays after all scalars. both says that both elements are scalars.
func arraysLast(a, b *cell) (o int, both bool) {
	switch {
	case a.sub == nil && b.sub == nil:
		return 0, true
	case a.sub == nil:
		return -1, false
	case b.sub == nil:
		return 1, false
	}
	return 0, false
}

func (m *machine) byText(a, b *cell) int {
	o, both := arraysLast(a, b)
	if both {
		o = m.compareTexts(m.str(a.v), m.str(b.v))
	}
	if o != 0 {
		return o
	}
	return m.byIndex(a, b)
}

func (m *machine) byNumber(a, b *cell) int {
	o, both := arraysLast(a, b)
	if both {
		if o = compareNumbers(a.v.num(), b.v.num()); o == 0 {
			o = m.compareTexts(m.str(a.v), m.str(b.v))
		}
	}
	if o != 0 {
		return o
	}
	return m.byIndex(a, b)
}

// byType sorts numbers before strings, and strings before arrays.
func (m *machine) byType(a, b *cell) int {
	o, both := arraysLast(a, b)
	if both {
		x, y := a.v.settled(), b.v.settled()
		switch {
		case x.numeric() && y.numeric():
			o = compareNumbers(x.n, y.n)
		case x.numeric():
			o = -1
		case y.numeric():
			o = 1
		default:
			o = m.compareTexts(x.s, y.s)
		}
	}
	if o != 0 {
		return o
	}
	return m.byIndex(a, b)
}

// byUser compares with a function of the program.
func (m *machine) byUser(f *function) byFunc {
	pass := func(v value) argument {
		return func(m *machine, to *local) { m.assign(&to.variable, v) }
	}
	element := func(c *cell) argument {
		if c.sub != nil {
			return func(_ *machine, to *local) { to.arr = c.sub }
		}
		return pass(c.v)
	}
	index := func(c *cell) argument { return pass(value{s: c.key, k: kindInput}) }
	return func(a, b *cell) int {
		n := m.invoke(f, []argument{index(a), element(a), index(b), element(b)}).num()
		return compareNumbers(n, 0)
	}
}

// orderNamed returns the order with a name, or nil.
func (m *machine) orderNamed(name string) byFunc {
	if f := orders[name]; f != nil {
		return f(m)
	}
	i, ok := m.prog.Funcs[name]
	if !ok {
		m.fatal("sort comparison function `%s' is not defined", name)
	}
	return m.byUser(m.funcs[i])
}

// sorted returns the elements of an array in the given order.
func (m *machine) sorted(a *array, by byFunc) []*cell {
	list := make([]*cell, 0, a.len())
	for _, c := range a.order {
		if c.live {
			list = append(list, c)
		}
	}
	m.step(len(list) >> 4)
	if by != nil {
		slices.SortStableFunc(list, func(a, b *cell) int {
			m.steps++ // the next call of step pays for it; a sort always ends
			if m.steps >= stepBatch {
				m.payStep()
			}
			return by(a, b)
		})
	}
	return list
}

// keys returns the subscripts for a loop, in the order of PROCINFO["sorted_in"].
func (m *machine) keys(a *array) []string {
	var by byFunc
	if info := m.special(resolve.PROCINFO).arr; m.prog.Uses["PROCINFO"] {
		if c := info.get("sorted_in"); c != nil && c.sub == nil {
			name := m.str(c.v)
			if _, ok := m.prog.Funcs[name]; ok || orders[name] != nil {
				by = m.orderNamed(name)
			}
		}
	}
	if by == nil {
		out := make([]string, 0, a.len())
		for _, c := range a.order {
			if c.live {
				out = append(out, c.key)
			}
		}
		m.step(len(out) >> 4)
		return out
	}
	list := m.sorted(a, by)
	out := make([]string, len(list))
	for i, c := range list {
		out[i] = c.key
	}
	return out
}
