package net

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// needle is a text to search in every form in which it might have been stored.
type needle struct {
	text  string
	forms [][]byte
}

func newNeedle(text string) needle {
	n := needle{text: text}
	quoted, _ := json.Marshal(text)
	for _, form := range []string{text, text[:len(text)/2], text[len(text)/2:], string(quoted), hex.EncodeToString([]byte(text))} {
		n.forms = append(n.forms, []byte(form))
	}
	// In base64 a text looks different at each of three offsets.
	for shift := range 3 {
		b := base64.StdEncoding.EncodeToString([]byte("xyz"[:shift] + text))
		n.forms = append(n.forms, []byte(b[4*((shift+2)/3):len(b)-4]))
	}
	var wide []byte
	for i := range len(text) {
		wide = append(wide, text[i], 0)
	}
	n.forms = append(n.forms, wide)
	return n
}

// in counts what of it is in r.
func (n needle) in(r io.Reader) (int, error) {
	count, longest := 0, 0
	for _, f := range n.forms {
		longest = max(longest, len(f))
	}
	buf := make([]byte, 4<<20)
	kept := 0
	for {
		k, err := io.ReadFull(r, buf[kept:])
		window := buf[:kept+k]
		for _, f := range n.forms {
			count += bytes.Count(window, f)
		}
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = nil
			}
			return count, err
		}
		kept = copy(buf, window[len(window)-longest:])
	}
}

// below searches all files below a directory and returns those that contain the needle, with
// counts.
func (n needle) below(t testing.TB, dir string) (where []string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // files come and go
		}
		if err == nil && d.IsDir() && d.Name() == "templates" {
			return fs.SkipDir // big, and written before the secret existed
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer f.Close()
		files++
		if count, err := n.in(f); err != nil {
			return err
		} else if count > 0 {
			where = append(where, name)
		}
		return nil
	})
	if err != nil || files == 0 {
		t.Fatalf("%s: %d files, %v", dir, files, err)
	}
	return where
}

// inText reports whether a text contains the needle.
func (n needle) inText(text string) bool {
	count, _ := n.in(bytes.NewReader([]byte(text)))
	return count > 0
}

func TestNeedle(t *testing.T) {
	n := newNeedle("sk-ant-0123456789abcdefghij")
	for _, hay := range []string{"x sk-ant-0123456789abcdefghij y", base64.StdEncoding.EncodeToString([]byte("user:sk-ant-0123456789abcdefghij")),
		base64.StdEncoding.EncodeToString([]byte("er:sk-ant-0123456789abcdefghij")), base64.StdEncoding.EncodeToString([]byte("r:sk-ant-0123456789abcdefghij")),
		hex.EncodeToString([]byte("sk-ant-0123456789abcdefghij"))} {
		if !n.inText(hay) {
			t.Errorf("not found in %q", hay)
		}
	}
	if n.inText("sk-ant-placeholder") {
		t.Error("found in a placeholder")
	}
	// Across the boundary between two reads.
	for _, at := range []int{4<<20 - 10, 4<<20 - 27, 8<<20 - 60} {
		hay := append(bytes.Repeat([]byte{'.'}, at), n.text...)
		if c, err := n.in(io.MultiReader(bytes.NewReader(hay), bytes.NewReader(make([]byte, 5<<20)))); c == 0 || err != nil {
			t.Errorf("not found at %d: %v", at, err)
		}
	}
}
