package sqlite

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	lib "modernc.org/sqlite/lib"
)

// format says how results are printed.
type format struct {
	mode     string
	table    string // of mode insert
	headers  bool
	null     string
	col, row string
	widths   []int
}

// setMode changes the mode and the settings that depend on it.
func (f *format) setMode(mode string) {
	f.mode = mode
	switch mode {
	case "csv":
		f.col, f.row = ",", "\r\n"
	case "ascii":
		f.col, f.row = "\x1f", "\x1e"
	case "tabs":
		f.mode, f.col, f.row = "list", "\t", "\n"
	case "list":
		f.col, f.row = "|", "\n"
	case "quote":
		f.col, f.row = ",", "\n"
	}
}

// printer writes the rows of one statement.
type printer struct {
	*format
	w     *bufio.Writer
	names []string
	n     int
	all   [][]string
}

func (f *format) printer(w *bufio.Writer, names []string) *printer {
	return &printer{format: f, w: w, names: names}
}

// keeps reports whether rows are collected before they are printed.
func (p *printer) keeps() bool {
	switch p.mode {
	case "column", "table", "box", "markdown":
		return true
	}
	return false
}

func (p *printer) text(v value) string {
	if v.kind == lib.SQLITE_NULL {
		return p.null
	}
	if i := strings.IndexByte(v.text, 0); i >= 0 {
		return v.text[:i]
	}
	return v.text
}

func (p *printer) add(row []value) error {
	p.n++
	if p.keeps() {
		cells := make([]string, len(row))
		for i, v := range row {
			cells[i] = p.text(v)
		}
		p.all = append(p.all, cells)
		return nil
	}
	w := p.w
	switch p.mode {
	case "line":
		width := 5
		for _, n := range p.names {
			width = max(width, utf8.RuneCountInString(n))
		}
		if p.n > 1 {
			w.WriteString(p.row)
		}
		for i, v := range row {
			fmt.Fprintf(w, "%*s = %s%s", width, p.names[i], p.text(v), p.row)
		}
	case "csv":
		if p.n == 1 && p.headers {
			for i, n := range p.names {
				p.csv(n, i, len(p.names))
			}
		}
		for i, v := range row {
			if v.kind == lib.SQLITE_NULL {
				w.WriteString(p.null)
				p.sep(i, len(row))
				continue
			}
			p.csv(p.text(v), i, len(row))
		}
	case "json":
		p.json(row)
	case "html":
		p.html(row)
	case "quote", "insert":
		p.quoted(row)
	default:
		if p.n == 1 && p.headers {
			w.WriteString(strings.Join(p.names, p.col) + p.row)
		}
		for i, v := range row {
			w.WriteString(p.text(v))
			p.sep(i, len(row))
		}
	}
	_, err := w.Write(nil)
	return err
}

func (p *printer) sep(i, n int) {
	if i < n-1 {
		p.w.WriteString(p.col)
	} else {
		p.w.WriteString(p.row)
	}
}

func (p *printer) csv(s string, i, n int) {
	if s == "" || strings.Contains(s, p.col) || strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r == '"' || r == '\'' || r >= 0x7f
	}) {
		s = `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
	}
	p.w.WriteString(s)
	p.sep(i, n)
}

func (p *printer) json(row []value) {
	if p.n == 1 {
		p.w.WriteString("[{")
	} else {
		p.w.WriteString(",\n{")
	}
	for i, v := range row {
		if i > 0 {
			p.w.WriteByte(',')
		}
		jsonText(p.w, p.names[i])
		p.w.WriteByte(':')
		switch v.kind {
		case lib.SQLITE_NULL:
			p.w.WriteString("null")
		case lib.SQLITE_INTEGER:
			p.w.WriteString(v.text)
		case lib.SQLITE_FLOAT:
			switch v.text {
			case "Inf":
				v.text = "1e999"
			case "-Inf":
				v.text = "-1e999"
			}
			p.w.WriteString(v.text)
		default:
			jsonText(p.w, v.text)
		}
	}
	p.w.WriteByte('}')
}

func jsonText(w *bufio.Writer, s string) {
	w.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\':
			w.WriteByte('\\')
			w.WriteByte(c)
		case '\n':
			w.WriteString(`\n`)
		case '\t':
			w.WriteString(`\t`)
		case '\r':
			w.WriteString(`\r`)
		case '\b':
			w.WriteString(`\b`)
		case '\f':
			w.WriteString(`\f`)
		default:
			if c < ' ' {
				fmt.Fprintf(w, `\u%04x`, c)
			} else {
				w.WriteByte(c)
			}
		}
	}
	w.WriteByte('"')
}

var htmlEscape = strings.NewReplacer("<", "&lt;", "&", "&amp;", ">", "&gt;", `"`, "&quot;", "'", "&#39;")

func (p *printer) html(row []value) {
	if p.n == 1 && p.headers {
		p.w.WriteString("<TR>")
		for _, n := range p.names {
			p.w.WriteString("<TH>" + htmlEscape.Replace(n) + "</TH>\n")
		}
		p.w.WriteString("</TR>\n")
	}
	p.w.WriteString("<TR>")
	for _, v := range row {
		p.w.WriteString("<TD>" + htmlEscape.Replace(p.text(v)) + "</TD>\n")
	}
	p.w.WriteString("</TR>\n")
}

// literal is a value as SQL.
func literal(v value, escape bool) string {
	switch v.kind {
	case lib.SQLITE_NULL:
		return "NULL"
	case lib.SQLITE_INTEGER:
		return v.text
	case lib.SQLITE_FLOAT:
		switch v.text {
		case "Inf":
			return "1e999"
		case "-Inf":
			return "-1e999"
		}
		return v.text
	case lib.SQLITE_BLOB:
		return "X'" + hex.EncodeToString([]byte(v.text)) + "'"
	}
	if i := strings.IndexByte(v.text, 0); i >= 0 {
		v.text = v.text[:i]
	}
	if !escape || !strings.ContainsAny(v.text, "\n\r") {
		return quoteText(v.text)
	}
	s, before, after := quoteText(v.text), "", ""
	if strings.Contains(s, "\n") {
		mark := unusedMark(s, `\n`, `\012`)
		s = strings.ReplaceAll(s, "\n", mark)
		before, after = "replace("+before, after+",'"+mark+"',char(10))"
	}
	if strings.Contains(s, "\r") {
		mark := unusedMark(s, `\r`, `\015`)
		s = strings.ReplaceAll(s, "\r", mark)
		before, after = "replace("+before, after+",'"+mark+"',char(13))"
	}
	return before + s + after
}

// unusedMark returns a text that does not occur in s.
func unusedMark(s string, choices ...string) string {
	for _, c := range choices {
		if !strings.Contains(s, c) {
			return c
		}
	}
	for i := 0; ; i++ {
		if c := fmt.Sprintf("(%s%d)", choices[0], i); !strings.Contains(s, c) {
			return c
		}
	}
}

func (p *printer) quoted(row []value) {
	if p.mode == "quote" {
		if p.n == 1 && p.headers {
			for i, n := range p.names {
				p.w.WriteString(quoteText(n))
				p.sep(i, len(p.names))
			}
		}
		for i, v := range row {
			p.w.WriteString(literal(v, false))
			p.sep(i, len(row))
		}
		return
	}
	p.w.WriteString("INSERT INTO " + p.table)
	if p.headers {
		p.w.WriteByte('(')
		for i, n := range p.names {
			if i > 0 {
				p.w.WriteByte(',')
			}
			p.w.WriteString(identifier(n))
		}
		p.w.WriteByte(')')
	}
	p.w.WriteString(" VALUES(")
	for i, v := range row {
		if i > 0 {
			p.w.WriteByte(',')
		}
		p.w.WriteString(literal(v, true))
	}
	p.w.WriteString(");\n")
}

// identifier quotes a name if SQL requires it.
func identifier(s string) string {
	ok := s != "" && !(s[0] >= '0' && s[0] <= '9')
	for i := range len(s) {
		c := s[i]
		ok = ok && (c == '_' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z')
	}
	if ok && !keywords[strings.ToLower(s)] {
		return s
	}
	return quoteName(s)
}

var keywords = func() map[string]bool {
	m := map[string]bool{}
	for _, k := range strings.Fields(`add all alter and as autoincrement between case check collate commit constraint create default
		deferrable delete distinct drop else escape except exists foreign from group having if in index insert intersect into is
		isnull join limit not notnull null on or order primary references returning select set table then to transaction union
		unique update using values when where`) {
		m[k] = true
	}
	return m
}()

// end writes what was kept.
func (p *printer) end() error {
	switch p.mode {
	case "json":
		p.w.WriteString("]\n")
	case "column", "table", "box", "markdown":
		p.grid()
	}
	_, err := p.w.Write(nil)
	return err
}
