package stargz

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
)

const (
	// FooterSize is the number of bytes at the end of a layer that say where its TOC begins.
	FooterSize = 51
	// MaxPackedTOC bounds the compressed TOC.
	MaxPackedTOC = 64 << 20
	// MaxChunk bounds one chunk. A reader holds it in memory.
	MaxChunk = 16 << 20

	maxTOC     = 256 << 20 // bytes of the JSON text
	maxEntries = 2_000_000
)

// UnusableError says that a layer's TOC can't be used. The layer may still be a good archive.
type UnusableError struct{ Why string }

func (e *UnusableError) Error() string { return "its table of contents can't be used: " + e.Why }

func unusable(format string, args ...any) error { return &UnusableError{fmt.Sprintf(format, args...)} }

// TOC is a layer's table of contents, in the order of the archive.
type TOC struct{ Entries []Entry }

// Entry is an entry of the archive, without the entries of the format.
type Entry struct {
	Header tar.Header
	Chunks []Chunk // of a regular file, in order and without gaps
}

// Chunk is a part of a file's content.
type Chunk struct {
	Offset int64 // in the layer
	Packed int64 // how many bytes of the layer hold it, at most
	At     int64 // in the file
	Size   int64
	Digest [sha256.Size]byte
}

// Footer returns where the TOC begins in a layer of size bytes, by its last FooterSize bytes.
func Footer(b []byte, size int64) (toc int64, err error) {
	head := len(footerHead)
	if len(b) != FooterSize || !bytes.HasPrefix(b, footerHead) || string(b[head+16:head+22]) != "STARGZ" {
		return 0, unusable("the layer does not end with a footer")
	}
	toc, err = strconv.ParseInt(string(b[head:head+16]), 16, 64)
	if err != nil || toc < 0 || toc >= size-FooterSize || size-FooterSize-toc > MaxPackedTOC {
		return 0, unusable("it can't begin at %.16q of %d", b[head:head+16], size)
	}
	return toc, nil
}

// ReadTOC reads the TOC that begins at an offset of its layer. digest is that of the layer's
// annotation. No part of the result comes from a text with another digest. Error: *UnusableError,
// or an error of r.
func ReadTOC(r io.Reader, at int64, digest string) (*TOC, error) {
	text, err := tocText(r)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	if got := "sha256:" + hex.EncodeToString(sum[:]); got != digest {
		return nil, unusable("its digest is %s, the manifest says %.80q", got, digest)
	}
	return parseTOC(text, at)
}

// tocText unpacks the JSON text.
func tocText(r io.Reader) ([]byte, error) {
	var failed error // of r
	zip, err := gzip.NewReader(readerFunc(func(p []byte) (int, error) {
		n, err := r.Read(p)
		if err != nil && err != io.EOF {
			failed = err
		}
		return n, err
	}))
	if err == nil {
		archive := tar.NewReader(zip)
		var h *tar.Header
		if h, err = archive.Next(); err == nil {
			if h.Name != TOCName || h.Size > maxTOC {
				return nil, unusable("an entry %.100q of %d bytes is there", h.Name, h.Size)
			}
			var text []byte
			if text, err = io.ReadAll(archive); err == nil {
				return text, nil
			}
		}
	}
	if failed != nil {
		return nil, failed
	}
	return nil, unusable("%v", err)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// parseTOC checks and orders the entries. end is where the TOC begins: all chunks lie before.
func parseTOC(text []byte, end int64) (*TOC, error) {
	var raw struct {
		Version int
		Entries []struct {
			entry
			InnerOffset int64 `json:"innerOffset"`
		}
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, unusable("%v", err)
	}
	if raw.Version != 1 || len(raw.Entries) > maxEntries {
		return nil, unusable("version %d with %d entries", raw.Version, len(raw.Entries))
	}
	toc := &TOC{Entries: make([]Entry, 0, len(raw.Entries))}
	var file *Entry // whose chunks follow
	done := int64(0)
	for _, r := range raw.Entries {
		if IsOurs(r.Name) {
			continue
		}
		if r.InnerOffset != 0 {
			return nil, unusable("several files share a chunk")
		}
		if file != nil && (r.Type != typeChunk || r.Name != file.Header.Name) {
			return nil, unusable("%.200q has %d bytes of content instead of %d", file.Header.Name, done,
				file.Header.Size)
		}
		if r.Type != typeChunk {
			h, err := headerOf(r.entry)
			if err != nil {
				return nil, err
			}
			toc.Entries = append(toc.Entries, Entry{Header: h})
			if h.Typeflag != tar.TypeReg || h.Size == 0 {
				continue
			}
			file, done = &toc.Entries[len(toc.Entries)-1], 0
		} else if file == nil {
			return nil, unusable("a chunk of %.200q belongs to no file", r.Name)
		}
		c, err := chunkOf(r.entry, file.Header.Size, done, end)
		if err != nil {
			return nil, err
		}
		file.Chunks = append(file.Chunks, c)
		if done += c.Size; done == file.Header.Size {
			file = nil
		}
	}
	if file != nil {
		return nil, unusable("the content of %.200q is cut off", file.Header.Name)
	}
	toc.measure(end)
	return toc, nil
}

// chunkOf reads the chunk of a file of size bytes that begins at done.
func chunkOf(e entry, size, done, end int64) (c Chunk, err error) {
	c = Chunk{Offset: e.Offset, At: e.ChunkOffset, Size: e.ChunkSize}
	if c.Size == 0 { // the rest of the file
		c.Size = size - done
	}
	if c.At != done || c.Size <= 0 || c.Size > size-done || c.Size > MaxChunk {
		return c, unusable("%.200q has a chunk of %d bytes at %d", e.Name, e.ChunkSize, e.ChunkOffset)
	}
	if c.Offset < 0 || c.Offset >= end {
		return c, unusable("a chunk of %.200q lies outside of the layer", e.Name)
	}
	text := e.ChunkDigest
	if text == "" && c.Size == size {
		text = e.Digest
	}
	sum, err := hex.DecodeString(strings.TrimPrefix(text, "sha256:"))
	if err != nil || len(sum) != len(c.Digest) || !strings.HasPrefix(text, "sha256:") {
		return c, unusable("a chunk of %.200q has the digest %.80q", e.Name, text)
	}
	copy(c.Digest[:], sum)
	return c, nil
}

// headerOf turns an entry back into a header of the archive.
func headerOf(e entry) (tar.Header, error) {
	h := tar.Header{Name: e.Name, Linkname: e.LinkName, Mode: e.Mode, Uid: e.UID, Gid: e.GID}
	switch e.Type {
	case typeReg:
		h.Typeflag, h.Size = tar.TypeReg, e.Size
	case typeDir:
		h.Typeflag = tar.TypeDir
	case typeSymlink:
		h.Typeflag = tar.TypeSymlink
	case typeLink:
		h.Typeflag = tar.TypeLink
	case typeFifo:
		h.Typeflag = tar.TypeFifo
	case "char":
		h.Typeflag = tar.TypeChar
	case "block":
		h.Typeflag = tar.TypeBlock
	default:
		return h, unusable("%.200q is of the unknown type %.20q", e.Name, e.Type)
	}
	if e.Size < 0 {
		return h, unusable("%.200q has %d bytes", e.Name, e.Size)
	}
	if e.ModTime != "" {
		t, err := time.Parse(time.RFC3339, e.ModTime)
		if err != nil {
			return h, unusable("the time of %.200q: %v", e.Name, err)
		}
		h.ModTime = t
	}
	return h, nil
}

// measure bounds the packed size of each chunk: by where the next one begins, and by what a chunk
// that does not compress needs.
func (t *TOC) measure(end int64) {
	var all []*Chunk
	for i := range t.Entries {
		for k := range t.Entries[i].Chunks {
			all = append(all, &t.Entries[i].Chunks[k])
		}
	}
	slices.SortStableFunc(all, func(a, b *Chunk) int { return cmp.Compare(a.Offset, b.Offset) })
	next := end
	for i := len(all) - 1; i >= 0; i-- {
		c := all[i]
		if i+1 < len(all) && all[i+1].Offset > c.Offset {
			next = all[i+1].Offset
		}
		c.Packed = min(next-c.Offset, c.Size+c.Size/64+4096)
	}
}

// errChunk is in the error of a chunk with another content than the TOC says.
var errChunk = errors.New("a chunk does not match its digest")

// IsWrongContent reports whether a chunk had another content than the TOC says.
func IsWrongContent(err error) bool { return errors.Is(err, errChunk) }

// ReadChunk unpacks a chunk and checks it. r gives the layer's bytes from the chunk's Offset on. It
// may be read further than the chunk goes.
func ReadChunk(r io.Reader, c Chunk) ([]byte, error) {
	var failed error // of r
	cut := false
	source := readerFunc(func(p []byte) (int, error) {
		n, err := r.Read(p)
		if err == io.EOF {
			cut = true
		} else if err != nil {
			failed = err
		}
		return n, err
	})
	content := make([]byte, c.Size)
	zip, err := gzip.NewReader(source)
	if err == nil {
		zip.Multistream(false)
		_, err = io.ReadFull(zip, content)
	}
	switch {
	case failed != nil:
		return nil, failed
	case err != nil && cut:
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errChunk, err)
	case sha256.Sum256(content) != c.Digest:
		return nil, errChunk
	}
	return content, nil
}
