package stargz_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/image/stargz"
)

// noise is content that does not compress.
func noise(size int) string {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(b)
	return string(b)
}

// sample is an archive: headers and contents.
var sample = []struct {
	h       tar.Header
	content string
}{
	{tar.Header{Typeflag: tar.TypeDir, Name: "etc/", Mode: 0o755}, ""},
	{tar.Header{Typeflag: tar.TypeReg, Name: "etc/<small>", Mode: 0o4711, Uid: 7, Gid: 9}, "small"},
	{tar.Header{Typeflag: tar.TypeReg, Name: "etc/empty", Mode: 0o600}, ""},
	{tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "etc/empty", Mode: 0o777}, ""},
	{tar.Header{Typeflag: tar.TypeReg, Name: "big", Mode: 0o644}, noise(2*stargz.ChunkSize + 100)},
	{tar.Header{Typeflag: tar.TypeReg, Name: "even", Mode: 0o644}, noise(stargz.ChunkSize)},
	{tar.Header{Typeflag: tar.TypeLink, Name: "hard", Linkname: "big", Mode: 0o644}, ""},
	{tar.Header{Typeflag: tar.TypeFifo, Name: "pipe", Mode: 0o644}, ""},
}

var modified = time.Unix(1_700_000_000, 123_456_789)

// write makes a layer of sample, and its uncompressed form.
func write(t *testing.T) (layer, plain []byte, toc string) {
	t.Helper()
	var out, raw bytes.Buffer
	w, err := stargz.NewWriter(&out, &raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sample {
		s.h.ModTime, s.h.Format, s.h.Size = modified, tar.FormatPAX, int64(len(s.content))
		if err := w.WriteHeader(&s.h); err != nil {
			t.Fatal(err)
		}
		for part := []byte(s.content); len(part) > 0; part = part[min(len(part), 70_001):] {
			if _, err := w.Write(part[:min(len(part), 70_001)]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if w.PlainSize() != int64(raw.Len()) {
		t.Errorf("%d bytes instead of %d", w.PlainSize(), raw.Len())
	}
	return out.Bytes(), raw.Bytes(), w.TOCDigest()
}

// TestOrdinaryReaders reads a layer with the standard library, which knows nothing of the format.
func TestOrdinaryReaders(t *testing.T) {
	layer, plain, _ := write(t)
	zip, err := gzip.NewReader(bytes.NewReader(layer))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(zip)
	if err != nil || !bytes.Equal(got, plain) {
		t.Fatalf("unpacked it is another archive: %v", err)
	}
	r := tar.NewReader(bytes.NewReader(got))
	for _, s := range sample {
		h, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil || h.Name != s.h.Name || string(content) != s.content ||
			!h.ModTime.Equal(modified) || h.Linkname != s.h.Linkname {
			t.Errorf("%+v %v", h, err)
		}
	}
	if h, err := r.Next(); err != nil || h.Name != stargz.TOCName {
		t.Errorf("the last entry is %+v, %v", h, err)
	}
	again, _, _ := write(t)
	if !bytes.Equal(again, layer) {
		t.Error("equal archives give other layers")
	}
}

// tocEntry is an entry of a TOC, written from the format's description.
type tocEntry struct {
	Name, Type, LinkName, Digest, ChunkDigest string
	ModTime                                   time.Time
	Mode                                      int64
	UID, GID                                  int
	Size, Offset, ChunkOffset, ChunkSize      int64
}

// read finds a layer's TOC by the layer's last 51 bytes, and checks the TOC's digest.
func read(t *testing.T, layer []byte, digest string) []tocEntry {
	t.Helper()
	footer := layer[len(layer)-51:]
	zip, err := gzip.NewReader(bytes.NewReader(footer))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(zip); err != nil || len(b) > 0 {
		t.Errorf("the footer holds %q, %v", b, err)
	}
	// One subfield "SG" of 22 bytes: the offset and a mark.
	extra := string(zip.Extra)
	if len(extra) != 26 || extra[:4] != "SG\x16\x00" || extra[20:] != "STARGZ" {
		t.Fatalf("the footer's extra field is %q", extra)
	}
	at, err := strconv.ParseInt(extra[4:20], 16, 64)
	if err != nil || at >= int64(len(layer)) {
		t.Fatalf("the footer says %q, %v", extra, err)
	}
	if zip, err = gzip.NewReader(bytes.NewReader(layer[at:])); err != nil {
		t.Fatal(err)
	}
	archive := tar.NewReader(zip)
	if h, err := archive.Next(); err != nil || h.Name != stargz.TOCName {
		t.Fatalf("at the TOC's offset is %+v, %v", h, err)
	}
	text, err := io.ReadAll(archive)
	if err != nil || sumOf(text) != digest {
		t.Fatalf("the TOC has the digest %s, not %s: %v", sumOf(text), digest, err)
	}
	var toc struct {
		Version int
		Entries []tocEntry
	}
	if err := json.Unmarshal(text, &toc); err != nil || toc.Version != 1 {
		t.Fatalf("version %d: %v", toc.Version, err)
	}
	return toc.Entries
}

// member unpacks the one gzip member that begins at an offset.
func member(t *testing.T, layer []byte, at int64) string {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(layer[at:]))
	if err != nil {
		t.Fatal(err)
	}
	zip.Multistream(false)
	b, err := io.ReadAll(zip)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestChunks finds each file by the TOC alone.
func TestChunks(t *testing.T) {
	layer, _, digest := write(t)
	toc := read(t, layer, digest)
	types := map[byte]string{tar.TypeDir: "dir", tar.TypeReg: "reg", tar.TypeSymlink: "symlink",
		tar.TypeLink: "hardlink", tar.TypeFifo: "fifo"}
	for _, s := range sample {
		e := toc[0]
		if e.Name != s.h.Name || e.Type != types[s.h.Typeflag] || e.Mode != s.h.Mode ||
			e.UID != s.h.Uid || e.GID != s.h.Gid || e.LinkName != s.h.Linkname ||
			!e.ModTime.Equal(modified) || e.Size != int64(len(s.content)) {
			t.Errorf("%+v", e)
		}
		if e.Size > 0 && e.Digest != sumOf([]byte(s.content)) {
			t.Errorf("%s has the digest %s", e.Name, e.Digest)
		}
		if toc = toc[1:]; e.Size == 0 {
			continue
		}
		var content strings.Builder
		for chunks := 0; chunks == 0 || len(toc) > 0 && toc[0].Type == "chunk"; chunks++ {
			if chunks > 0 {
				e, toc = toc[0], toc[1:]
			}
			part := member(t, layer, e.Offset)
			if e.Name != s.h.Name || e.ChunkOffset != int64(content.Len()) ||
				e.ChunkSize != int64(len(part)) || e.ChunkDigest != sumOf([]byte(part)) ||
				len(part) > stargz.ChunkSize {
				t.Errorf("a chunk of %d bytes at %d: %+v", len(part), content.Len(), e)
			}
			content.WriteString(part)
		}
		if content.String() != s.content {
			t.Errorf("%s has other content", s.h.Name)
		}
	}
	if len(toc) > 0 {
		t.Errorf("more entries: %+v", toc)
	}
}

// TestWrongUse writes too much, too little, and closes twice.
func TestWrongUse(t *testing.T) {
	begin := func() *stargz.Writer {
		w, err := stargz.NewWriter(io.Discard, io.Discard)
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: "f", Typeflag: tar.TypeReg, Size: 3})
		}
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	if _, err := begin().Write([]byte("four")); !errors.Is(err, tar.ErrWriteTooLong) {
		t.Errorf("too much: %v", err)
	}
	const missing = `"f": 3 of 3 bytes are missing`
	if err := begin().Close(); err == nil || err.Error() != missing {
		t.Errorf("too little: %v", err)
	}
	w := begin()
	if _, err := w.Write([]byte("abc")); err != nil {
		t.Error(err)
	}
	if err := w.WriteHeader(&tar.Header{Name: "tty", Typeflag: tar.TypeChar}); err == nil {
		t.Error("a device was taken")
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err == nil {
		t.Error("closed twice")
	}
}

// TestNamesThatTheTextCantHold refuses names that a JSON text would change.
func TestNamesThatTheTextCantHold(t *testing.T) {
	for _, h := range []tar.Header{{Name: "a\xff"}, {Name: stargz.TOCName},
		{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "\xfe"}} {
		w, err := stargz.NewWriter(io.Discard, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		h.Mode = 0o644
		if _, ok := errors.AsType[*stargz.NameError](w.WriteHeader(&h)); !ok {
			t.Errorf("%q was taken", h.Name)
		}
	}
}

func sumOf(text []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(text)) }
