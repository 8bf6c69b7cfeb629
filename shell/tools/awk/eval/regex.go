package eval

import (
	"errors"

	"github.com/carrel-dev/carrel/shell/regex"
)

// maxRegexes is the number of expressions that are cached.
const maxRegexes = 256

// regexFlags are for awk's expressions: extended ones in which a brace that begins no count is
// literal.
const regexFlags = regex.Extended | regex.Awk | regex.LooseBrace

// regexKey finds an expression.
type regexKey struct {
	source string
	fold   bool
}

// regex compiles an expression, or returns it from the cache.
func (m *machine) regex(source string) *regex.Regexp {
	if re := m.regexes[regexKey{source, m.ignoreCase}]; re != nil {
		return re
	}
	flags := regexFlags
	if m.ignoreCase {
		flags |= regex.IgnoreCase
	}
	re, err := regex.CompileFor(m.call.Step, []string{source}, flags)
	if err != nil {
		if errors.Is(err, regex.ErrStopped) {
			panic(stopped{})
		}
		m.fatal("invalid regexp: %s: /%s/", err, source)
	}
	if len(m.regexes) >= maxRegexes {
		m.forgetRegexes()
	}
	re.Memory(m.call.Pay)
	m.checkRegex(re)
	m.regexes[regexKey{string([]byte(source)), m.ignoreCase}] = re
	return re
}

// forgetRegexes drops all cached expressions and gives back their memory.
func (m *machine) forgetRegexes() {
	for _, re := range m.regexes {
		re.Memory(nil)
	}
	clear(m.regexes)
	m.regexEpoch++
}

// checkRegex ends the program if a search was stopped.
func (m *machine) checkRegex(re *regex.Regexp) {
	switch err := re.Err(); {
	case err == nil:
	case errors.Is(err, regex.ErrStopped):
		panic(stopped{})
	default:
		m.fatal("%s", err)
	}
}

// matches reports whether a text has a match.
func (m *machine) matches(re *regex.Regexp, s string) bool {
	ok := re.Match(bytesOf(s))
	if !ok {
		m.checkRegex(re)
	}
	return ok
}

// find returns the position of the first match at from or later, -1 when there is none.
func (m *machine) find(re *regex.Regexp, s string, from int) (start, end int) {
	start, end = re.FindIndex(bytesOf(s), from)
	if start < 0 {
		m.checkRegex(re)
	}
	return start, end
}

// pattern is an expression of the program: a constant, or a text that is known at run time.
type pattern struct {
	source string // of a constant
	text   func(m *machine) string
	// The compiled constant, and the state of the cache at that time: expressions are dropped, and
	// IGNORECASE changes.
	re    *regex.Regexp
	epoch int
	fold  bool
}

// get returns the expression.
func (p *pattern) get(m *machine) *regex.Regexp {
	if p.text != nil {
		return m.regex(p.text(m))
	}
	if p.re == nil || p.epoch != m.regexEpoch || p.fold != m.ignoreCase {
		p.re = m.regex(p.source)
		p.epoch, p.fold = m.regexEpoch, m.ignoreCase
	}
	return p.re
}
