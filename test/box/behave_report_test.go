package box_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// report is the document of --report, as a program reads it.
type report struct {
	Version  int
	Command  []string
	Dir      string
	Tier     string
	Started  time.Time
	Ended    time.Time
	ExitCode int
	Signal   string
	Refused  []struct {
		Kind, What, Operation, Rule, Reason, Allow, Program string
		PID, Count                                          int
		Certain                                             bool
		First, Last                                         time.Time
	}
}

// readReport reads a report and checks the parts that every report has.
func readReport(t *testing.T, file string) (r report) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	if r.Version != 1 || len(r.Command) == 0 || !filepath.IsAbs(r.Dir) || r.Tier != "ns" || r.Ended.Before(r.Started) || r.Refused == nil {
		t.Errorf("%s", data)
	}
	for _, f := range r.Refused {
		if f.Kind == "" || f.What == "" || f.Rule == "" || f.Reason == "" || f.Count < 1 || f.First.IsZero() {
			t.Errorf("incomplete: %+v", f)
		}
	}
	return r
}

// TestReport shows that each kind of refusal is reported, to people and to programs.
func TestReport(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		table := internet(w)
		w.write(w.project+"/fixed", "fixed")
		file := w.home + "/report.json"
		for _, c := range []struct {
			name        string
			flags       []string
			shell       string
			kind        string
			what, allow string // parts of the record
		}{
			{"read", nil, "cat ~/.ssh/id_ed25519", "read", w.home + "/.ssh", "--read"},
			{"list", nil, "ls ~/.ssh", "read", w.home + "/.ssh", "--read"},
			{"read .env", nil, "echo x=1 >/dev/null; cat .env", "read", w.project + "/.env", "--read"},
			{"write", nil, "echo x >../outside/new", "write", w.outside + "/new", "--write"},
			{"change", nil, "echo x >>../outside/canary", "write", w.canary, "--write"},
			{"make a directory", nil, "mkdir ../outside/d", "write", w.outside + "/d", "--write"},
			{"remove", nil, "rm -f ../outside/canary", "write", w.canary, "--write"},
			{"rename", nil, "mv README.md ../outside/moved", "write", w.outside + "/moved", "--write"},
			{"a rule's", []string{"--no-write", "fixed"}, "echo x >fixed", "write", w.project + "/fixed", ""},
			{"a protected name", nil, "echo x >.mcp.json", "write", w.project + "/.mcp.json", "--write"},
			{"connect", nil, "exec 3<>/dev/tcp/203.0.113.10/80", "connect", "203.0.113.10:80", "--allow 203.0.113.10"},
			{"connect by name", nil, "curl -s http://allowed.example.com/", "name", "allowed.example.com", "--allow allowed.example.com"},
			{"name", nil, "getent ahosts allowed.example.com", "name", "allowed.example.com", "--allow allowed.example.com"},
			{"name with another allowed", []string{"--allow", "other.example.com"}, "getent ahosts allowed.example.com", "name", "allowed.example.com", "--allow allowed.example.com"},
			{"address with another allowed", []string{"--allow", "other.example.com"}, "curl -fs http://203.0.113.10/", "connect", "203.0.113.10:80", "--allow"},
			{"Unix socket", nil, `python3 -c "import socket; socket.socket(socket.AF_UNIX).connect('` + w.home + `/app.sock')"`, "connect", w.home + "/app.sock", "--socket"},
			{"system call", nil, `python3 -c "import ctypes; exit(ctypes.CDLL(None).mount(b'x',b'/tmp',b'tmpfs',0,0) and 1)"`, "syscall", "mount", ""},
			{"ptrace", nil, `python3 -c "import ctypes; exit(ctypes.CDLL(None).ptrace(16,1,0,0) and 1)"`, "syscall", "ptrace", ""},
			{"bind", []string{"--no-bind"}, `python3 -c "import socket; socket.create_server(('127.0.0.1',8123))"`, "bind", "8123", ""},
		} {
			t.Run(c.name, func(t *testing.T) {
				w.write(w.project+"/.env", "x=1")
				if c.name == "Unix socket" {
					listenUnix(w, "unix", w.home+"/app.sock")
				}
				_ = os.Remove(file)
				args := append([]string{"--report", file, "--wire-table", table}, c.flags...)
				r := w.run(w.box(append(args, "-c", c.shell)...))
				if r.code == 0 {
					t.Errorf("it was not refused: %s", r.all())
				}
				rep := readReport(t, file)
				if rep.ExitCode != r.code || rep.Dir != w.project {
					t.Errorf("%+v", rep)
				}
				found := false
				for _, f := range rep.Refused {
					found = found || f.Kind == c.kind && strings.Contains(f.What, c.what) && strings.Contains(f.Allow, c.allow)
				}
				if !found {
					t.Errorf("no %s of %q, %q in %+v", c.kind, c.what, c.allow, rep.Refused)
				}
				short := strings.Replace(c.what, w.home, "~", 1)
				if !strings.Contains(lastCarrel(r.err), short) || !strings.Contains(lastCarrel(r.err), c.allow) {
					t.Errorf("the summary does not tell: %s", r.err)
				}
				quiet := w.run(w.box(append(append([]string{"-q"}, args...), "-c", c.shell)...))
				if strings.Contains(quiet.err, "carrel: ") {
					t.Errorf("-q: %s", quiet.err)
				}
			})
		}
		t.Run("nothing refused", func(t *testing.T) {
			r := w.run(w.box("--report", file, "--", "true"))
			if rep := readReport(t, file); len(rep.Refused) != 0 || rep.ExitCode != 0 || r.err != "" {
				t.Errorf("%+v %s", rep, r.err)
			}
		})
		t.Run("a signal", func(t *testing.T) {
			w.run(w.box("--report", file, "-c", "kill -TERM $$"))
			if rep := readReport(t, file); rep.ExitCode != 143 || rep.Signal != "SIGTERM" {
				t.Errorf("%+v", rep)
			}
		})
		t.Run("a flood", func(t *testing.T) {
			r := w.run(w.box("--report", file, "-c", `cat ~/.ssh/id_ed25519; for i in $(seq 3000); do echo x >../outside/f$i; done 2>/dev/null; printf 'x' >"../outside/$(printf '\e]0;evil\a\nline')"`))
			if lines := strings.Count(lastCarrel(r.err), "\n"); lines > 40 || strings.Contains(r.err, "\x1b]0;evil") && !strings.Contains(r.err, "bash:") {
				t.Errorf("%d lines: %.3000q", lines, r.err)
			}
			if strings.Contains(lastCarrel(r.err), "\x1b") {
				t.Errorf("an escape sequence: %q", lastCarrel(r.err))
			}
			if !strings.Contains(lastCarrel(r.err), ".ssh") {
				t.Errorf("the flood pushed the secret out: %s", lastCarrel(r.err))
			}
			readReport(t, file)
		})
	})
}
