package text

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
	"github.com/carrel-dev/carrel/shell/vfs"
)

func shuf(c *tool.Call) int {
	f, ok := c.Flags("ei:n:o:rz\x81:", "echo=e", "input-range=i", "head-count=n", "output=o", "repeat=r", "zero-terminated=z", "random-source=\x81")
	if !ok {
		return 1
	}
	end := byte('\n')
	if f.Has('z') {
		end = 0
	}
	count := math.MaxInt
	for _, v := range f.Values('n') {
		n, err := atoi(v)
		if err != nil {
			return c.Errorf(1, "invalid line count: ‘%s’", v)
		}
		count = min(count, n)
	}
	purse := usage.NewPurse(c)
	defer purse.Free()
	random := func(n int) int {
		var b [8]byte
		c.Random(b[:])
		return int(binary.LittleEndian.Uint64(b[:]) % uint64(n))
	}
	if src := f.Value('\x81', ""); src != "" {
		in, err := usage.Open(c, src)
		if err != nil {
			return c.Errorf(1, "%s: %s", src, tool.ErrText(err))
		}
		defer func() { _ = in.Close() }() // only read
		random = func(n int) int {
			var b [8]byte
			_, _ = io.ReadFull(in, b[:]) // an end repeats zeros
			return int(binary.LittleEndian.Uint64(b[:]) % uint64(n))
		}
	}
	var lines [][]byte
	total := 0
	item := func(i int) []byte { return lines[i] }
	switch {
	case f.Has('i'):
		a, b, two := strings.Cut(f.Value('i', ""), "-")
		lo, err1 := atoi(a)
		hi, err2 := atoi(b)
		if !two || err1 != nil || err2 != nil || hi < lo-1 {
			return c.Errorf(1, "invalid input range: ‘%s’", f.Value('i', ""))
		}
		if len(f.Args) > 0 {
			return usage.Extra(c, 1, f.Args[0])
		}
		total = hi - lo + 1
		item = func(i int) []byte { return strconv.AppendInt(nil, int64(lo+i), 10) }
	case f.Has('e'):
		for _, a := range f.Args {
			lines = append(lines, []byte(a))
		}
		total = len(lines)
	default:
		if len(f.Args) > 1 {
			return usage.Extra(c, 1, f.Args[1])
		}
		status := usage.Inputs(c, f.Args, "%s", 1, func(_ string, in io.Reader) error {
			data, err := purse.ReadAll(in)
			if err != nil {
				return err
			}
			if err := purse.Pay(24 * (1 + bytes.Count(data, []byte{end}))); err != nil {
				return err
			}
			for len(data) > 0 {
				l, rest, _ := bytes.Cut(data, []byte{end})
				lines = append(lines, l)
				data = rest
			}
			return nil
		})
		if status != 0 {
			return status
		}
		total = len(lines)
	}
	w := c.Buffered()
	if o := f.Value('o', ""); o != "" {
		file, err := c.Open(o, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o666)
		if err != nil {
			return c.Errorf(1, "%s: %s", o, tool.ErrText(err))
		}
		defer func() { _ = file.Close() }() // the flush reports
		w.Reset(file)
	}
	put := func(i int) bool {
		_, err := w.Write(append(slices.Clip(item(i)), end))
		return err == nil && c.Step(1)
	}
	if f.Has('r') {
		if total == 0 && count > 0 {
			return c.Errorf(1, "no lines to repeat")
		}
		for n := 0; n < count || !f.Has('n'); n++ {
			if !put(random(total)) {
				break
			}
		}
		return c.Flush(w, 0)
	}
	// A sparse Fisher-Yates shuffle: only swapped positions are stored.
	swapped := map[int]int{}
	at := func(i int) int {
		if v, ok := swapped[i]; ok {
			return v
		}
		return i
	}
	for i := 0; i < min(count, total); i++ {
		j := i + random(total-i)
		vi, vj := at(i), at(j)
		swapped[j] = vi
		delete(swapped, i)
		if i%64 == 0 {
			if purse.Pay(64*32) != nil {
				return 1
			}
		}
		if !put(vj) {
			break
		}
	}
	return c.Flush(w, 0)
}

func tsort(c *tool.Call) int {
	f, ok := c.Flags("")
	if !ok {
		return 1
	}
	if len(f.Args) > 1 {
		return usage.Extra(c, 1, f.Args[1])
	}
	var words []string
	purse := usage.NewPurse(c)
	defer purse.Free()
	name := "-"
	status := usage.Inputs(c, f.Args, "%s", 1, func(n string, in io.Reader) error {
		name = n
		data, err := purse.ReadAll(in)
		if err != nil {
			return err
		}
		if err := purse.Pay(len(data) * 8); err != nil {
			return err
		}
		words = strings.Fields(string(data))
		return nil
	})
	if status != 0 {
		return status
	}
	if len(words)%2 != 0 {
		return c.Errorf(1, "%s: input contains an odd number of tokens", name)
	}
	type item struct {
		before int   // how many stand before it
		after  []int // newest first
		done   bool
	}
	ids := map[string]int{}
	var names []string
	var items []*item
	id := func(w string) int {
		if i, ok := ids[w]; ok {
			return i
		}
		ids[w] = len(names)
		names = append(names, w)
		items = append(items, &item{})
		return len(names) - 1
	}
	for i := 0; i < len(words); i += 2 {
		a, b := id(words[i]), id(words[i+1])
		if a != b {
			items[a].after = append(items[a].after, b)
			items[b].before++
		}
	}
	// As in GNU's tsort, find the names without a predecessor in sorted order.
	order := make([]int, len(names))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(names[a], names[b]) })
	w := c.Buffered()
	var queue []int
	for _, i := range order {
		if items[i].before == 0 {
			queue = append(queue, i)
		}
	}
	left := len(names)
	for left > 0 {
		for len(queue) > 0 {
			i := queue[0]
			queue = queue[1:]
			if !c.Step(1 + len(items[i].after)) {
				return 1
			}
			items[i].done = true
			left--
			fmt.Fprintln(w, names[i])
			for _, k := range slices.Backward(items[i].after) {
				if items[k].before--; items[k].before == 0 {
					queue = append(queue, k)
				}
			}
		}
		if left == 0 {
			break
		}
		// For a loop, print the names of its members, then break it.
		status = c.Errorf(1, "%s: input contains a loop:", name)
		seen := map[int]int{}
		var path []int
		at := -1
		for _, i := range order {
			if !items[i].done {
				at = i
				break
			}
		}
		for {
			if s, ok := seen[at]; ok {
				path = path[s:]
				break
			}
			seen[at] = len(path)
			path = append(path, at)
			next := -1
			for _, i := range order { // a predecessor of it
				if !items[i].done && slices.Contains(items[i].after, at) {
					next = i
					break
				}
			}
			if next < 0 || !c.Step(len(order)) {
				return c.Flush(w, 1)
			}
			at = next
		}
		for _, i := range path {
			c.Errorf(0, "%s", names[i])
		}
		from, to := path[min(1, len(path)-1)], path[0]
		if k := slices.Index(items[from].after, to); k >= 0 {
			items[from].after = slices.Delete(items[from].after, k, k+1)
			if items[to].before--; items[to].before == 0 {
				queue = append(queue, to)
			}
		} else {
			return c.Flush(w, 1)
		}
	}
	return c.Flush(w, status)
}

func factor(c *tool.Call) int {
	f, ok := c.Flags("h", "exponents=h")
	if !ok {
		return 1
	}
	w := c.Buffered()
	one := func(s string) error {
		n, ok := new(big.Int).SetString(strings.TrimPrefix(s, "+"), 10)
		if !ok || n.Sign() < 0 || len(s) > 200 {
			return fmt.Errorf("‘%s’ is not a valid positive integer", s)
		}
		list, err := factors(c, n)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s:", n)
		for i := 0; i < len(list); {
			k := i
			for k < len(list) && list[k].Cmp(list[i]) == 0 {
				k++
			}
			if f.Has('h') {
				fmt.Fprintf(w, " %s", list[i])
				if k-i > 1 {
					fmt.Fprintf(w, "^%d", k-i)
				}
			} else {
				for range k - i {
					fmt.Fprintf(w, " %s", list[i])
				}
			}
			i = k
		}
		return w.WriteByte('\n')
	}
	status := 0
	each := func(s string) error {
		err := one(s)
		if err != nil && !c.Stopped(err) {
			status = c.Errorf(1, "%v", err)
			return nil
		}
		return err
	}
	for _, a := range f.Args {
		if each(a) != nil {
			return 1
		}
	}
	if len(f.Args) == 0 {
		err := c.Lines(c.In, '\n', func(l []byte, _ bool) error {
			for _, word := range strings.Fields(string(l)) {
				if err := each(word); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return 1
		}
	}
	return c.Flush(w, status)
}

// factors returns the prime factors in order.
func factors(c *tool.Call, n *big.Int) (out []*big.Int, err error) {
	n = new(big.Int).Set(n)
	one := big.NewInt(1)
	for _, p := range []int64{2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47} {
		d := big.NewInt(p)
		var q, r big.Int
		for n.Cmp(one) > 0 {
			if q.QuoRem(n, d, &r); r.Sign() != 0 {
				break
			}
			out = append(out, d)
			n.Set(&q)
		}
	}
	todo := []*big.Int{n}
	for len(todo) > 0 {
		m := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if m.Cmp(one) <= 0 {
			continue
		}
		if m.ProbablyPrime(20) {
			out = append(out, m)
			continue
		}
		d, err := rho(c, m)
		if err != nil {
			return nil, err
		}
		todo = append(todo, d, new(big.Int).Quo(m, d))
	}
	slices.SortFunc(out, func(a, b *big.Int) int { return a.Cmp(b) })
	return out, nil
}

// rho finds a factor of a composite number with Pollard's method.
func rho(c *tool.Call, n *big.Int) (*big.Int, error) {
	if r := new(big.Int).Sqrt(n); new(big.Int).Mul(r, r).Cmp(n) == 0 {
		return r, nil
	}
	one := big.NewInt(1)
	for k := int64(1); ; k++ {
		x, y, d, p := big.NewInt(2), big.NewInt(2), big.NewInt(1), big.NewInt(1)
		add := big.NewInt(k)
		step := func(v *big.Int) { v.Mul(v, v).Add(v, add).Mod(v, n) }
		diff := new(big.Int)
		for d.Cmp(one) == 0 {
			const batch = 64
			sx, sy := new(big.Int).Set(x), new(big.Int).Set(y)
			p.Set(one)
			for range batch {
				step(x)
				step(y)
				step(y)
				p.Mul(p, diff.Abs(diff.Sub(x, y))).Mod(p, n)
			}
			if !c.Step(batch * 5) {
				return nil, tool.ErrStop
			}
			if d.GCD(nil, nil, p, n); d.Cmp(n) == 0 || p.Sign() == 0 { // too many at once: one by one
				x, y = sx, sy
				d.Set(one)
				for range batch {
					step(x)
					step(y)
					step(y)
					if d.GCD(nil, nil, diff.Abs(diff.Sub(x, y)), n); d.Cmp(one) != 0 {
						break
					}
				}
			}
		}
		if d.Cmp(n) != 0 {
			return d, nil
		}
	}
}
