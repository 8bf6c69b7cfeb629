package gvisor_test

import (
	"archive/tar"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/carrel-dev/carrel/internal/driver"
)

// TestOldFilesAreRestored restores a snapshot of files that an earlier build took: testdata/files-1
// holds "kept since files-1\n" in /tmp/kept and another /etc/motd. If it fails after a gVisor
// upgrade, gVisor has changed the form. Then give the new form another filesBuild, and read both.
func TestOldFilesAreRestored(t *testing.T) {
	d, _ := newDriver(t)
	_, info := snapshot(t, create(t, d, newSpec(t)), driver.SnapshotOptions{FilesOnly: true})
	if info.Memory || info.CPU != "" || info.Build != "files-1 fscheckpoint-1" {
		t.Errorf("a snapshot of files says %+v", info)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/files-1")); err != nil {
		t.Fatal(err)
	}
	// Each run makes new images, so name this run's in the snapshot.
	name := filepath.Join(dir, "carrel.json")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var side map[string]any
	if err := json.Unmarshal(b, &side); err != nil {
		t.Fatal(err)
	}
	side["root"] = info.Root
	if b, err = json.Marshal(side); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	r := restore(t, d, dir, info, newSpec(t), driver.RestoreOptions{})
	loaded(t, r)
	for path, want := range map[string]string{"/tmp/kept": "kept since files-1\n", "/etc/motd": "changed\n"} {
		if got, ok := get(t, r, "/read?path="+path); !ok || got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	rc, err := d.SnapshotFiles(t.Context(), dir, info, newSpec(t))
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	found := map[string]string{}
	for tr := tar.NewReader(rc); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		found[h.Name] = string(b)
	}
	if found["tmp/kept"] != "kept since files-1\n" || found["etc/motd"] != "changed\n" {
		t.Errorf("the stream holds %q", found)
	}
}

// TestHolesStayHoles reads a file with a hole of terabytes from snapshots.
func TestHolesStayHoles(t *testing.T) {
	d, _ := newDriver(t)
	in := create(t, d, stateSpec(t))
	const size = 1 << 42
	runInside(t, in, `python3 -c 'f=open("/root/hole","wb"); f.write(b"begin"); f.seek(1<<40); f.write(b"middle"); f.truncate(1<<42)'`)
	for _, only := range []bool{false, true} {
		dir, info := snapshot(t, in, driver.SnapshotOptions{FilesOnly: only})
		rc, err := d.SnapshotFiles(t.Context(), dir, info, stateSpec(t))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for tr := tar.NewReader(rc); ; {
			h, err := tr.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if h.Name != "root/hole" {
				continue
			}
			b := make([]byte, 8)
			if _, err := io.ReadFull(tr, b); err != nil || string(b) != "begin\x00\x00\x00" || h.Size != size {
				t.Errorf("%q %v, %d bytes", b, err, h.Size)
			}
			found = true
		}
		if err := rc.Close(); err != nil || !found {
			t.Errorf("found %v, %v", found, err)
		}
		r := restore(t, d, dir, info, stateSpec(t), driver.RestoreOptions{})
		if got := runInside(t, r, `python3 -c 'f=open("/root/hole","rb"); print(f.read(5)); f.seek(1<<40); print(f.read(6), f.seek(0,2))'`); got != "b'begin'\nb'middle' 4398046511104\n" {
			t.Errorf("restored it holds %q", got)
		}
	}
}
