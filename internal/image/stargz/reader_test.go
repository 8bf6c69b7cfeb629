package stargz_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/image/stargz"
)

// TestReader reads the TOC and the chunks of a layer that the Writer wrote.
func TestReader(t *testing.T) {
	layer, _, digest := write(t)
	size := int64(len(layer))
	at, err := stargz.Footer(layer[size-stargz.FooterSize:], size)
	if err != nil {
		t.Fatal(err)
	}
	toc, err := stargz.ReadTOC(bytes.NewReader(layer[at:]), at, digest)
	if err != nil {
		t.Fatal(err)
	}
	if len(toc.Entries) != len(sample) {
		t.Fatalf("%d entries of %d", len(toc.Entries), len(sample))
	}
	for i, e := range toc.Entries {
		s := sample[i]
		if e.Header.Name != s.h.Name || e.Header.Typeflag != s.h.Typeflag || e.Header.Mode != s.h.Mode ||
			!e.Header.ModTime.Equal(modified) || e.Header.Linkname != s.h.Linkname {
			t.Errorf("%+v instead of %+v", e.Header, s.h)
		}
		var content strings.Builder
		for _, c := range e.Chunks {
			packed := layer[c.Offset : c.Offset+c.Packed]
			b, err := stargz.ReadChunk(bytes.NewReader(packed), c)
			if err != nil {
				t.Fatal(err)
			}
			content.Write(b)
			if _, err := stargz.ReadChunk(bytes.NewReader(packed[:11]), c); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("a chunk that is cut off: %v", err)
			}
			c.Digest[0]++
			if _, err := stargz.ReadChunk(bytes.NewReader(packed), c); !stargz.IsWrongContent(err) {
				t.Errorf("a chunk with another digest: %v", err)
			}
		}
		if content.String() != s.content {
			t.Errorf("%s has other content", s.h.Name)
		}
	}
	if _, err := stargz.ReadTOC(bytes.NewReader(layer[at:]), at, sumOf(nil)); err == nil {
		t.Error("a TOC with another digest was taken")
	}
}

// pack makes the member of a TOC with a text.
func pack(t testing.TB, name, text string) ([]byte, string) {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	w := tar.NewWriter(zip)
	err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(text)), Typeflag: tar.TypeReg})
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err = errors.Join(err, w.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), sumOf([]byte(text))
}

// TestHostileTOC refuses tables that would lead out of the layer or the file.
func TestHostileTOC(t *testing.T) {
	sum := sumOf([]byte("x"))
	file := func(format string, args ...any) string {
		return fmt.Sprintf(`{"version":1,"entries":[{"name":"f","type":"reg",`+format+`}]}`, args...)
	}
	for what, text := range map[string]string{
		"no JSON":                "{",
		"version":                `{"version":2,"entries":[]}`,
		"no digest":              file(`"size":1,"offset":0`),
		"another kind of digest": file(`"size":1,"offset":0,"chunkDigest":"md5:00"`),
		"a short digest":         file(`"size":1,"offset":0,"chunkDigest":"sha256:00"`),
		"behind the layer":       file(`"size":1,"offset":1000,"chunkDigest":%q`, sum),
		"before the layer":       file(`"size":1,"offset":-1,"chunkDigest":%q`, sum),
		"a negative size":        file(`"size":-1,"offset":0,"chunkDigest":%q`, sum),
		"a negative chunk":       file(`"size":9,"chunkSize":-3,"offset":0,"chunkDigest":%q`, sum),
		"a chunk past the file":  file(`"size":9,"chunkSize":10,"offset":0,"chunkDigest":%q`, sum),
		"a gap":                  file(`"size":9,"chunkOffset":1,"chunkSize":8,"offset":0,"chunkDigest":%q`, sum),
		"cut off":                file(`"size":9,"chunkSize":8,"offset":0,"chunkDigest":%q`, sum),
		"a giant chunk":          file(`"size":1000000000000,"offset":0,"chunkDigest":%q`, sum),
		"a huge number":          file(`"size":9223372036854775808,"offset":0,"chunkDigest":%q`, sum),
		"shared chunks":          file(`"size":1,"innerOffset":5,"offset":0,"chunkDigest":%q`, sum),
		"a chunk of nothing":     `{"version":1,"entries":[{"name":"f","type":"chunk","chunkSize":1}]}`,
		"an unknown type":        `{"version":1,"entries":[{"name":"f","type":"door"}]}`,
		"a bad time":             `{"version":1,"entries":[{"name":"f","type":"dir","modtime":"noon"}]}`,
	} {
		packed, digest := pack(t, stargz.TOCName, text)
		_, err := stargz.ReadTOC(bytes.NewReader(packed), 1000, digest)
		if _, ok := errors.AsType[*stargz.UnusableError](err); !ok {
			t.Errorf("%s: %v", what, err)
		}
	}
	packed, digest := pack(t, "other.json", `{"version":1}`)
	if _, err := stargz.ReadTOC(bytes.NewReader(packed), 1000, digest); err == nil {
		t.Error("an entry with another name was taken")
	}
	broken := errors.New("broken")
	_, err := stargz.ReadTOC(io.MultiReader(bytes.NewReader(packed[:30]), fails{broken}), 1000, digest)
	if !errors.Is(err, broken) {
		t.Errorf("a broken stream gives %v", err)
	}
}

type fails struct{ err error }

func (f fails) Read([]byte) (int, error) { return 0, f.err }

// TestHostileFooter refuses footers that lead out of the layer.
func TestHostileFooter(t *testing.T) {
	layer, _, _ := write(t)
	good := layer[len(layer)-stargz.FooterSize:]
	for _, at := range []string{"ffffffffffffffff", "7fffffffffffffff", "-000000000000001", "            0x1z",
		fmt.Sprintf("%016x", len(layer)-stargz.FooterSize)} {
		bad := bytes.Replace(good, good[16:32], []byte(at), 1)
		if got, err := stargz.Footer(bad, int64(len(layer))); err == nil {
			t.Errorf("%q leads to %d", at, got)
		}
	}
	if _, err := stargz.Footer(good, 500<<20); err == nil {
		t.Error("a giant table was taken")
	}
}

// FuzzTOC shows that no table leads out of its layer, or makes the reader fail.
func FuzzTOC(f *testing.F) {
	text, err := json.Marshal(map[string]any{"version": 1, "entries": []map[string]any{
		{"name": "f", "type": "reg", "size": 3, "offset": 7, "chunkSize": 2, "chunkDigest": sumOf(nil)},
		{"name": "f", "type": "chunk", "offset": 9, "chunkOffset": 2, "chunkSize": 1,
			"chunkDigest": sumOf(nil)}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Fuzz(func(t *testing.T, text string) {
		const end = 1000
		packed, digest := pack(t, stargz.TOCName, text)
		toc, err := stargz.ReadTOC(bytes.NewReader(packed), end, digest)
		if err != nil {
			return
		}
		for _, e := range toc.Entries {
			done := int64(0)
			for _, c := range e.Chunks {
				if c.At != done || c.Size <= 0 || c.Offset < 0 || c.Packed <= 0 || c.Offset+c.Packed > end {
					t.Fatalf("%+v", c)
				}
				done += c.Size
			}
			if done != e.Header.Size {
				t.Fatalf("%d bytes of %d", done, e.Header.Size)
			}
		}
	})
}
