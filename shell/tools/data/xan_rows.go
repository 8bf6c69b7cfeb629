package data

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/carrel-dev/carrel/shell/tool"
)

func xanHeaders(x *xan, args []string) error {
	if len(args) == 0 {
		args = []string{"-"}
	}
	for _, a := range args {
		if err := x.each([]string{a}, nil, func([]string) error { return errEnd }); err != nil && err != errEnd {
			return err
		}
		if len(args) > 1 {
			x.text("%s\n", a)
		}
		for i, h := range x.head {
			if x.f.Has('j') {
				x.text("%s\n", h)
			} else {
				x.text("%-4d%s\n", i, h)
			}
		}
	}
	return nil
}

func xanCount(x *xan, args []string) error {
	n := 0
	err := x.each(args, nil, func([]string) error { n++; return nil })
	x.text("%d\n", n)
	return err
}

func xanSlice(x *xan, args []string) error {
	start, err := x.number('s', 0)
	if err != nil {
		return err
	}
	length, err := x.number('l', -1)
	if err != nil {
		return err
	}
	end, err := x.number('e', -1)
	if err != nil {
		return err
	}
	if x.f.Has('i') {
		if start, err = x.number('i', 0); err != nil {
			return err
		}
		length = 1
	}
	if x.cmd() == "head" && length < 0 {
		length = 10
	}
	if length >= 0 && x.cmd() != "behead" {
		end = start + length
	}
	n := 0
	begin := func() error {
		if x.cmd() == "behead" {
			return nil
		}
		return x.header(x.head)
	}
	return x.each(args, begin, func(row []string) error {
		if end >= 0 && n >= end {
			return errEnd
		}
		if n++; n > start {
			return x.put(row)
		}
		return nil
	})
}

func xanTail(x *xan, args []string) error {
	rows, err := x.all(args)
	if err != nil {
		return err
	}
	if x.cmd() == "reverse" {
		slices.Reverse(rows)
	} else {
		n, err := x.number('l', 10)
		if err != nil {
			return err
		}
		rows = rows[max(len(rows)-max(n, 0), 0):]
	}
	return x.rows(x.head, rows)
}

// rows writes a header and records.
func (x *xan) rows(head []string, rows [][]string) error {
	if err := x.header(head); err != nil {
		return err
	}
	for _, r := range rows {
		if !x.Step(2 + len(r)) {
			return tool.ErrStop
		}
		if err := x.put(r); err != nil {
			return err
		}
	}
	return nil
}

func xanFilter(x *xan, args []string) error {
	var f expr
	index := 0
	limit, err := x.number('l', -1)
	if err != nil {
		return err
	}
	n := 0
	return x.each(args[1:], func() (err error) {
		if f, err = x.parser(args[0], &index).whole(); err != nil {
			return err
		}
		return x.header(x.head)
	}, func(row []string) error {
		v, err := f(row)
		index++
		if err != nil || truthy(v) == x.f.Has('v') {
			return err
		}
		if n++; limit >= 0 && n > limit {
			return errEnd
		}
		return x.put(row)
	})
}

func xanSearch(x *xan, args []string) error {
	pattern := args[0]
	if !x.f.Has('r') {
		pattern = regexp.QuoteMeta(pattern)
	}
	if x.f.Has('e') {
		pattern = "^(?:" + pattern + ")$"
	}
	if x.f.Has('i') {
		pattern = "(?i)" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return fmt.Errorf("invalid pattern: %s", args[0])
	}
	var cols []int
	return x.each(args[1:], func() (err error) {
		if cols, err = x.columns(x.f.Value('s', "*")); err != nil {
			return err
		}
		return x.header(x.head)
	}, func(row []string) error {
		found := false
		for _, c := range cols {
			found = found || c < len(row) && re.MatchString(row[c])
		}
		if found == x.f.Has('v') {
			return nil
		}
		return x.put(row)
	})
}
