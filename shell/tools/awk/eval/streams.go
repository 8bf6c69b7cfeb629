package eval

import (
	"bufio"
	"io"
	"maps"
	"slices"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/awk/resolve"
	"github.com/carrel-dev/carrel/shell/tools/awk/syntax"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// output is a destination of print.
type output struct {
	w     *bufio.Writer
	close func() int
	both  *both // of a two-way pipe
	name  string
	to    syntax.Redirect
	paid  int64
}

// both is a two-way pipe. Its halves can be closed separately.
type both struct {
	name string
	out  *output // nil when closed
	in   *reader
	wait func() int
}

// streams are the open streams, by name.
type streams struct {
	stdin  *reader
	stdout *output
	stderr *output
	out    map[string]*output
	in     map[string]*reader // files
	from   map[string]*reader // programs
	both   map[string]*both
	order  []*output // the streams of out in the order of opening
	last   *output   // that was used last
}

// sizes of output buffers.
const (
	outputBuffer = 64 << 10
	fileBuffer   = 8 << 10
	maxStreams   = 1000
)

func (s *streams) init(m *machine) {
	s.stdin = &reader{in: m.call.In, close: func() int { return 0 }}
	s.stdout = &output{w: bufio.NewWriterSize(m.call.Out, outputBuffer), name: "/dev/stdout"}
	s.stderr = &output{w: bufio.NewWriterSize(m.call.Err, fileBuffer), name: "/dev/stderr"}
	s.out, s.in = map[string]*output{}, map[string]*reader{}
	s.from, s.both = map[string]*reader{}, map[string]*both{}
}

// flushOutput flushes standard output. The next write reports an error.
func (s *streams) flushOutput() { _ = s.stdout.w.Flush() }

// flushAll flushes all streams. It is called before other programs run.
func (m *machine) flushAll() (ok bool) {
	ok = true
	m.flush(m.streams.stdout)
	for _, o := range m.streams.order {
		ok = o.w.Flush() == nil && ok
	}
	for _, b := range m.streams.both {
		if b.out != nil {
			ok = b.out.w.Flush() == nil && ok
		}
	}
	return ok
}

// flush flushes one stream. It ends the program when nobody reads its output.
func (m *machine) flush(o *output) {
	if err := o.w.Flush(); err != nil {
		m.writeFailed(o, err)
	}
}

// writeFailed handles an error of writing. A program that reads the output may end before it has
// read everything.
func (m *machine) writeFailed(o *output, err error) {
	if o.to == syntax.ToCommand || o.to == syntax.ToBoth {
		if m.call.Ctx.Err() != nil {
			panic(stopped{})
		}
		return
	}
	if m.call.Stopped(err) {
		panic(stopped{})
	}
	m.fatal("write to \"%s\" failed: %s", o.name, tool.ErrText(err))
}

// write writes to a stream.
func (m *machine) write(o *output, b []byte) {
	if _, err := o.w.Write(b); err != nil {
		m.writeFailed(o, err)
	}
	m.step(len(b) >> 9)
	if o == m.streams.stderr {
		_ = o.w.Flush() // there is nowhere to say so
	}
}

// outputTo returns the stream of a redirection. It opens the stream the first time.
func (m *machine) outputTo(to syntax.Redirect, name string) *output {
	s := &m.streams
	if o := s.last; o != nil && o.name == name && o.to == to {
		return o
	}
	if to == syntax.ToBoth {
		return m.bothWays(name).writer(m)
	}
	o := s.out[name]
	if o == nil {
		if to != syntax.ToCommand {
			switch name {
			case "/dev/stdout", "-", "/dev/fd/1":
				return s.stdout
			case "/dev/stderr", "/dev/fd/2":
				s.flushOutput()
				return s.stderr
			case "":
				m.fatal("expression for `%s' redirection has null string value",
					map[bool]string{true: ">>", false: ">"}[to == syntax.ToAppend])
			}
		}
		o = m.openOutput(to, name)
		s.out[name] = o
		s.order = append(s.order, o)
	}
	s.last = o
	return o
}

// openOutput opens a file for writing, or starts a program that reads the output.
func (m *machine) openOutput(to syntax.Redirect, name string) *output {
	if len(m.streams.order) >= maxStreams {
		m.fatal("cannot redirect to `%s': Too many open files", name)
	}
	o := &output{name: name, to: to, paid: fileBuffer}
	m.owe(o.paid)
	if to == syntax.ToCommand {
		m.flushAll()
		r, w := m.call.Pipe()
		p, err := m.call.Start(tool.Child{Args: []string{"sh", "-c", name}, In: r,
			Env: m.environ()})
		_ = r.Close() // the child has its own
		if err != nil {
			_ = w.Close()
			m.fatal("cannot open pipe `%s' for output: %s", name, tool.ErrText(err))
		}
		o.w = bufio.NewWriterSize(w, fileBuffer)
		o.close = func() int {
			_ = w.Close() // what it was for is over
			return exitOf(p)
		}
		return o
	}
	flags := vfs.WriteOnly | vfs.CreateNew | vfs.Truncate
	if to == syntax.ToAppend {
		flags = vfs.WriteOnly | vfs.CreateNew | vfs.Append
	}
	f, err := m.call.Open(name, flags, 0o666)
	if err != nil {
		m.fatal("cannot redirect to `%s': %s", name, tool.ErrText(err))
	}
	o.w = bufio.NewWriterSize(f, fileBuffer)
	o.close = func() int {
		if f.Close() != nil {
			return -1
		}
		return 0
	}
	return o
}

// exitOf waits for a program and returns its status in the form of close and system.
func exitOf(p tool.Process) int {
	code, signal := p.Wait()
	if signal != 0 {
		return 256 + signal
	}
	return code
}

// environ returns the environment for programs. It is made from ENVIRON if the awk program may have
// changed that.
func (m *machine) environ() []string {
	if !m.prog.Uses[resolve.Specials[resolve.ENVIRON]] {
		return nil
	}
	out := []string{}
	for _, c := range m.special(resolve.ENVIRON).arr.order {
		if c.live && c.sub == nil {
			out = append(out, c.key+"="+m.str(c.v))
		}
	}
	return out
}

// command starts a program and reads its output.
func (m *machine) command(name string) *reader {
	if rd := m.streams.from[name]; rd != nil {
		return rd
	}
	m.flushAll()
	if len(m.streams.from) >= maxStreams {
		m.fatal("cannot open pipe `%s' for input: Too many open files", name)
	}
	r, w := m.call.Pipe()
	p, err := m.call.Start(tool.Child{Args: []string{"sh", "-c", name}, Out: w, Env: m.environ()})
	_ = w.Close() // the child has its own
	if err != nil {
		_ = r.Close()
		m.fatal("cannot open pipe `%s' for input: %s", name, tool.ErrText(err))
	}
	rd := &reader{in: r, close: func() int {
		_ = r.Close() // what is left is not wanted
		return exitOf(p)
	}}
	m.streams.from[name] = rd
	return rd
}

// bothWays starts a program with a two-way pipe.
func (m *machine) bothWays(name string) *both {
	if b := m.streams.both[name]; b != nil {
		return b
	}
	m.flushAll()
	if len(m.streams.both) >= maxStreams {
		m.fatal("cannot open two way pipe `%s' for input/output: Too many open files", name)
	}
	in, to := m.call.Pipe()
	from, out := m.call.Pipe()
	p, err := m.call.Start(tool.Child{Args: []string{"sh", "-c", name}, In: in, Out: out,
		Env: m.environ()})
	_, _ = in.Close(), out.Close() // the child has its own
	if err != nil {
		_, _ = to.Close(), from.Close()
		m.fatal("cannot open two way pipe `%s' for input/output: %s", name, tool.ErrText(err))
	}
	m.owe(fileBuffer)
	b := &both{name: name, wait: func() int { return exitOf(p) }}
	b.out = &output{w: bufio.NewWriterSize(to, fileBuffer), name: name, to: syntax.ToBoth,
		both: b, paid: fileBuffer, close: closer(to)}
	b.in = &reader{in: from, close: closer(from)}
	m.streams.both[name] = b
	return b
}

func closer(c io.Closer) func() int {
	return func() int {
		_ = c.Close() // an end of a pipe
		return 0
	}
}

func (b *both) writer(m *machine) *output {
	if b.out == nil {
		m.fatal("print: attempt to write to closed write end of two-way pipe")
	}
	return b.out
}

// shut closes one half or both. When both are closed, it waits for the program.
func (b *both) shut(m *machine, to, from bool) int {
	if to && b.out != nil {
		_ = b.out.w.Flush() // nobody may be reading
		b.out.close()
		m.owe(-b.out.paid)
		b.out = nil
	}
	if from && b.in != nil {
		b.in.close()
		b.in.done(m)
		b.in = nil
	}
	if b.out != nil || b.in != nil {
		return 0
	}
	delete(m.streams.both, b.name)
	return b.wait()
}

// closeOutput closes a stream of out.
func (m *machine) closeOutput(o *output) int {
	s := &m.streams
	delete(s.out, o.name)
	for i, x := range s.order {
		if x == o {
			s.order = append(s.order[:i], s.order[i+1:]...)
			break
		}
	}
	s.last = nil
	err := o.w.Flush()
	m.owe(-o.paid)
	status := o.close()
	if err != nil && o.to != syntax.ToCommand {
		m.writeFailed(o, err)
		return -1
	}
	return status
}

// closeNamed closes the stream with a name. It returns -1 when there is none.
func (m *machine) closeNamed(name, half string) int {
	s := &m.streams
	status := -1
	if o := s.out[name]; o != nil {
		m.flush(s.stdout)
		status = m.closeOutput(o)
	}
	for _, list := range []map[string]*reader{s.in, s.from} {
		if rd := list[name]; rd != nil {
			delete(list, name)
			status = 0
			if rd != s.stdin {
				status = rd.close()
				rd.done(m)
			}
		}
	}
	if b := s.both[name]; b != nil {
		status = b.shut(m, half != "from", half != "to")
	}
	return status
}

// closeAll closes everything at the end of the program.
func (s *streams) closeAll(m *machine) {
	m.flush(s.stdout)
	for len(s.order) > 0 {
		m.closeOutput(s.order[0])
	}
	for _, name := range slices.Sorted(maps.Keys(s.both)) {
		m.closeNamed(name, "")
	}
	for _, list := range []map[string]*reader{s.in, s.from} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if rd := list[name]; rd != s.stdin {
				rd.close()
				rd.done(m)
			}
		}
		clear(list)
	}
	m.settle()
}
