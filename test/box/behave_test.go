package box_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
)

// line is a command line that must behave in the box as it does outside.
type line struct {
	name  string
	words []string // of the command, outside
	flags []string // of carrel run, in front of it
	shell string   // instead: a line for bash and for -c
}

// lines are compared in one pass, in the same world.
func lines() []line {
	return []line{
		{name: "arguments", words: []string{"printf", "[%s]\n", `{"a":{"b":"c d"}}`, `it's`, `a"b`, "$HOME", "*", "", `\n`, "-c", "--allow", "é\n"}},
		{name: "the command's flags", words: []string{"echo", "-e", "--version", "-c", "x", "--deny", "y"}},
		{name: "simple", shell: "echo hello"},
		{name: "quotes", shell: `echo "a  b" 'c $HOME'`},
		{name: "JSON", shell: `printf '%s' '{"a": "b c", "d": {"e": "f\"g"}}'`},
		{name: "nested JSON", shell: `printf '%s' "{\"json\": \"{\\\"inner\\\": [1, 2]}\"}"`},
		{name: "expansion", shell: `x=5; echo $x ${x}y $((x*2)) {a,b} ~ *.md "$USER"`},
		{name: "pipes", shell: `echo b a | tr ' ' '\n' | sort | head -1; echo ${PIPESTATUS[@]}`},
		{name: "substitution", shell: "echo $(echo inner $(echo most)) `echo back`"},
		{name: "process substitution", shell: "cat <(echo one) <(echo two); echo x | tee >(cat >/dev/null)"},
		{name: "here-document", shell: "cat <<A\nhello $HOME\nA"},
		{name: "background", shell: "sleep 0.01 & wait $!; echo $?"},
		{name: "errors", shell: "echo out; echo err >&2; exit 3"},
		{name: "bash and its version", shell: "echo $BASH_VERSION $- $SHELL"},
		{name: "descriptors", shell: "exec 7>&1; echo seven >&7; readlink /proc/self/fd/0 >/dev/null && cat /proc/self/fdinfo/7 | wc -l"},
		{name: "working directory", shell: "pwd; pwd -P; cd ..; pwd; cd -; echo $PWD $OLDPWD"},
		{name: "who I am", shell: "id -u; id -g; umask; echo $HOME; stat -c %u:%g ."},
		{name: "the machine", shell: "uname -sm; nproc; cat /etc/os-release | head -1; date +%Z"},
		{name: "users are known", shell: "getent passwd root | cut -d: -f1; id -un 2>/dev/null; stat -c %U . 2>/dev/null"},
		{name: "devices", shell: "echo x >/dev/null; head -c 4 /dev/zero | wc -c; head -c 4 /dev/urandom | wc -c; test -e /dev/full && echo full; ls -l /dev/stdin /dev/fd | wc -l"},
		{name: "special files", shell: "mkfifo f; (echo through >f &) ; cat f; ln -s README.md l; cat l; ln README.md h; stat -c %h h; rm f l h"},
		{name: "permissions", shell: "touch p; chmod 640 p; stat -c %a p; chmod 4755 p; chmod u+x p; rm p"},
		{name: "temporary files", shell: "f=$(mktemp); echo tmp >$f; cat $f; d=$(mktemp -d); rmdir $d; stat -c %a /tmp"},
		{name: "shared memory", shell: "echo x >/dev/shm/x-$$ && cat /dev/shm/x-$$ && rm /dev/shm/x-$$"},
		{name: "locks and times", shell: "exec 8>lock; flock -n 8 && echo locked; touch -d @1 lock; stat -c %Y lock; rm lock"},
		{name: "exit code of the last", shell: "false"},
		{name: "exit codes", shell: "exit 255"},
		{name: "not found", words: []string{"carrel-no-such-command"}},
		{name: "not executable", words: []string{"./README.md"}},
		{name: "a directory", words: []string{"/etc"}},
		{name: "dies by a signal", words: []string{"sh", "-c", "kill -TERM $$"}},
		{name: "dies by kill", words: []string{"sh", "-c", "kill -KILL $$"}},
		{name: "aborts", words: []string{"sh", "-c", "ulimit -c 0; kill -ABRT $$"}},
		{name: "own process group dies", shell: "trap 'echo caught; exit 7' TERM; kill -TERM $$"},
		{name: "ignores", shell: "trap '' HUP; kill -HUP $$; echo still"},
		{name: "python", words: []string{"python3", "-c", "import os,sys,socket,ssl,multiprocessing as m\nprint(sys.stdin.read(3), m.Pool(2).map(abs,[-1,2]))"}},
		{name: "node", words: []string{"node", "-e", "new Worker=0"}},
		{name: "node runs", words: []string{"node", "-e", `const {Worker}=require('worker_threads');new Worker('console.log(1+1)',{eval:true});require('child_process').execSync('echo child',{stdio:'inherit'})`}},
		{name: "perl", words: []string{"perl", "-e", `print "ok\n"`}},
		{name: "find and xargs", shell: "find . -name '*.md' -print0 | xargs -0 wc -c"},
		{name: "locale", shell: "locale 2>/dev/null | head -1; printf '%s' 'ü' | wc -m"},
		{name: "ulimits that a shell shows", shell: "ulimit -s; ulimit -t; ulimit -v"},
		{name: "loopback", shell: `python3 -c "
import socket,threading
s=socket.create_server(('127.0.0.1',0)); threading.Thread(target=lambda:s.accept()[0].sendall(b'hi')).start()
print(socket.create_connection(s.getsockname()).recv(9))
u=socket.socket(socket.AF_UNIX); u.bind('own.sock'); u.listen(); c=socket.socket(socket.AF_UNIX); c.connect('own.sock'); print('own')
a,b=socket.socketpair(); a.send(b'x'); print(b.recv(1))
for k in socket.SOCK_STREAM,socket.SOCK_DGRAM: [socket.socket(f,k).close() for f in (socket.AF_INET,socket.AF_INET6)]
"; rm -f own.sock`},
	}
}

// TestAsOutside runs the same lines outside and in the box, and compares outputs and exit statuses.
func TestAsOutside(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		needBox(t, w)
		for _, l := range lines() {
			t.Run(l.name, func(t *testing.T) {
				words, inside := l.words, append([]string{"--"}, l.words...)
				if l.shell != "" {
					words, inside = []string{"bash", "-c", l.shell}, []string{"-c", l.shell}
				}
				outside := w.command(words[0], words[1:]...)
				outside.Stdin = strings.NewReader("abcdef")
				var want result
				if _, err := os.Stat(outside.Path); err != nil || l.name == "not executable" || l.name == "a directory" {
					want = w.run(w.command("bash", append([]string{"-c", `exec "$@"`, "bash"}, l.words...)...)) // the shell's exit codes
					want.err = ""
				} else {
					want = w.run(outside)
				}
				box := w.box(append(l.flags, inside...)...)
				box.Stdin = strings.NewReader("abcdef")
				got := w.run(box)
				if got.out != want.out || got.code != want.code || got.signal != want.signal || !strings.Contains(got.err, want.err) {
					t.Errorf("inside: exit %d %v\n%q\n%s\noutside: exit %d %v\n%q\n%s", got.code, got.signal, got.out, got.err, want.code, want.signal, want.out, want.err)
				}
			})
		}
	})
}

// TestCommandLine checks the arguments before the command.
func TestCommandLine(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		for _, c := range []struct {
			name string
			args []string
			code int
			out  string // all of standard output
			err  string // part of standard error
		}{
			{"without --", []string{"echo", "a", "-c", "--allow", "x"}, 0, "a -c --allow x\n", ""},
			{"positional for -c", []string{"-c", `echo "$0" "$1"`, "zero", "one two"}, 0, "zero one two\n", ""},
			{"empty -c", []string{"-c", ""}, 0, "", ""},
			{"no command", nil, 125, "", "no command"},
			{"no command after --", []string{"--"}, 125, "", "no command"},
			{"unknown flag", []string{"--alow", "x", "--", "true"}, 2, "", "alow"},
			{"bad destination", []string{"--allow", "exa mple.com", "--", "true"}, 125, "", "exa mple.com"},
			{"bad size", []string{"--memory", "lots", "--", "true"}, 125, "", "--memory"},
			{"bad pids", []string{"--pids", "-1", "--", "true"}, 125, "", "--pids"},
			{"bad timeout", []string{"--timeout", "0s", "--", "true"}, 125, "", "--timeout"},
			{"empty path", []string{"--write", "", "--", "true"}, 125, "", "write"},
			{"no such settings", []string{"--settings", "nowhere.json", "--", "true"}, 125, "", "nowhere.json"},
			{"no such profile", []string{"--profile", "no-such", "--", "true"}, 125, "", "no-such"},
			{"no such tier", []string{"--tier", "steel", "--", "true"}, 125, "", "steel"},
			{"no such command", []string{"--", "carrel-none"}, 127, "", "carrel-none"},
			{"command without rights", []string{"--", "./README.md"}, 126, "", "README.md"},
			{"path of a command not there", []string{"--", "./nowhere"}, 127, "", "nowhere"},
			{"dry run", []string{"--dry-run", "--", "touch", "made"}, 0, "*", ""},
			{"explain", []string{"--explain", "--", "touch", "made"}, 0, "*", ""},
		} {
			t.Run(c.name, func(t *testing.T) {
				r := w.run(w.box(c.args...))
				if r.code != c.code || c.out != "*" && r.out != c.out || !strings.Contains(r.err, c.err) || c.code == 125 && !strings.HasPrefix(r.err, "carrel: ") {
					t.Errorf("exit %d, want %d\nout %q, want %q\nerr %q, want %q", r.code, c.code, r.out, c.out, r.err, c.err)
				}
				if c.out == "*" && (len(r.out) < 100 || w.read(w.project+"/made") != "") {
					t.Errorf("%q", r.out)
				}
			})
		}
		if _, err := os.Stat(w.project + "/made"); err == nil {
			t.Error("a dry run ran")
		}
	})
}

// TestStreams checks standard input and outputs.
func TestStreams(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		t.Run("50 MB", func(t *testing.T) {
			data := bytes.Repeat([]byte("0123456789abcdef"), 50<<16)
			cmd := w.box("--", "sha256sum")
			cmd.Stdin = bytes.NewReader(data)
			if r := w.run(cmd); r.out != fmt.Sprintf("%x  -\n", sha256.Sum256(data)) {
				t.Errorf("%d %q %s", r.code, r.out, r.err)
			}
			cmd = w.box("--", "cat")
			cmd.Stdin = bytes.NewReader(data)
			sum := sha256.New()
			cmd.Stdout = sum
			if r := w.run(cmd); r.code != 0 || !bytes.Equal(sum.Sum(nil), func() []byte { s := sha256.Sum256(data); return s[:] }()) {
				t.Errorf("cat: %d %s", r.code, r.err)
			}
		})
		shell := func(line string) result {
			return w.run(w.command("bash", "-c", strings.ReplaceAll(line, "BOX", w.carrel+" run")))
		}
		for _, c := range []struct{ name, line, out string }{
			{"closed stdin", "BOX -- sh -c 'cat; echo done' <&-; echo $?", "done\n0\n"},
			{"closed outputs", "BOX -- sh -c 'echo x; exit 4' >&- 2>&-; echo $?", "4\n"},
			{"everything closed", "BOX -- sh -c 'exit 5' <&- >&- 2>&-; echo $?", "5\n"},
			{"null", "BOX -- sh -c 'cat; exit 6' </dev/null >/dev/null 2>/dev/null; echo $?", "6\n"},
			{"no terminal", "BOX -- sh -c 'tty; test -t 0 || test -t 1 || echo none' </dev/null", "not a tty\nnone\n"},
			{"reader goes away", "BOX -- yes | head -1", "y\n"},
			{"reader goes away, status", "set -o pipefail; BOX -q -- yes 2>/dev/null | head -1 >/dev/null; echo $?", "141\n"},
			{"file in and out", "echo data >in.txt; BOX -- cat <in.txt >out.txt; cat out.txt; rm in.txt out.txt", "data\n"},
			{"file outside in and out", "echo data >../in.txt; BOX -- cat <../in.txt >../out.txt; cat ../out.txt; rm ../in.txt ../out.txt", "data\n"},
			{"append", "echo a >out.txt; BOX -- echo b >>out.txt; cat out.txt; rm out.txt", "a\nb\n"},
			{"only what was read", "printf 'a\\nb\\n' | { BOX -- true; cat; }", "a\nb\n"},
			{"order", "BOX -- sh -c 'echo 1; echo 2 >&2; echo 3' 2>&1 | head -3", "1\n2\n3\n"},
			{"in a pipeline", "echo x | BOX -- cat | BOX -- tr x y", "y\n"},
			{"in the background", "BOX -- sh -c 'exit 9' & wait $!; echo $?", "9\n"},
			{"with SIGHUP ignored", "trap '' HUP; BOX -- sh -c 'exit 3'; echo $?", "3\n"},
			{"a shell's loop", "for i in 1 2 3 4 5; do BOX -- echo $i; done | tr '\\n' ' '", "1 2 3 4 5 "},
			{"at once", "for i in 1 2 3 4 5 6 7 8; do BOX -- sh -c 'echo x' & done | cat; wait", strings.Repeat("x\n", 8)},
		} {
			t.Run(c.name, func(t *testing.T) {
				if r := shell(c.line); r.out != c.out {
					t.Errorf("%q, want %q\n%s", r.out, c.out, r.err)
				}
			})
		}
		t.Run("a socket", func(t *testing.T) {
			fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			mine, theirs := os.NewFile(uintptr(fds[0]), "mine"), os.NewFile(uintptr(fds[1]), "theirs")
			defer mine.Close()
			cmd := w.box("--", "cat")
			cmd.Stdin, cmd.Stdout = theirs, theirs
			_, _ = mine.WriteString("through a socket")
			_ = syscall.Shutdown(fds[0], syscall.SHUT_WR)
			r := w.run(cmd)
			_ = theirs.Close()
			if got, err := io.ReadAll(mine); string(got) != "through a socket" {
				t.Errorf("%q, %v, exit %d %s", got, err, r.code, r.err)
			}
		})
	})
}

// TestEnvironment checks the command's environment.
func TestEnvironment(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		for _, c := range []struct {
			name  string
			flags []string
			want  []string
			not   []string
		}{
			{"default", nil, []string{"HOME=" + w.home, "PATH=" + path, "PLAIN=1", "LANG=C.UTF-8", "TERM=xterm"}, []string{"GITHUB_TOKEN", "SSH_AUTH_SOCK=", "LD_PRELOAD"}},
			{"kept", []string{"--env", "GITHUB_TOKEN"}, []string{"GITHUB_TOKEN=" + w.secret}, []string{"NPM_TOKEN"}},
			{"set", []string{"--env", "X=a b=c", "--env", "EMPTY="}, []string{"X=a b=c", "EMPTY="}, nil},
			{"stripped", []string{"--env", "PLAIN-"}, nil, []string{"PLAIN"}},
		} {
			t.Run(c.name, func(t *testing.T) {
				cmd := w.box(append(c.flags, "--", "env")...)
				cmd.Env = append(cmd.Env, "PLAIN=1", "SSH_AUTH_SOCK="+w.home+"/agent.sock")
				secretEnvironment(w, cmd)
				r := w.run(cmd)
				all := strings.Split(r.out, "\n")
				for _, v := range c.want {
					if !contains(all, v) {
						t.Errorf("no %s in\n%s%s", v, r.out, r.err)
					}
				}
				for _, v := range c.not {
					if strings.Contains("\n"+r.out, "\n"+v) {
						t.Errorf("%s in\n%s", v, r.out)
					}
				}
			})
		}
	})
}

func contains(all []string, s string) bool {
	for _, v := range all {
		if v == s {
			return true
		}
	}
	return false
}
