package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/sqlite"
)

// house makes a data directory with a paused sandbox and its snapshot, and with files that a backup
// leaves out.
func house(t *testing.T) (dir string, id carrel.ID, sn carrel.SnapshotID) {
	t.Helper()
	dir = t.TempDir()
	id, sn = carrel.NewID(), carrel.NewSnapshotID()
	db, err := sqlite.Open(t.Context(), filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() }) // open all the time, as by a daemon
	rec := state.Record{Sandbox: carrel.Sandbox{ID: id, State: carrel.Paused, Tier: carrel.Sim, Project: carrel.DefaultProject}, Paused: sn}
	if err := db.Apply(t.Context(), state.Change{Put: []state.Record{rec},
		PutSnapshots: []state.SnapshotRecord{{Snapshot: carrel.Snapshot{ID: sn, Sandbox: id, Project: carrel.DefaultProject, Created: time.Now()}, Record: rec}}}); err != nil {
		t.Fatal(err)
	}
	memory := append(bytes.Repeat([]byte("page"), 1000), make([]byte, 1<<20)...)
	memory = append(memory, "the end"...)
	for name, text := range map[string]string{
		"api-key": "secret", "secrets/key": "k", "templates/t/image.erofs": "image", "identity/keys.json": "{}",
		"snapshots/hot/" + string(sn) + "/manifest.json": "{}", "snapshots/hot/" + string(sn) + "/files/memory": string(memory),
		"snapshots/packed/sother": "p", "snapshots/hot/sother/manifest.json": "{}", "snapshots/blobs/packs/1": "pack",
		"snapshots/packed/sagain": "p", "snapshots/hot/sagain/manifest.json": "{}",
		"snapshots/again/sagain": "", // its packs are damaged: the hot copy is the only good one
		"run/gvisor/control":     "x", "cache/base": "x", "daemon.json": "{}", "sandboxes/" + string(id) + "/layer": "x", "snapshots/drafts/d/file": "x",
	} {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "sandboxes/.roots"), 0o700),
		os.Link(filepath.Join(dir, "templates/t/image.erofs"), filepath.Join(dir, "sandboxes/.roots/image"))); err != nil {
		t.Fatal(err)
	}
	return dir, id, sn
}

// tree returns hashes of all files below a directory, except the records.
func tree(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	out := map[string][32]byte{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), "state.db") {
			return err
		}
		data, err := os.ReadFile(name)
		rel, _ := filepath.Rel(dir, name)
		out[rel] = sha256.Sum256(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestThereAndBack shows that lasting files come back, byte for byte, with the records of the
// moment, and that no others do.
func TestThereAndBack(t *testing.T) {
	dir, id, sn := house(t)
	before := tree(t, dir)
	var file bytes.Buffer
	sum, err := Write(t.Context(), dir, &file)
	if err != nil {
		t.Fatal(err)
	}
	if sum.Paused != 1 || sum.Snapshots != 1 || sum.Form != formVersion {
		t.Errorf("it says %+v", sum)
	}
	if after := tree(t, dir); len(after) != len(before) {
		t.Errorf("the directory had %d files and has %d", len(before), len(after))
	}
	to := filepath.Join(t.TempDir(), "new", "data")
	got, err := Restore(t.Context(), &file, to)
	if err != nil {
		t.Fatal(err)
	}
	if got != sum {
		if got.Files != sum.Files || got.Bytes != sum.Bytes {
			t.Errorf("wrote %+v, restored %+v", sum, got)
		}
	}
	restored := tree(t, to)
	for name, want := range before {
		gone := strings.HasPrefix(name, "run/") || strings.HasPrefix(name, "cache/") || strings.HasPrefix(name, "sandboxes/i") ||
			strings.HasPrefix(name, "snapshots/drafts/") || strings.HasPrefix(name, "snapshots/hot/sother/") || name == "daemon.json" || name == sqlite.Ledger
		if got, ok := restored[name]; ok == gone || ok && got != want {
			t.Errorf("%s: restored %v, the same %v", name, ok, got == want)
		}
		delete(restored, name)
	}
	if len(restored) > 0 {
		t.Errorf("more than there was: %v", restored)
	}
	a, _ := os.Stat(filepath.Join(to, "templates/t/image.erofs"))
	b, _ := os.Stat(filepath.Join(to, "sandboxes/.roots/image"))
	if !os.SameFile(a, b) {
		t.Error("a file with two names has become two")
	}
	db, err := sqlite.Open(t.Context(), filepath.Join(to, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rec, err := db.GetSandbox(t.Context(), id)
	if err != nil || rec.Paused != sn {
		t.Errorf("the record of the paused sandbox: %+v, %v", rec, err)
	}
	if _, err := Restore(t.Context(), &file, to); !errors.Is(err, carrel.Conflict) {
		t.Errorf("onto a directory in use: %v", err)
	}
}

// TestLostContent shows that a record without its content is an error, and that no backup is made
// that looks complete.
func TestLostContent(t *testing.T) {
	dir, _, sn := house(t)
	if err := os.RemoveAll(filepath.Join(dir, "snapshots/hot", string(sn))); err != nil {
		t.Fatal(err)
	}
	_, err := Write(t.Context(), dir, io.Discard)
	if !errors.Is(err, carrel.Conflict) || !strings.Contains(err.Error(), string(sn)) || carrel.HintOf(err) == "" {
		t.Errorf("it says %v (hint %q)", err, carrel.HintOf(err))
	}
	left, _ := filepath.Glob(filepath.Join(dir, stagePrefix+"*"))
	if len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestDamage shows that a backup restores nothing and leaves no file, if it is cut off anywhere or
// a byte is changed anywhere.
func TestDamage(t *testing.T) {
	dir, _, _ := house(t)
	var file bytes.Buffer
	if _, err := Write(t.Context(), dir, &file); err != nil {
		t.Fatal(err)
	}
	whole := file.Bytes()
	parent := t.TempDir()
	step := max(1, len(whole)/150)
	for at := 0; at < len(whole); at += step {
		flipped := bytes.Clone(whole)
		flipped[at] ^= 0x20
		for kind, data := range map[string][]byte{"cut": whole[:at], "flipped": flipped} {
			to := filepath.Join(parent, "data")
			_, err := Restore(t.Context(), bytes.NewReader(data), to)
			if err == nil {
				// A byte without a meaning, such as the size of a window, may change. Then the
				// restored tree must be unchanged.
				if kind == "flipped" && sameTree(tree(t, to), restoredTree(t, whole)) {
					_ = os.RemoveAll(to)
					continue
				}
				t.Fatalf("%s at %d of %d: it was restored", kind, at, len(whole))
			}
			if !errors.Is(err, carrel.Invalid) {
				t.Errorf("%s at %d: %v", kind, at, err)
			}
			if left, _ := os.ReadDir(parent); len(left) > 0 {
				t.Fatalf("%s at %d: left %v", kind, at, left)
			}
		}
	}
}

func restoredTree(t *testing.T, whole []byte) map[string][32]byte {
	t.Helper()
	to := filepath.Join(t.TempDir(), "whole")
	if _, err := Restore(t.Context(), bytes.NewReader(whole), to); err != nil {
		t.Fatal(err)
	}
	return tree(t, to)
}

func sameTree(a, b map[string][32]byte) bool {
	for name, sum := range a {
		if b[name] != sum {
			return false
		}
	}
	return len(a) == len(b)
}

// TestHostileBackup shows that a hostile backup makes nothing outside of the new directory, and
// nothing but files.
func TestHostileBackup(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, h := range map[string]tar.Header{
		"up":            {Typeflag: tar.TypeReg, Name: "../evil"},
		"root":          {Typeflag: tar.TypeReg, Name: "/tmp/evil"},
		"dots":          {Typeflag: tar.TypeReg, Name: "a/../../evil"},
		"link out":      {Typeflag: tar.TypeLink, Name: "l", Linkname: "../../outside"},
		"link to /":     {Typeflag: tar.TypeLink, Name: "l", Linkname: outside},
		"symbolic link": {Typeflag: tar.TypeSymlink, Name: "snapshots", Linkname: filepath.Dir(outside)},
		"device":        {Typeflag: tar.TypeChar, Name: "null", Devmajor: 1, Devminor: 3},
		"fifo":          {Typeflag: tar.TypeFifo, Name: "api-key"},
		"directory":     {Typeflag: tar.TypeDir, Name: "d"},
		"twice":         {Typeflag: tar.TypeReg, Name: "first"},
	} {
		t.Run(name, func(t *testing.T) {
			var file bytes.Buffer
			zw, _ := zstd.NewWriter(&file)
			a := &archiver{tw: tar.NewWriter(zw), sum: &Summary{Head: Head{Form: formVersion}}}
			err := errors.Join(a.document(headName, a.sum.Head), a.tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "first", Mode: 0o600}),
				a.tw.WriteHeader(&h), a.document(tailName, tail{Files: 2}), a.tw.Close(), zw.Close())
			if err != nil {
				t.Fatal(err)
			}
			parent := t.TempDir()
			if _, err := Restore(context.Background(), &file, filepath.Join(parent, "data")); err == nil {
				t.Error("it was restored")
			}
			if left, _ := os.ReadDir(parent); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
	if data, err := os.ReadFile(outside); err != nil || string(data) != "mine" {
		t.Errorf("what lay outside is %q, %v", data, err)
	}
}
