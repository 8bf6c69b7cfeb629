package files

import (
	"fmt"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// pairOf is two directories that must still be compared, or a message that must still be written.
type pairOf struct {
	a, b   string
	text   string
	fa, fb side
	kind   byte // d directories, t text, f files
}

// directories compares two directories, without recursion.
func (d *differ) directories(a, b string) {
	stack := []pairOf{{a: a, b: b, kind: 'd'}}
	for len(stack) > 0 {
		if !d.Step(8) {
			d.status = 2
			return
		}
		p := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		switch p.kind {
		case 't':
			d.w.WriteString(p.text)
			continue
		case 'f':
			d.files(p.fa, p.fb, true)
			continue
		}
		found := d.entries(p.a, p.b, len(stack) == 0)
		slices.Reverse(found)
		stack = append(stack, found...)
	}
}

// list reads a directory as a map.
func (d *differ) list(dir string) (map[string]vfs.Info, []string) {
	out := map[string]vfs.Info{}
	entries, err := d.FS().ReadDir(d.Abs(dir))
	if err != nil {
		if !notExist(err) || !d.newFile && !d.newFirst {
			d.fail(dir, err)
		}
		return out, nil
	}
	if d.Pay(int64(len(entries))*costEntry) != nil {
		return out, nil
	}
	var names []string
	for _, e := range entries {
		if slices.ContainsFunc(d.exclude, func(p string) bool { return globMatch(p, e.Name, globPeriod) }) {
			continue
		}
		if d.start != "" && e.Name < d.start {
			continue
		}
		out[e.Name] = e
		names = append(names, e.Name)
	}
	return out, names
}

// entries compares the names of two directories, and returns the work for each name.
func (d *differ) entries(a, b string, top bool) (out []pairOf) {
	la, na := d.list(a)
	lb, nb := d.list(b)
	d.start = ""
	names := slices.Compact(slices.Sorted(slices.Values(append(na, nb...))))
	say := func(format string, args ...any) {
		out = append(out, pairOf{kind: 't', text: fmt.Sprintf(format, args...)})
	}
	for _, name := range names {
		_, inA := la[name]
		_, inB := lb[name]
		if !inA && !d.newFile && !d.newFirst || !inB && !d.newFile {
			dir := a
			if !inA {
				dir = b
			}
			say("Only in %s: %s\n", shellQuote(trimDir(dir), false), shellQuote(name, false))
			d.status = max(d.status, 1)
			continue
		}
		pa, pb := under(a, name), under(b, name)
		ia, ea := d.look(pa)
		ib, eb := d.look(pb)
		switch {
		case ea != nil && (inA || !notExist(ea)):
			d.fail(pa, ea)
		case eb != nil && (inB || !notExist(eb)):
			d.fail(pb, eb)
		case (ea != nil || ia.Mode.IsDir()) && (eb != nil || ib.Mode.IsDir()):
			if d.recurse {
				out = append(out, pairOf{a: pa, b: pb, kind: 'd'})
			} else if ea == nil && eb == nil {
				say("Common subdirectories: %s and %s\n", pa, pb)
			} else {
				dir := a
				if ea != nil {
					dir = b
				}
				say("Only in %s: %s\n", trimDir(dir), name)
				d.status = max(d.status, 1)
			}
		case ea == nil && eb == nil && (ia.Mode.IsDir() || ib.Mode.IsDir() || typeLetter(ia.Mode) != typeLetter(ib.Mode)):
			say("File %s is a %s while file %s is a %s\n", pa, kindName(ia), pb, kindName(ib))
			d.status = max(d.status, 1)
		default:
			out = append(out, pairOf{kind: 'f', fa: side{name: pa, info: ia, ok: ea == nil}, fb: side{name: pb, info: ib, ok: eb == nil}})
		}
	}
	return out
}

func trimDir(dir string) string {
	if t := strings.TrimRight(dir, "/"); t != "" {
		return t
	}
	return dir
}
