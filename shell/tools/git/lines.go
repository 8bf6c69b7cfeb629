package git

import (
	"bytes"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tool/linediff"
)

// edit is one run of different lines: old[a1:a2] became new[b1:b2].
type edit struct{ a1, a2, b1, b2 int }

// splitLines splits a text into lines with their ends.
func splitLines(b []byte) [][]byte {
	var out [][]byte
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n') + 1
		if i == 0 {
			i = len(b)
		}
		out = append(out, b[:i])
		b = b[i:]
	}
	return out
}

// binaryHead is the number of bytes at the start of a file that decide whether it is text.
const binaryHead = 8000

// isBinary reports whether git treats a file as binary: it has a zero byte near its start.
func isBinary(b []byte) bool { return bytes.IndexByte(b[:min(len(b), binaryHead)], 0) >= 0 }

// compare finds the differences of two texts.
func (g *git) compare(old, new [][]byte) ([]edit, error) {
	numbers := map[string]int32{}
	number := func(lines [][]byte) []int32 {
		out := make([]int32, len(lines))
		for i, l := range lines {
			n, ok := numbers[string(l)]
			if !ok {
				n = int32(len(numbers))
				numbers[string(l)] = n
			}
			out[i] = n
		}
		return out
	}
	a, b := number(old), number(new)
	if !g.Step(10 + len(a) + len(b)) {
		return nil, tool.ErrStop
	}
	rest := func(ch linediff.Change, up, down int) int {
		lines, from, count := new, ch.B, ch.Ins
		if ch.Ins == 0 {
			lines, from, count = old, ch.A, ch.Del
		}
		return bestPlace(lines, from, count, up, down)
	}
	changes, ok := linediff.Changes(a, b, len(numbers), linediff.Options{Step: g.Step, Rest: rest})
	if !ok {
		return nil, tool.ErrStop
	}
	edits := make([]edit, len(changes))
	for i, ch := range changes {
		edits[i] = edit{ch.A, ch.A + ch.Del, ch.B, ch.B + ch.Ins}
	}
	return edits, nil
}
