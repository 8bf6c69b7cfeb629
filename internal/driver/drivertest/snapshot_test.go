package drivertest_test

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/drivertest"
	"github.com/carrel-dev/carrel/internal/driver/sim"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestFaultySnapshots runs the suite on a driver with faulty snapshots. It runs in a copy of this
// test, and the copy has to fail. Alone it does nothing.
func TestFaultySnapshots(t *testing.T) {
	if os.Getenv(envFault) == "" {
		testenv.Inapplicable(t, "only as a child of TestSnapshotCasesCanFail")
	}
	drivertest.Run(t, drivertest.Harness{New: func(testing.TB) driver.Driver {
		return &faulty{Driver: sim.New(sim.Options{}), fault: os.Getenv(envFault)}
	}})
}

// Each fault must be found by the case that is made for it.
func TestSnapshotCasesCanFail(t *testing.T) {
	testenv.Long(t, "runs the suite several times")
	for fault, c := range map[string]struct{ group, text string }{
		"says too little":  {"info", "the driver is a Restorer: true"},
		"says memory":      {"snapshot/later_writes", "says memory: true"},
		"takes it later":   {"snapshot/later_writes", "after"},
		"shares":           {"snapshot/side_by_side", "/tmp/own"},
		"forgets removals": {"snapshot/template", "touch"},
		"changes times":    {"snapshot/files", "was changed at"},
		"keeps processes":  {"snapshot/files_only", "a guest that booted afresh knows of"},
		"loses the limit":  {"snapshot/disk_limit", "the restored sandbox uses"},
		"does not freeze":  {"snapshot/freeze", "a command ran in a frozen sandbox"},
		"stays frozen":     {"snapshot/freeze", "echo runs"},
		"wrong kind":       {"snapshot/damaged", "want invalid"},
		"trusts":           {"snapshot/other_build", "want unsupported"},
		"after its end":    {"snapshot/ended", "want unavailable"},
		"leaves files":     {"snapshot/tar", "left behind: file"},
		"leaks readers":    {"snapshot/tar", "left behind: before"},
		"whole template":   {"snapshot/tar", "which nobody touched, is in the stream"},
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			parts := strings.Split(c.group, "/")
			pattern := "^TestFaultySnapshots$/^" + strings.Join(parts, "$/^") + "$"
			cmd := exec.Command(os.Args[0], "-test.short", "-test.run", pattern)
			cmd.Env = append(os.Environ(), envFault+"="+fault)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.text) {
				t.Errorf("the suite did not find the fault: %v\n%.4000s", err, out)
			}
		})
	}
}

// faulty is the simulated driver with one fault.
type faulty struct {
	*sim.Driver
	fault string

	mu    sync.Mutex
	first driver.Instance            // for "shares"
	late  map[string]driver.Instance // by directory, for the fault "takes it later"
}

// Create implements driver.Driver.
func (d *faulty) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	in, err := d.Driver.Create(ctx, spec)
	return d.wrap(in), err
}

func (d *faulty) wrap(in driver.Instance) driver.Instance {
	if in == nil {
		return nil
	}
	f := &faultyInstance{Instance: in, d: d}
	if strings.HasSuffix(d.fault, "freeze") || d.fault == "stays frozen" {
		return &freezing{f}
	}
	return f
}

func (d *faulty) Info() driver.Info {
	i := d.Driver.Info()
	if d.fault == "says too little" {
		i.Capabilities.Snapshot = false
	}
	return i
}

func (d *faulty) CanRestore(info driver.SnapshotInfo, opts driver.RestoreOptions) error {
	if d.fault == "trusts" {
		return nil
	}
	return d.Driver.CanRestore(info, opts)
}

func (d *faulty) Restore(ctx context.Context, dir string, info driver.SnapshotInfo, spec driver.Spec, opts driver.RestoreOptions) (driver.Instance, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if in := d.late[dir]; in != nil {
		_ = os.Remove(filepath.Join(dir, "files"))
		if _, err := in.(driver.Snapshotter).Snapshot(ctx, dir, driver.SnapshotOptions{}); err != nil {
			return nil, err
		}
	}
	if d.fault == "shares" && d.first != nil {
		return d.first, nil
	}
	if d.fault == "loses the limit" {
		spec.Limits.DiskMB *= 10
	}
	info.Memory = false
	if d.fault == "trusts" {
		info.Driver, info.Build, info.CPU = "sim", "sim 1", ""
	}
	in, err := d.Driver.Restore(ctx, dir, info, spec, opts)
	if err != nil {
		if d.fault == "wrong kind" {
			err = &carrel.Error{Op: "restore", Kind: carrel.Internal, Err: errors.New("what?")}
		}
		return nil, err
	}
	d.first = d.wrap(in)
	return d.first, d.spoil(ctx, in)
}

// spoil changes a restored sandbox as a faulty restore would have done.
func (d *faulty) spoil(ctx context.Context, in driver.Instance) error {
	script := map[string]string{"forgets removals": "echo x > /usr/bin/touch", "changes times": "echo more >> /tmp/tree/deep/hard-2"}[d.fault]
	c := guest.NewConn(in.Dial, guest.ConnOptions{})
	defer c.Close()
	if d.fault == "keeps processes" {
		p, err := c.Start(context.WithoutCancel(ctx), carrel.Command{Args: []string{"/bin/sleep", "1000"}, User: "root"})
		if err != nil {
			return err
		}
		return p.Close()
	}
	if script == "" {
		return nil
	}
	_, err := c.Run(ctx, carrel.Command{Args: []string{"/bin/sh", "-c", script}, User: "root"})
	return err
}

func (d *faulty) SnapshotFiles(ctx context.Context, dir string, info driver.SnapshotInfo, spec driver.Spec) (io.ReadCloser, error) {
	rc, err := d.Driver.SnapshotFiles(ctx, dir, info, spec)
	if err != nil {
		return nil, err
	}
	switch d.fault {
	case "leaves files":
		if err := os.WriteFile(filepath.Join(spec.Dir, "scratch"), nil, 0o600); err != nil {
			return nil, err
		}
	case "leaks readers":
		for range 10 {
			go func() { select {} }()
		}
	case "whole template":
		// One entry before all others: an unchanged file.
		return struct {
			io.Reader
			io.Closer
		}{io.MultiReader(strings.NewReader(untouched()), rc), rc}, nil
	}
	return rc, nil
}

// faultyInstance is an instance of faulty.
type faultyInstance struct {
	driver.Instance
	d    *faulty
	gone bool
}

func (i *faultyInstance) Destroy(ctx context.Context) error {
	i.d.mu.Lock()
	i.gone = true
	i.d.mu.Unlock()
	return i.Instance.Destroy(ctx)
}

func (i *faultyInstance) Snapshot(ctx context.Context, dir string, opts driver.SnapshotOptions) (driver.SnapshotInfo, error) {
	info, err := i.Instance.(driver.Snapshotter).Snapshot(ctx, dir, opts)
	i.d.mu.Lock()
	defer i.d.mu.Unlock()
	switch i.d.fault {
	case "says memory":
		info.Memory = true
	case "takes it later":
		if i.d.late == nil {
			i.d.late = map[string]driver.Instance{}
		}
		i.d.late[dir] = i.Instance
	case "after its end":
		if i.gone {
			return driver.SnapshotInfo{Driver: "sim"}, nil
		}
	}
	return info, err
}

// freezing is a Freezer that does too little, or too much.
type freezing struct{ *faultyInstance }

func (f *freezing) Freeze(ctx context.Context) error {
	if f.d.fault == "stays frozen" {
		return f.Instance.Destroy(ctx) // as still as can be
	}
	return nil
}

func (f *freezing) Thaw(context.Context) error { return nil }

// untouched returns a tar entry of one of the template's tools, without the end of the stream.
func untouched() string {
	var b strings.Builder
	w := tar.NewWriter(&b)
	for _, dir := range []string{"usr/bin/wc", "bin/wc", "usr/sbin/wc"} {
		_ = w.WriteHeader(&tar.Header{Name: dir, Mode: 0o755}) // into memory: it can't fail
	}
	_ = w.Flush()
	return b.String()
}
