package interp

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// history is a shell's record of its own input. A copy is independent, because forks have one: code
// only appends lines or replaces the whole slice.
type history struct {
	lines  []histLine
	base   int  // the number of the first line, minus one
	added  int  // lines of this session
	inFile int  // number of lines read from the history file
	saved  bool // the running line was stored: fc does not count it
	most   int  // the most lines that are kept, -1 for no limit
	loaded bool // HISTSIZE was looked at
}

// histLine is one command.
type histLine struct {
	text string
	when time.Time
}

// maxHistory is the most lines that a shell remembers, even if HISTSIZE is larger.
const maxHistory = 10000

// fork returns the history for a subshell.
func (h history) fork() history {
	h.lines = slices.Clip(h.lines)
	return h
}

// remembers reports whether the current input belongs in the history. Only the shell's own input
// does, not the text of eval, traps or functions.
func (r *runner) remembers() bool {
	return r.opts.history && r.depth == r.topDepth && len(r.running) == 0 && len(r.calls) == 0
}

// record adds a command to the history, as HISTCONTROL and HISTIGNORE say.
func (r *runner) record(src string) {
	h := &r.hist
	h.saved = false
	src = r.oneLine(strings.TrimSuffix(src, "\n"))
	if src == "" || !r.keeps(src) {
		return
	}
	if r.histControl("erasedups") {
		h.lines = slices.DeleteFunc(slices.Clone(h.lines), func(l histLine) bool { return l.text == src })
	}
	r.addHistory(src, r.m.now())
	h.added++
	h.saved = true
}

func (r *runner) histControl(what string) bool {
	for c := range strings.SplitSeq(r.str("HISTCONTROL"), ":") {
		if c == what || c == "ignoreboth" && (what == "ignorespace" || what == "ignoredups") {
			return true
		}
	}
	return false
}

// keeps reports whether HISTCONTROL and HISTIGNORE allow a line.
func (r *runner) keeps(src string) bool {
	last := ""
	if n := len(r.hist.lines); n > 0 {
		last = r.hist.lines[n-1].text
	}
	if (src[0] == ' ' || src[0] == '\t') && r.histControl("ignorespace") || src == last && r.histControl("ignoredups") {
		return false
	}
	if ignore := r.str("HISTIGNORE"); ignore != "" {
		for pat := range strings.SplitSeq(ignore, ":") {
			pat = strings.ReplaceAll(pat, "&", escapePattern(last))
			if pat != "" && r.match(pat, src) {
				return false
			}
		}
	}
	return true
}

// addHistory appends a line, and drops the oldest line if there are too many.
func (r *runner) addHistory(text string, when time.Time) {
	h := &r.hist
	most := maxHistory
	if r.histMost(); h.most >= 0 {
		most = min(most, h.most)
	}
	r.pay(len(text) + 48)
	h.lines = append(h.lines, histLine{text, when})
	r.stifle(most)
}

// stifle drops all but the newest lines.
func (r *runner) stifle(most int) {
	h := &r.hist
	if over := len(h.lines) - most; over > 0 {
		for _, l := range h.lines[:over] {
			r.pay(-len(l.text) - 48)
		}
		h.lines = slices.Clone(h.lines[over:])
		h.base += over
	}
}

// shrink is stifle for a new HISTSIZE. After that bash begins to count at another number.
func (r *runner) shrink(most int) {
	if over := len(r.hist.lines) - most; over > 0 {
		r.stifle(most)
		r.hist.base = over - 1
	}
}

// histMost reads HISTSIZE once. Afterwards histSized follows its changes.
func (r *runner) histMost() {
	if !r.hist.loaded {
		r.hist.loaded, r.hist.most = true, -1
		r.histSized("HISTSIZE")
	}
}

// histSized reacts to a change of HISTSIZE or HISTFILESIZE.
func (r *runner) histSized(name string) {
	text, ok := r.get(name)
	n, err := strconv.Atoi(strings.TrimSpace(text))
	switch {
	case name == "HISTSIZE" && (!ok || err != nil || n < 0):
		r.hist.most = -1
	case name == "HISTSIZE":
		r.hist.most = n
		r.shrink(n)
	case ok && err == nil && n >= 0:
		if file := r.str("HISTFILE"); file != "" {
			r.truncateHistory(file, n)
		}
	}
}

// truncateHistory keeps the last lines of a history file.
func (r *runner) truncateHistory(file string, most int) {
	text, err := r.readFile(r.abs(file))
	if err != nil {
		return
	}
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	if len(lines) <= most {
		return
	}
	_ = r.view.Remove(r.abs(file))                                                              // the new file gets a new mode
	_ = r.view.WriteFile(r.abs(file), []byte(strings.Join(lines[len(lines)-most:], "")), 0o600) // as it was, then
}

// readHistory appends the lines of a file, beginning with line from.
func (r *runner) readHistory(file string, from int) bool {
	if file == "" {
		return false
	}
	text, err := r.readFile(r.abs(file))
	if err != nil {
		return false
	}
	stamped := strings.HasPrefix(text, "#") && isStamp(strings.SplitN(text, "\n", 2)[0])
	var when time.Time
	n := 0
	for text != "" {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		if n++; n <= from || line == "" {
			continue
		}
		if stamped && isStamp(line) {
			sec, _ := strconv.ParseInt(line[1:], 10, 64) // isStamp: digits
			when = time.Unix(sec, 0)
			continue
		}
		if when.IsZero() {
			when = r.m.now()
		}
		if r.addHistory(line, when); r.flow != flowNone {
			return false
		}
		when = time.Time{}
	}
	r.hist.inFile = n
	return true
}

func isStamp(line string) bool {
	return len(line) > 1 && line[0] == '#' && strings.Trim(line[1:], "0123456789") == ""
}

// writeHistory writes the last n lines to a file. With add it appends them, otherwise it replaces
// the file.
func (r *runner) writeHistory(file string, n int, add bool) bool {
	if file == "" {
		return false
	}
	h := &r.hist
	n = min(max(n, 0), len(h.lines))
	_, stamps := r.get("HISTTIMEFORMAT")
	var b strings.Builder
	for _, l := range h.lines[len(h.lines)-n:] {
		if stamps {
			b.WriteString("#" + strconv.FormatInt(l.when.Unix(), 10) + "\n")
		}
		b.WriteString(l.text + "\n")
	}
	how := vfs.WriteOnly | vfs.CreateNew | vfs.Truncate
	if add {
		how = vfs.WriteOnly | vfs.CreateNew | vfs.Append
	}
	f, err := r.view.OpenFile(r.abs(file), how, 0o600)
	if err != nil {
		return false
	}
	_, err = f.Write([]byte(b.String()))
	return f.Close() == nil && err == nil
}

// loadHistory loads the history at the start of an interactive shell.
func (r *runner) loadHistory() {
	for _, name := range []string{"HISTSIZE", "HISTFILESIZE"} {
		if r.lookup(name) == nil {
			r.set(name, "500")
		}
	}
	if r.readHistory(r.str("HISTFILE"), 0) {
		r.hist.added = 0
	}
}

// saveHistory writes the lines of this session when the shell ends.
func (r *runner) saveHistory() {
	h := &r.hist
	if !r.opts.history || h.added == 0 || r.subshells > 0 {
		return
	}
	file := r.str("HISTFILE")
	if file == "" {
		return
	}
	if r.opts.histappend || h.added <= len(h.lines) {
		r.writeHistory(file, h.added, true)
	} else {
		r.writeHistory(file, len(h.lines), false)
	}
	h.added = 0
	r.histSized("HISTFILESIZE")
}

// noSemicolon are words that need no semicolon between them and the next line.
var noSemicolon = map[string]bool{"{": true, "(": true, ";": true, "&": true, "|": true, "case": true, "do": true, "else": true, "if": true, "in": true,
	";;": true, ";&": true, ";;&": true, "then": true, "until": true, "while": true, "&&": true, "||": true, "elif": true, "!": true, "": true}

// oneLine joins the lines of a command, as cmdhist does.
func (r *runner) oneLine(src string) string {
	if !strings.Contains(src, "\n") || !r.opts.cmdhist || r.opts.lithist || strings.Contains(src, "<<") {
		return src
	}
	lines := strings.Split(src, "\n")
	out := lines[0]
	for _, line := range lines[1:] {
		switch trimmed := strings.TrimRight(out, " \t"); {
		case openQuote(out):
			out += "\n" + line
		case continued(out + "\n"):
			out = out[:len(out)-1] + line
		case strings.TrimSpace(line) == "" || strings.HasPrefix(strings.TrimSpace(line), "#"):
		default:
			last := trimmed[strings.LastIndexAny(trimmed, " \t\n")+1:]
			if noSemicolon[last] || strings.IndexByte("{(;&|)", trimmed[len(trimmed)-1]) >= 0 && trimmed != "" {
				out += " " + line
			} else {
				out += "; " + line
			}
		}
	}
	return out
}

// openQuote reports whether a text ends inside quotes.
func openQuote(s string) bool {
	quote := byte(0)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && quote != '\'':
			i++
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case c == quote:
			quote = 0
		}
	}
	return quote != 0
}

// historyNumber is the number of the running command.
func (r *runner) historyNumber() int {
	if !r.opts.history {
		return 1
	}
	return r.hist.base + len(r.hist.lines) + 1
}
