//go:build linux

package datadir

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/carrel-dev/carrel"
)

// made makes a directory with an identity.
func made(t *testing.T) (dir string, d *Dir, text []byte) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d = open(t, dir, false)
	text, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil {
		t.Fatal(err)
	}
	return dir, d, text
}

// TestFlippedIdentity flips each bit of the file. The directory still takes itself for itself, by
// the second file. Without the second file it may also be refused, with a hint. It is never taken
// for a copy, for a new directory or for another one.
func TestFlippedIdentity(t *testing.T) {
	dir, first, text := made(t)
	file, second := filepath.Join(dir, File), filepath.Join(dir, secondFile)
	for _, alone := range []bool{false, true} {
		if alone {
			if err := os.Remove(second); err != nil {
				t.Fatal(err)
			}
		}
		refused := 0
		for at := range text {
			for bit := range 8 {
				flipped := bytes.Clone(text)
				flipped[at] ^= 1 << bit
				if err := os.WriteFile(file, flipped, 0o600); err != nil {
					t.Fatal(err)
				}
				d, err := Open(dir, false)
				switch {
				case err == nil && d.Verdict == Same && d.ID == first.ID && !d.Copy():
				case alone && errors.Is(err, carrel.Invalid) && carrel.HintOf(err) != "":
					refused++
				default:
					t.Fatalf("bit %d of byte %d (%q), alone %v: %+v, %v", bit, at, flipped, alone, d, err)
				}
			}
		}
		if alone && refused < 7*len(text) {
			t.Errorf("only %d of %d flips were noticed", refused, 8*len(text))
		}
	}
}

// TestHealedIdentity starts with one damaged file. Both are whole afterwards.
func TestHealedIdentity(t *testing.T) {
	for _, name := range []string{File, secondFile} {
		dir, first, text := made(t)
		damaged := bytes.Replace(text, []byte(`"inode": `), []byte(`"inode": 1`), 1)
		if err := os.WriteFile(filepath.Join(dir, name), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		d := open(t, dir, false)
		again, err := os.ReadFile(filepath.Join(dir, name))
		if d.Verdict != Same || d.ID != first.ID || err != nil || !bytes.Equal(again, text) {
			t.Errorf("%s: %+v, then %q, %v", name, d, again, err)
		}
	}
}

// TestBothDamaged refuses a directory whose files are both damaged, whether or not they are equal.
func TestBothDamaged(t *testing.T) {
	dir, _, text := made(t)
	damaged := bytes.Replace(text, []byte(`"inode": `), []byte(`"inode": 1`), 1)
	for _, first := range [][]byte{damaged, nil} {
		if first == nil {
			if err := os.Remove(filepath.Join(dir, File)); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(filepath.Join(dir, File), first, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, secondFile), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if d, err := Open(dir, false); !errors.Is(err, carrel.Invalid) || carrel.HintOf(err) == "" {
			t.Errorf("%+v, %v", d, err)
		}
	}
}

// TestOlderBuild opens files that a build without checksums wrote. They get one. A digit that is
// flipped in one of them is found by the other file.
func TestOlderBuild(t *testing.T) {
	for _, change := range []func([]byte) []byte{
		func(b []byte) []byte { return b },
		func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"inode": `), []byte(`"inode": 1`), 1)
		},
	} {
		dir, first, _ := made(t)
		plain, err := json.MarshalIndent(first.Identity, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		for name, b := range map[string][]byte{File: change(plain), secondFile: plain} {
			if err := os.WriteFile(filepath.Join(dir, name), append(b, '\n'), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if d := open(t, dir, false); d.Verdict != Same || d.ID != first.ID {
			t.Fatalf("%+v", d)
		}
		for _, name := range []string{File, secondFile} {
			if i, summed, err := readFile(filepath.Join(dir, name)); err != nil || !summed ||
				i.ID != first.ID {
				t.Errorf("%s: %+v, a sum: %v, %v", name, i, summed, err)
			}
		}
	}
}
