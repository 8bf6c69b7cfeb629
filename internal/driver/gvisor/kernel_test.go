package gvisor_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/drivertest"
	"github.com/carrel-dev/carrel/internal/driver/gvisor"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/driver/kept"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestNewerControlIsLeftAlone meets a running sandbox and a kept build of a build whose control
// protocol is unknown here. Both are refused clearly, and neither is touched.
func TestNewerControlIsLeftAlone(t *testing.T) {
	d, _ := newDriver(t)
	in := create(t, d, newSpec(t))
	newer := bytes.Replace(in.Handle(), []byte(`"control":1`), []byte(`"control":99`), 1)
	if bytes.Equal(newer, in.Handle()) {
		t.Fatalf("the handle has no version of the control protocol: %s", in.Handle())
	}
	if _, err := d.Recover(t.Context(), newer); carrel.KindOf(err) != carrel.Unsupported ||
		!strings.Contains(err.Error(), "version 99") {
		t.Errorf("recover: %v", err)
	}
	if _, err := in.Stats(t.Context()); err != nil {
		t.Errorf("the sandbox: %v", err)
	}
	get(t, in, "/ok")
}

// TestKeptBuildsOfDriver keeps the driver's own build when it makes a sandbox, lists other ones,
// and says why it can't start one of another protocol.
func TestKeptBuildsOfDriver(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kernels")
	d, err := gvisor.New(gvisor.Options{Kernels: dir,
		Options: hosted.Options{Root: shortDir(t), Network: testNetwork{}, Keeper: &drivertest.Keeper{},
			Executable: images.exe}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	testenv.Need(t, "gvisor", d.Probe(t.Context()))
	store, err := kept.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Keep(kept.Facts{Name: "gvisor other", Version: "v9", Control: 99},
		strings.NewReader("program")); err != nil {
		t.Fatal(err)
	}
	in := create(t, d, newSpec(t))
	var own, other driver.Build
	testenv.Eventually(t, "its own build is kept", func() bool {
		all, err := d.Builds(t.Context())
		if err != nil || len(all) != 2 {
			t.Fatalf("%+v, %v", all, err)
		}
		own, other = all[0], all[1]
		return own.Kept
	})
	if !own.Own || !own.Used || other.Own || other.Used || other.Version != "v9" ||
		!strings.Contains(other.Problem, "version 99") {
		t.Errorf("%+v, %+v", own, other)
	}
	v, _ := driver.As[driver.Versioned](in)
	if name, mine := v.Build(); name != own.Name || !mine {
		t.Errorf("the sandbox is of build %q", name)
	}
	for build, want := range map[string]string{"gvisor other": "speaks version 99",
		"gvisor gone": "whose kernel is not kept here"} {
		info := driver.SnapshotInfo{Driver: "gvisor", Memory: true, Build: build}
		if err := d.CanRestore(info, driver.RestoreOptions{}); carrel.KindOf(err) != carrel.Unsupported ||
			!strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), build) || carrel.HintOf(err) == "" {
			t.Errorf("%s: %v (%s)", build, err, carrel.HintOf(err))
		}
	}
	if err := d.DropBuild(t.Context(), "gvisor other"); err != nil || store.Has("gvisor other") {
		t.Errorf("drop: %v", err)
	}
}
