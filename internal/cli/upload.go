package cli

import (
	"archive/tar"
	"bufio"
	"context"
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

// largeFile is the size from which a file is worth a request of its own. Smaller
// ones go together: a request for each would take most of the time.
const largeFile = 1 << 20

// uploadTree copies a directory: as one stream where the sandbox has tar, else
// file by file.
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

// hasTar reports whether the sandbox has a tar.
func (j *copyJob) hasTar(ctx context.Context) bool {
	res, err := j.comp.Run(ctx, carrel.Command{Args: []string{"tar", "--version"}, User: j.user})
	return err == nil && res.ExitCode == 0
}

// uploadTar streams the small files to a tar in the sandbox, with their modes and
// times, and then sends the large ones.
func (j *copyJob) uploadTar(ctx context.Context, src, dst string) error {
	pr, pw := io.Pipe()
	var large []string
	packed := make(chan error, 1)
	go func() {
		// Whatever is read at once from the pipe becomes one request.
		w := bufio.NewWriterSize(pw, 64<<10)
		var err error
		if large, err = j.pack(ctx, src, w); err == nil {
			err = w.Flush()
		}
		pw.CloseWithError(err)
		packed <- err
	}()
	res, err := j.comp.Run(ctx, carrel.Command{Args: []string{"tar", "-x", "-p", "-o", "-f", "-", "-C", dst}, User: j.user, Stdin: pr})
	pr.CloseWithError(fs.ErrClosed) // a tar that ended early takes no more
	perr := <-packed
	switch {
	case err != nil:
		return err
	case res.ExitCode != 0 && strings.TrimSpace(string(res.Stderr)) != "" && (perr == nil || perr == fs.ErrClosed):
		return toolError("tar", res)
	case perr != nil:
		return usage(perr)
	case res.ExitCode != 0:
		return toolError("tar", res)
	}
	return j.uploadLarge(ctx, src, dst, large)
}

// pack writes src as an archive, large files as empty ones, and returns these.
func (j *copyJob) pack(ctx context.Context, src string, w io.Writer) (large []string, err error) {
	tw := tar.NewWriter(w)
	names := hardLinks{}
	err = filepath.WalkDir(src, func(p string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || p == src {
			return err
		}
		rel, err := filepath.Rel(src, p)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if first := names.first(info, filepath.ToSlash(rel)); first != "" {
			j.count.Add(1)
			return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeLink, Name: filepath.ToSlash(rel), Linkname: first, Format: tar.FormatPAX})
		}
		// A file with several names goes with the archive: one that is written later may lose them.
		isLarge := info.Mode().IsRegular() && info.Size() >= largeFile && !names.has(info)
		if isLarge {
			large = append(large, filepath.ToSlash(rel))
		}
		j.bar.update(carrel.Progress{Stage: "upload", Done: j.bytes.Load()})
		return j.packOne(tw, p, filepath.ToSlash(rel), info, isLarge)
	})
	if err == nil {
		err = tw.Close()
	}
	return large, err
}

// packOne writes one directory, file or link. Other kinds of file are left out and named.
func (j *copyJob) packOne(tw *tar.Writer, name, rel string, info fs.FileInfo, empty bool) error {
	h := &tar.Header{Name: rel, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	switch {
	case info.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, rel+"/"
		h.Mode |= 0o700 // or what belongs into it could not be written
		return tw.WriteHeader(h)
	case info.Mode()&fs.ModeSymlink != 0:
		link, err := os.Readlink(name)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, link
		j.count.Add(1)
		return tw.WriteHeader(h)
	case !info.Mode().IsRegular():
		j.leftOut(rel, "it is no file, directory or link")
		return nil
	case empty:
		h.Mode |= 0o200
		return tw.WriteHeader(h)
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return err
	}
	h.Size = info.Size()
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	// A file that grows meanwhile is copied as it was; one that shrinks is an error.
	if _, err := io.CopyN(tw, counted{f, j}, h.Size); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	j.count.Add(1)
	return nil
}

// uploadLarge fills the files that pack left empty. They keep the modes they have.
func (j *copyJob) uploadLarge(ctx context.Context, src, dst string, large []string) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(copyWorkers)
	for _, rel := range large {
		g.Go(func() error {
			return j.uploadFile(gctx, filepath.Join(src, filepath.FromSlash(rel)), path.Join(dst, rel))
		})
	}
	return g.Wait()
}

// toolError is what a tool in the sandbox said before it failed.
func toolError(name string, res *carrel.Result) error {
	text := res.Status
	if first, _, _ := strings.Cut(strings.TrimSpace(string(res.Stderr)), "\n"); first != "" {
		text = printable(first)
	}
	return &carrel.Error{Op: "copy", Kind: carrel.Internal, Err: fmt.Errorf("%s in the sandbox: %s", name, text)}
}
