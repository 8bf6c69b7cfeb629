package local_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// Give every sandbox a program that runs in this process.
func Example_program() {
	ctx := context.Background()
	svc, err := carrel.Open(ctx, carrel.Config{Programs: []carrel.Program{{
		Name: "shout",
		Help: "shout: says it louder",
		Run: func(_ context.Context, c *carrel.ProgramCall) int {
			text, err := io.ReadAll(c.Stdin)
			if err != nil {
				return 1
			}
			fmt.Fprint(c.Stdout, strings.ToUpper(string(text)))
			return 0
		},
	}}})
	if err != nil {
		log.Fatal(err)
	}
	defer svc.Close()
	box, err := svc.Create(ctx, carrel.CreateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	pc, err := svc.Computer(ctx, box.ID)
	if err != nil {
		log.Fatal(err)
	}
	res, err := pc.Run(ctx, carrel.Command{Shell: `echo hello | shout | tr -d L`})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", res.Stdout)
	// Output:
	// HEO
}

func TestPrograms(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	svc, err := carrel.Open(ctx, carrel.Config{Programs: []carrel.Program{
		{Name: "all", Run: func(_ context.Context, c *carrel.ProgramCall) int { fmt.Fprintln(c.Stdout, "all", c.Args); return 3 }},
		{Name: "wait", Run: func(ctx context.Context, c *carrel.ProgramCall) int { <-ctx.Done(); return 0 }},
		{Name: "panics", Run: func(context.Context, *carrel.ProgramCall) int { panic("oh") }},
		{Name: "files", Run: func(_ context.Context, c *carrel.ProgramCall) int {
			b, err := c.Files.ReadFile("in")
			if err != nil {
				fmt.Fprintln(c.Stderr, err)
				return 1
			}
			if err := c.Files.MkdirAll("d/e", 0o755); err != nil {
				return 2
			}
			if err := c.Files.WriteFile("d/e/out", append(b, c.User...), 0o644); err != nil {
				return 3
			}
			if err := c.Files.WriteFile("/etc/passwd", nil, 0o644); !errors.Is(err, fs.ErrPermission) {
				return 4
			}
			return 0
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	box, err := svc.Create(ctx, carrel.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pc, err := svc.Computer(ctx, box.ID)
	if err != nil {
		t.Fatal(err)
	}
	sh := func(line, want string) {
		t.Helper()
		r, err := pc.Run(ctx, carrel.Command{Shell: "{ " + line + "; } 2>&1"})
		if err != nil {
			t.Fatal(err)
		}
		if got := string(r.Stdout); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
	sh("all a 'b c'; echo $?; command -v all", "all [a b c]\n3\n/usr/local/bin/all\n")
	sh("panics; echo $?", "panics: the program failed inside: oh\n70\n")
	sh("timeout 0.2 wait; echo $?", "124\n")
	sh("cd ~; echo -n x > in; files; echo $? $(cat d/e/out); rm in; files >/dev/null; echo $?", "0 xuser\nopen /home/user/in: no such file or directory\n1\n")
	ps := svc.(carrel.Programs)
	release, err := ps.Provide(ctx, box.ID, carrel.Program{Name: "own", Help: "how", Run: func(_ context.Context, c *carrel.ProgramCall) int {
		fmt.Fprintln(c.Stdout, c.Sandbox == box.ID, c.Dir)
		return 0
	}})
	if err != nil {
		t.Fatal(err)
	}
	sh("cd /tmp; own; own --help", "true /tmp\nhow\n")
	if _, err := ps.Provide(ctx, box.ID, carrel.Program{Name: "own", Run: func(context.Context, *carrel.ProgramCall) int { return 0 }}); !errors.Is(err, carrel.Conflict) {
		t.Errorf("the same name again: %v", err)
	}
	for _, name := range []string{"", "-x", "a/b", "a b", ".x", strings.Repeat("x", 65), "ü", "a\n"} {
		if _, err := ps.Provide(ctx, box.ID, carrel.Program{Name: name, Run: func(context.Context, *carrel.ProgramCall) int { return 0 }}); !errors.Is(err, carrel.Invalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := svc.(carrel.Moments).Pause(ctx, box.ID, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := svc.(carrel.Moments).Resume(ctx, box.ID, carrel.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	sh("own | cut -c1-4", "true\n")
	release()
	release()
	sh("own; echo $?", "/bin/bash: line 1: own: command not found\n127\n")
	if _, err := ps.Provide(ctx, carrel.NewID()); !errors.Is(err, carrel.NotFound) {
		t.Errorf("a sandbox that is not: %v", err)
	}
}
