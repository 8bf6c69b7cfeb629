//go:build linux

package tier

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// carrier moves the working directory into and out of a sandbox.
type carrier interface {
	// load copies src in.
	load(ctx context.Context, src *source) error
	// look lists the directory inside, by relative path.
	look(ctx context.Context) (map[string]meta, error)
	// fetch passes the named files and links to put, in any order. It leaves out those that are
	// gone.
	fetch(ctx context.Context, names []string, put func(item, io.Reader) error) error
}

// meta is the known state of a path inside.
type meta struct {
	typ  byte // as find prints it: f, d, l, or another
	perm uint32
	sign string // differs if the content may differ
}

// item is one file or link from inside.
type item struct {
	name  string
	link  string // target of a symbolic link, if isLink
	isLnk bool
	size  int64
	mtime time.Time
}

// carrier returns the carrier for the sandbox's tier.
func (b *box) carrier(src *source) carrier {
	if b.req.Tier == carrel.Sim {
		return &simCarrier{b: b, dir: src.dir}
	}
	return &realCarrier{b: b, dir: src.dir}
}

// realCarrier uses the sandbox's tar and find, which come from this machine.
type realCarrier struct {
	b   *box
	dir string
}

func (c *realCarrier) load(ctx context.Context, src *source) error {
	if len(src.order) == 0 {
		return nil
	}
	pr, pw := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := src.pack(ctx, pw)
		pw.CloseWithError(err)
		packed <- err
	}()
	res, err := c.b.comp.Run(ctx, carrel.Command{User: c.b.user, Dir: "/", Stdin: pr,
		Args: []string{"tar", "-x", "-p", "-o", "-f", "-", "-C", c.dir}})
	_ = pr.CloseWithError(io.ErrClosedPipe)
	perr := <-packed
	switch {
	case err != nil:
		return err
	case perr != nil && !errors.Is(perr, io.ErrClosedPipe):
		return perr
	case res.ExitCode != 0:
		first, _, _ := strings.Cut(strings.TrimSpace(string(res.Stderr)), "\n")
		return &carrel.Error{Op: "copy", Kind: carrel.Internal, Err: fmt.Errorf("tar in the sandbox: %s: %q", res.Status, first),
			Hint: "the copy needs tar and find on this machine, and room in the sandbox"}
	}
	return nil
}

// maxListing bounds the listing of a directory, in bytes.
const maxListing = 256 << 20

// bounded is a buffer with a maximum size.
type bounded struct {
	bytes.Buffer
	max  int
	full context.CancelCauseFunc // called when the buffer is full
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.max {
		err := fmt.Errorf("the sandbox lists more than %d MiB of names", b.max>>20)
		b.full(err)
		return 0, err
	}
	return b.Buffer.Write(p)
}

func (c *realCarrier) look(ctx context.Context) (map[string]meta, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := &bounded{max: maxListing, full: cancel}
	// Don't list the root itself: its name would disturb the listing, and its link must not be
	// followed.
	_, err := c.b.inside(ctx, "list files", carrel.Command{User: "root", Stdout: out,
		Args: []string{"find", c.dir, "-mindepth", "1", "-printf", `%y %m %s:%T@:%C@ %P\0`}})
	if err != nil {
		return nil, err
	}
	files := map[string]meta{}
	for record := range bytes.SplitSeq(out.Bytes(), []byte{0}) {
		f := strings.SplitN(string(record), " ", 4)
		if len(f) != 4 || len(f[0]) != 1 || !local(f[3]) {
			continue
		}
		perm, err := strconv.ParseUint(f[1], 8, 32)
		if err != nil {
			continue
		}
		m := meta{typ: f[0][0], perm: uint32(perm) & 0o7777, sign: f[2]}
		if m.typ == 'd' {
			m.sign = ""
		}
		files[f[3]] = m
	}
	return files, nil
}

// local reports whether a name from inside is a path below the directory, in its simplest form.
func local(name string) bool {
	return name != "" && name[0] != '/' && path.Clean(name) == name && name != "." && name != ".." &&
		!strings.HasPrefix(name, "../") && len(name) < 4096 && strings.IndexByte(name, 0) < 0
}

func (c *realCarrier) fetch(ctx context.Context, names []string, put func(item, io.Reader) error) error {
	if len(names) == 0 {
		return nil
	}
	var list strings.Builder
	wanted := make(map[string]bool, len(names))
	for _, n := range names {
		wanted[n] = true
		list.WriteString("./" + n + "\x00")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pr, pw := io.Pipe()
	read := make(chan error, 1)
	go func() {
		err := unpack(pr, wanted, put)
		_ = pr.CloseWithError(errStopped)
		if err != nil {
			cancel()
		}
		read <- err
	}()
	res, err := c.b.comp.Run(ctx, carrel.Command{User: "root", Dir: "/", Stdin: strings.NewReader(list.String()), Stdout: pw,
		Args: []string{"tar", "-c", "-S", "-f", "-", "-C", c.dir, "--no-recursion", "--null", "--verbatim-files-from", "-T", "-"}})
	_ = pw.Close()
	if rerr := <-read; rerr != nil {
		return rerr
	}
	if err != nil {
		return err
	}
	if res.ExitCode > 1 && len(wanted) == len(names) { // 1 means "changed while it was read"; no file at all is worse
		return fmt.Errorf("tar in the sandbox: %s: %q", res.Status, strings.TrimSpace(string(res.Stderr)))
	}
	return nil
}

// errStopped is the error for a writer that writes on after the archive's end.
var errStopped = errors.New("the archive has ended")

// unpack reads an archive that a hostile program may have written. It takes only the wanted files,
// each once.
func unpack(r io.Reader, wanted map[string]bool, put func(item, io.Reader) error) error {
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			_, err = io.Copy(io.Discard, io.LimitReader(r, 1<<20)) // padding
			return err
		}
		if err != nil {
			return fmt.Errorf("what the sandbox sent is no archive: %w", err)
		}
		name := strings.TrimPrefix(h.Name, "./")
		if !wanted[name] {
			continue
		}
		it := item{name: name, size: h.Size, mtime: h.ModTime}
		switch h.Typeflag {
		case tar.TypeReg, tar.TypeGNUSparse:
		case tar.TypeSymlink:
			it.isLnk, it.link = true, h.Linkname
		case tar.TypeLink:
			it.link = strings.TrimPrefix(h.Linkname, "./")
		default:
			continue
		}
		delete(wanted, name)
		if err := put(it, tr); err != nil {
			return err
		}
	}
}
