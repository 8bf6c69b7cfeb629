package store

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestHoles compares files with holes with files that have zeros in their places.
func TestHoles(t *testing.T) {
	const size = 3*sumBlock + 1000
	for name, data := range map[string][]int64{
		"nothing": nil, "the first byte": {0}, "a block's last byte": {2*sumBlock - 1}, "the last byte": {size - 1}, "the middle block": {sumBlock + 5000},
	} {
		plain := make([]byte, size)
		f, err := os.Create(filepath.Join(t.TempDir(), "file"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := f.Truncate(size); err != nil {
			t.Fatal(err)
		}
		for _, at := range data {
			plain[at] = 7
			if _, err := f.WriteAt([]byte{7}, at); err != nil {
				t.Fatal(err)
			}
		}
		full, err := os.Create(filepath.Join(t.TempDir(), "file"))
		if err != nil {
			t.Fatal(err)
		}
		defer full.Close()
		if _, err := full.ReadFrom(bytes.NewReader(plain)); err != nil {
			t.Fatal(err)
		}
		holes := 0
		for b := range blocks(size) {
			got, err := sumOf(f, size, b)
			want, ferr := sumOf(full, size, b)
			if err != nil || ferr != nil || got != want {
				t.Errorf("%s: block %d has %x, %v, want %x, %v", name, b, got, err, want, ferr)
			}
			if empty(f, b*sumBlock, min(size, (b+1)*sumBlock)) {
				holes++
			}
		}
		if want := int(blocks(size)) - len(data); holes != want {
			t.Errorf("%s: %d blocks are holes, want %d", name, holes, want)
		}
	}
}
