package delta_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/carrel-dev/carrel/internal/image/delta"
)

// file makes a file of bytes.
func file(t testing.TB, dir, name string, b []byte) *os.File {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // the test reads only
	return f
}

func random(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// anyChunk accepts every chunk.
func anyChunk(int64, []byte) error { return nil }

// TestDelta makes images again from a base and a delta.
func TestDelta(t *testing.T) {
	const block = 4096
	base := random(1, 700*block)
	changed := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(base)) }
	for name, img := range map[string][]byte{
		"equal":   base,
		"empty":   {},
		"shorter": base[:100*block],
		"longer":  append(bytes.Clone(base), random(2, 300*block)...),
		"holes":   changed(func(b []byte) []byte { clear(b[10*block : 600*block]); return b }),
		"single":  changed(func(b []byte) []byte { b[256*block-1]++; b[256*block]++; return b }),
		"ends":    changed(func(b []byte) []byte { b[0]++; b[len(b)-1]++; return b }),
		"zeros":   make([]byte, 900*block),
		"other":   random(3, 700*block),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			from, want, d, to := file(t, dir, "base", base), file(t, dir, "img", img),
				file(t, dir, "delta", nil), file(t, dir, "to", nil)
			if err := delta.Write(t.Context(), d, from, want); err != nil {
				t.Fatal(err)
			}
			if info, err := d.Stat(); err != nil || name == "single" && info.Size() > 3*block {
				t.Error(info, err)
			}
			if err := delta.Apply(t.Context(), from, d, to, anyChunk); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(to.Name()); err != nil || !bytes.Equal(got, img) {
				t.Error("other bytes", err)
			}
		})
	}
	dir := t.TempDir()
	odd := file(t, dir, "odd", []byte("odd"))
	if err := delta.Write(t.Context(), file(t, dir, "d", nil), odd, odd); !errors.Is(err, delta.ErrForm) {
		t.Error(err)
	}
}

// FuzzApply applies what is no delta. Nothing may panic, and no chunk may lie outside of the image.
func FuzzApply(f *testing.F) {
	dir := f.TempDir()
	base := file(f, dir, "base", random(1, 40*4096))
	good := file(f, dir, "good", nil)
	if err := delta.Write(f.Context(), good, base, file(f, dir, "img", random(2, 30*4096))); err != nil {
		f.Fatal(err)
	}
	raw, err := os.ReadFile(good.Name())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(raw[:len(raw)/2])
	f.Add([]byte("carreldl"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<20 {
			return
		}
		d := file(t, t.TempDir(), "d", b)
		var end int64
		errMuch := errors.New("much")
		err := delta.Apply(t.Context(), base, d, nil, func(at int64, chunk []byte) error {
			if at != end || len(chunk) == 0 || len(chunk) > delta.ChunkSize {
				t.Errorf("a chunk of %d at %d after %d", len(chunk), at, end)
			}
			if end += int64(len(chunk)); end > 64<<20 {
				return errMuch
			}
			return nil
		})
		if err == nil && !bytes.HasPrefix(b, []byte("carreldl")) {
			t.Error("accepted")
		}
	})
}
