package vfs

import (
	"iter"
	"slices"
	"sort"
)

// Sizes of the pieces of a large directory.
const (
	maxTwig = 64 // entries of one piece
	minTwig = 16 // a smaller piece is joined with its neighbour
)

// entry is a name in a directory. Number 0 means that the name was removed, although the source
// below still has it.
type entry struct {
	name string
	ino  uint64
}

// entries are a directory's names in order. They are a B-tree whose pieces have the generation of
// the FS that may change them. A copy of the value is a copy of the directory. Listing needs no
// sorting.
type entries struct {
	root *twig
	n    int // names, gone ones too
}

// twig is a piece of the tree. It is a leaf with entries, or it has kids with a name each. A kid's
// name is not greater than the kid's first entry, and greater than all entries before it.
type twig struct {
	gen  uint64
	list []entry
	kids []*twig // nil in a leaf
}

// find returns the position of name in a leaf, or the position where it must be inserted.
func (t *twig) find(name string) (int, bool) {
	i := sort.Search(len(t.list), func(i int) bool { return t.list[i].name >= name })
	return i, i < len(t.list) && t.list[i].name == name
}

// kid returns the piece below that has name, if any piece has it.
func (t *twig) kid(name string) int {
	i := sort.Search(len(t.list), func(i int) bool { return t.list[i].name > name })
	return max(i-1, 0)
}

func (t *twig) own(gen uint64) *twig {
	if t.gen == gen {
		return t
	}
	return &twig{gen: gen, list: slices.Clone(t.list), kids: slices.Clone(t.kids)}
}

// get returns the inode number of a name.
func (e entries) get(name string) (uint64, bool) {
	t := e.root
	if t == nil {
		return 0, false
	}
	for t.kids != nil {
		t = t.kids[t.kid(name)]
	}
	i, ok := t.find(name)
	if !ok {
		return 0, false
	}
	return t.list[i].ino, true
}

// put adds a name or changes its number.
func (e *entries) put(gen uint64, name string, ino uint64) {
	if e.root == nil {
		e.root = &twig{gen: gen}
	}
	left, right, added := e.root.put(gen, name, ino)
	if added {
		e.n++
	}
	if e.root = left; right != nil {
		e.root = &twig{gen: gen, list: []entry{{name: left.list[0].name}, {name: right.list[0].name}}, kids: []*twig{left, right}}
	}
}

// put recurses to the height of the tree: six levels hold a thousand million names.
func (t *twig) put(gen uint64, name string, ino uint64) (left, right *twig, added bool) {
	t = t.own(gen)
	if t.kids == nil {
		i, ok := t.find(name)
		if ok {
			t.list[i].ino = ino
			return t, nil, false
		}
		t.list = slices.Insert(t.list, i, entry{name, ino})
		added = true
	} else {
		i := t.kid(name)
		var more *twig
		if t.kids[i], more, added = t.kids[i].put(gen, name, ino); more != nil {
			t.list = slices.Insert(t.list, i+1, entry{name: more.list[0].name})
			t.kids = slices.Insert(t.kids, i+1, more)
		}
	}
	if len(t.list) <= maxTwig {
		return t, nil, added
	}
	half := len(t.list) / 2
	if t.list[len(t.list)-1].name == name {
		half = len(t.list) * 7 / 8 // names added in order fill the pieces
	}
	right = &twig{gen: gen, list: slices.Clone(t.list[half:])}
	if t.kids != nil {
		right.kids = slices.Clone(t.kids[half:])
		clear(t.kids[half:])
		t.kids = t.kids[:half]
	}
	clear(t.list[half:])
	t.list = t.list[:half]
	return t, right, added
}

// del removes a name, which must exist.
func (e *entries) del(gen uint64, name string) {
	e.n--
	e.root = e.root.del(gen, name)
	for e.root != nil && len(e.root.kids) == 1 {
		e.root = e.root.kids[0]
	}
}

// del returns nil when nothing is left.
func (t *twig) del(gen uint64, name string) *twig {
	t = t.own(gen)
	if t.kids == nil {
		i, _ := t.find(name)
		t.list = slices.Delete(t.list, i, i+1)
		if cap(t.list) > 4*minTwig && len(t.list) < cap(t.list)/4 {
			t.list = slices.Clone(t.list) // what is gone frees memory
		}
	} else {
		i := t.kid(name)
		kid := t.kids[i].del(gen, name)
		switch {
		case kid == nil:
			t.list, t.kids = slices.Delete(t.list, i, i+1), slices.Delete(t.kids, i, i+1)
		default:
			t.kids[i] = kid
			if len(kid.list) < minTwig {
				t.join(gen, i)
			}
		}
	}
	if len(t.list) == 0 {
		return nil
	}
	return t
}

// join joins piece i with a neighbour if both are small.
func (t *twig) join(gen uint64, i int) {
	if i > 0 && (i+1 == len(t.kids) || len(t.kids[i-1].list) < len(t.kids[i+1].list)) {
		i--
	}
	if i+1 >= len(t.kids) || len(t.kids[i].list)+len(t.kids[i+1].list) > maxTwig*3/4 {
		return
	}
	a, b := t.kids[i].own(gen), t.kids[i+1]
	a.list, a.kids = append(a.list, b.list...), append(a.kids, b.kids...)
	t.kids[i] = a
	t.list, t.kids = slices.Delete(t.list, i+1, i+2), slices.Delete(t.kids, i+1, i+2)
}

// all returns the entries in order. The directory must not change during the loop.
func (e entries) all() iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		if e.root != nil {
			e.root.each(yield)
		}
	}
}

func (t *twig) each(yield func(string, uint64) bool) bool {
	if t.kids == nil {
		for _, x := range t.list {
			if !yield(x.name, x.ino) {
				return false
			}
		}
		return true
	}
	for _, k := range t.kids {
		if !k.each(yield) {
			return false
		}
	}
	return true
}
