package stargz

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"
)

// Writer writes a layer. Its methods are those of a tar.Writer, and so is the archive: equal
// entries give equal bytes. A Writer is for one goroutine.
type Writer struct {
	out   counter // compressed
	zip   *gzip.Writer
	isOut bool       // a member is open
	plain *plainSide // uncompressed
	tar   *tar.Writer

	entries []entry
	file    *openFile // whose content is being written; nil between files
	toc     string
}

// openFile is the file whose content is being written.
type openFile struct {
	first      int // its entry
	size, done int64
	whole      hash.Hash
	chunk      hash.Hash
	chunkAt    int64 // where the chunk begins in the file
	chunkStart int   // its entry
}

// counter counts the bytes that go to a writer.
type counter struct {
	w io.Writer
	n int64
}

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// plainSide receives the uncompressed archive: it goes into the open member, and to the caller.
type plainSide struct {
	w     *Writer
	plain counter
}

// Write implements io.Writer.
func (p *plainSide) Write(b []byte) (int, error) {
	if !p.w.isOut {
		p.w.zip.Reset(&p.w.out)
		p.w.isOut = true
	}
	if _, err := p.plain.Write(b); err != nil {
		return 0, err
	}
	return p.w.zip.Write(b)
}

// NewWriter returns a Writer of a layer to out. The uncompressed archive also goes to plain.
func NewWriter(out, plain io.Writer) (*Writer, error) {
	w := &Writer{out: counter{w: out}}
	var err error
	if w.zip, err = gzip.NewWriterLevel(&w.out, gzip.BestSpeed); err != nil {
		return nil, err
	}
	w.plain = &plainSide{w, counter{w: plain}}
	w.tar = tar.NewWriter(w.plain)
	return w, nil
}

// cut ends the open member, so that the next byte begins one.
func (w *Writer) cut() error {
	if !w.isOut {
		return nil
	}
	w.isOut = false
	return w.zip.Close()
}

// WriteHeader begins an entry.
func (w *Writer) WriteHeader(h *tar.Header) error {
	if err := w.endFile(); err != nil {
		return err
	}
	if IsOurs(h.Name) || !utf8.ValidString(h.Name) || !utf8.ValidString(h.Linkname) {
		return &NameError{h.Name}
	}
	e, err := entryOf(h)
	if err != nil {
		return err
	}
	if err := w.tar.WriteHeader(h); err != nil {
		return err
	}
	w.entries = append(w.entries, e)
	if e.Type == typeReg && e.Size > 0 {
		w.file = &openFile{first: len(w.entries) - 1, size: e.Size, whole: sha256.New()}
	}
	return nil
}

// NameError says that a name has no place in a TOC: it is no UTF-8 text, or the format's own.
type NameError struct{ Name string }

func (e *NameError) Error() string {
	return fmt.Sprintf("the name %.200q has no place in a table of contents", e.Name)
}

// entryOf describes an entry of the archive in the TOC.
func entryOf(h *tar.Header) (entry, error) {
	e := entry{Name: h.Name, Mode: h.Mode, UID: h.Uid, GID: h.Gid, LinkName: h.Linkname}
	if !h.ModTime.IsZero() {
		// With fractions of a second, as in the archive. The format's readers take them.
		e.ModTime = h.ModTime.UTC().Format(time.RFC3339Nano)
	}
	switch h.Typeflag {
	case tar.TypeReg:
		e.Type, e.Size = typeReg, h.Size
	case tar.TypeDir:
		e.Type = typeDir
	case tar.TypeSymlink:
		e.Type = typeSymlink
	case tar.TypeLink:
		e.Type = typeLink
	case tar.TypeFifo:
		e.Type = typeFifo
	default:
		return e, fmt.Errorf("%q: an entry of type %q has no place in a layer", h.Name, h.Typeflag)
	}
	return e, nil
}

// Write writes content of the entry that WriteHeader began.
func (w *Writer) Write(p []byte) (done int, err error) {
	f := w.file
	if f == nil || int64(len(p)) > f.size-f.done {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, tar.ErrWriteTooLong
	}
	for len(p) > 0 {
		if f.chunk == nil {
			if err := w.beginChunk(); err != nil {
				return done, err
			}
		}
		part := p[:min(int64(len(p)), f.chunkAt+ChunkSize-f.done)]
		n, err := w.tar.Write(part)
		f.whole.Write(part[:n])
		f.chunk.Write(part[:n])
		f.done, done, p = f.done+int64(n), done+n, p[n:]
		if err != nil {
			return done, err
		}
		if f.done == f.size || f.done == f.chunkAt+ChunkSize {
			w.endChunk()
		}
	}
	return done, nil
}

// beginChunk begins a member for the next chunk of the file.
func (w *Writer) beginChunk() error {
	if err := w.cut(); err != nil {
		return err
	}
	f := w.file
	f.chunk, f.chunkAt, f.chunkStart = sha256.New(), f.done, f.first
	if f.done > 0 {
		f.chunkStart = len(w.entries)
		w.entries = append(w.entries, entry{Name: w.entries[f.first].Name, Type: typeChunk})
	}
	e := &w.entries[f.chunkStart]
	e.Offset, e.ChunkOffset = w.out.n, f.done
	return nil
}

func (w *Writer) endChunk() {
	f := w.file
	e := &w.entries[f.chunkStart]
	e.ChunkSize, e.ChunkDigest = f.done-f.chunkAt, digestOf(f.chunk)
	f.chunk = nil
}

// endFile ends the content of a file. What follows it, padding and headers, begins a new member.
func (w *Writer) endFile() error {
	f := w.file
	if f == nil {
		return nil
	}
	if f.done < f.size {
		return fmt.Errorf("%q: %d of %d bytes are missing", w.entries[f.first].Name, f.size-f.done,
			f.size)
	}
	w.entries[f.first].Digest = digestOf(f.whole)
	w.file = nil
	return w.cut()
}

// Close writes the TOC and the footer. It does not close the writers below.
func (w *Writer) Close() error {
	if w.toc != "" {
		return errors.New("closed twice")
	}
	if err := w.endFile(); err != nil {
		return err
	}
	text, err := json.Marshal(struct {
		Version int     `json:"version"`
		Entries []entry `json:"entries"`
	}{1, w.entries})
	if err != nil {
		return err
	}
	// The padding of the last file must not follow in the member of the TOC.
	if err := w.tar.Flush(); err != nil {
		return err
	}
	if err := w.cut(); err != nil {
		return err
	}
	at := w.out.n
	err = w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: TOCName, Size: int64(len(text)),
		Mode: 0o444})
	if err == nil {
		_, err = w.tar.Write(text)
	}
	if err == nil {
		err = w.tar.Close()
	}
	if err == nil {
		err = w.cut()
	}
	if err == nil {
		_, err = w.out.Write(footer(at))
	}
	sum := sha256.Sum256(text)
	w.toc = "sha256:" + hex.EncodeToString(sum[:])
	return err
}

// TOCDigest returns the digest of the TOC, after Close.
func (w *Writer) TOCDigest() string { return w.toc }

// PlainSize returns the number of uncompressed bytes, after Close.
func (w *Writer) PlainSize() int64 { return w.plain.plain.n }

func digestOf(h hash.Hash) string { return "sha256:" + hex.EncodeToString(h.Sum(nil)) }

// footerHead is the footer up to the offset of the TOC: a gzip header with an extra field of 26
// bytes, in which the subfield "SG" has 22.
var footerHead = []byte{0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0xff, 26, 0, 'S', 'G', 22, 0}

// footerTail follows the offset of the TOC: a mark, an empty stored block, and the sum and size of
// nothing.
var footerTail = append([]byte("STARGZ"), 1, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0)

func footer(toc int64) []byte {
	b := append([]byte{}, footerHead...)
	b = fmt.Appendf(b, "%016x", toc)
	return append(b, footerTail...)
}
