package interp

import (
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// editor reads lines from a terminal, with the keys of Emacs.
type editor struct {
	r      *runner
	t      *TTY
	killed []rune

	line   []rune
	at     int
	prompt string // its last line
	recall int    // the shown line of the history
	draft  []rune // the typed text, while a line of the history is shown
	tabs   int    // tabs in a row
	shown  int    // columns of the line on the screen
	raw    bool   // the editor has put the terminal into raw mode
	cursor int    // cursor's column, counted from the start of the line
}

// maxLineKeys is the longest line that can be typed.
const maxLineKeys = 64 << 10

// readLine shows a prompt and reads a line with its newline. The error is io.EOF for ^D on an empty
// line, and the context's error for ^C.
func (e *editor) readLine(prompt string) (string, error) {
	e.r.writeErr(prompt)
	e.prompt = prompt[strings.LastIndexByte(prompt, '\n')+1:]
	e.line, e.at, e.recall, e.shown, e.cursor, e.tabs = nil, 0, len(e.r.hist.lines), 0, 0, 0
	e.t.mu.Lock()
	was, quiet := e.t.raw && !e.raw, e.t.quiet
	e.t.mu.Unlock()
	if was || quiet {
		return e.r.readLine() // stty has set a mode without editing
	}
	e.t.setRaw(true)
	e.raw = true
	for {
		key, err := e.key()
		if err != nil {
			return "", err
		}
		if done, err := e.handle(key); done {
			if err != nil {
				return "", err
			}
			return string(e.line) + "\n", nil
		}
	}
}

// rest restores the terminal's mode between two commands.
func (e *editor) rest() {
	if e.raw {
		e.raw = false
		e.t.setCooked()
	}
}

// Keys beyond the characters.
const (
	keyUp rune = -iota - 1
	keyDown
	keyLeft
	keyRight
	keyHome
	keyEnd
	keyDelete
	keyWordLeft
	keyWordRight
	keyKillWord
	keyNone
)

// byte reads one byte.
func (e *editor) byte() (byte, error) {
	var b [1]byte
	for {
		n, err := fdReader{e.r.ctx, e.r.fds.get(0)}.Read(b[:])
		if n > 0 {
			return b[0], nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// key reads one key.
func (e *editor) key() (rune, error) {
	b, err := e.byte()
	if err != nil {
		return 0, err
	}
	if b == 27 {
		return e.escape()
	}
	if b < utf8.RuneSelf {
		return rune(b), nil
	}
	buf := []byte{b}
	for !utf8.FullRune(buf) && len(buf) < utf8.UTFMax {
		if b, err = e.byte(); err != nil {
			return 0, err
		}
		buf = append(buf, b)
	}
	c, _ := utf8.DecodeRune(buf)
	return c, nil
}

// escape reads the rest of an escape sequence.
func (e *editor) escape() (rune, error) {
	b, err := e.byte()
	if err != nil {
		return 0, err
	}
	switch b {
	case 'b', 'B':
		return keyWordLeft, nil
	case 'f', 'F':
		return keyWordRight, nil
	case 'd', 'D':
		return keyKillWord, nil
	case '[', 'O':
	default:
		return keyNone, nil
	}
	params := ""
	for {
		if b, err = e.byte(); err != nil {
			return 0, err
		}
		if b >= 0x40 && b <= 0x7e || len(params) > 16 {
			break
		}
		params += string(b)
	}
	word := strings.HasSuffix(params, ";5") || strings.HasSuffix(params, ";3")
	switch b {
	case 'A':
		return keyUp, nil
	case 'B':
		return keyDown, nil
	case 'C':
		if word {
			return keyWordRight, nil
		}
		return keyRight, nil
	case 'D':
		if word {
			return keyWordLeft, nil
		}
		return keyLeft, nil
	case 'H':
		return keyHome, nil
	case 'F':
		return keyEnd, nil
	case '~':
		switch params {
		case "1", "7":
			return keyHome, nil
		case "4", "8":
			return keyEnd, nil
		case "3":
			return keyDelete, nil
		}
	}
	return keyNone, nil
}

// handle carries out a key, and reports whether the line is finished.
func (e *editor) handle(key rune) (done bool, err error) {
	if key != '\t' {
		e.tabs = 0
	}
	switch key {
	case '\r', '\n':
		e.move(len(e.line))
		e.out("\r\n")
		return true, nil
	case 3: // ^C
		e.out("^C\r\n")
		e.r.breakLine()
		return true, e.r.ctx.Err()
	case 4: // ^D
		if len(e.line) == 0 {
			return true, io.EOF
		}
		e.remove(e.at, e.at+1)
	case 127, 8:
		e.remove(e.at-1, e.at)
	case keyDelete:
		e.remove(e.at, e.at+1)
	case 1, keyHome:
		e.move(0)
	case 5, keyEnd:
		e.move(len(e.line))
	case 2, keyLeft:
		e.move(e.at - 1)
	case 6, keyRight:
		e.move(e.at + 1)
	case keyWordLeft:
		e.move(e.wordLeft(false))
	case keyWordRight:
		e.move(e.wordRight())
	case 11: // ^K
		e.kill(e.at, len(e.line))
	case 21: // ^U
		e.kill(0, e.at)
	case 23: // ^W
		e.kill(e.wordLeft(true), e.at)
	case keyKillWord:
		e.kill(e.at, e.wordRight())
	case 25: // ^Y
		e.insert(e.killed)
	case 20: // ^T
		e.swap()
	case 12: // ^L
		e.out("\x1b[H\x1b[2J" + crlf(e.prompt))
		e.shown, e.cursor = 0, 0
		e.redraw()
	case 16, keyUp:
		e.show(e.recall - 1)
	case 14, keyDown:
		e.show(e.recall + 1)
	case 18: // ^R
		return e.search()
	case '\t':
		e.complete()
	default:
		if key >= 32 && len(e.line) < maxLineKeys {
			e.insert([]rune{key})
		}
	}
	return false, nil
}

func crlf(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }

func (e *editor) out(s string) {
	_, _ = e.t.out.WriteContext(e.r.ctx, []byte(s)) // an error means that nobody sees the screen
}

// move puts the cursor at a place in the line.
func (e *editor) move(at int) {
	e.at = min(max(at, 0), len(e.line))
	e.place(width(e.line[:e.at]))
}

// place moves the cursor to a column.
func (e *editor) place(col int) {
	switch d := col - e.cursor; {
	case d > 0:
		e.out("\x1b[" + strconv.Itoa(d) + "C")
	case d == -1:
		e.out("\b")
	case d < 0:
		e.out("\x1b[" + strconv.Itoa(-d) + "D")
	}
	e.cursor = col
}

// width returns the number of columns of a text. Wide characters count as one column, as in most
// programs with a terminal.
func width(line []rune) int { return len(line) }

// redraw shows the line again and places the cursor.
func (e *editor) redraw() {
	e.place(0)
	e.out(string(e.line) + "\x1b[K")
	e.cursor = width(e.line)
	e.shown = e.cursor
	e.place(width(e.line[:e.at]))
}

func (e *editor) insert(text []rune) {
	if len(text) == 0 {
		return
	}
	atEnd := e.at == len(e.line)
	e.line = slices.Insert(e.line, e.at, text...)
	e.at += len(text)
	if atEnd {
		e.out(string(text))
		e.cursor += width(text)
		return
	}
	e.redraw()
}

func (e *editor) remove(from, to int) {
	if from < 0 || to > len(e.line) || from >= to {
		return
	}
	atEnd := to == len(e.line) && to-from == 1 && e.at == to
	e.line = slices.Delete(e.line, from, to)
	e.at = from
	if atEnd {
		e.out("\b \b")
		e.cursor--
		return
	}
	e.redraw()
}

func (e *editor) kill(from, to int) {
	if from >= 0 && from < to {
		e.killed = slices.Clone(e.line[from:to])
		e.at = to
		e.remove(from, to)
	}
}

func (e *editor) swap() {
	at := min(e.at, len(e.line)-1)
	if at < 1 {
		return
	}
	e.line[at-1], e.line[at] = e.line[at], e.line[at-1]
	e.at = at + 1
	e.redraw()
}

// wordLeft returns the beginning of the word before the cursor. With space, only blanks separate
// words.
func (e *editor) wordLeft(space bool) int {
	in := func(c rune) bool { return c != ' ' && (space || isWordRune(c)) }
	i := e.at
	for i > 0 && !in(e.line[i-1]) {
		i--
	}
	for i > 0 && in(e.line[i-1]) {
		i--
	}
	return i
}

func (e *editor) wordRight() int {
	i := e.at
	for i < len(e.line) && !isWordRune(e.line[i]) {
		i++
	}
	for i < len(e.line) && isWordRune(e.line[i]) {
		i++
	}
	return i
}

func isWordRune(c rune) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= utf8.RuneSelf
}

// show shows a line of the history.
func (e *editor) show(i int) {
	if i < 0 || i > len(e.r.hist.lines) {
		e.out("\a")
		return
	}
	if e.recall == len(e.r.hist.lines) {
		e.draft = e.line
	}
	e.recall = i
	if e.line = slices.Clone(e.draft); i < len(e.r.hist.lines) {
		e.line = []rune(e.r.hist.lines[i].text)
	}
	e.at = len(e.line)
	e.redraw()
}

// search finds a line of the history that contains the typed text.
func (e *editor) search() (done bool, err error) {
	var what []rune
	found, from := "", len(e.r.hist.lines)
	look := func() {
		for i := min(from, len(e.r.hist.lines)-1); i >= 0; i-- {
			if strings.Contains(e.r.hist.lines[i].text, string(what)) {
				found, from = e.r.hist.lines[i].text, i
				return
			}
		}
		e.out("\a")
	}
	for {
		e.out("\r\x1b[K(reverse-i-search)`" + string(what) + "': " + crlf(found))
		key, err := e.key()
		if err != nil {
			return true, err
		}
		switch {
		case key == 18:
			from--
			look()
		case key == 127 || key == 8:
			what = what[:max(len(what)-1, 0)]
		case key >= 32:
			what = append(what, key)
			look()
		default:
			if key != 7 && key != 3 {
				e.line = []rune(found)
			}
			e.at = len(e.line)
			e.out("\r\x1b[K" + e.prompt)
			e.cursor = 0
			e.redraw()
			if key == '\r' || key == '\n' || key == 3 {
				return e.handle(key)
			}
			return false, nil
		}
	}
}

// complete completes the command or file name before the cursor.
func (e *editor) complete() {
	e.tabs++
	start := e.at
	for start > 0 && !strings.ContainsRune(" \t;|&<>()='\"`", e.line[start-1]) {
		start--
	}
	word := string(e.line[start:e.at])
	before := strings.TrimRight(string(e.line[:start]), " \t")
	var found []string
	if (before == "" || strings.ContainsAny(before[len(before)-1:], ";|&(`")) && !strings.Contains(word, "/") {
		found = e.r.commandNames(word)
	} else {
		found = e.r.fileNamesOf(word)
	}
	if len(found) == 0 {
		e.out("\a")
		return
	}
	common := found[0]
	for _, f := range found[1:] {
		for !strings.HasPrefix(f, common) {
			_, n := utf8.DecodeLastRuneInString(common)
			common = common[:len(common)-n]
		}
	}
	if len(found) == 1 && !strings.HasSuffix(common, "/") {
		common += " "
	}
	if len(common) > len(word) {
		e.insert([]rune(escapeName(common[len(word):], len(found) == 1)))
		return
	}
	if e.tabs > 1 {
		const most = 200
		names := found[:min(len(found), most)]
		for i, n := range names {
			names[i] = n[strings.LastIndexByte(strings.TrimSuffix(n, "/"), '/')+1:]
		}
		e.out("\r\n" + strings.Join(names, "  ") + "\r\n" + e.prompt)
		e.cursor = 0
		e.redraw()
		return
	}
	e.out("\a")
}

// escapeName puts backslashes before characters that the shell would interpret.
func escapeName(s string, last bool) string {
	end := ""
	if last && strings.HasSuffix(s, " ") {
		s, end = s[:len(s)-1], " "
	}
	var b strings.Builder
	for _, c := range s {
		if strings.ContainsRune(" \t'\"\\$`&;|<>()*?[#!", c) {
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	return b.String() + end
}

// commandNames lists the commands that begin with a prefix.
func (r *runner) commandNames(prefix string) []string {
	names := map[string]bool{}
	add := func(n string) {
		if strings.HasPrefix(n, prefix) {
			names[n] = true
		}
	}
	for n := range r.m.builtins {
		add(n)
	}
	for n := range r.funcs {
		add(n)
	}
	for n := range r.aliases {
		add(n)
	}
	for k := range strings.FieldsSeq(keywords) {
		add(k)
	}
	for dir := range strings.SplitSeq(r.str("PATH"), ":") {
		list, err := r.view.ReadDir(r.abs(dir))
		if err != nil {
			continue
		}
		for _, i := range list {
			if strings.HasPrefix(i.Name, prefix) && r.view.Access(r.abs(dir)+"/"+i.Name, vfs.MayExec) == nil {
				names[i.Name] = true
			}
		}
	}
	out := make([]string, 0, len(names))
	for n := range names {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// fileNamesOf lists the files whose path begins with a word.
func (r *runner) fileNamesOf(word string) []string {
	dir, base := "", word
	if i := strings.LastIndexByte(word, '/'); i >= 0 {
		dir, base = word[:i+1], word[i+1:]
	}
	where := dir
	if strings.HasPrefix(where, "~/") {
		where = r.str("HOME") + where[1:]
	}
	full := r.dir
	if where != "" {
		full = r.abs(where)
	}
	list, err := r.view.ReadDir(full)
	if err != nil {
		return nil
	}
	var out []string
	for _, i := range list {
		if !strings.HasPrefix(i.Name, base) || base == "" && strings.HasPrefix(i.Name, ".") {
			continue
		}
		name := dir + i.Name
		if st, err := r.view.Stat(strings.TrimSuffix(full, "/") + "/" + i.Name); err == nil && st.Mode.IsDir() {
			name += "/"
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
