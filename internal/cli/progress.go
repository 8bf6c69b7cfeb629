package cli

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/carrel-dev/carrel"
)

// bar draws the progress of a job, in one line on a terminal. Elsewhere it draws nothing.
type bar struct {
	out   io.Writer // nil draws nothing
	last  time.Time
	drawn bool
}

// newBar returns a bar for a stream.
func newBar(stream io.Writer) *bar {
	if !isTerminal(stream) {
		return &bar{}
	}
	return &bar{out: stream}
}

// update draws p, at most ten times a second.
func (b *bar) update(p carrel.Progress) {
	if b.out == nil || time.Since(b.last) < 100*time.Millisecond {
		return
	}
	b.last, b.drawn = time.Now(), true
	const width = 30
	if p.Total <= 0 {
		fmt.Fprintf(b.out, "\r\x1b[K%s  %s", printable(p.Stage), bytesText(p.Done))
		return
	}
	full := int(min(p.Done, p.Total) * width / p.Total)
	fmt.Fprintf(b.out, "\r\x1b[K%s  [%-*s] %s of %s", printable(p.Stage), width, fill(full), bytesText(p.Done), bytesText(p.Total))
}

// done clears the line.
func (b *bar) done() {
	if b.drawn {
		fmt.Fprint(b.out, "\r\x1b[K")
	}
}

func fill(n int) string {
	s := make([]byte, n)
	for i := range s {
		s[i] = '#'
	}
	return string(s)
}

// tarDirectory streams a directory as a tarball. Reading returns the walk's error, if one occurs.
// Closing it early ends the walk.
func tarDirectory(dir string) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		tw := tar.NewWriter(w)
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return tarEntry(tw, dir, path, d)
		})
		if err == nil {
			err = tw.Close()
		}
		w.CloseWithError(err)
	}()
	return r
}

func tarEntry(tw *tar.Writer, dir, path string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	if info.Mode()&(fs.ModeSocket) != 0 {
		return nil // a socket has no content and is useless elsewhere
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(path); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	if h.Name, err = filepath.Rel(dir, path); err != nil {
		return err
	}
	h.Name, h.Linkname = filepath.ToSlash(h.Name), filepath.ToSlash(h.Linkname)
	if d.IsDir() {
		h.Name += "/"
	}
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyN(tw, f, h.Size)
	return err
}
