package pool

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Memory describes the state of the machine's memory. The zero value means that nothing is known,
// which counts as enough memory.
type Memory struct {
	Total, Available int64 // bytes
	// Stalled is the part of the last ten seconds, in percent, in which some task waited for
	// memory.
	Stalled float64
}

// Advice says what the memory allows the pool to do.
type Advice int

// The advices.
const (
	Grow   Advice = iota // more may be made
	Hold                 // no more
	Shrink               // give some back
)

// String names an advice.
func (a Advice) String() string {
	return [...]string{"grow", "hold", "shrink"}[a]
}

// Bounds for short memory: the part of the whole that must be available, and the stalling that
// shows trouble. Hold begins well before Shrink, so that the pool does not swing between growing
// and shrinking.
const (
	holdPart, shrinkPart       = 0.15, 0.08
	holdStalled, shrinkStalled = 5.0, 20.0
)

// Advise says what the memory allows the pool to do.
func (m Memory) Advise() Advice {
	if m.Total <= 0 {
		return Grow
	}
	part := float64(m.Available) / float64(m.Total)
	switch {
	case part < shrinkPart, m.Stalled > shrinkStalled:
		return Shrink
	case part < holdPart, m.Stalled > holdStalled:
		return Hold
	}
	return Grow
}

// ReadMemory reads the state of the machine's memory from its /proc. Values that can't be read stay
// zero. On kernels without pressure accounting, only the available memory counts.
func ReadMemory(proc string) Memory {
	var m Memory
	lines(filepath.Join(proc, "meminfo"), func(name string, fields []string) {
		switch name {
		case "MemTotal:":
			m.Total = kib(fields)
		case "MemAvailable:":
			m.Available = kib(fields)
		}
	})
	lines(filepath.Join(proc, "pressure", "memory"), func(name string, fields []string) {
		if name != "some" {
			return
		}
		for _, f := range fields {
			if v, ok := strings.CutPrefix(f, "avg10="); ok {
				m.Stalled, _ = strconv.ParseFloat(v, 64)
			}
		}
	})
	return m
}

// lines calls fn for each line of a file, with its first word and its other words.
func lines(path string, fn func(first string, rest []string)) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if words := strings.Fields(s.Text()); len(words) > 1 {
			fn(words[0], words[1:])
		}
	}
}

func kib(fields []string) int64 {
	n, _ := strconv.ParseInt(fields[0], 10, 64)
	return n << 10
}
