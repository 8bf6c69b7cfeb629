// Package simbash runs scripts in real bash with GNU's tools and in the simulated machine, and compares what they print,
// how they end and the files that they leave.
//
// The cases are in testdata/AREA.cases: scripts below lines "-- name". A first line "# need: jq" names programs of the
// host without which there is nothing to compare with. Differences that stay are listed in testdata/known.txt with their
// cause; a case listed there that is equal is an error too, unless its line begins with "~", for what differs by chance.
package simbash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/sh"
	"github.com/carrel-dev/carrel/internal/sh/tools"
	"github.com/carrel-dev/carrel/internal/sh/vfs"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// script is one case.
type script struct {
	name string
	text string
	need []string
}

// readCases reads a file of cases.
func readCases(t *testing.T, file string) []script {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []script
	seen := map[string]bool{}
	for i, part := range strings.Split("\n"+string(data), "\n-- ") {
		name, text, _ := strings.Cut(part, "\n")
		if i == 0 {
			continue // what stands before the first case is comment
		}
		name = strings.TrimSpace(name)
		if seen[name] || name == "" {
			t.Errorf("%s: case %q occurs twice", file, name)
		}
		seen[name] = true
		c := script{name: name, text: strings.TrimRight(text, "\n") + "\n"}
		if first, rest, _ := strings.Cut(c.text, "\n"); strings.HasPrefix(first, "# need:") {
			c.need, c.text = strings.Fields(first[len("# need:"):]), rest
		}
		out = append(out, c)
	}
	return out
}

// outcome is what is compared.
type outcome struct {
	out   string
	code  int
	files string // one line each
	errs  string // shown, not compared
}

// limit is how long one case may take.
const limit = 3 * time.Minute

// environ is the environment of both sides.
func environ(dir string) []string {
	return []string{"HOME=" + filepath.Join(filepath.Dir(dir), "home"), "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LC_ALL=C.UTF-8", "TZ=UTC", "GIT_CONFIG_NOSYSTEM=1"}
}

// real runs a case in the host's bash.
func real(t *testing.T, dir, text string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", text)
	cmd.Dir, cmd.Env = dir, environ(dir)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 3 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	code := cmd.ProcessState.ExitCode()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	var files []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		i, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case i.Mode().IsRegular():
			b, rerr := os.ReadFile(p)
			content, err = strconv.Quote(string(b)), rerr
		case i.Mode()&fs.ModeSymlink != 0:
			content, err = os.Readlink(p)
		}
		files = append(files, describe(p[len(dir)+1:], i.Mode(), content))
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		t.Fatal(err)
	}
	return outcome{out.String(), code, strings.Join(files, "\n"), errs.String()}
}

// describe is a file's line.
func describe(name string, mode fs.FileMode, content string) string {
	if mode&fs.ModeSymlink != 0 {
		return fmt.Sprintf("%s -> %s", name, content)
	}
	if strings.HasPrefix(name, ".git/") || strings.Contains(name, "/.git/") {
		return name[:strings.Index(name, ".git/")] + ".git/…" // how a repository is stored is its own affair
	}
	return fmt.Sprintf("%s %v %s", name, mode&(fs.ModeType|fs.ModePerm|fs.ModeSticky|fs.ModeSetuid|fs.ModeSetgid), content)
}

// template is the disk that all machines begin with.
var template = sync.OnceValues(func() (*vfs.FS, error) {
	f := vfs.New(vfs.Options{})
	if err := sh.Install(f, tools.Names()...); err != nil {
		return nil, err
	}
	if uid := os.Getuid(); uid != 0 {
		name := strconv.Itoa(uid)
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
		passwd, err := f.Root().ReadFile("/etc/passwd")
		if err != nil {
			return nil, err
		}
		line := fmt.Sprintf("%s:x:%d:%d::/nonexistent:/bin/bash\n", name, uid, os.Getgid())
		return f, f.Root().WriteFile("/etc/passwd", append(passwd, line...), 0o644)
	}
	return f, nil
})

// simulated runs a case in a machine of its own.
func simulated(t *testing.T, dir, text string) outcome {
	t.Helper()
	begin, err := template()
	if err != nil {
		t.Fatal(err)
	}
	disk := begin.Clone(vfs.Options{Quota: 256 << 20})
	home := filepath.Join(filepath.Dir(dir), "home")
	cred := vfs.Cred{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	for _, d := range []string{dir, home} {
		if err := errors.Join(disk.Root().MkdirAll(d, 0o755), disk.Root().Chown(d, cred.UID, cred.GID)); err != nil {
			t.Fatal(err)
		}
	}
	m := sh.New(sh.Config{FS: disk, Hostname: "box", Commands: tools.All(), CPUs: 2,
		Limits: sh.Limits{Procs: 400, Memory: 512 << 20, Output: 64 << 20, Steps: 500 << 20}})
	defer m.Close()
	out, errs := sh.NewPipe(), sh.NewPipe()
	p, err := m.Start(sh.Spec{Path: "bash", Args: []string{"-c", text}, Dir: dir, Env: environ(dir), UID: cred.UID, GID: cred.GID, Out: out, Err: errs})
	if err != nil {
		t.Fatal(err)
	}
	var res outcome
	var streams sync.WaitGroup
	for pipe, into := range map[*sh.Pipe]*string{out: &res.out, errs: &res.errs} {
		streams.Go(func() {
			var b bytes.Buffer
			_, _ = b.ReadFrom(pipe) // ends with the last writer
			*into = b.String()
		})
	}
	kill := time.AfterFunc(limit, func() { _ = p.Signal(9) })
	e := p.Wait()
	kill.Stop()
	idle := make(chan struct{})
	go func() { streams.Wait(); close(idle) }()
	select {
	case <-idle:
	case <-time.After(3 * time.Second): // jobs that are left keep the pipes open
		m.Close()
		<-idle
	}
	if res.code = e.Code; e.Message != "" {
		res.errs += "[" + e.Message + "]"
	}
	var files []string
	todo := []string{dir}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		list, err := disk.Root().ReadDir(at)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range list {
			p := at + "/" + i.Name
			content := ""
			switch {
			case i.Mode.IsDir():
				todo = append(todo, p)
			case i.Mode.IsRegular():
				b, err := disk.Root().ReadFile(p)
				if err != nil {
					t.Fatal(err)
				}
				content = strconv.Quote(string(b))
			case i.Mode&fs.ModeSymlink != 0:
				content = i.Target
			}
			files = append(files, describe(p[len(dir)+1:], i.Mode, content))
		}
	}
	res.files = strings.Join(files, "\n")
	return res
}

// sorted is a list of files in one order, without repeats.
func sorted(files string) string {
	lines := strings.Split(files, "\n")
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n")
}

// differences says how two outcomes differ; "" when they do not.
func differences(got, want outcome) string {
	var b strings.Builder
	if got.out != want.out {
		fmt.Fprintf(&b, "output:\n got %q\nwant %q\n", clip(got.out), clip(want.out))
	}
	if got.code != want.code {
		fmt.Fprintf(&b, "status: got %d, want %d\n", got.code, want.code)
	}
	if g, w := sorted(got.files), sorted(want.files); g != w {
		fmt.Fprintf(&b, "files:\n got %s\nwant %s\n", clip(g), clip(w))
	}
	if b.Len() > 0 {
		fmt.Fprintf(&b, "stderr here: %s\nstderr there: %s\n", clip(got.errs), clip(want.errs))
	}
	return b.String()
}

func clip(s string) string {
	const most = 3000
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// readKnown reads the list of differences that stay: cause by area/name, and which differ by chance.
func readKnown(t *testing.T) (known map[string]string, sometimes map[string]bool) {
	t.Helper()
	data, err := os.ReadFile("testdata/known.txt")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	known, sometimes = map[string]string{}, map[string]bool{}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		chance := line[0] == '~'
		name, cause, ok := strings.Cut(strings.TrimPrefix(line, "~"), ": ")
		if !ok || cause == "" {
			t.Errorf("known.txt: no cause in %q", line)
		}
		known[name], sometimes[name] = cause, chance
	}
	return known, sometimes
}

// least and share are the bar: so many cases, so many of them equal.
const (
	least = 2000
	share = 0.98
)

func TestCases(t *testing.T) {
	// A shell leaves signals alone that it was started to ignore, as by nohup; caught ones are not handed on.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	defer signal.Stop(caught)
	_, err := exec.LookPath("bash")
	testenv.Need(t, "simbash", err)
	lists, err := filepath.Glob("testdata/*.cases")
	if err != nil || len(lists) == 0 {
		t.Fatal("no cases", err)
	}
	known, sometimes := readKnown(t)
	root, err := os.MkdirTemp("", "simbash-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if out, err := exec.Command("chmod", "-R", "u+rwx", root).CombinedOutput(); err != nil {
			t.Logf("chmod: %v %s", err, out)
		}
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	}()
	var mu sync.Mutex
	all, equal, exist := 0, 0, map[string]bool{}
	for i, list := range lists {
		area := strings.TrimSuffix(filepath.Base(list), ".cases")
		cases := readCases(t, list)
		for _, c := range cases {
			exist[area+"/"+c.name] = true
		}
		t.Run(area, func(t *testing.T) {
			for j, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					for _, program := range c.need {
						_, err := exec.LookPath(program)
						testenv.Need(t, "simbash", err)
					}
					dir := filepath.Join(root, fmt.Sprintf("%02d%04d", i, j), "work")
					for _, d := range []string{dir, filepath.Join(filepath.Dir(dir), "home")} {
						if err := os.MkdirAll(d, 0o755); err != nil {
							t.Fatal(err)
						}
					}
					diff := differences(simulated(t, dir, c.text), real(t, dir, c.text))
					name := area + "/" + c.name
					mu.Lock()
					defer mu.Unlock()
					all++
					if diff == "" {
						equal++
					}
					switch cause, listed := known[name]; {
					case diff != "" && !listed:
						t.Errorf("%s\n%s", c.text, diff)
					case diff == "" && listed && !sometimes[name]:
						t.Errorf("is equal; take it off known.txt: %s", cause)
					}
				})
			}
		})
	}
	for name := range known {
		if !exist[name] {
			t.Errorf("known.txt: there is no case %s", name)
		}
	}
	t.Logf("%d of %d cases are equal", equal, all)
	whole := flagUnset("test.run")
	if whole && (all < least || float64(equal) < share*float64(all)) {
		t.Errorf("%d of %d cases are equal; the bar is %d and %g %%", equal, all, least, share*100)
	}
}
