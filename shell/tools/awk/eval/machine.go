package eval

import (
	"errors"
	"fmt"

	"github.com/carrel-dev/carrel/shell/regex"
	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/awk/resolve"
	"github.com/carrel-dev/carrel/shell/tools/awk/syntax"
)

// Options say how a program runs.
type Options struct {
	Args   []string    // ARGV without the program's name
	Vars   [][2]string // assignments before BEGIN, in order; escapes are expanded
	Bytes  bool        // characters are bytes
	CSV    bool        // records and fields have the CSV format
	NoVars bool        // arguments are never assignments (-E)
}

// Fatal is an error that ends a program.
type Fatal struct {
	Unit string // the file of the program where it happened, "" for the command line
	Line int    // 0 outside the program
	File string // FILENAME and FNR, if there was a record
	FNR  float64
	Msg  string
}

// Error implements error.
func (f *Fatal) Error() string { return f.Msg }

// ErrStopped says that the process is being ended. It needs no message.
var ErrStopped = errors.New("stopped")

// stopped unwinds a program that must not continue.
type stopped struct{}

// unwinding carries a jump out of an expression.
type unwinding struct{ flow flow }

// flow says where execution continues after a statement.
type flow int8

const (
	flowOn flow = iota
	flowBreak
	flowContinue
	flowNext
	flowNextFile
	flowExit
	flowReturn
)

// machine runs one program.
type machine struct {
	call *tool.Call
	opt  Options
	prog *resolve.Program

	globals []variable
	funcs   []*function
	frame   []local // the parameters of the running function
	locals  localStack
	result  value      // of return
	at      syntax.Pos // of the statement that runs

	record     record
	recordPaid int
	separator  separator // for the next record, nil when it must be made again
	nr, fnr    float64

	// The values of special variables, in the form in which they are used.
	convfmt, ofmt    string
	ofs, ors, subsep string
	ignoreCase       bool
	bytes, csv       bool
	rsMode           recordMode
	rsByte           byte
	rsRegex          *regex.Regexp
	fieldsBy         resolve.Special // FS, FPAT or FIELDWIDTHS

	regexes    map[regexKey]*regex.Regexp
	regexEpoch int

	rules   rules
	input   mainInput
	streams streams
	random  random
	seed    float64
	status  int
	rule    string // the kind of the running rules, "" for record rules

	values  []value // of expressions that have many
	keyRoom []byte  // for subscripts and numbers that are used only briefly
	outRoom []byte  // for what is printed
	grown   growth

	steps                int
	debt                 int64
	scratch, scratchBase int64
	stack                int // estimated bytes of calls
}

// rules are the compiled rules by kind.
type rules struct {
	begin, end, beginFile, endFile []action
	main                           []mainRule
}

type action func(m *machine) flow

// Run runs a program and returns its exit status. The error is a *[Fatal], [ErrStopped] or an error
// of writing.
func Run(c *tool.Call, prog *resolve.Program, opt Options) (status int, err error) {
	m := &machine{call: c, opt: opt, prog: prog, regexes: map[regexKey]*regex.Regexp{},
		globals: make([]variable, len(prog.Globals)), bytes: opt.Bytes, csv: opt.CSV}
	m.streams.init(m)
	m.random.seed(1)
	flow, err := m.protect(func() flow {
		m.initSpecials()
		m.compile()
		for _, kv := range opt.Vars {
			m.assignText(kv[0], kv[1])
		}
		return m.run()
	})
	switch {
	case flow == flowExit || err == nil:
		err = m.finish()
	case !errors.Is(err, ErrStopped):
		_ = m.finish() // the first error is told
	}
	return m.status & 0xff, err
}

// protect runs a part of the program and recovers the panics that unwind it.
func (m *machine) protect(part func() flow) (f flow, err error) {
	frame, stack, base, values := m.frame, m.stack, m.scratchBase, len(m.values)
	segment, top := m.locals.segment, m.locals.top
	defer func() {
		switch x := recover().(type) {
		case nil:
		case unwinding:
			// Restore the machine's state from before the calls that were left.
			m.frame, m.stack, m.scratchBase, m.values = frame, stack, base, m.values[:values]
			m.locals.cut(m, segment, top)
			f = x.flow
		case *Fatal:
			err = x
		case stopped:
			err = ErrStopped
		default:
			panic(x)
		}
	}()
	return part(), nil
}

// guard runs a part that may jump out of expressions. It passes errors on.
func (m *machine) guard(part func() flow) flow {
	f, err := m.protect(part)
	if err != nil {
		if fatal, ok := err.(*Fatal); ok {
			panic(fatal)
		}
		panic(stopped{})
	}
	return f
}

// fatal ends the program.
func (m *machine) fatal(format string, args ...any) {
	f := &Fatal{Line: m.at.Line, Msg: fmt.Sprintf(format, args...)}
	if m.at.Line > 0 {
		f.Unit = m.prog.Units[m.at.Unit]
	}
	if m.fnr > 0 {
		f.File, f.FNR = m.input.name(), m.fnr
	}
	panic(f)
}

// run runs BEGIN, the records and END.
func (m *machine) run() flow {
	f := m.runRules("BEGIN", m.rules.begin)
	if f != flowExit && (len(m.rules.main) > 0 || len(m.rules.end) > 0 ||
		len(m.rules.beginFile) > 0 || len(m.rules.endFile) > 0) {
		for f = flowNext; f == flowNext || f == flowNextFile; {
			f = m.guard(m.records)
		}
	}
	m.runRules("END", m.rules.end) // also behind an exit
	return flowOn
}

// runRules runs the rules of one kind, such as BEGIN, until one of them jumps.
func (m *machine) runRules(kind string, actions []action) flow {
	old := m.rule
	m.rule = kind
	f := m.guard(func() flow {
		for _, a := range actions {
			if f := a(m); f != flowOn {
				return f
			}
		}
		return flowOn
	})
	m.rule = old
	return f
}

// records reads and handles records until the input ends or an expression jumps. After a jump to
// the next record it is called again.
func (m *machine) records() flow {
	for {
		if m.input.skip {
			m.skipFile()
		}
		s, term, ok := m.nextRecord()
		if !ok {
			return flowOn
		}
		m.setRT(term)
		m.setRecord(input(s))
		m.step(1 + len(s)>>7)
		if m.scratch > 0 {
			m.relax()
		}
		f := m.handle()
		switch f {
		case flowExit:
			return f
		case flowNextFile:
			m.input.skip = true
		}
	}
}

// handle runs the rules for a record.
func (m *machine) handle() flow {
	for i := range m.rules.main {
		r := &m.rules.main[i]
		if r.applies(m) {
			if f := r.body(m); f != flowOn {
				return f
			}
		}
	}
	return flowOn
}

// mainRule is a rule for records.
type mainRule struct {
	pattern func(m *machine) bool // nil: always
	until   func(m *machine) bool
	inside  bool // of a range
	body    action
}

func (r *mainRule) applies(m *machine) bool {
	switch {
	case r.pattern == nil:
		return true
	case r.until == nil:
		return r.pattern(m)
	case !r.inside && !r.pattern(m):
		return false
	}
	r.inside = !r.until(m)
	return true
}

// finish closes all streams.
func (m *machine) finish() error {
	_, err := m.protect(func() flow {
		m.input.close(m)
		m.streams.closeAll(m)
		return flowOn
	})
	return err
}

// warn writes a message on standard error, after the output so far.
func (m *machine) warn(format string, args ...any) {
	m.streams.flushOutput()
	where := ""
	if m.at.Line > 0 {
		unit := m.prog.Units[m.at.Unit]
		if unit == "" {
			where = fmt.Sprintf("cmd. line:%d: ", m.at.Line)
		} else {
			where = fmt.Sprintf("%s:%d: ", unit, m.at.Line)
		}
	}
	m.call.Errorf(0, "%swarning: %s", where, fmt.Sprintf(format, args...))
}
