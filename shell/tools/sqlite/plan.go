package sqlite

import (
	lib "modernc.org/sqlite/lib"

	"github.com/carrel-dev/carrel/shell/tool"
)

// show prints the rows of a statement in the current mode.
func (s *shell) show(r *rows) error {
	if lib.Xsqlite3_stmt_isexplain(s.db.tls, r.stmt) == 2 {
		return s.plan(r)
	}
	p := s.format.printer(s.w, r.names)
	n := 0
	for {
		more, err := r.next()
		if err != nil {
			if n > 0 {
				_ = p.end()
			}
			return err
		}
		if !more {
			break
		}
		row := make([]value, len(r.names))
		size := 0
		for i := range row {
			row[i] = r.column(i)
			size += len(row[i].text) + 24
		}
		if n++; !s.Step(1 + size>>6) {
			return tool.ErrStop
		}
		if p.keeps() {
			if err := s.Pay(int64(size)); err != nil {
				return err
			}
			defer func() { _ = s.Pay(-int64(size)) }()
		}
		if err := p.add(row); err != nil {
			return err
		}
	}
	if n == 0 {
		return nil
	}
	return p.end()
}

// plan shows the rows of EXPLAIN QUERY PLAN as a tree.
func (s *shell) plan(r *rows) error {
	type node struct{ id, parent, text string }
	var all []node
	for {
		more, err := r.next()
		if err != nil {
			return err
		}
		if !more || len(all) > 1000 {
			break
		}
		all = append(all, node{r.column(0).text, r.column(1).text, r.column(3).text})
	}
	s.w.WriteString("QUERY PLAN\n")
	var show func(parent, indent string, depth int)
	show = func(parent, indent string, depth int) {
		last := -1
		for i, n := range all {
			if n.parent == parent {
				last = i
			}
		}
		for i, n := range all {
			if n.parent != parent || depth > 100 {
				continue
			}
			mark, more := "|--", "|  "
			if i == last {
				mark, more = "`--", "   "
			}
			s.w.WriteString(indent + mark + n.text + "\n")
			show(n.id, indent+more, depth+1)
		}
	}
	show("0", "", 0)
	_, err := s.w.Write(nil)
	return err
}
