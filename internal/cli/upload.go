package cli

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/carrel-dev/carrel"
	"golang.org/x/sync/errgroup"
)

// largeFile is the size from which a file gets its own request. Smaller ones go together, because a
// request for each would take most of the time.
const largeFile = 1 << 20

// uploadTree copies a directory. If the sandbox has tar, it goes as one stream, else file by file.
func (j *copyJob) uploadTree(ctx context.Context, src, dst string) error {
	if err := j.files.MakeDir(ctx, dst); err != nil && carrel.KindOf(err) != carrel.AlreadyExists {
		return err
	}
	there, err := j.files.Stat(ctx, dst)
	if err != nil {
		return err
	}
	if !j.hasTar(ctx) {
		return j.uploadEach(ctx, src, there.Path)
	}
	return j.uploadTar(ctx, src, there.Path)
}

// hasTar reports whether the sandbox has tar.
func (j *copyJob) hasTar(ctx context.Context) bool {
	res, err := j.comp.Run(ctx, carrel.Command{Args: []string{"tar", "--version"}, User: j.user})
	return err == nil && res.ExitCode == 0
}

// uploadTar streams the small files to the sandbox's tar, with modes and times, and then sends the
// large ones.
func (j *copyJob) uploadTar(ctx context.Context, src, dst string) error {
	pr, pw := io.Pipe()
	var large []string
	packed := make(chan error, 1)
	go func() {
		// Each read from the pipe becomes one request.
		w := bufio.NewWriterSize(pw, 64<<10)
		var err error
		if large, err = j.pack(ctx, src, w); err == nil {
			err = w.Flush()
		}
		pw.CloseWithError(err)
		packed <- err
	}()
	res, err := j.comp.Run(ctx, carrel.Command{Args: []string{"tar", "-x", "-p", "-o", "-f", "-", "-C", dst}, User: j.user, Stdin: pr})
	pr.CloseWithError(fs.ErrClosed) // a tar that ended early reads no more
	perr := <-packed
	switch {
	case err != nil:
		return err
	case perr != nil && !errors.Is(perr, fs.ErrClosed):
		return usage(perr)
	case res.ExitCode != 0 && perr != nil:
		return toolError("tar", res) // it ended before it had all
	case res.ExitCode != 0:
		j.toolComplains("tar", res) // and unpacked the rest
	}
	return j.uploadLarge(ctx, src, dst, large)
}

// pack writes src as an archive. Large files are empty in it; pack returns their names.
func (j *copyJob) pack(ctx context.Context, src string, w io.Writer) (large []string, err error) {
	tw := tar.NewWriter(w)
	names := hardLinks{}
	err = filepath.WalkDir(src, func(p string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil || p == src {
			return errors.Join(ctx.Err(), err)
		}
		rel, relErr := filepath.Rel(src, p)
		if relErr != nil {
			return relErr
		}
		if err != nil {
			return j.goOn(ctx, rel, err)
		}
		info, err := d.Info()
		if err != nil {
			return j.goOn(ctx, rel, err)
		}
		if first := names.first(info, filepath.ToSlash(rel)); first != "" {
			j.count.Add(1)
			return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeLink, Name: filepath.ToSlash(rel), Linkname: first, Format: tar.FormatPAX})
		}
		// A file with several names goes into the archive: sent later, it could lose its other
		// names.
		isLarge := info.Mode().IsRegular() && info.Size() >= largeFile && !names.has(info)
		j.bar.update(carrel.Progress{Stage: "upload", Done: j.bytes.Load()})
		packed, err := j.packOne(ctx, tw, p, filepath.ToSlash(rel), info, isLarge)
		if !packed {
			names.forget(info)
		} else if isLarge {
			large = append(large, filepath.ToSlash(rel))
		}
		return err
	})
	if err == nil {
		err = tw.Close()
	}
	return large, err
}

// packOne writes one directory, file or link. It leaves out and reports files that can't be copied.
// Its error is about the archive itself.
func (j *copyJob) packOne(ctx context.Context, tw *tar.Writer, name, rel string, info fs.FileInfo, empty bool) (packed bool, err error) {
	h := &tar.Header{Name: rel, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	switch {
	case info.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, rel+"/"
		h.Mode |= 0o700 // otherwise its own entries could not be written
		return true, tw.WriteHeader(h)
	case info.Mode()&fs.ModeSymlink != 0:
		link, err := os.Readlink(name)
		if err != nil {
			return false, j.goOn(ctx, rel, err)
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, link
		j.count.Add(1)
		return true, tw.WriteHeader(h)
	case !info.Mode().IsRegular():
		j.leftOut(rel, "it is no file, directory or link")
		return false, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return false, j.goOn(ctx, rel, err)
	}
	defer f.Close()
	if empty {
		h.Mode |= 0o200
		return true, tw.WriteHeader(h)
	}
	if info, err = f.Stat(); err != nil {
		return false, j.goOn(ctx, rel, err)
	}
	h.Size = info.Size()
	if err := tw.WriteHeader(h); err != nil {
		return false, err
	}
	return true, j.packContent(ctx, tw, f, rel, h.Size)
}

// packContent writes as many bytes as the header has announced. If the file grows, it copies only
// that many. If the file shrinks or can't be read to its end, it reports that and adds zeros.
func (j *copyJob) packContent(ctx context.Context, tw io.Writer, f *os.File, rel string, size int64) error {
	from := &lastError{r: counted{f, j}}
	n, err := io.CopyN(tw, from, size)
	if err == nil {
		j.count.Add(1)
		return nil
	}
	if from.err == nil {
		return err // of the archive
	}
	if _, err := io.CopyN(tw, zeros{}, size-n); err != nil {
		return err
	}
	return j.goOn(ctx, rel, fmt.Errorf("it could not be read to its end, and the copy ends in zeros: %w", from.err))
}

// lastError records the error at a reader's end.
type lastError struct {
	r   io.Reader
	err error
}

// Read implements io.Reader.
func (l *lastError) Read(p []byte) (n int, err error) {
	if n, err = l.r.Read(p); err != nil {
		l.err = err
	}
	return n, err
}

// zeros is a reader that returns zeros without end.
type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// uploadLarge fills the files that pack left empty. Their modes stay the same.
func (j *copyJob) uploadLarge(ctx context.Context, src, dst string, large []string) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(copyWorkers)
	for _, rel := range large {
		g.Go(func() error {
			from, to := filepath.Join(src, filepath.FromSlash(rel)), path.Join(dst, rel)
			if err := j.uploadFile(gctx, from, to); err != nil {
				return j.goOn(gctx, rel, err)
			}
			info, err := os.Stat(from)
			if err != nil {
				return j.goOn(gctx, rel, err)
			}
			at := fmt.Sprintf("@%d.%09d", info.ModTime().Unix(), info.ModTime().Nanosecond())
			return j.goOn(gctx, rel, j.runTool(gctx, []string{"touch", "-m", "-d", at, "--", to}))
		})
	}
	return g.Wait()
}

// toolError returns the message of a tool in the sandbox that failed.
func toolError(name string, res *carrel.Result) error {
	text := res.Status
	if first, _, _ := strings.Cut(strings.TrimSpace(string(res.Stderr)), "\n"); first != "" {
		text = printable(first)
	}
	return &carrel.Error{Op: "copy", Kind: carrel.Internal, Err: fmt.Errorf("%s in the sandbox: %s", name, text)}
}
