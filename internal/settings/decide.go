package settings

import (
	"cmp"
	"path"
	"slices"
)

// operation is the statement of a rule about a path.
type operation uint8

const (
	readAllow  operation = iota
	readDeny             // and so not written
	writeAllow           // and so read
	writeDeny
)

func (o operation) deny() bool { return o == readDeny || o == writeDeny }

// decision is one rule about one path.
type decision struct {
	path   string
	op     operation
	layer  int  // its layer; a higher one is stronger
	glob   bool // found by a pattern, not named
	rule   string
	source Source
	blank  bool
	keep   bool // list it even if it repeats the rule above it
	over   bool // wins over a denial of the same path in its layer
}

// beats reports whether d decides over e, for one path. The stronger layer wins. In one layer a
// named path wins over one that a pattern found; then a denial wins.
func (d *decision) beats(e *decision) bool {
	switch {
	case e == nil || d.layer != e.layer:
		return e == nil || d.layer > e.layer
	case d.over != e.over:
		return d.over
	case d.glob != e.glob:
		return !d.glob
	}
	return d.op.deny() && !e.op.deny()
}

// point holds the decisions about one path.
type point struct{ read, write *decision }

// tree holds the decisions by path.
type tree struct {
	points       map[string]*point
	readDefault  bool
	writeDefault bool
	private      map[string]bool
	// system are directories that are readable even if reading is denied by default. They are part
	// of the default and not decisions, so a rule that closes something above them closes them too.
	system map[string]*decision
}

func (t *tree) add(d *decision) {
	p := t.points[d.path]
	if p == nil {
		p = &point{}
		t.points[d.path] = p
	}
	if d.op != writeDeny && d.beats(p.read) {
		p.read = d
	}
	if d.op != readAllow && d.beats(p.write) {
		p.write = d
	}
}

// nearest finds the rules that decide about a path: those with its longest prefix, separately for
// reading and writing.
func (t *tree) nearest(p string) (read, write *decision) {
	for {
		if at := t.points[p]; at != nil {
			if read == nil {
				read = at.read
			}
			if write == nil {
				write = at.write
			}
		}
		if p == "/" || p == "." || read != nil && write != nil {
			return read, write
		}
		p = path.Dir(p)
	}
}

// access decides about a path, and returns the rule that decided.
func (t *tree) access(p string) (Access, *decision) {
	read, write := t.nearest(p)
	if read == nil && !t.readDefault {
		read = t.ofSystem(p)
	}
	if read == nil && !t.readDefault || read != nil && read.op.deny() {
		return Denied, read
	}
	if write == nil && t.writeDefault {
		return Writable, read
	}
	if write != nil && !write.op.deny() {
		return Writable, write
	}
	if write != nil {
		return Readable, write
	}
	return Readable, read
}

// ofSystem finds the directory of the system that contains a path.
func (t *tree) ofSystem(p string) *decision {
	for dir, d := range t.system {
		if inside(p, dir) {
			return d
		}
	}
	return nil
}

// rules lists the resulting rules of all paths. It leaves out those that only repeat the rule above
// them.
func (t *tree) rules(shorten func(string) string) []PathRule {
	out := make([]PathRule, 0, len(t.points))
	paths := make([]string, 0, len(t.points))
	for p := range t.points {
		paths = append(paths, p)
	}
	for p := range t.system {
		if t.points[p] == nil {
			paths = append(paths, p)
		}
	}
	slices.SortFunc(paths, comparePaths)
	kept := map[string]Access{}
	for _, p := range paths {
		a, d := t.access(p)
		above := t.above(p, kept)
		if d == nil || a == above && !d.keep || a == Readable && above == "private" && !t.readIn(p) {
			continue
		}
		kept[p] = a
		r := PathRule{Path: p, Access: a, Rule: d.rule, Source: d.source, Blank: d.blank && a == Denied}
		switch a {
		case Denied:
			r.Allow = "--read " + shorten(p)
		case Readable:
			r.Allow = "--write " + shorten(p)
		}
		out = append(out, r)
	}
	return out
}

// readIn reports whether a rule inside the box's own directory around p allows reading p. A rule
// there that only closes must not make this machine's files visible.
func (t *tree) readIn(p string) bool {
	for !t.private[p] {
		if at := t.points[p]; at != nil && at.read != nil {
			return !at.read.op.deny()
		}
		if p == "/" {
			return false
		}
		p = path.Dir(p)
	}
	return false
}

// above returns the access of p without a rule of its own.
func (t *tree) above(p string, kept map[string]Access) Access {
	for p != "/" {
		p = path.Dir(p)
		if a, ok := kept[p]; ok {
			return a
		}
		if t.private[p] {
			return "private"
		}
	}
	return t.fallback()
}

func (t *tree) fallback() Access {
	switch {
	case !t.readDefault:
		return Denied
	case t.writeDefault:
		return Writable
	}
	return Readable
}

// comparePaths sorts a directory right before its contents.
func comparePaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			if a[i] == '/' {
				return -1
			}
			if b[i] == '/' {
				return 1
			}
			return cmp.Compare(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b))
}
