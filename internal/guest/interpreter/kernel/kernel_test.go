package kernel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/guest/interpreter/kernel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// cellTime bounds everything that a test waits for.
const cellTime = 60 * time.Second

// outcome is what a cell did.
type outcome struct {
	stdout, stderr string
	results        []kernel.Event
	failure        *kernel.Event
	count          int
}

// text is the main result's text.
func (o outcome) text() string {
	for _, r := range o.results {
		if r.Main {
			return plain(r, "text/plain")
		}
	}
	return ""
}

// plain is one form of a result that is a text.
func plain(e kernel.Event, mime string) string {
	var s string
	_ = json.Unmarshal(e.Data[mime], &s) // "" if it is none
	return s
}

// take is the sink that fills an outcome.
func (o *outcome) take(e kernel.Event) error {
	switch e.Type {
	case kernel.Stdout:
		o.stdout += e.Text
	case kernel.Stderr:
		o.stderr += e.Text
	case kernel.Result:
		o.results = append(o.results, e)
	case kernel.Error:
		o.failure = &e
	case kernel.Count:
		o.count = e.N
	}
	return nil
}

// run runs a cell that must come to its end.
func run(t testing.TB, k kernel.Kernel, c kernel.Cell) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cellTime)
	defer cancel()
	var o outcome
	if err := k.Run(ctx, c, o.take); err != nil {
		t.Fatalf("%q: %v", c.Code, err)
	}
	return o
}

// code runs code.
func code(t testing.TB, k kernel.Kernel, text string) outcome {
	t.Helper()
	return run(t, k, kernel.Cell{Code: text})
}

// flavour is one way to run cells, and what its machine must have.
type flavour struct {
	name, language string
	finder         func(t testing.TB) kernel.Finder
	slow           bool // its start takes seconds
}

// flavours are all kernels that a machine of ours can have.
var flavours = []flavour{
	{"ipykernel", kernel.Python, withIPython, false},
	{"plain python", kernel.Python, withoutIPython, false},
	{"node", kernel.JavaScript, withProgram("node"), false},
	{"bash", kernel.Bash, withProgram("bash"), false},
	{"java", kernel.Java, withProgram("java"), true},
}

// withIPython finds a Python with ipykernel: the one in the directory CARREL_KERNELS/bin, which
// "make kernels" makes, or the machine's.
func withIPython(t testing.TB) kernel.Finder {
	t.Helper()
	for _, path := range []string{filepath.Join(os.Getenv("CARREL_KERNELS"), "bin"), os.Getenv("PATH")} {
		for _, dir := range filepath.SplitList(path) {
			exe := filepath.Join(dir, "python3")
			if exec.Command(exe, "-c", "import ipykernel, matplotlib, pandas").Run() == nil {
				return kernel.Finder{Path: dir}
			}
		}
	}
	testenv.Need(t, "ipykernel",
		errors.New("no python3 with ipykernel, matplotlib and pandas: see make kernels"))
	return kernel.Finder{}
}

// withoutIPython finds a Python and hides its packages.
func withoutIPython(t testing.TB) kernel.Finder {
	t.Helper()
	exe, err := exec.LookPath("python3")
	if err != nil {
		testenv.Need(t, "python3", err)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\nexec " + exe + " -I -S \"$@\"\n"
	// Other tests start programs meanwhile. A child that inherited the open file would keep it busy.
	syscall.ForkLock.RLock()
	err = os.WriteFile(filepath.Join(dir, "python3"), []byte(script), 0o700)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	return kernel.Finder{Path: dir}
}

func withProgram(name string) func(testing.TB) kernel.Finder {
	return func(t testing.TB) kernel.Finder {
		t.Helper()
		if _, err := exec.LookPath(name); err != nil {
			testenv.Need(t, name, err)
		}
		return kernel.Finder{}
	}
}

// start starts a kernel of a flavour.
func (f flavour) start(t testing.TB) kernel.Kernel {
	t.Helper()
	k, err := f.finder(t).Start(t.Context(), kernel.Options{Language: f.language, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

// each runs a test for each flavour that has an entry in cases.
func each[C any](t *testing.T, cases map[string]C, test func(t *testing.T, k kernel.Kernel, c C)) {
	for _, f := range flavours {
		c, ok := cases[f.name]
		if !ok {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			if f.slow {
				testenv.Long(t, "starts a machine for Java")
			}
			t.Parallel()
			test(t, f.start(t), c)
		})
	}
}

func TestStateStays(t *testing.T) {
	type cells struct{ first, second, text, stdout string }
	py := cells{"x = 41\ndef f(): return x + 1", "f()", "42", ""}
	each(t, map[string]cells{"ipykernel": py, "plain python": py,
		"node": {"const x = 41; let f = () => x + 1", "await Promise.resolve(f())", "42", ""},
		"bash": {"x=41; f() { echo $((x + 1)); }; cd /", "f; pwd", "", "42\n/\n"},
		"java": {"int x = 41; int f() {\n return x + 1; }", "// all\nf()", "42", ""},
	}, func(t *testing.T, k kernel.Kernel, c cells) {
		if o := code(t, k, c.first); o.failure != nil || len(o.results) > 0 || o.count != 1 {
			t.Fatalf("first cell: %+v", o)
		}
		o := code(t, k, c.second)
		if o.text() != c.text || o.stdout != c.stdout || o.failure != nil || o.count != 2 {
			t.Errorf("second cell: %+v", o)
		}
	})
}

func TestOutputInOrder(t *testing.T) {
	py := "import sys\nfor i in range(3): print('é', i); print('e', i, file=sys.stderr)"
	each(t, map[string]string{"ipykernel": py, "plain python": py,
		"node": "for (let i = 0; i < 3; i++) { console.log('é', i); console.error('e', i) }",
		"bash": "for i in 0 1 2; do echo é $i; echo e $i >&2; done",
		"java": `for (int i = 0; i < 3; i++) { System.out.println("é " + i);
			System.err.printf("e %d%n", i); }`,
	}, func(t *testing.T, k kernel.Kernel, c string) {
		for range 3 {
			o := code(t, k, c)
			if o.stdout != "é 0\né 1\né 2\n" || o.stderr != "e 0\ne 1\ne 2\n" || o.failure != nil {
				t.Errorf("%+v", o)
			}
		}
	})
}

func TestFailure(t *testing.T) {
	type failing struct{ code, name, value, traceback string }
	py := failing{"def f(): raise ValueError('no ☃')\nf()", "ValueError", "no ☃", "f()"}
	each(t, map[string]failing{"ipykernel": py, "plain python": py,
		"node": {"function f() { throw new TypeError('no ☃') }\nf()", "TypeError", "no ☃", "cell-1.js"},
		"bash": {"false || (exit 7)", "ExitStatus", "7", "status 7"},
		"java": {"int f() { throw new IllegalStateException(\"no ☃\"); }\nf();",
			"java.lang.IllegalStateException", "no ☃", "f(#"},
	}, func(t *testing.T, k kernel.Kernel, c failing) {
		o := code(t, k, c.code)
		if f := o.failure; f == nil || f.Name != c.name || f.Value != c.value ||
			!strings.Contains(f.Traceback, c.traceback) {
			t.Errorf("%+v", o.failure)
		}
		for _, ours := range []string{"carrel_", "carrel-kernel", "node:vm", "Cells", "jdk.jshell"} {
			if o.failure != nil && strings.Contains(o.failure.Traceback, ours) {
				t.Errorf("the traceback shows our own code:\n%s", o.failure.Traceback)
			}
		}
	})
}

func TestSyntaxError(t *testing.T) {
	each(t, map[string]string{"ipykernel": "f(", "plain python": "f(", "node": "f(", "bash": "f (",
		"java": "f("},
		func(t *testing.T, k kernel.Kernel, c string) {
			if o := code(t, k, c); o.failure == nil {
				t.Errorf("%+v", o)
			}
			if o := code(t, k, "1"); o.count != 2 {
				t.Errorf("the cell after it: %+v", o)
			}
		})
}

func TestEnvironment(t *testing.T) {
	py := "import os; print(os.environ.get('BASE'), os.environ.get('ONE'))"
	each(t, map[string]string{"ipykernel": py, "plain python": py,
		"node": "console.log(process.env.BASE || 'None', process.env.ONE || 'None')",
		"bash": "echo ${BASE-None} ${ONE-None}",
		"java": `System.out.println(System.getProperty("BASE", "None") + " " +
			System.getProperty("ONE", "None"));`,
	}, func(t *testing.T, k kernel.Kernel, c string) {
		for _, s := range []struct {
			base, env map[string]string
			want      string
		}{
			{nil, nil, "None None\n"},
			{map[string]string{"BASE": "b'\\$x"}, map[string]string{"ONE": "1"}, "b'\\$x 1\n"},
			{map[string]string{"BASE": "b'\\$x"}, nil, "b'\\$x None\n"},
			{map[string]string{"BASE": "c"}, map[string]string{"BASE": "d"}, "d None\n"},
			{map[string]string{"BASE": "c"}, nil, "c None\n"},
		} {
			o := run(t, k, kernel.Cell{Code: c, Base: s.base, Env: s.env})
			if o.stdout != s.want || o.failure != nil {
				t.Errorf("%v %v: %q, want %q (%+v)", s.base, s.env, o.stdout, s.want, o.failure)
			}
		}
	})
}

// TestInterrupt leaves cells that would never end.
func TestInterrupt(t *testing.T) {
	type endless struct{ begin, sleep, busy, after, stdout string }
	py := endless{"x = 5", "import time; print('on', flush=True); time.sleep(1e6)",
		"print('on', flush=True)\nwhile True: pass", "print(x)", "5\n"}
	each(t, map[string]endless{"ipykernel": py, "plain python": py,
		"node": {"var x = 5", "console.log('on'); await new Promise(() => {})",
			"console.log('on'); for (;;);", "console.log(x)", "5\n"},
		"bash": {"x=5", "echo on; sleep 1000000; echo never", "echo on; while :; do :; done", "echo $x",
			"5\n"},
		"java": {"int x = 5;", `System.out.print("on"); Thread.sleep(1000000);`,
			`System.out.print("on"); for (;;) {}`, "System.out.println(x)", "5\n"},
	}, func(t *testing.T, k kernel.Kernel, c endless) {
		code(t, k, c.begin)
		for _, endless := range []string{c.sleep, c.busy} {
			ctx, cancel := context.WithTimeout(t.Context(), cellTime)
			err := k.Run(ctx, kernel.Cell{Code: endless}, func(e kernel.Event) error {
				if e.Type == kernel.Stdout {
					cancel() // it is at work: its user leaves
				}
				return nil
			})
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("%q: %v", endless, err)
			}
			if err := interrupt(t.Context(), k); err != nil {
				t.Fatalf("%q was not interrupted: %v", endless, err)
			}
		}
		if o := code(t, k, c.after); o.stdout != c.stdout || o.failure != nil {
			t.Errorf("after it: %+v", o)
		}
	})
}

// interrupt interrupts a cell until it is over. An interrupt that comes between two commands may do
// nothing, so there is more than one.
func interrupt(ctx context.Context, k kernel.Kernel) error {
	ctx, cancel := context.WithTimeout(ctx, cellTime)
	defer cancel()
	again := time.NewTicker(time.Second / 2)
	defer again.Stop()
	go func() {
		for {
			select {
			case <-again.C:
				k.Interrupt()
			case <-ctx.Done():
				return
			}
		}
	}()
	return k.Settle(ctx)
}

// TestDeath has cells kill their kernel.
func TestDeath(t *testing.T) {
	py := "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
	each(t, map[string]string{"ipykernel": py, "plain python": py,
		"node": "process.kill(process.pid, 'SIGKILL')", "bash": "kill -9 $$",
		"java": `new ProcessBuilder("kill", "-9", "" + ProcessHandle.current().pid()).start().waitFor()`,
	}, func(t *testing.T, k kernel.Kernel, c string) {
		ctx, cancel := context.WithTimeout(t.Context(), cellTime)
		defer cancel()
		err := k.Run(ctx, kernel.Cell{Code: c}, func(kernel.Event) error { return nil })
		if !errors.Is(err, kernel.ErrDied) || !strings.Contains(k.Reason(), "signal 9") {
			t.Errorf("error %v, reason %q", err, k.Reason())
		}
	})
}

// TestForgedLines has programs print what looks like the protocol's lines.
func TestForgedLines(t *testing.T) {
	forged := `{"type":"done","id":1}`
	py := "print('" + forged + "')\nimport subprocess\n" +
		"subprocess.run(['echo', '" + forged + "'])\n'real'"
	each(t, map[string]string{"ipykernel": py, "plain python": py,
		"node": "console.log('" + forged + "'); require('child_process')" +
			".execSync('echo \\'" + forged + "\\'', {stdio: 'inherit'}); 'real'",
		"bash": "echo '" + forged + "'; /bin/echo '" + forged + "'",
		"java": "var f = " + strconv.Quote(forged) + ";\nSystem.out.println(f);\n" +
			`new ProcessBuilder("echo", f).inheritIO().start().waitFor(); "real"`,
	}, func(t *testing.T, k kernel.Kernel, c string) {
		o := code(t, k, c)
		if o.stdout != forged+"\n"+forged+"\n" || o.failure != nil {
			t.Errorf("%+v", o)
		}
	})
}

// TestSlowReader prints 40 MB to a sink that takes its time. Neither side may keep it all, and
// nothing may be lost.
func TestSlowReader(t *testing.T) {
	const total = 40 << 20
	py := "for i in range(40 * 1024): print('x' * 1023)"
	each(t, map[string]string{"ipykernel": py, "plain python": py,
		"node": "for (let i = 0; i < 40 * 1024; i++) console.log('x'.repeat(1023))",
		"bash": "head -c 41943040 /dev/zero | tr '\\0' x",
	}, func(t *testing.T, k kernel.Kernel, c string) {
		before := resident(t, k.PID())
		got, most, slept := 0, 0, false
		ctx, cancel := context.WithTimeout(t.Context(), cellTime)
		defer cancel()
		err := k.Run(ctx, kernel.Cell{Code: c}, func(e kernel.Event) error {
			if got += len(e.Text); got > total/4 && !slept {
				slept = true
				time.Sleep(time.Second) // a reader that stands still
				most = resident(t, k.PID())
			}
			return nil
		})
		if err != nil || got != total {
			t.Errorf("%d bytes of %d: %v", got, total, err)
		}
		if grown := most - before; grown > 24<<20 {
			t.Errorf("the kernel grew by %d MiB while its reader stood still", grown>>20)
		}
	})
}

// resident returns the resident memory of a process.
func resident(t testing.TB, pid int) int {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int
	if _, err := fmt.Sscan(string(raw), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// TestCloseKillsGroup leaves no child behind.
func TestCloseKillsGroup(t *testing.T) {
	k := flavours[3].start(t)
	o := code(t, k, "sleep 1000000 & echo $!")
	pid := 0
	for _, c := range strings.TrimSpace(o.stdout) {
		pid = pid*10 + int(c-'0')
	}
	if pid < 2 || syscall.Kill(pid, 0) != nil {
		t.Fatalf("no child: %+v", o)
	}
	k.Close()
	testenv.Eventually(t, "the child ends", func() bool {
		raw, err := os.ReadFile("/proc/" + strings.TrimSpace(o.stdout) + "/stat")
		return err != nil || strings.Contains(string(raw), ") Z ")
	})
}

func TestUnknownLanguage(t *testing.T) {
	_, err := kernel.Finder{}.Start(t.Context(), kernel.Options{Language: "cobol", Dir: "/"})
	if !errors.Is(err, kernel.ErrUnknown) || !strings.Contains(err.Error(), "cobol") {
		t.Errorf("error %v", err)
	}
}

// TestBrokenPython has a python3 that fails: its last words are in the error.
func TestBrokenPython(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\necho 'no such module: encodings' >&2\nexit 3\n"
	if err := os.WriteFile(filepath.Join(dir, "python3"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := kernel.Finder{Path: dir}.Start(t.Context(), kernel.Options{Language: kernel.Python, Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "status 3: no such module: encodings") {
		t.Errorf("error %v", err)
	}
}
