package git

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// counted is the number of added and removed lines of a file.
type counted struct {
	name      string
	plus, min int
	binary    bool
	from, to  int // bytes, of binary files
}

// count counts the lines of all changes.
func (r *repo) count(cs []change, old, new side, o *diffOptions) ([]counted, error) {
	var out []counted
	for _, c := range cs {
		a, b, err := c.contents(old, new)
		if err != nil {
			return nil, err
		}
		x := counted{name: c.new}
		if c.kind == 'R' {
			x.name = renamed(c.old, c.new)
		} else {
			x.name = quotePath(c.new)
		}
		if isBinary(a) || isBinary(b) {
			x.binary, x.from, x.to = true, len(a), len(b)
		} else if c.from.hash != c.to.hash {
			edits, err := r.compare(keyLines(splitLines(a), o.ignoreSpace), keyLines(splitLines(b), o.ignoreSpace))
			if err != nil {
				return nil, err
			}
			for _, e := range edits {
				x.min += e.a2 - e.a1
				x.plus += e.b2 - e.b1
			}
			if o.ignoreSpace && len(edits) == 0 {
				continue
			}
		}
		out = append(out, x)
	}
	return out, nil
}

// renamed writes a rename, with the common parts of both names outside braces.
func renamed(old, new string) string {
	head := 0
	for i := 0; i < len(old) && i < len(new) && old[i] == new[i]; i++ {
		if old[i] == '/' {
			head = i + 1
		}
	}
	tail := 0
	for i := 1; i <= len(old)-max(head-1, 0) && i <= len(new)-max(head-1, 0) && old[len(old)-i] == new[len(new)-i]; i++ {
		if old[len(old)-i] == '/' {
			tail = i
		}
	}
	if head == 0 && tail == 0 {
		return quotePath(old) + " => " + quotePath(new)
	}
	mid := func(s string) string { return s[head:max(len(s)-tail, head)] }
	return old[:head] + "{" + mid(old) + " => " + mid(new) + "}" + old[len(old)-tail:]
}

// stat writes --stat, --numstat and --shortstat.
func (r *repo) stat(cs []change, old, new side, o *diffOptions) error {
	all, err := r.count(cs, old, new, o)
	if err != nil {
		return err
	}
	if o.numstat {
		for _, x := range all {
			name := x.name
			if x.binary {
				r.printf("-\t-\t%s\n", name)
			} else {
				r.printf("%d\t%d\t%s\n", x.plus, x.min, name)
			}
		}
	}
	if o.stat {
		r.graph(all)
	}
	if o.stat || o.shortstat {
		r.printf("%s", total(all))
	}
	return nil
}

// graph draws the bars of --stat in 80 columns.
func (r *repo) graph(all []counted) {
	const width = 80
	nameWidth, most, binary := 0, 0, 0
	for _, x := range all {
		nameWidth = max(nameWidth, utf8.RuneCountInString(x.name))
		most = max(most, x.plus+x.min)
		if x.binary {
			binary = max(binary, len(fmt.Sprintf("Bin %d -> %d bytes", x.from, x.to)))
		}
	}
	number := len(fmt.Sprint(most))
	if binary > 0 {
		number = max(number, 3)
	}
	graph := most
	if nameWidth+number+6+max(graph, binary-number-1) > width {
		if graph > width*3/8-number-6 {
			graph = max(width*3/8-number-6, 6)
		}
		if nameWidth > width-number-6-graph {
			nameWidth = width - number - 6 - graph
		} else {
			graph = width - number - 6 - nameWidth
		}
	}
	for _, x := range all {
		name := x.name
		if n := utf8.RuneCountInString(name); n > nameWidth {
			rs := []rune(name)
			name = string(rs[n-(nameWidth-3):])
			if i := strings.IndexByte(name, '/'); i >= 0 {
				name = name[i:]
			}
			name = "..." + name
		}
		name += strings.Repeat(" ", max(nameWidth-utf8.RuneCountInString(name), 0))
		if x.binary {
			r.printf(" %s | %*s", name, number, "Bin")
			if x.from != 0 || x.to != 0 {
				r.printf(" %d -> %d bytes", x.from, x.to)
			}
			r.printf("\n")
			continue
		}
		plus, minus := x.plus, x.min
		if graph <= most {
			sum := scale(plus+minus, graph, most)
			if sum < 2 && plus > 0 && minus > 0 {
				sum = 2
			}
			if plus < minus {
				plus = scale(plus, graph, most)
				minus = sum - plus
			} else {
				minus = scale(minus, graph, most)
				plus = sum - minus
			}
		}
		bar := strings.Repeat("+", max(plus, 0)) + strings.Repeat("-", max(minus, 0))
		if bar != "" {
			bar = " " + bar
		}
		r.printf(" %s | %*d%s\n", name, number, x.plus+x.min, bar)
	}
}

func scale(n, width, most int) int {
	if n == 0 || most == 0 {
		return 0
	}
	return 1 + n*(width-1)/most
}

// total returns the summary line.
func total(all []counted) string {
	if len(all) == 0 {
		return ""
	}
	plus, minus := 0, 0
	for _, x := range all {
		plus += x.plus
		minus += x.min
	}
	s := " " + plural(len(all), "file") + " changed"
	if plus > 0 || minus == 0 {
		s += ", " + plural(plus, "insertion") + "(+)"
	}
	if minus > 0 || plus == 0 {
		s += ", " + plural(minus, "deletion") + "(-)"
	}
	return s + "\n"
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// summary lists the files that were created, removed and renamed.
func (r *repo) summary(cs []change) {
	for _, c := range cs {
		switch {
		case c.kind == 'A':
			r.printf(" create mode %06o %s\n", uint32(c.to.mode), quotePath(c.new))
		case c.kind == 'D':
			r.printf(" delete mode %06o %s\n", uint32(c.from.mode), quotePath(c.old))
		case c.kind == 'R':
			r.printf(" rename %s (%d%%)\n", renamed(c.old, c.new), c.score)
		}
		if (c.kind == 'M' || c.kind == 'T') && c.from.mode != c.to.mode {
			r.printf(" mode change %06o => %06o %s\n", uint32(c.from.mode), uint32(c.to.mode), quotePath(c.new))
		}
	}
}
