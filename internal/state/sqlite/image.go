package sqlite

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"math"
	"os"
	"sort"
)

// image is what a ledger says about each row. It holds sums of the rows and not the rows: those are
// read again in the few cases in which they are needed.
type image struct {
	path string
	head *entry // nil: there is no ledger, or its beginning can't be read
	last int64  // the number of the last change
	rows map[*table]map[any]known
	trim map[*table][]trimming
	seq  int64 // the number of the newest event, as far as it is known

	holes int // how many lines are damaged or missing
	hole  int // the place of the last one among the changes
}

// known is the newest mention of a row in a ledger.
type known struct {
	place int    // of the statement, counted from the beginning
	at    int64  // of its line in the file, in bytes
	sum   uint64 // of the row
	time  int64  // of the row, for trimmings
	gone  bool   // it was deleted
}

// trimming is a deletion of old rows.
type trimming struct {
	place  int
	before int64
}

// role says what an operation does to a table.
type role struct {
	table *table
	kind  string // "put", "remove" or "trim"
}

// roles are the roles of the operations that concern rows.
var roles = func() map[string]role {
	m := map[string]role{}
	for _, t := range tables {
		m[t.put] = role{t, "put"}
		m[t.remove] = role{t, "remove"}
		m[t.trim] = role{t, "trim"}
	}
	delete(m, "") // for tables without such an operation
	return m
}()

// noImage is the image of no ledger.
func noImage(path string) *image {
	m := &image{path: path, rows: map[*table]map[any]known{}, trim: map[*table][]trimming{}}
	for _, t := range tables {
		m.rows[t] = map[any]known{}
	}
	return m
}

// readImage reads a ledger. A ledger that is not there has no head.
func readImage(path string) (*image, error) {
	m := noImage(path)
	place, first, last := 0, int64(0), int64(0)
	head, end, err := scanLedger(path, func(e entry, damaged bool) error {
		place++
		switch {
		case damaged:
			m.holes++
			m.hole = place
		case e.Complete:
			m.hole = 0 // it was in the base, and no other line of the base is in doubt
		case e.N > 0 && first == 0:
			first, last = e.N, e.N
		case e.N > 0:
			if e.N != last+1 { // whole lines are missing
				m.holes++
				m.hole = place
			}
			last = e.N
		}
		for _, st := range e.Ops {
			place++
			m.take(st, place, e.at)
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if head == nil {
		return noImage(path), nil
	}
	if first > head.From+1 {
		m.holes++
		m.hole = place // it is not worth more care
	}
	m.head, m.last = head, end
	m.settleTrims()
	return m, nil
}

// damaged reports whether a line of the ledger can't be read or is missing.
func (m *image) damaged() bool { return m.holes > 0 }

// take carries out one statement.
func (m *image) take(st statement, place int, at int64) {
	if st.Op == opSequence && len(st.Args) == 1 {
		n, _ := st.Args[0].(int64)
		m.seq = max(m.seq, n)
	}
	r, ok := roles[st.Op]
	if !ok || len(st.Args) == 0 {
		return
	}
	switch t := r.table; r.kind {
	case "put":
		if len(st.Args) != len(t.columns) {
			return
		}
		key := st.Args[t.key]
		time, _ := st.Args[t.time].(int64)
		m.rows[t][key] = known{place: place, at: at, sum: sumRow(st.Args), time: time}
		if seq, ok := key.(int64); ok {
			m.seq = max(m.seq, seq)
		}
	case "remove":
		m.rows[t][st.Args[0]] = known{place: place, at: at, gone: true}
	case "trim":
		before, _ := st.Args[0].(int64)
		m.trim[t] = append(m.trim[t], trimming{place: place, before: before})
	}
}

// settleTrims marks the rows that trimmings have deleted. It is one step at the end, because a
// ledger may have many trimmings, and each concerns all rows.
func (m *image) settleTrims() {
	for t, list := range m.trim {
		// most[i] is the latest limit of the trimmings from i on.
		most := make([]int64, len(list)+1)
		most[len(list)] = math.MinInt64
		for i := len(list) - 1; i >= 0; i-- {
			most[i] = max(most[i+1], list[i].before)
		}
		for key, k := range m.rows[t] {
			i := firstAfter(list, k.place)
			if !k.gone && k.time < most[i] {
				k.gone, k.place = true, list[len(list)-1].place
				m.rows[t][key] = k
			}
		}
	}
}

// firstAfter returns the index of the first trimming after a place.
func firstAfter(list []trimming, place int) int {
	return sort.Search(len(list), func(i int) bool { return list[i].place > place })
}

// row reads the row of a table again that a ledger's line wrote.
func (m *image) row(t *table, key any, k known) ([]any, error) {
	f, err := os.Open(m.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	line, err := bufio.NewReader(io.NewSectionReader(f, k.at, math.MaxInt64-k.at)).ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	e, err := decodeEntry(line)
	if err != nil {
		return nil, fmt.Errorf("%s at byte %d: %w", m.path, k.at, err)
	}
	for i := len(e.Ops) - 1; i >= 0; i-- {
		st := e.Ops[i]
		if st.Op == t.put && len(st.Args) == len(t.columns) && st.Args[t.key] == key {
			return st.Args, nil
		}
	}
	return nil, fmt.Errorf("%s at byte %d: %w", m.path, k.at, errDamagedLine)
}

var seed = maphash.MakeSeed()

// sumRow returns a checksum of a row's values and of their types.
func sumRow(row []any) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	number := func(kind byte, n uint64) {
		var b [9]byte
		b[0] = kind
		binary.LittleEndian.PutUint64(b[1:], n)
		_, _ = h.Write(b[:])
	}
	for _, v := range row {
		switch v := v.(type) {
		case int64:
			number('i', uint64(v))
		case float64:
			number('f', math.Float64bits(v))
		case string:
			number('s', uint64(len(v)))
			_, _ = h.WriteString(v)
		case []byte:
			number('b', uint64(len(v)))
			_, _ = h.Write(v)
		default:
			number('0', 0)
		}
	}
	return h.Sum64()
}
