package eval

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/shell/tools/awk/resolve"
	"github.com/carrel-dev/carrel/shell/tools/awk/syntax"
)

func (m *machine) special(s resolve.Special) *variable { return &m.globals[s] }

// initSpecials sets the first values of the special variables.
func (m *machine) initSpecials() {
	m.fieldsBy = resolve.FS
	for s, v := range map[resolve.Special]value{
		resolve.FS: text(" "), resolve.OFS: text(" "), resolve.ORS: text("\n"),
		resolve.RS: text("\n"), resolve.RT: text(""), resolve.FPAT: text("[^[:space:]]+"),
		resolve.FIELDWIDTHS: text(""), resolve.IGNORECASE: number(0),
		resolve.CONVFMT: text(defaultFormat), resolve.OFMT: text(defaultFormat),
		resolve.SUBSEP: text("\x1c"), resolve.FILENAME: text(""), resolve.RSTART: number(0),
		resolve.RLENGTH: number(0), resolve.ARGIND: number(0), resolve.ERRNO: text(""),
		resolve.BINMODE: number(0), resolve.LINT: number(0), resolve.TEXTDOMAIN: text("messages"),
		resolve.ARGC: number(float64(len(m.opt.Args) + 1)),
	} {
		m.special(s).v = v
	}
	for _, s := range []resolve.Special{resolve.ENVIRON, resolve.PROCINFO, resolve.ARGV,
		resolve.SYMTAB, resolve.FUNCTAB} {
		m.special(s).arr = m.newArray(resolve.Specials[s])
	}
	m.convfmt, m.ofmt, m.ofs, m.ors, m.subsep = defaultFormat, defaultFormat, " ", "\n", "\x1c"
	m.rsByte = '\n'
	argv := m.special(resolve.ARGV).arr
	m.setElement(argv, "0", text(m.call.Base()))
	for i, a := range m.opt.Args {
		m.setElement(argv, strconv.Itoa(i+1), value{s: a, k: kindInput}.settled())
	}
	env := m.special(resolve.ENVIRON).arr
	for _, kv := range m.call.Environ() {
		if k, v, ok := strings.Cut(kv, "="); ok {
			m.setElement(env, k, value{s: v, k: kindInput}.settled())
		}
	}
	m.initProcInfo()
	if m.csv {
		m.rsMode = toCSV
		m.special(resolve.FS).v = text(",")
	}
	m.setRecord(value{k: kindNoField})
	if m.csv {
		m.separator, m.record.sep = csvFields{}, csvFields{}
	}
}

func (m *machine) initProcInfo() {
	info := m.special(resolve.PROCINFO).arr
	cred := m.call.FS().Cred()
	for k, n := range map[string]uint32{"uid": cred.UID, "euid": cred.UID, "gid": cred.GID,
		"egid": cred.GID} {
		m.setElement(info, k, number(float64(n)))
	}
	m.setElement(info, "version", text("5.2.1"))
	m.setElement(info, "FS", text("FS"))
	m.setElement(info, "strftime", text(defaultTime))
	m.setElement(info, "platform", text("posix"))
	argv := m.subArray(info, m.element(info, "argv", false))
	m.setElement(argv, "0", text(m.call.Base()))
	for i, a := range m.call.Args {
		m.setElement(argv, strconv.Itoa(i+1), text(a))
	}
}

// assigned applies the new value of a special variable.
func (m *machine) assigned(s resolve.Special) {
	v := m.special(s).v
	switch s {
	case resolve.NF:
		m.setNF(v.num())
	case resolve.NR:
		m.nr = v.num()
	case resolve.FNR:
		m.fnr = v.num()
	case resolve.FS, resolve.FPAT, resolve.FIELDWIDTHS:
		if m.csv {
			return
		}
		m.fieldsBy, m.separator = s, nil
		m.setElement(m.special(resolve.PROCINFO).arr, "FS", text(resolve.Specials[s]))
	case resolve.RS:
		m.setRS()
	case resolve.IGNORECASE:
		m.ignoreCase = v.truth()
		m.separator = nil
		if m.csv {
			m.separator = csvFields{}
		}
		m.setRS()
	case resolve.OFS:
		// The record must be made from its fields with the old separator.
		if !m.record.known {
			m.rebuild()
		}
		m.ofs = m.str(v)
	case resolve.ORS:
		m.ors = m.str(v)
	case resolve.SUBSEP:
		m.subsep = m.str(v)
	case resolve.CONVFMT:
		m.convfmt = m.str(v)
	case resolve.OFMT:
		m.ofmt = m.str(v)
	}
}

// setRS reads RS to find how records end.
func (m *machine) setRS() {
	if m.csv {
		return
	}
	was := m.rsMode
	rs := m.str(m.special(resolve.RS).v)
	switch {
	case rs == "":
		m.rsMode = toParagraph
	case len(rs) == 1: // whatever IGNORECASE says
		m.rsMode, m.rsByte = toByte, rs[0]
	default:
		m.rsMode, m.rsRegex = toExpression, m.regex(rs)
	}
	if was != m.rsMode {
		m.separator = nil
	}
}

// fieldSeparator returns the separator for the next record.
func (m *machine) fieldSeparator() separator {
	switch m.fieldsBy {
	case resolve.FPAT:
		return byContents{&pattern{source: m.str(m.special(resolve.FPAT).v)}}
	case resolve.FIELDWIDTHS:
		return m.parseWidths(m.str(m.special(resolve.FIELDWIDTHS).v))
	}
	return m.separatorFor(m.str(m.special(resolve.FS).v), m.rsMode == toParagraph)
}

// parseWidths reads FIELDWIDTHS: "5 2:3 *".
func (m *machine) parseWidths(s string) separator {
	var out widths
	list := strings.Fields(s)
	for i, w := range list {
		skip, size, ok := strings.Cut(w, ":")
		if !ok {
			skip, size = "0", w
		}
		n, err := strconv.Atoi(skip)
		x := width{skip: n, size: -1}
		if size != "*" || i < len(list)-1 {
			var err2 error
			if x.size, err2 = strconv.Atoi(size); err == nil {
				err = err2
			}
		}
		if err != nil || n < 0 || x.size < -1 || x.size == 0 {
			m.fatal("invalid FIELDWIDTHS value, for field %d, near `%s'", i+1, w)
		}
		out.list = append(out.list, x)
	}
	return out
}

// setRT stores the text that ended a record.
func (m *machine) setRT(term string) {
	v := &m.special(resolve.RT).v
	if v.s != term {
		*v = m.keep(value{s: term, k: kindString, part: true})
	}
}

// setErrno stores the reason of a failure.
func (m *machine) setErrno(s string) { m.special(resolve.ERRNO).v = text(s) }

// isName reports whether a text may be the name of a variable.
func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && !(c|0x20 >= 'a' && c|0x20 <= 'z') && (i == 0 || !isDigit(c)) {
			return false
		}
	}
	return s != ""
}

// assignText makes an assignment of -v or of an argument. It ignores names that the program does
// not use.
func (m *machine) assignText(name, s string) {
	switch {
	case !isName(name):
		m.fatal("`%s' is not a legal variable name", name)
	case syntax.IsKeyword(name) || syntax.IsBuiltin(name):
		m.fatal("cannot use gawk builtin `%s' as variable name", name)
	}
	if _, ok := m.prog.Funcs[name]; ok {
		m.fatal("cannot use function `%s' as variable name", name)
	}
	slot, ok := m.prog.Slots[name]
	if !ok {
		return
	}
	if m.globals[slot].arr != nil {
		m.fatal("cannot use array `%s' as variable name", name)
	}
	s, _ = syntax.Unescape(s)
	m.setGlobal(slot, value{s: s, k: kindInput})
}

// setGlobal stores a value in a global variable by its slot.
func (m *machine) setGlobal(slot int, v value) {
	m.assign(&m.globals[slot], v)
	if slot < int(resolve.NumSpecials) {
		m.assigned(resolve.Special(slot))
	}
}

// getGlobal reads a global variable by its slot.
func (m *machine) getGlobal(slot int) value {
	switch resolve.Special(slot) {
	case resolve.NF:
		return number(float64(m.splitAll()))
	case resolve.NR:
		return number(m.nr)
	case resolve.FNR:
		return number(m.fnr)
	}
	g := &m.globals[slot]
	if g.arr != nil {
		m.fatal("attempt to use array `%s' in a scalar context", m.prog.Globals[slot])
	}
	return g.v
}

// length returns the number of characters of a text.
func (m *machine) length(s string) int {
	if m.bytes {
		return len(s)
	}
	return utf8.RuneCountInString(s)
}
