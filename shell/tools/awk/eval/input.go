package eval

import (
	"errors"
	"strconv"
	"strings"
	"syscall"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/awk/resolve"
	"github.com/carrel-dev/carrel/shell/tools/awk/syntax"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// mainInput reads the files of the arguments, one after the other.
type mainInput struct {
	arg   int     // the argument that comes next
	file  *reader // that is read
	named bool    // an argument named a file, or standard input was used
	over  bool    // nothing is left
	skip  bool    // the present file is left
	busy  bool    // rules of files run
	what  string
}

// name returns FILENAME for messages.
func (in *mainInput) name() string {
	if in.what == "" {
		return "-"
	}
	return in.what
}

// nextRecord reads the next record of the main input and counts it.
func (m *machine) nextRecord() (s, term string, ok bool) {
	for {
		if m.input.file == nil && !m.nextFile() {
			return "", "", false
		}
		s, term, ok = m.input.file.read(m)
		if ok {
			m.nr++
			m.fnr++
			return s, term, true
		}
		if err := m.input.file.err; err != nil {
			m.warnRead(m.input.name(), err)
		}
		m.leaveFile()
	}
}

// warnRead reports a failed read.
func (m *machine) warnRead(name string, err error) {
	if m.call.Stopped(err) {
		panic(stopped{})
	}
	m.status = 2
	m.call.Errorf(0, "fatal: cannot read file `%s': %s", name, tool.ErrText(err))
}

// skipFile skips the rest of a file.
func (m *machine) skipFile() {
	m.input.skip = false
	if m.input.file != nil {
		m.leaveFile()
	}
}

// leaveFile ends a file and runs the rules for its end.
func (m *machine) leaveFile() {
	if len(m.rules.endFile) > 0 && !m.input.busy {
		m.input.busy = true
		f := m.runRules("ENDFILE", m.rules.endFile)
		m.input.busy = false
		if f == flowExit {
			panic(unwinding{flowExit})
		}
	}
	m.input.close(m)
}

// close closes the current file.
func (in *mainInput) close(m *machine) {
	if in.file == nil {
		return
	}
	if in.file != m.streams.stdin {
		in.file.close()
		in.file.done(m)
	}
	in.file = nil
}

// nextFile begins the next file. It returns false when there is none.
func (m *machine) nextFile() bool {
	for !m.input.over {
		name, ok := m.nextArgument()
		if !ok {
			m.input.over = true
			if m.input.named {
				return false
			}
			name = "-"
			m.input.what = ""
			m.assign(m.special(resolve.FILENAME), text(name))
		} else {
			m.input.what = name
			m.assign(m.special(resolve.FILENAME), value{s: name, k: kindInput})
		}
		m.input.named = true
		if m.beginFile(name) {
			return true
		}
	}
	return false
}

// nextArgument returns the next argument that names a file. It first carries out the assignments
// before it.
func (m *machine) nextArgument() (string, bool) {
	for {
		m.input.arg++
		if float64(m.input.arg) >= m.special(resolve.ARGC).v.num() {
			return "", false
		}
		m.step(1)
		key := strconv.Itoa(m.input.arg)
		c := m.special(resolve.ARGV).arr.get(key)
		if c == nil {
			continue
		}
		arg := m.str(m.scalar(m.special(resolve.ARGV).arr, c))
		if arg == "" {
			continue
		}
		name, s, ok := strings.Cut(arg, "=")
		if ok && isName(name) && !m.opt.NoVars {
			m.assignText(name, s)
			continue
		}
		m.special(resolve.ARGIND).v = number(float64(m.input.arg))
		return arg, true
	}
}

// beginFile opens a file and runs the rules for its beginning. It returns false when the file has
// nothing to read.
func (m *machine) beginFile(name string) bool {
	rd, err := m.open(name)
	m.fnr = 0
	m.setErrno("")
	if len(m.rules.beginFile) > 0 && !m.input.busy {
		if err != nil {
			m.setErrno(tool.ErrText(err))
		}
		m.input.busy = true
		f := m.runRules("BEGINFILE", m.rules.beginFile)
		m.input.busy = false
		m.input.file = rd
		switch {
		case f == flowExit:
			panic(unwinding{flowExit})
		case f == flowNextFile || f == flowNext:
			m.input.close(m)
			return false
		case err != nil:
			m.fatal("cannot open file `%s' for reading: %s", name, tool.ErrText(err))
		}
		return true
	}
	if errors.Is(err, syscall.EISDIR) {
		m.streams.flushOutput()
		m.call.Errorf(0, "warning: command line argument `%s' is a directory: skipped", name)
		return false
	}
	if err != nil {
		if m.call.Stopped(err) {
			panic(stopped{})
		}
		m.at = syntax.Pos{}
		m.fnr = 0
		m.fatal("cannot open file `%s' for reading: %s", name, tool.ErrText(err))
	}
	m.input.file = rd
	return true
}

// open opens a file for reading. "-" and /dev/stdin are standard input.
func (m *machine) open(name string) (*reader, error) {
	if name == "-" || name == "/dev/stdin" {
		return m.streams.stdin, nil
	}
	f, err := m.call.Open(name, vfs.ReadOnly, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.Mode.IsDir() {
		_ = f.Close() // nothing was read
		return nil, syscall.EISDIR
	}
	return &reader{in: f, close: func() int {
		if f.Close() != nil {
			return -1
		}
		return 0
	}}, nil
}
