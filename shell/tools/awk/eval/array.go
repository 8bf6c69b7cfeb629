package eval

import "strings"

// cell is an element of an array.
type cell struct {
	key  string
	v    value
	sub  *array // set when the element is an array itself
	live bool   // false when it was deleted
}

// array is an associative array that remembers the order in which its elements were added.
type array struct {
	index map[string]*cell
	order []*cell // includes deleted elements, until there are too many
	dead  int
	free  []*cell // for reuse; none of them is in order
	slab  []cell  // room for new ones
	held  int64   // the memory charged for it, without the arrays in it
	name  string  // for messages
}

// cellCost is the approximate memory of an element, besides its texts. arrayCost is that of an
// empty array.
const (
	cellCost  = 160
	arrayCost = 200
	slabSize  = 16
)

func (m *machine) newArray(name string) *array {
	m.owe(arrayCost)
	return &array{index: map[string]*cell{}, held: arrayCost, name: name}
}

func (a *array) len() int { return len(a.order) - a.dead }

// get returns an element, or nil if there is none.
func (a *array) get(key string) *cell { return a.index[key] }

// element returns an element, and makes it if it is missing. part says that key is in a buffer that
// will be reused.
func (m *machine) element(a *array, key string, part bool) *cell {
	if c := a.index[key]; c != nil {
		return c
	}
	return m.newElement(a, key, part)
}

// newElement makes an element that does not exist yet.
func (m *machine) newElement(a *array, key string, part bool) *cell {
	if part {
		key = strings.Clone(key)
	}
	var c *cell
	switch n := len(a.free); {
	case n > 0:
		c = a.free[n-1]
		a.free = a.free[:n-1]
	case len(a.slab) > 0:
		c, a.slab = &a.slab[0], a.slab[1:]
	default:
		size := min(max(len(a.order), 1), slabSize)
		a.slab = make([]cell, size)
		c, a.slab = &a.slab[0], a.slab[1:]
	}
	*c = cell{key: key, live: true}
	a.index[key] = c
	a.order = append(a.order, c)
	a.charge(m, int64(cellCost+len(key)))
	return c
}

// charge pays for memory that the array holds.
func (a *array) charge(m *machine, n int64) {
	a.held += n
	m.owe(n)
}

// store puts a value into an element. The value comes from keep.
func (a *array) store(m *machine, c *cell, v value) {
	if n := len(v.s) - len(c.v.s); n != 0 {
		a.charge(m, int64(n))
	}
	c.v = v
}

// setElement stores a value by its subscript. The value comes from keep.
func (m *machine) setElement(a *array, key string, v value) {
	a.store(m, m.element(a, key, false), v)
}

// remove deletes an element.
func (m *machine) remove(a *array, key string) {
	c := a.index[key]
	if c == nil {
		return
	}
	delete(a.index, key)
	if c.sub != nil {
		m.release(c.sub)
	}
	a.charge(m, -int64(cellCost+len(c.key)+len(c.v.s)))
	*c = cell{}
	if a.dead++; a.dead > 32 && a.dead > len(a.order)/2 {
		a.compact()
	}
}

// compact removes deleted elements from order.
func (a *array) compact() {
	live := a.order[:0]
	for _, c := range a.order {
		if c.live {
			live = append(live, c)
		} else if len(a.free) < slabSize {
			a.free = append(a.free, c)
		}
	}
	clear(a.order[len(live):])
	a.order, a.dead = live, 0
}

// bigArray is the number of elements from which clearing makes a new map. A map that was large is
// slow to clear and keeps its memory.
const bigArray = 1024

// clearArray deletes all elements.
func (m *machine) clearArray(a *array) {
	for _, c := range a.order {
		if c.sub != nil {
			m.release(c.sub)
		}
	}
	if len(a.order) > bigArray {
		a.index, a.order, a.free, a.slab = map[string]*cell{}, nil, nil, nil
	} else {
		clear(a.index)
		a.free = append(a.free, a.order...)
		for _, c := range a.order {
			*c = cell{}
		}
		a.order = a.order[:0]
	}
	a.dead = 0
	a.charge(m, arrayCost-a.held)
}

// release gives back the memory charged for an array that is no longer reachable.
func (m *machine) release(a *array) {
	for todo := []*array{a}; len(todo) > 0; {
		a, todo = todo[len(todo)-1], todo[:len(todo)-1]
		for _, c := range a.order {
			if c.sub != nil {
				todo = append(todo, c.sub)
			}
		}
		m.owe(-a.held)
		a.held = 0
	}
}

// subArray returns the array in an element. An element that was never used becomes an array.
func (m *machine) subArray(a *array, c *cell) *array {
	if c.sub == nil {
		if c.v.k != kindUnset {
			m.fatal("attempt to use scalar `%s[\"%s\"]' as an array", a.name, c.key)
		}
		c.sub = m.newArray(a.name + `["` + c.key + `"]`)
		if len(c.sub.name) > maxArrayName {
			c.sub.name = a.name
		}
	}
	return c.sub
}

// maxArrayName is the longest name of an array in messages.
const maxArrayName = 200

// scalar returns the value of an element.
func (m *machine) scalar(a *array, c *cell) value {
	if c.sub != nil {
		m.fatal("attempt to use array `%s[\"%s\"]' in a scalar context", a.name, c.key)
	}
	return c.v
}

// variable is a global variable: a scalar, or an array once arr is set.
type variable struct {
	v   value
	arr *array
}

// local is a parameter. A parameter without an argument, or whose argument is an unset variable,
// remembers its origin. When it is used as an array, its origin becomes the same array.
type local struct {
	variable
	up     *local    // the caller's parameter
	global *variable // or a global one
	from   *array    // or an element of this array
	key    string
	own    bool // arr ends with the call
	name   string
}

// bind makes a parameter an array.
func (m *machine) bind(l *local, name string) *array {
	switch {
	case l.arr != nil:
	case l.v.k != kindUnset:
		m.fatal("attempt to use scalar parameter `%s' as an array", name)
	case l.up != nil:
		l.arr = m.bind(l.up, l.name)
	case l.global != nil:
		l.arr = m.bindGlobal(l.global, l.name)
	case l.from != nil:
		l.arr = m.subArray(l.from, m.element(l.from, l.key, false))
	default:
		l.arr, l.own = m.newArray(name), true
	}
	return l.arr
}

// bindGlobal makes a global variable an array.
func (m *machine) bindGlobal(g *variable, name string) *array {
	if g.arr == nil {
		if g.v.k != kindUnset {
			m.fatal("attempt to use scalar `%s' as an array", name)
		}
		g.arr = m.newArray(name)
	}
	return g.arr
}
