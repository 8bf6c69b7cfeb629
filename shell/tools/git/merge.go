package git

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/index"
)

// merged is the result of a three-way merge.
type merged struct {
	files     snapshot
	conflicts map[string][3]entry // base, ours, theirs
	texts     map[string][]byte   // with markers
	messages  []string
}

// threeWay merges trees. The names are for conflict markers.
func (r *repo) threeWay(base, ours, theirs snapshot, nameOurs, nameTheirs string) (*merged, error) {
	m := &merged{files: snapshot{}, conflicts: map[string][3]entry{}, texts: map[string][]byte{}}
	base, ours, theirs = maps.Clone(base), maps.Clone(ours), maps.Clone(theirs) // renames are followed in them
	base, err := r.followRenames(base, ours, theirs)
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, s := range []snapshot{base, ours, theirs} {
		for n := range s {
			all[n] = true
		}
	}
	names := make([]string, 0, len(all))
	for n := range all {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		b, o, t := base[n], ours[n], theirs[n]
		switch {
		case o == t:
			m.take(n, o)
		case o == b:
			m.take(n, t)
		case t == b:
			m.take(n, o)
		case o.mode == 0 || t.mode == 0:
			m.conflicts[n] = [3]entry{b, o, t}
			gone, kept, e := nameOurs, nameTheirs, t
			if t.mode == 0 {
				gone, kept, e = nameTheirs, nameOurs, o
			}
			m.files[n] = e
			m.messages = append(m.messages, fmt.Sprintf("CONFLICT (modify/delete): %s deleted in %s and modified in %s.  Version %s of %s left in tree.", n, gone, kept, kept, n))
		default:
			if err := r.mergeFile(m, n, b, o, t, nameOurs, nameTheirs); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

func (m *merged) take(name string, e entry) {
	if e.mode != 0 {
		m.files[name] = e
	}
}

// followRenames gives a file that one side has renamed its new name on all sides.
func (r *repo) followRenames(base, ours, theirs snapshot) (snapshot, error) {
	move := func(mine, other snapshot) error {
		cs, err := r.renames(changes(base, mine), r.stored, r.stored)
		if err != nil {
			return err
		}
		for _, c := range cs {
			if c.kind != 'R' {
				continue
			}
			e, ok := other[c.old]
			if _, taken := other[c.new]; !ok || taken {
				continue
			}
			base[c.new] = base[c.old]
			other[c.new] = e
			delete(base, c.old)
			delete(other, c.old)
		}
		return nil
	}
	err := move(ours, theirs)
	if err == nil {
		err = move(theirs, ours)
	}
	return base, err
}

// mergeFile merges the contents of one file.
func (r *repo) mergeFile(m *merged, name string, b, o, t entry, nameOurs, nameTheirs string) error {
	mode := o.mode
	if o.mode == b.mode {
		mode = t.mode
	}
	ours, err := r.stored(name, o)
	if err != nil {
		return err
	}
	theirs, err := r.stored(name, t)
	if err != nil {
		return err
	}
	var old []byte
	if b.mode != 0 {
		if old, err = r.stored(name, b); err != nil {
			return err
		}
	}
	if isBinary(ours) || isBinary(theirs) || isBinary(old) || !mode.IsFile() || mode == filemode.Symlink {
		m.conflicts[name] = [3]entry{b, o, t}
		m.files[name] = o
		m.messages = append(m.messages, fmt.Sprintf("warning: Cannot merge binary files: %s (%s vs. %s)", name, nameOurs, nameTheirs),
			"Auto-merging "+name, "CONFLICT (content): Merge conflict in "+name)
		return nil
	}
	text, clean, err := r.mergeText(old, ours, theirs, nameOurs, nameTheirs)
	if err != nil {
		return err
	}
	m.messages = append(m.messages, "Auto-merging "+name)
	h, err := r.putObject(plumbing.BlobObject, text)
	if err != nil {
		return err
	}
	m.files[name] = entry{mode, h}
	if !clean {
		kind := "content"
		if b.mode == 0 {
			kind = "add/add"
		}
		m.messages = append(m.messages, "CONFLICT ("+kind+"): Merge conflict in "+name)
		m.conflicts[name] = [3]entry{b, o, t}
		m.texts[name] = text
	}
	return nil
}

// mergeText merges lines. Where both sides changed the same lines, it writes conflict markers.
func (r *repo) mergeText(base, ours, theirs []byte, nameOurs, nameTheirs string) ([]byte, bool, error) {
	b, o, t := splitLines(base), splitLines(ours), splitLines(theirs)
	eo, err := r.compare(b, o)
	if err != nil {
		return nil, false, err
	}
	et, err := r.compare(b, t)
	if err != nil {
		return nil, false, err
	}
	var out bytes.Buffer
	clean := true
	at := 0 // in base
	shiftO, shiftT := 0, 0
	write := func(lines [][]byte) {
		for _, l := range lines {
			out.Write(l)
		}
	}
	for len(eo) > 0 || len(et) > 0 {
		// Find the next changed region of base, with all changes that touch it.
		start, end := 1<<62, -1
		if len(eo) > 0 {
			start = eo[0].a1
		}
		if len(et) > 0 {
			start = min(start, et[0].a1)
		}
		end = start
		no, nt := 0, 0
		for {
			before := no + nt
			for no < len(eo) && eo[no].a1 <= end && (eo[no].a1 < end || eo[no].a1 == start || nt > 0 || no > 0) {
				end = max(end, eo[no].a2)
				no++
			}
			for nt < len(et) && et[nt].a1 <= end && (et[nt].a1 < end || et[nt].a1 == start || no > 0 || nt > 0) {
				end = max(end, et[nt].a2)
				nt++
			}
			if no+nt == before {
				break
			}
		}
		write(b[at:start])
		o1, o2 := start+shiftO, end+shiftO
		for _, e := range eo[:no] {
			o2 += (e.b2 - e.b1) - (e.a2 - e.a1)
		}
		t1, t2 := start+shiftT, end+shiftT
		for _, e := range et[:nt] {
			t2 += (e.b2 - e.b1) - (e.a2 - e.a1)
		}
		mine, other := o[o1:o2], t[t1:t2]
		switch {
		case nt == 0:
			write(mine)
		case no == 0:
			write(other)
		case equalLines(mine, other):
			write(mine)
		default:
			clean = false
			head, tail := 0, 0
			for head < len(mine) && head < len(other) && bytes.Equal(mine[head], other[head]) {
				head++
			}
			for tail < len(mine)-head && tail < len(other)-head && bytes.Equal(mine[len(mine)-1-tail], other[len(other)-1-tail]) {
				tail++
			}
			write(mine[:head])
			out.WriteString("<<<<<<< " + nameOurs + "\n")
			write(mine[head : len(mine)-tail])
			endLine(&out)
			out.WriteString("=======\n")
			write(other[head : len(other)-tail])
			endLine(&out)
			out.WriteString(">>>>>>> " + nameTheirs + "\n")
			write(mine[len(mine)-tail:])
		}
		shiftO, shiftT = o2-end, t2-end
		at = end
		eo, et = eo[no:], et[nt:]
	}
	write(b[at:])
	return out.Bytes(), clean, nil
}

func endLine(b *bytes.Buffer) {
	if n := b.Len(); n > 0 && b.Bytes()[n-1] != '\n' {
		b.WriteByte('\n')
	}
}

func equalLines(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }

// settle writes the result of a merge to the index and the work tree.
func (r *repo) settle(from snapshot, m *merged) error {
	clean := maps.Clone(m.files)
	if err := r.moveTree(from, clean, false, "merge"); err != nil {
		return err
	}
	for _, s := range m.messages {
		r.printf("%s\n", s)
	}
	if len(m.conflicts) == 0 {
		return nil
	}
	x, err := r.index()
	if err != nil {
		return err
	}
	for n, c := range m.conflicts {
		x.remove(n)
		for i, e := range c {
			if e.mode != 0 {
				x.Entries = append(x.Entries, &index.Entry{Name: n, Hash: e.hash, Mode: e.mode, Stage: index.Stage(i + 1)})
			}
		}
	}
	return r.save(x)
}
