package script

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/experimental/sysfs"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/script/meter"
	"github.com/carrel-dev/carrel/shell/tools/script/pywasm"
)

//go:embed python/boot.py
var bootstrap string

const pythonVersion = "Python 3.12.0"

// pythonBatch is the number of loop rounds that are paid for at once.
const pythonBatch = 100_000

// python is the interpreter as machine code. It is compiled at its first use, which takes seconds,
// and then kept.
type python struct {
	runtime wazero.Runtime
	code    wazero.CompiledModule
	err     error
}

// pythonKey is the context key of a run.
type pythonKey struct{}

var thePython = sync.OnceValue(func() (p python) {
	code, err := pywasm.Code()
	if err != nil {
		return python{err: err}
	}
	if code, err = meter.Instrument(code, pythonBatch); err != nil {
		return python{err: err}
	}
	ctx := context.Background()
	p.runtime = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithMemoryLimitPages(maxPython>>16).WithDebugInfoEnabled(false))
	if _, p.err = wasi_snapshot_preview1.Instantiate(ctx, p.runtime); p.err != nil {
		return p
	}
	_, p.err = p.runtime.NewHostModuleBuilder(meter.Module).NewFunctionBuilder().WithGoFunction(api.GoFunc(func(ctx context.Context, _ []uint64) {
		const steps = pythonBatch / 50
		if run := ctx.Value(pythonKey{}).(*pythonRun); run.c.Ctx.Err() != nil || !run.c.Step(steps) {
			panic(errEnded)
		}
	}), nil, nil).Export(meter.Name).Instantiate(ctx)
	if p.err == nil {
		p.code, p.err = p.runtime.CompileModule(ctx, code)
	}
	return p
})

// errEnded is the error of an interpreter that was ended from outside.
var errEnded = errors.New("ended")

// maxPython is the most memory of one interpreter.
const maxPython = 512 << 20

// pythonRun is one run of Python.
type pythonRun struct {
	c     *tool.Call
	spent int64
	boot  string // what boot.py is told
}

// pythonUsage is the output of python3 --help.
const pythonUsage = `usage: python3 [option] ... [-c cmd | -m mod | file | -] [arg] ...
Runs Python: the text after -c, the module after -m, a file, or what it reads from
standard input. The program finds what comes after in sys.argv.

-I             leave the script's own directory out of sys.path
-V, --version  tell which Python this is
-h, -?, --help print this

This is CPython in WebAssembly: threads, sockets, fork and C extensions of others are not there; subprocess and
urllib.request go through the machine.
`

// runPython is the program python3.
func runPython(c *tool.Call) int {
	o := pythonOptions{Call: c, args: c.Args}
	if status, ok := o.parse(); !ok {
		return status
	}
	if o.mode == "" {
		o.mode, o.argv = "s", []string{""}
		if _, _, tty := c.Terminal(0); tty {
			return c.Errorf(2, "there is no interactive mode here")
		}
	}
	flags := fmt.Sprintf("uid=%d,gid=%d,pid=%d,cpus=%d", c.UID(), c.FS().Cred().GID, pidOf(c), c.Machine().CPUs())
	if o.isolated {
		flags += ",isolated=1"
	}
	r := &pythonRun{c: c, boot: strings.Join(append([]string{c.Dir(), o.mode, o.what, flags}, o.argv...), "\x00")}
	return r.run(o.options)
}

// pythonOptions is python's command line.
type pythonOptions struct {
	*tool.Call
	args []string // not read yet

	mode     string   // c, m, f(ile) or s(tandard input); "" when not given
	what     string   // the command, module or file
	argv     []string // sys.argv
	options  []string // options that are passed to the interpreter
	isolated bool
}

// parse reads the command line. When ok is false, python ends with the status.
func (o *pythonOptions) parse() (status int, ok bool) {
	for len(o.args) > 0 && o.mode == "" {
		a := o.args[0]
		o.args = o.args[1:]
		switch {
		case a == "-":
			o.mode, o.argv = "s", append([]string{"-"}, o.args...)
		case !strings.HasPrefix(a, "-"):
			o.mode, o.what, o.argv = "f", a, append([]string{a}, o.args...)
		case a == "--version":
			fmt.Fprintln(o.Out, pythonVersion)
			return 0, false
		case a == "--help" || a == "-h" || a == "-?":
			fmt.Fprint(o.Out, pythonUsage)
			return 0, false
		case a == "--":
		case strings.HasPrefix(a, "--"):
			fmt.Fprintf(o.Err, "unknown option %s\n"+pythonHint, a)
			return 2, false
		default:
			if status, ok := o.letters(a); !ok {
				return status, false
			}
		}
	}
	return 0, true
}

// pythonHint is the end of the messages about options.
const pythonHint = "usage: python3 [option] ... [-c cmd | -m mod | file | -] [arg] ...\nTry 'python3 -h' for more information.\n"

// letters reads a bundle of short options. When ok is false, python ends with the status.
func (o *pythonOptions) letters(a string) (status int, ok bool) {
	for i := 1; i < len(a); i++ {
		switch l := a[i]; l {
		case 'c', 'm', 'W', 'X':
			v := a[i+1:]
			if v == "" && len(o.args) > 0 {
				v, o.args = o.args[0], o.args[1:]
			} else if v == "" {
				fmt.Fprintf(o.Err, "Argument expected for the -%c option\n"+pythonHint, l)
				return 2, false
			}
			if l == 'c' || l == 'm' {
				o.mode, o.what, o.argv = string(l), v, append([]string{"-" + string(l)}, o.args...)
			} else {
				o.options = append(o.options, "-"+string(l), v)
			}
			return 0, true
		case 'V':
			fmt.Fprintln(o.Out, pythonVersion)
			return 0, false
		case 'I':
			o.isolated = true
			o.options = append(o.options, "-I")
		case 'B', 'E', 'O', 'P', 's', 'S', 'u', 'v', 'x', 'q', 'b', 'd':
			o.options = append(o.options, "-"+string(l))
		case 'i':
			fmt.Fprintf(o.Err, "%s: there is no interactive mode here\n", o.Name)
			return 2, false
		default:
			fmt.Fprintf(o.Err, "Unknown option: -%c\n"+pythonHint, l)
			return 2, false
		}
	}
	return 0, true
}

// grow pays for memory.
func (r *pythonRun) grow(n int64) bool {
	used, total := r.c.Machine().Memory()
	if total > 0 && used+n > total || r.c.Pay(n) != nil {
		return false
	}
	r.spent += n
	return true
}

// run runs the interpreter to its end.
func (r *pythonRun) run(options []string) int {
	c := r.c
	p := thePython()
	if p.err != nil {
		if errors.Is(p.err, pywasm.ErrMissing) {
			return c.Errorf(127, "%v", p.err)
		}
		return c.Errorf(1, "%v", p.err)
	}
	defer func() { _ = c.Pay(-r.spent) }()
	ctx := context.WithValue(context.WithoutCancel(c.Ctx), pythonKey{}, r)
	mem := &linear{grow: r.grow}
	ctx = experimental.WithMemoryAllocator(ctx, experimental.MemoryAllocatorFunc(func(_, _ uint64) experimental.LinearMemory { return mem }))
	out := &outStream{c: c, w: c.Out}
	cfg := wazero.NewModuleConfig().WithName("").WithArgs(append(append([]string{"python3"}, options...), "-c", "exec(compile("+pyQuote(bootstrap)+",'<carrel>','exec'))")...).
		WithStdin(c.In).WithStdout(out).WithStderr(&outStream{c: c, w: c.Err}).
		WithWalltime(func() (int64, int32) { t := c.Now(); return t.Unix(), int32(t.Nanosecond()) }, 1000).
		WithNanotime(func() int64 { return c.Now().Sub(c.Machine().Started()).Nanoseconds() }, 1).
		WithNanosleep(func(ns int64) {
			if !c.Sleep(time.Duration(ns)) {
				panic(errEnded)
			}
		}).
		WithRandSource(randomness{c}).
		WithFSConfig(wazero.NewFSConfig().(sysfs.FSConfig).WithSysFSMount(&machineFS{r: r}, "/"))
	for _, kv := range c.Environ() {
		if name, value, ok := strings.Cut(kv, "="); ok && name != "" && name != "PYTHONHOME" && !strings.Contains(kv, "\x00") {
			cfg = cfg.WithEnv(name, value)
		}
	}
	m, err := p.runtime.InstantiateModule(ctx, p.code, cfg.WithEnv("PYTHONDONTWRITEBYTECODE", "1"))
	if m != nil {
		_ = m.Close(ctx) // nothing runs any more
	}
	var exit *sys.ExitError
	switch {
	case errors.As(err, &exit):
		return int(exit.ExitCode() & 0xff)
	case errors.Is(err, errEnded) || c.Ctx.Err() != nil || out.broken:
		return 1
	case err != nil:
		s, _, _ := strings.Cut(err.Error(), "\n")
		return c.Errorf(1, "the interpreter failed: %s", s)
	}
	return 0
}

// outStream is an output. When it can't be written any more, the interpreter ends.
type outStream struct {
	c      *tool.Call
	w      interface{ Write([]byte) (int, error) }
	broken bool
}

// Write implements io.Writer.
func (o *outStream) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	if err != nil {
		o.broken = true
		panic(errEnded) // nobody reads any more
	}
	return n, nil
}

// randomness is the machine's.
type randomness struct{ c *tool.Call }

// Read implements io.Reader.
func (r randomness) Read(b []byte) (int, error) {
	r.c.Random(b)
	return len(b), nil
}

// linear is linear memory that the process pays for.
type linear struct {
	buf  []byte
	grow func(n int64) bool
}

// Reallocate implements experimental.LinearMemory.
func (m *linear) Reallocate(size uint64) []byte {
	old := uint64(len(m.buf))
	if size <= old {
		return m.buf[:size]
	}
	if !m.grow(int64(size - old)) {
		return nil
	}
	if size > uint64(cap(m.buf)) {
		next := make([]byte, size, size+size/4)
		copy(next, m.buf)
		m.buf = next
	}
	m.buf = m.buf[:size]
	return m.buf
}

// Free implements experimental.LinearMemory.
func (m *linear) Free() {}

// pyQuote returns a text as a Python literal.
func pyQuote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`, "\n", `\n`).Replace(s) + "'"
}
