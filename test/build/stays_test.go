package build

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// wantNowhere checks that no file below a directory holds one of the texts: neither as it is, nor
// in a part that is compressed with zstd, as packs of snapshots are. It returns the number of these
// parts.
func wantNowhere(t *testing.T, dir string, texts []string) (packs int) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the daemon runs, and its files come and go
		}
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		files++
		plain, parts := unpacked(raw)
		packs += parts
		for _, text := range texts {
			if bytes.Contains(raw, []byte(text)) || bytes.Contains(plain, []byte(text)) {
				t.Errorf("%s holds %q", path, text)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files == 0 {
		t.Errorf("%s has no files", dir)
	}
	return packs
}

// zstdMagic begins each frame of zstd.
var zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// unpacked returns the content of all frames of zstd in a file, and their number.
func unpacked(raw []byte) (plain []byte, frames int) {
	for at := bytes.Index(raw, zstdMagic); at >= 0; {
		d, err := zstd.NewReader(bytes.NewReader(raw[at:]), zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxMemory(256<<20))
		if err == nil {
			// What follows a frame is no part of it: its error ends the reading.
			part, _ := io.ReadAll(io.LimitReader(d, 256<<20))
			d.Close()
			if len(part) > 0 {
				plain, frames = append(plain, part...), frames+1
			}
		}
		next := bytes.Index(raw[at+len(zstdMagic):], zstdMagic)
		if next < 0 {
			break
		}
		at += len(zstdMagic) + next
	}
	return plain, frames
}

// TestUnpacked shows that a text is found in a frame in the middle of a file.
func TestUnpacked(t *testing.T) {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	frame := w.EncodeAll(bytes.Repeat([]byte("the text "), 50), nil)
	plain, frames := unpacked(append(append([]byte("head"), frame...), "tail"...))
	if frames != 1 || !bytes.Contains(plain, []byte("the text the text")) {
		t.Errorf("%d frames, with %q", frames, plain)
	}
}
