package local_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/access"
	"github.com/carrel-dev/carrel/internal/api"
)

// TestProgramsOverAPI provides programs from a client. They run here, and the sandbox's processes
// call them through the API.
func TestProgramsOverAPI(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	svc, err := carrel.Open(ctx, carrel.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	srv := httptest.NewServer(api.New(api.Options{Service: svc, Callers: access.NewAuthenticator(access.Key{Secret: "k", Role: carrel.RoleAdmin})}))
	defer srv.Close()
	far, err := client.New(srv.URL, "k")
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	box, err := far.Create(ctx, carrel.CreateOptions{Tier: carrel.Sim})
	if err != nil {
		t.Fatal(err)
	}
	pc, err := svc.Computer(ctx, box.ID)
	if err != nil {
		t.Fatal(err)
	}
	sh := func(line string) string {
		t.Helper()
		r, err := pc.Run(ctx, carrel.Command{Shell: "{ " + line + "; } 2>&1"})
		if err != nil {
			t.Fatal(err)
		}
		return string(r.Stdout)
	}
	killed := make(chan struct{})
	release, err := far.(carrel.Programs).Provide(ctx, box.ID,
		carrel.Program{Name: "up", Help: "how", Run: func(_ context.Context, c *carrel.ProgramCall) int {
			b, err := io.ReadAll(c.Stdin)
			if err != nil {
				return 1
			}
			fmt.Fprint(c.Stdout, strings.ToUpper(string(b)), c.Args, c.Dir, c.User, c.Sandbox == box.ID)
			fmt.Fprintln(c.Stderr, "err")
			return 5
		}},
		carrel.Program{Name: "lazy", Run: func(_ context.Context, c *carrel.ProgramCall) int { fmt.Fprintln(c.Stdout, "lazy"); return 0 }},
		carrel.Program{Name: "big", Run: func(_ context.Context, c *carrel.ProgramCall) int {
			for range 1000 {
				if _, err := c.Stdout.Write(make([]byte, 10_000)); err != nil {
					return 1
				}
			}
			return 0
		}},
		carrel.Program{Name: "waits", Run: func(ctx context.Context, _ *carrel.ProgramCall) int { <-ctx.Done(); close(killed); return 0 }},
		carrel.Program{Name: "panics", Run: func(context.Context, *carrel.ProgramCall) int { panic("oh") }},
		carrel.Program{Name: "files", Run: func(_ context.Context, c *carrel.ProgramCall) int {
			b, err := c.Files.ReadFile("in")
			if err != nil {
				fmt.Fprintln(c.Stdout, errors.Is(err, fs.ErrNotExist))
				return 1
			}
			err = errors.Join(c.Files.MkdirAll("d", 0o755), c.Files.WriteFile("d/out", append(b, '!'), 0o600), c.Files.Rename("d/out", "d/o2"))
			list, lerr := c.Files.ReadDir("d")
			i, serr := c.Files.Stat("d/o2")
			werr := c.Files.WriteFile("/etc/x", nil, 0o644)
			fmt.Fprintln(c.Stdout, err, lerr, len(list), serr, i.Size(), i.Mode(), errors.Is(werr, fs.ErrPermission), c.Files.Remove("d/o2"))
			return 0
		}})
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"cd /tmp; echo hi | up a 'b c'; echo $?": "HI\n[a b c]/tmpusertrueerr\n5\n",
		"up --help":                              "how\n",
		"printf '1\\n2\\n' | while read -r l; do lazy; echo $l; done":     "lazy\n1\nlazy\n2\n",
		"big | wc -c; big | head -c 5 | wc -c":                            "10000000\n5\n",
		"panics; echo $?":                                                 "panics: the program failed inside: oh\n70\n",
		"cd /tmp; files; echo -n abc > in; files; rm in":                  "true\n<nil> <nil> 1 <nil> 4 -rw------- true <nil>\n",
		"timeout 0.3 waits; echo $?":                                      "124\n",
		"for i in 1 2 3 4 5 6 7 8; do lazy & done | sort | uniq -c; wait": "      8 lazy\n",
	} {
		if got := sh(line); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
	select {
	case <-killed:
	case <-time.After(time.Minute):
		t.Error("a program's context goes on after its process was killed")
	}
	for _, p := range [][]carrel.Program{{{Name: "up", Run: func(context.Context, *carrel.ProgramCall) int { return 0 }}}} {
		if _, err := far.(carrel.Programs).Provide(ctx, box.ID, p...); !errors.Is(err, carrel.Conflict) {
			t.Errorf("the same name again: %v", err)
		}
	}
	release()
	if got := sh("for i in 1 2 3 4 5 6 7 8 9; do command -v lazy || break; sleep 0.1; done; lazy; echo $?"); !strings.HasSuffix(got, "lazy: command not found\n127\n") {
		t.Errorf("after release: %q", got)
	}
	// A client that disappears without closing anything.
	lost, cut := context.WithCancel(ctx)
	if _, err := far.(carrel.Programs).Provide(lost, box.ID, carrel.Program{Name: "gone", Run: func(context.Context, *carrel.ProgramCall) int { cut(); time.Sleep(time.Second); return 0 }}); err != nil {
		t.Fatal(err)
	}
	if got := sh("gone; echo $?"); !strings.Contains(got, "gone: who provides it has gone") || !strings.HasSuffix(got, "126\n") {
		t.Errorf("a client that has gone: %q", got)
	}
}
