package interp_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/shell/internal/patience"
	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/tools"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// TestLimits runs scripts that could exhaust the daemon. Each must end soon, name the limit, and
// leave a machine that works.
func TestLimits(t *testing.T) {
	aliasBomb := "shopt -s expand_aliases\n"
	for i := range 30 {
		aliasBomb += fmt.Sprintf("alias a%d='a%d; a%d'\n", i, i+1, i+1)
	}
	aliasBomb += "a0\n"
	// The time limit is long enough for a busy machine and the race detector. The other limits must
	// end the scripts.
	small := interp.Limits{FDs: 32, Wall: 2 * time.Minute, Procs: 32, Memory: 16 << 20, Output: 1 << 20, Steps: 2 << 20}
	for _, c := range []struct {
		name, script string
		stderr       string // part of what it writes, or
		message      string // part of the reason of its end
	}{
		{"endless loop", `while :; do :; done`, "", "limit of 2097152 steps"},
		{"endless output", `yes`, "", "output limit of 1 MiB"},
		{"output of children", `for i in 1 2 3; do (yes | head -c 600000); done`, "", "output limit"},
		{"doubling variable", `x=x; while :; do x=$x$x; done`, "", "memory limit of 16 MiB"},
		{"doubling array", `a=(x x); while :; do a=("${a[@]}" "${a[@]}"); done`, "", "memory limit"},
		{"big substitution", `x=$(yes)`, "", "memory limit"},
		{"big replacement", `x=$(yes | head -c 100000); y=${x//y/$x}`, "", "memory limit"},
		{"sort of everything", `yes | sort`, "", "memory limit"},
		{"long line", `cat /dev/zero | grep x`, "", "memory limit"},
		{"recursion", `f() { f; }; f`, "maximum nesting level", ""},
		{"recursion in subshells", `f() { (f); }; f`, "fork: ", ""},
		{"recursion by eval", `f='eval "$f"'; eval "$f"`, "maximum nesting level", ""},
		{"recursion by substitution", `f() { x=$(f); }; f`, "fork: ", ""},
		{"recursion by script", `echo './s' > s; chmod +x s; ./s`, "fork: ", ""},
		{"recursion in arithmetic", `a=b; b=a; echo $((a))`, "recursion level", ""},
		{"recursion by source", `echo '. ./s' > s; . ./s`, "maximum nesting level", ""},
		{"fork bomb", `f() { f | f & }; f; sleep 0.2`, "fork: ", ""},
		{"braces", `echo {1..100000000}`, "brace expansion", ""},
		{"nested braces", `echo {a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}`, "brace expansion", ""},
		{"nested parentheses", strings.Repeat("(", 300000), "nesting too deep", ""},
		{"nested substitutions", "echo " + strings.Repeat("$(", 100000), "nesting too deep", ""},
		{"nested arithmetic", "echo $((" + strings.Repeat("(", 200000) + "))", "nesting too deep", ""},
		{"nested negations", "[[ " + strings.Repeat("! ", 200000) + "a ]]", "nesting too deep", ""},
		{"nested functions", strings.Repeat("f() ", 100000) + "{ :; }", "nesting too deep", ""},
		{"nested ifs", strings.Repeat("if :; then ", 50000), "nesting too deep", ""},
		{"nested quotes", "echo " + strings.Repeat(`"${x:-`, 50000), "nesting too deep", ""},
		{"arithmetic at run time", `x=1; i=0; while [ $i -lt 14 ]; do x="($x)+($x)"; i=$((i+1)); done; y=$x$x; x=$(printf '(%.0s' {1..200000}); echo $((x))`, "", ""},
		{"descriptors", `for i in {1..40}; do exec {fd}>/dev/null || break; done; echo last $fd`, "Bad file descriptor", ""},
		{"descriptors in a row", `exec 500>f`, "Bad file descriptor", ""},
		{"trap recursion", `trap 'kill -USR1 $$' USR1; kill -USR1 $$`, "maximum nesting level", ""},
		{"trap that traps", `trap 'trap "$(trap -p USR1)" USR1; kill -USR1 $$' USR1; kill -USR1 $$`, "", ""},
		{"debug recursion", `set -T; f() { f; }; trap f DEBUG; :`, "maximum nesting level", ""},
		{"alias bomb", aliasBomb, "", ""},
		{"classic fork bomb", `:(){ :|:& };:`, "fork: ", ""},
		{"endless here-document", "x=x; while :; do x=$x$x; cat <<E >/dev/null\n$x$x$x\nE\ndone", "", "memory limit"},
		{"wall time", `sleep 100`, "", "time limit of 2s"},
		{"wall time of jobs", `sleep 100 & sleep 100 & wait`, "", "time limit of 2s"},
		{"disk", `cat /dev/zero > big; echo more > other`, "No space left on device", ""},
		{"holes", `truncate -s 900G f && wc -c f && echo x >> f; echo done`, "", ""},
		{"regular expression", `x=$(yes a | head -c 30000); [[ $x =~ (a*)*(a*)*b ]]; case $x in *a*a*a*a*a*a*a*b) ;; esac; echo fine`, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			limits := small
			if strings.HasPrefix(c.name, "wall time") {
				limits.Wall = 2 * time.Second
			}
			m := newMachine(t, limits)
			r := run(t, m, c.script, "")
			if !strings.Contains(r.err, c.stderr) {
				t.Errorf("stderr lacks %q: %.300s", c.stderr, r.err)
			}
			if !strings.Contains(r.exit.Message, c.message) || c.message != "" && r.exit.Signal != 9 {
				t.Errorf("the end is %+v, want %q", r.exit, c.message)
			}
			if limits.Wall == small.Wall && strings.Contains(r.exit.Message, "time limit") {
				t.Errorf("only the clock ended it: %+v", r.exit)
			}
			again := run(t, m, `echo ok`, "")
			if again.out != "ok\n" && c.name != "fork bomb" {
				t.Errorf("afterwards the machine says %q %q", again.out, again.err)
			}
			// The last processes of the script end after its pipes are closed.
			patience.Until(t, "the memory is given back", func() error {
				if n := m.Usage().Memory; n > 1<<20 && c.name != "fork bomb" {
					return fmt.Errorf("%d bytes stay charged", n)
				}
				return nil
			})
		})
	}
}

// FuzzParseRun runs any text as a script. It must not panic or hang, and must report each limit
// that it reaches.
func FuzzParseRun(f *testing.F) {
	for _, g := range bashCases {
		for _, s := range g.scripts {
			f.Add(s)
		}
	}
	for _, s := range []string{"((((", "$(($((", "${x[${x[", "<<a\n<<b", "case x in (a", "f(){ f|f;};f", "\x00\xff", "${!x@}", "echo {1..", "[[ a =~ ( ]]", "a=(", "${x//$x/$x}", "for ((;;)) do break; done", "printf %*d 99999999 1", "$'\\", "trap f EXIT; f(){ trap f EXIT;}",
		"coproc { read x; }; echo >&${COPROC[1]}", "exec {a[1]}<>f 3>&1- 4<&3 5>&-", "set -m; sleep 1 & kill -STOP %1; fg", "shopt -s expand_aliases\nalias a='b ' b=a\na b",
		"select x in a b; do :; done <<<1", "trap 'kill -USR1 $$' USR1; kill -USR1 $$", "set -T; trap 'f' DEBUG; f() { :; }; f", "wait -n -p v %1 & wait", "ulimit -n 5; exec 6>f",
		"set -v; alias x=y\nx", "trap 'exit 3' EXIT; kill -TERM $$", "f() { exec f; }; f", "pushd -n +9; popd -0; dirs -v", "read -t 0.01 -N 3 -d x -a b <<<abc", "while read -u 3 x; do :; done 3< <(yes)",
		"set -x; PS4='$(f) '; f() { echo; }; f", "declare -f f; f() { case $x in a) ;; esac <<-E; }\n\tE\ndeclare -f", "umask -S u=rwx,g+s; umask a-", "kill -l; kill -9 -$$", "lastpipe | shopt -s lastpipe; : | read"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, script string) {
		m := newMachine(t, interp.Limits{Procs: 8, Memory: 4 << 20, Output: 64 << 10, Steps: 20000, Depth: 40})
		in, out, errs := interp.NewPipe(), interp.NewPipe(), interp.NewPipe()
		in.CloseWrite()
		out.CloseRead()
		errs.CloseRead()
		p, err := m.Start(interp.Spec{Path: "bash", Args: []string{"-c", "trap '' PIPE\n" + script}, Dir: "/work", Env: []string{"PATH=/bin"}, Stdin: in, Out: out, Err: errs})
		if err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(2*time.Second, func() { _ = p.Signal(9) }) // a sleep is no hang
		defer timer.Stop()
		done := make(chan struct{})
		go func() { p.Wait(); m.Close(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("hangs after SIGKILL: %q", script)
		}
	})
}

// TestKill ends processes in every kind of wait.
func TestKill(t *testing.T) {
	for _, script := range []string{`sleep 1000`, `read x`, `cat`, `sleep 1000 | cat`, `wait & sleep 1000 & wait`, `while :; do :; done`,
		`(sleep 1000)`, `x=$(sleep 1000)`, `yes > /dev/null`, `cat /dev/zero > /dev/null`, `tail -f /etc/passwd`, `timeout 1000 sleep 1000`,
		`trap 'sleep 1000' EXIT`, `mkfifo() { cat <(sleep 1000); }; mkfifo`} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, interp.Limits{})
			in, out := interp.NewPipe(), interp.NewPipe()
			p, err := m.Start(interp.Spec{Path: "bash", Args: []string{"-c", script}, Dir: "/", Env: []string{"PATH=/bin"}, Stdin: in, Out: out})
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = out.Read(make([]byte, 1)) }()
			time.Sleep(20 * time.Millisecond)
			if err := p.Signal(9); err != nil {
				t.Fatal(err)
			}
			if e := p.Wait(); e.Signal != 9 || e.Code != 137 {
				t.Errorf("%+v", e)
			}
			m.Close()
			if u := m.Usage(); u.Procs != 0 || u.Memory != 0 {
				t.Errorf("left: %+v", u)
			}
		})
	}
}

func BenchmarkLoop10k(b *testing.B) {
	for b.Loop() {
		run(b, newMachine(b, interp.Limits{}), `i=0; while [ $i -lt 10000 ]; do i=$((i+1)); done`, "")
	}
}

func BenchmarkSubst10k(b *testing.B) {
	for b.Loop() {
		run(b, newMachine(b, interp.Limits{}), `for ((i=0;i<10000;i++)); do x=$(echo $i); done`, "")
	}
}

// TestSeed runs a script in two machines with the same seed. Their outputs must be equal, and
// sleeping must take no time.
func TestSeed(t *testing.T) {
	const script = `date +%s.%N; echo $RANDOM $SRANDOM $$ $BASHPID; head -c 8 /dev/urandom | od -An -tx1
for i in 1 2 3 4 5; do { sleep 0.$i; echo job $i $RANDOM; } & done; wait
(for i in 1 2 3; do echo a$i; done) & (for i in 1 2 3; do echo b$i; done) & wait
seq 3 | while read x; do echo $x; sleep 100; done; date +%s; echo $SECONDS
mktemp -u; yes | head -2; coproc cat; echo hi >&${COPROC[1]}; read y <&${COPROC[0]}; echo $y; kill $COPROC_PID
read -t 5 z < <(sleep 50); echo $?; trap 'echo usr $SECONDS' USR1; (sleep 7; kill -USR1 $$) & wait; timeout 3 sleep 9; echo $?; echo $EPOCHREALTIME; sleep 86400; date`
	seed := func(n uint64) string {
		fs := vfs.New(vfs.Options{Quota: 64 << 20})
		if err := interp.Install(fs, tools.Names()...); err != nil {
			t.Fatal(err)
		}
		if err := fs.Root().MkdirAll("/work", 0o777); err != nil {
			t.Fatal(err)
		}
		m := interp.New(interp.Config{FS: fs, Hostname: "box", Commands: tools.All(), Seed: &n})
		defer m.Close()
		r := run(t, m, script, "")
		return r.out + r.err
	}
	start := time.Now()
	first := seed(1)
	if d := time.Since(start); d > time.Hour { // it sleeps for a day
		t.Errorf("a day takes %v", d)
	}
	for range 5 {
		if again := seed(1); again != first {
			t.Fatalf("the same seed gives\n%s\nand\n%s", first, again)
		}
	}
	if other := seed(2); other == first {
		t.Error("another seed gives the same")
	}
	t.Log(first)
}

// BenchmarkNew makes and closes a machine on an existing disk.
func BenchmarkNew(b *testing.B) {
	fs := vfs.New(vfs.Options{})
	b.ReportAllocs()
	for b.Loop() {
		interp.New(interp.Config{FS: fs, Commands: tools.All()}).Close()
	}
}

// TestPrintfFlags checks that a directive with very many flags takes time in proportion to its
// length.
func TestPrintfFlags(t *testing.T) {
	m := newMachine(t, interp.Limits{Wall: time.Minute})
	if r := run(t, m, `f=$(yes 0 | head -n 4000000 | tr -d '\n'); printf "%${f}5d|" 7`, ""); r.out != "00007|" {
		t.Errorf("%q %q %+v", r.out, r.err, r.exit)
	}
}
