package vfs

// fan is the number of slots in a page of the table.
const (
	fanBits = 5
	fan     = 1 << fanBits
)

// table finds nodes by inode number. It is a radix tree whose pages have the generation of the FS
// that may change them. A copy of the table value is a copy of the table. A write copies the pages
// on the path to the changed slot.
type table struct {
	root   *page
	height int // levels of pages; 1 is a single leaf
}

// page has either kids or nodes.
type page struct {
	gen   uint64
	live  int // slots in use
	kids  *[fan]*page
	nodes *[fan]*node
}

func newPage(gen uint64, leaf bool) *page {
	if leaf {
		return &page{gen: gen, nodes: new([fan]*node)}
	}
	return &page{gen: gen, kids: new([fan]*page)}
}

// own returns the page itself, or a copy when another generation made it.
func (p *page) own(gen uint64) *page {
	if p.gen == gen {
		return p
	}
	c := &page{gen: gen, live: p.live}
	if p.nodes != nil {
		nodes := *p.nodes
		c.nodes = &nodes
	} else {
		kids := *p.kids
		c.kids = &kids
	}
	return c
}

// get returns the node with a number, or nil.
func (t table) get(ino uint64) *node {
	p := t.root
	if p == nil || ino>>(fanBits*t.height) != 0 {
		return nil
	}
	for h := t.height - 1; h > 0; h-- {
		if p = p.kids[ino>>(fanBits*h)&(fan-1)]; p == nil {
			return nil
		}
	}
	return p.nodes[ino&(fan-1)]
}

// set puts a node in.
func (t *table) set(gen, ino uint64, n *node) {
	if t.root == nil {
		t.root, t.height = newPage(gen, true), 1
	}
	for ino>>(fanBits*t.height) != 0 {
		top := newPage(gen, false)
		top.kids[0], top.live = t.root, 1
		t.root = top
		t.height++
	}
	t.root = t.root.own(gen)
	p := t.root
	for h := t.height - 1; h > 0; h-- {
		i := ino >> (fanBits * h) & (fan - 1)
		kid := p.kids[i]
		if kid == nil {
			kid = newPage(gen, h == 1)
			p.live++
		} else {
			kid = kid.own(gen)
		}
		p.kids[i] = kid
		p = kid
	}
	if p.nodes[ino&(fan-1)] == nil {
		p.live++
	}
	p.nodes[ino&(fan-1)] = n
}

// del removes a node, and pages that become empty.
func (t *table) del(gen, ino uint64) {
	if t.get(ino) == nil {
		return
	}
	var way [64/fanBits + 1]*page
	t.root = t.root.own(gen)
	p := t.root
	for h := t.height - 1; h > 0; h-- {
		way[h] = p
		i := ino >> (fanBits * h) & (fan - 1)
		p.kids[i] = p.kids[i].own(gen)
		p = p.kids[i]
	}
	p.nodes[ino&(fan-1)] = nil
	p.live--
	for h := 1; h < t.height && p.live == 0; h++ {
		p = way[h]
		p.kids[ino>>(fanBits*h)&(fan-1)] = nil
		p.live--
	}
	if t.root.live == 0 {
		*t = table{}
	}
}
