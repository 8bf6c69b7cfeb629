package data

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

func xanShuffle(x *xan, args []string) error {
	size := -1
	if x.cmd() == "sample" {
		n, err := strconv.Atoi(args[0])
		if err != nil || n < 0 {
			return fmt.Errorf("invalid number '%s'", args[0])
		}
		size, args = n, args[1:]
	}
	rows, err := x.all(args)
	if err != nil {
		return err
	}
	state := uint64(0)
	if s := x.f.Value(0x80, ""); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return fmt.Errorf("invalid seed '%s'", s)
		}
		state = n
	} else {
		var b [8]byte
		x.Random(b[:])
		state = binary.LittleEndian.Uint64(b[:])
	}
	for i := len(rows) - 1; i > 0; i-- { // splitmix64
		state += 0x9e3779b97f4a7c15
		z := state
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		j := int((z ^ z>>31) % uint64(i+1))
		rows[i], rows[j] = rows[j], rows[i]
	}
	if size >= 0 {
		rows = rows[:min(size, len(rows))]
	}
	return x.rows(x.head, rows)
}

// xanSplit writes several files: one per number of rows, or one for each value of a column.
func xanSplit(x *xan, args []string) error {
	dir := x.f.Value('O', ".")
	partition := x.cmd() == "partition"
	sel := ""
	if partition {
		sel, args = args[0], args[1:]
	}
	rows, err := x.all(args)
	if err != nil {
		return err
	}
	var cols []int
	if partition {
		if cols, err = x.columns(sel); err != nil {
			return err
		}
	}
	size, err := x.number('S', 4096)
	if err != nil || size < 1 {
		return cmp.Or(err, fmt.Errorf("invalid size"))
	}
	if n, err := x.number('c', 0); err == nil && n > 0 {
		size = max((len(rows)+n-1)/n, 1)
	}
	template := x.f.Value('f', "{}.csv")
	parts := map[string][][]string{}
	var order []string
	for i, r := range rows {
		k := strconv.Itoa(i / size * size)
		if partition {
			k = strings.Map(func(c rune) rune {
				if c == '/' || c == 0 {
					return '_'
				}
				return c
			}, strings.Join(pickFields(r, cols), "-"))
			if k = strings.TrimLeft(k, "."); k == "" {
				k = "empty"
			}
		}
		if parts[k] == nil {
			order = append(order, k)
		}
		parts[k] = append(parts[k], r)
	}
	for _, k := range order {
		name := path.Join(dir, strings.ReplaceAll(template, "{}", k))
		f, err := x.Open(name, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o666)
		if err != nil {
			return fmt.Errorf("%s: %s", name, tool.ErrText(err))
		}
		x.w = f
		err = x.rows(x.head, parts[k])
		if err == nil {
			err = x.flush()
		}
		_ = f.Close() // it was flushed
		if err != nil {
			return err
		}
	}
	return nil
}
