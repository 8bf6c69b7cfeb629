package net

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// house is a daemon whose network is an outside.
type house struct {
	*daemontest.Daemon
	svc  carrel.Service
	tier carrel.Tier // of its desks
}

// open starts a daemon whose desks have gVisor's kernel.
func open(t *testing.T, o *outside) *house {
	t.Helper()
	return openAs(t, o, carrel.GVisor)
}

// openAs starts a daemon whose desks are of a tier, with these extra arguments of carrel serve.
func openAs(t *testing.T, o *outside, tier carrel.Tier, extra ...string) *house {
	t.Helper()
	testenv.Need(t, "root", needRoot())
	h := &house{Daemon: daemontest.Start(t, append(extra, "--wire-table", o.table(t))...), tier: tier}
	var err error
	if h.svc, err = client.New(h.URL, h.Key); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.svc.Close() })
	return h
}

// openMachines is open for desks that are virtual machines.
func openMachines(t *testing.T, o *outside) *house {
	t.Helper()
	return openAs(t, o, carrel.MicroVM, daemontest.Machines(t)...)
}

func needRoot() error {
	if os.Geteuid() != 0 {
		return os.ErrPermission
	}
	return nil
}

// desk is a sandbox at work.
type desk struct {
	carrel.Computer
	t   *testing.T
	id  carrel.ID
	env map[string]string // of its commands
}

func (h *house) desk(t *testing.T, p *carrel.Policy) *desk {
	t.Helper()
	sb, err := h.svc.Create(t.Context(), carrel.CreateOptions{Tier: h.tier, Network: carrel.Network{Policy: p}, Timeout: 30 * time.Minute,
		Limits: carrel.Limits{MemoryMB: 2048}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := h.svc.Computer(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	return &desk{Computer: c, t: t, id: sb.ID}
}

// write makes a file.
func (d *desk) write(name, text string) {
	d.t.Helper()
	if _, err := d.Files("").Write(d.t.Context(), name, strings.NewReader(text)); err != nil {
		d.t.Fatal(err)
	}
}

// try runs a script and returns its exit code and all its output.
func (d *desk) try(t *testing.T, script string) (code int, out string) {
	t.Helper()
	r, err := d.Run(t.Context(), carrel.Command{Shell: script, Env: d.env, Timeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return r.ExitCode, string(r.Stdout) + string(r.Stderr)
}

// must runs a script that must succeed and print want.
func (d *desk) must(t *testing.T, script, want string) string {
	t.Helper()
	code, out := d.try(t, script)
	if code != 0 || !strings.Contains(out, want) {
		t.Errorf("%s\nexit code %d, want 0 and %q in:\n%s", script, code, want, out)
	}
	return out
}

// bring copies a directory of the host into the sandbox, to an absolute path.
func (d *desk) bring(from, to string) {
	d.t.Helper()
	r, w := io.Pipe()
	go func() { w.CloseWithError(pack(w, from)) }()
	name := fmt.Sprintf("/tmp/%s.tgz", filepath.Base(to))
	if _, err := d.Files("").Write(d.t.Context(), name, r); err != nil {
		d.t.Fatal(err)
	}
	d.must(d.t, fmt.Sprintf("mkdir -p %s && tar -xzf %s -C %s && rm %s", to, name, to, name), "")
}

// pack writes a directory as a compressed archive.
func pack(w io.Writer, dir string) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	a := tar.NewWriter(z)
	if err := a.AddFS(plainFiles{os.DirFS(dir)}); err != nil {
		return err
	}
	if err := a.Close(); err != nil {
		return err
	}
	return z.Close()
}

// plainFiles leaves out everything except files and directories: links that only command line tools
// need.
type plainFiles struct{ fs.FS }

// ReadDir implements fs.ReadDirFS.
func (p plainFiles) ReadDir(name string) ([]fs.DirEntry, error) {
	all, err := fs.ReadDir(p.FS, name)
	var out []fs.DirEntry
	for _, e := range all {
		if e.IsDir() || e.Type().IsRegular() {
			out = append(out, e)
		}
	}
	return out, err
}
