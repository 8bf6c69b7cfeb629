package search_test

import (
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/tools/search"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// machine makes a small machine with the programs of this package.
func machine(t testing.TB) *interp.Machine {
	t.Helper()
	fs := vfs.New(vfs.Options{Quota: 4 << 20})
	if err := interp.Install(fs, "grep", "sed", "rg"); err != nil {
		t.Fatal(err)
	}
	if err := fs.Root().WriteFile("/tmp/f", []byte("one two\nthree é\n\nfour\xff 44\nno end"), 0o644); err != nil {
		t.Fatal(err)
	}
	m := interp.New(interp.Config{FS: fs, Commands: search.Commands(), Limits: interp.Limits{Procs: 8, Memory: 8 << 20, Output: 256 << 10, Steps: 200000, Depth: 40}})
	t.Cleanup(m.Close)
	return m
}

// exec1 runs one program, which must end.
func exec1(t *testing.T, m *interp.Machine, args ...string) {
	in, out, errs := interp.NewPipe(), interp.NewPipe(), interp.NewPipe()
	in.CloseWrite()
	out.CloseRead()
	errs.CloseRead()
	for _, a := range args {
		if strings.IndexByte(a, 0) >= 0 {
			return
		}
	}
	p, err := m.Start(interp.Spec{Path: "bash", Args: append([]string{"-c", `trap '' PIPE; "$@" > /dev/null 2>&1`, "x"}, args...), Dir: "/tmp", Env: []string{"PATH=/bin"}, Stdin: in, Out: out, Err: errs})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan interp.Exit, 1)
	go func() { done <- p.Wait() }()
	select {
	case e := <-done:
		if strings.Contains(e.Message, "internal error") {
			t.Fatalf("%q: %s", args, e.Message)
		}
	case <-time.After(time.Minute):
		t.Fatalf("hangs: %q", args)
	}
}

// FuzzSed runs any script.
func FuzzSed(f *testing.F) {
	for _, s := range []string{"s/a/b/g", ":a;N;$!ba;s/\\n/,/g", "1!G;h;$!d", "y/abc/xyz/", "/a/,/b/{p;d}", ":a;ba", ":a;G;h;ba", "s/.*/&&&&&&&&/;s//&&&&&&/", "$!N;P;D", "a\\\nx", "s/\\(a*\\)*\\1/x/", "1~0p;0,/x/d", "w /dev/stdout", "r f", "l 1", "s/x/\\U\\n&\\E/3g", "c\\", "s/[/]/x/", "{{{}}}"} {
		f.Add(s, false)
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, script string, ext bool) {
		args := []string{"sed", "--", script, "f"}
		if ext {
			args = []string{"sed", "-E", "-n", "--", script, "f", "f"}
		}
		exec1(t, machine(t), args...)
	})
}

// FuzzGrep runs any pattern with any flags.
func FuzzGrep(f *testing.F) {
	for _, p := range []string{"o", "^$", "\\(.\\)\\1", "[[:alpha:]]*", "(a*)*b", "(?<=o)n.*?e\\K", "\\bt", "a{1,999}{1,99}", "[", "\xff", "é|x", "\\w+", "$^", "(?i)O(?=n)"} {
		for _, fl := range []string{"-c", "-E", "-P", "-on", "-vC1", "-wi", "-xF", "-z", "-m1", "-A1", "-L", "-b"} {
			f.Add(fl, p)
		}
	}
	f.Fuzz(func(t *testing.T, flags, pattern string) {
		if !strings.HasPrefix(flags, "-") || strings.ContainsAny(flags, "rRf \n=") {
			return
		}
		m := machine(t)
		exec1(t, m, "grep", flags, "-e", pattern, "f", "f")
		exec1(t, m, "rg", flags, "-e", pattern, "f", "/tmp")
	})
}
