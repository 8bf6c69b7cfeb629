package files

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
)

var (
	unifiedHead = regexp.MustCompile(`^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)$`)
	normalHead  = regexp.MustCompile(`^(\d+)(?:,(\d+))?([acd])(\d+)(?:,(\d+))?$`)
	contextOld  = regexp.MustCompile(`^\*\*\* (\d+)(?:,(\d+))? \*\*\*\*`)
	contextNew  = regexp.MustCompile(`^--- (\d+)(?:,(\d+))? ----`)
)

// patchReader reads a patch line by line.
type patchReader struct {
	c     *tool.Call
	lines [][]byte
	at    int
}

// parsePatch reads a patch. garbage says whether it contained other text.
func parsePatch(c *tool.Call, data []byte) (out []*filePatch, garbage bool) {
	r := &patchReader{c: c, lines: bytes.Split(data, []byte{'\n'})}
	if n := len(r.lines); n > 0 && len(r.lines[n-1]) == 0 {
		r.lines = r.lines[:n-1]
	}
	var fp *filePatch
	fresh := func() *filePatch { fp = &filePatch{}; return fp }
	fresh()
	add := func() {
		if len(fp.hunks) > 0 {
			out = append(out, fp)
		}
		fresh()
	}
	for r.at < len(r.lines) {
		if r.at%16 == 0 && !c.Step(16) {
			return nil, true
		}
		line := strings.TrimSuffix(string(r.lines[r.at]), "\r")
		switch {
		case strings.HasPrefix(line, "--- ") && r.at+1 < len(r.lines) && bytes.HasPrefix(r.lines[r.at+1], []byte("+++ ")):
			index := fp.index
			if len(fp.hunks) > 0 {
				add()
				index = ""
			}
			fp.index = index
			fp.oldName, fp.oldGone = headerName(line[4:])
			fp.newName, fp.newGone = headerName(string(r.lines[r.at+1][4:]))
			fp.oldText, fp.newText = line[4:], strings.TrimRight(string(r.lines[r.at+1][4:]), "\r")
			r.at += 2
			for r.at < len(r.lines) && unifiedHead.Match(r.lines[r.at]) {
				if h, ok := r.unified(); ok {
					fp.hunks = append(fp.hunks, h)
				} else {
					return append(out, fp), true
				}
			}
			add()
		case strings.HasPrefix(line, "*** ") && r.at+1 < len(r.lines) && bytes.HasPrefix(r.lines[r.at+1], []byte("--- ")):
			fp.oldName, fp.oldGone = headerName(line[4:])
			fp.newName, fp.newGone = headerName(string(r.lines[r.at+1][4:]))
			fp.oldText, fp.newText = line[4:], strings.TrimRight(string(r.lines[r.at+1][4:]), "\r")
			r.at += 2
			for r.at < len(r.lines) && bytes.HasPrefix(r.lines[r.at], []byte("***************")) {
				h, ok := r.context()
				if !ok {
					break
				}
				fp.hunks = append(fp.hunks, h)
			}
			add()
		case strings.HasPrefix(line, "Index: "):
			add()
			fp.index = strings.TrimSpace(line[7:])
			r.at++
		case unifiedHead.MatchString(line):
			if h, ok := r.unified(); ok {
				fp.hunks = append(fp.hunks, h)
			}
		case normalHead.MatchString(line):
			for r.at < len(r.lines) && normalHead.Match(r.lines[r.at]) {
				h, ok := r.normal()
				if !ok {
					break
				}
				fp.hunks = append(fp.hunks, h)
			}
			add()
		default:
			garbage = true
			r.at++
		}
	}
	add()
	return out, garbage
}

// headerName returns the name in a header line, and whether its time says that the file did not
// exist.
func headerName(s string) (name string, gone bool) {
	s = strings.TrimRight(s, "\r")
	name, stamp, tab := strings.Cut(s, "\t")
	if strings.HasPrefix(s, `"`) {
		if end := strings.LastIndexByte(s, '"'); end > 0 {
			if u, err := strconv.Unquote(s[:end+1]); err == nil {
				name, stamp = u, s[end+1:]
			}
		}
	} else if !tab {
		if at := strings.IndexByte(s, ' '); at > 0 {
			name, stamp = s[:at], s[at:]
		}
	}
	stamp = strings.TrimSpace(stamp)
	return name, name == "/dev/null" || strings.HasPrefix(stamp, "1970-01-01 00:00:00") || strings.HasPrefix(stamp, "Thu Jan  1 00:00:00 1970")
}

// count reads a number of a header, and returns other if it is missing.
func count(s string, other int) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return other
	}
	return min(n, 1<<30)
}

// noNewline consumes the line that says that the previous line has no newline.
func (r *patchReader) noNewline() bool {
	if r.at < len(r.lines) && bytes.HasPrefix(r.lines[r.at], []byte(`\ `)) {
		r.at++
		return true
	}
	return false
}

// unified reads one hunk.
func (r *patchReader) unified() (h patchHunk, ok bool) {
	m := unifiedHead.FindStringSubmatch(strings.TrimSuffix(string(r.lines[r.at]), "\r"))
	r.at++
	h = patchHunk{from: count(m[1], 0), oldN: count(m[2], 1), to: count(m[3], 0), newN: count(m[4], 1), function: m[5], inputLine: r.at + 1}
	oldLeft, newLeft := h.oldN, h.newN
	for oldLeft > 0 || newLeft > 0 {
		if r.at >= len(r.lines) {
			return h, false
		}
		line := r.lines[r.at]
		op := byte(' ')
		if len(line) > 0 {
			op, line = line[0], line[1:]
		}
		switch op {
		case ' ':
			oldLeft--
			newLeft--
		case '-':
			oldLeft--
		case '+':
			newLeft--
		default:
			return h, false
		}
		r.at++
		h.lines = append(h.lines, patchLine{op: op, text: line, noEnd: r.noNewline()})
	}
	return h, oldLeft == 0 && newLeft == 0
}

// normal reads one change of the normal format.
func (r *patchReader) normal() (h patchHunk, ok bool) {
	m := normalHead.FindSubmatch(r.lines[r.at])
	h.inputLine = r.at + 1
	r.at++
	a, c := count(string(m[1]), 0), count(string(m[4]), 0)
	b, d := count(string(m[2]), a), count(string(m[5]), c)
	h.from, h.to, h.oldN, h.newN = a, c, b-a+1, d-c+1
	switch m[3][0] {
	case 'a':
		h.oldN = 0
	case 'd':
		h.newN = 0
	}
	take := func(n int, sign string, op byte) bool {
		for range n {
			if r.at >= len(r.lines) || !bytes.HasPrefix(r.lines[r.at], []byte(sign)) {
				return false
			}
			l := patchLine{op: op, text: r.lines[r.at][2:]}
			r.at++
			l.noEnd = r.noNewline()
			h.lines = append(h.lines, l)
		}
		return true
	}
	if !take(h.oldN, "< ", '-') {
		return h, false
	}
	if h.oldN > 0 && h.newN > 0 {
		if r.at >= len(r.lines) || string(r.lines[r.at]) != "---" {
			return h, false
		}
		r.at++
	}
	return h, take(h.newN, "> ", '+')
}

// context reads one hunk of the context format, and converts it to a unified hunk.
func (r *patchReader) context() (h patchHunk, ok bool) {
	h.function = strings.TrimPrefix(string(r.lines[r.at]), "***************")
	r.at++
	h.inputLine = r.at + 1
	read := func(head *regexp.Regexp, signs string) (from, n int, lines []patchLine, ok bool) {
		if r.at >= len(r.lines) {
			return
		}
		m := head.FindSubmatch(r.lines[r.at])
		if m == nil {
			return
		}
		r.at++
		from = count(string(m[1]), 0)
		n = count(string(m[2]), from) - from + 1
		if len(m[2]) == 0 && from == 0 {
			n = 0
		}
		for len(lines) < n && r.at < len(r.lines) {
			l := r.lines[r.at]
			if len(l) < 2 || strings.IndexByte(signs, l[0]) < 0 || l[1] != ' ' {
				break
			}
			r.at++
			lines = append(lines, patchLine{op: l[0], text: l[2:], noEnd: r.noNewline()})
		}
		return from, n, lines, true
	}
	var olds, news []patchLine
	if h.from, h.oldN, olds, ok = read(contextOld, " !-"); !ok {
		return h, false
	}
	if h.to, h.newN, news, ok = read(contextNew, " !+"); !ok {
		return h, false
	}
	// One side may be missing if nothing changes in it.
	if len(olds) == 0 && h.oldN > 0 {
		for _, l := range news {
			if l.op == ' ' {
				olds = append(olds, l)
			}
		}
	}
	if len(news) == 0 && h.newN > 0 {
		for _, l := range olds {
			if l.op == ' ' {
				news = append(news, l)
			}
		}
	}
	i, j := 0, 0
	for i < len(olds) || j < len(news) {
		switch {
		case i < len(olds) && olds[i].op != ' ':
			h.lines = append(h.lines, patchLine{'-', olds[i].text, olds[i].noEnd})
			i++
		case j < len(news) && news[j].op != ' ':
			h.lines = append(h.lines, patchLine{'+', news[j].text, news[j].noEnd})
			j++
		default:
			if i < len(olds) {
				h.lines = append(h.lines, olds[i])
			} else {
				h.lines = append(h.lines, news[j])
			}
			i++
			j++
		}
	}
	return h, true
}
