package overlay

import (
	"bufio"
	"strconv"
	"strings"
)

// contextLines is the number of unchanged lines around a change.
const contextLines = 3

// writeHunks writes the part of a unified diff after the names of the files.
func writeHunks(w *bufio.Writer, a, b []string) {
	edits := compareLines(a, b)
	for len(edits) > 0 {
		n := 1
		for n < len(edits) && edits[n].aFrom-edits[n-1].aTo <= 2*contextLines {
			n++
		}
		writeHunk(w, a, b, edits[:n])
		edits = edits[n:]
	}
}

// writeHunk writes edits that are near one another.
func writeHunk(w *bufio.Writer, a, b []string, edits []edit) {
	first, last := edits[0], edits[len(edits)-1]
	lead := min(contextLines, first.aFrom)
	tail := min(contextLines, len(a)-last.aTo)
	from, to := first.aFrom-lead, last.aTo+tail
	bFrom, bTo := first.bFrom-lead, last.bTo+tail
	_, _ = w.WriteString("@@ -" + span(from, to) + " +" + span(bFrom, bTo) + " @@\n")
	at := from
	for _, e := range edits {
		writeLines(w, ' ', a[at:e.aFrom])
		writeLines(w, '-', a[e.aFrom:e.aTo])
		writeLines(w, '+', b[e.bFrom:e.bTo])
		at = e.aTo
	}
	writeLines(w, ' ', a[at:to])
}

// span writes a range of lines for a hunk's head. The first line counts from one. The number of an
// empty range is that of the line before it.
func span(from, to int) string {
	if to == from {
		return strconv.Itoa(from) + ",0"
	}
	if to == from+1 {
		return strconv.Itoa(from + 1)
	}
	return strconv.Itoa(from+1) + "," + strconv.Itoa(to-from)
}

// writeLines writes lines with their sign. w keeps its errors until Flush.
func writeLines(w *bufio.Writer, sign byte, lines []string) {
	for _, l := range lines {
		_ = w.WriteByte(sign)
		_, _ = w.WriteString(l)
		if !strings.HasSuffix(l, "\n") {
			_, _ = w.WriteString("\n\\ No newline at end of file\n")
		}
	}
}
