package cli

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// downloadTar copies a directory out of the sandbox as one stream from the sandbox's tar. A listing
// does not show hard links, and a request for each small file would take most of the time.
func (j *copyJob) downloadTar(ctx context.Context, root *os.Root, src string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pr, pw := io.Pipe()
	type end struct {
		res *carrel.Result
		err error
	}
	packed := make(chan end, 1)
	go func() {
		res, err := j.comp.Run(ctx, carrel.Command{Args: []string{"tar", "-c", "-f", "-", "-C", src, "."}, User: j.user, Stdout: pw})
		pw.CloseWithError(err) // nil is the end of the stream
		packed <- end{res, err}
	}()
	u := &unpacker{job: j, root: root, dirs: map[string]time.Time{}}
	unpackErr := u.unpack(ctx, tar.NewReader(pr))
	if unpackErr == nil {
		_, unpackErr = io.Copy(io.Discard, pr) // read the padding after the archive, or tar gets a broken pipe
	} else {
		cancel()
	}
	pr.CloseWithError(fs.ErrClosed)
	packing := <-packed
	u.restoreTimes()
	switch {
	case unpackErr != nil:
		return unpackErr
	case packing.err != nil:
		return packing.err
	case packing.res.ExitCode != 0:
		j.toolComplains("tar", packing.res) // what it could read is copied
	}
	return nil
}

// unpacker writes an archive that a sandbox made. Names, links and kinds come from the sandbox and
// are not trusted: everything goes through an [os.Root], and never through a link.
type unpacker struct {
	job  *copyJob
	root *os.Root
	dirs map[string]time.Time // set last, because each new entry changes its directory's time
}

// restoreTimes sets the original times of directories.
func (u *unpacker) restoreTimes() {
	for local, at := range u.dirs {
		if err := u.root.Chtimes(local, at, at); err != nil {
			u.job.leftOut(local, "its time: "+err.Error())
		}
	}
}

// unpack writes all entries. It skips entries that can't be written here, and stops at the first
// impossible name.
func (u *unpacker) unpack(ctx context.Context, r *tar.Reader) error {
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the archive from the sandbox: %w", err)
		}
		name, err := insideName(h.Name)
		if err != nil {
			return err
		}
		content := &lastError{r: r}
		if err := u.entry(h, name, content); err != nil {
			if content.err != nil && !errors.Is(content.err, io.EOF) {
				return fmt.Errorf("the archive from the sandbox: %s: %w", printable(name), content.err)
			}
			if err := u.job.goOn(ctx, name, err); err != nil {
				return fmt.Errorf("%s: %w", printable(name), err)
			}
		}
		u.job.bar.update(carrel.Progress{Stage: "download", Done: u.job.bytes.Load()})
	}
}

// insideName returns an entry's name as a path below the copy. "." is the copy itself.
func insideName(name string) (string, error) {
	clean := path.Clean(name)
	bad := path.IsAbs(name) || clean == ".." || strings.HasPrefix(clean, "../") || strings.ContainsRune(name, 0)
	if bad || !filepath.IsLocal(filepath.FromSlash(clean)) || strings.Count(clean, "/") >= maxDepth {
		return "", &carrel.Error{Op: "copy", Kind: carrel.Invalid, Field: printable(name),
			Err: errors.New("the sandbox's archive has an impossible name")}
	}
	return clean, nil
}

// entry writes one entry. It leaves out sockets, pipes and devices and reports them.
func (u *unpacker) entry(h *tar.Header, name string, content io.Reader) error {
	if name == "." {
		return nil
	}
	local := filepath.FromSlash(name)
	if err := makeParents(u.root, filepath.Dir(local)); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		err := makeDirMode(u.root, local, fs.FileMode(h.Mode)&0o777|0o700) // otherwise its own entries could not be written
		if err == nil {
			u.dirs[local] = h.ModTime
		}
		return err
	case tar.TypeReg:
		return u.file(h, local, content)
	case tar.TypeSymlink:
		u.job.makeLink(u.root, local, h.Linkname)
	case tar.TypeLink:
		return u.hardLink(h.Linkname, local)
	default:
		u.job.leftOut(local, "it is no file, directory or link")
	}
	return nil
}

// file writes a regular file, completely or not at all.
func (u *unpacker) file(h *tar.Header, local string, content io.Reader) error {
	err := writeWhole(u.root, local, fs.FileMode(h.Mode)&0o777, counted{content, u.job})
	if err != nil {
		return err
	}
	u.job.count.Add(1)
	return u.root.Chtimes(local, h.ModTime, h.ModTime)
}

// hardLink gives a file of the copy another name.
func (u *unpacker) hardLink(target, local string) error {
	first, err := insideName(target)
	if err != nil {
		return err
	}
	if info, err := u.root.Lstat(filepath.FromSlash(first)); err != nil || !info.Mode().IsRegular() {
		u.job.leftOut(local, "it is another name of "+first+", which is not in the copy")
		return nil
	}
	_ = u.root.Remove(local) // Link replaces nothing
	if err := u.root.Link(filepath.FromSlash(first), local); err != nil {
		return err
	}
	u.job.count.Add(1)
	return nil
}

// makeParents makes the directories above an entry if the archive has no entries for them.
func makeParents(root *os.Root, dir string) error {
	if dir == "." {
		return nil
	}
	if err := makeParents(root, filepath.Dir(dir)); err != nil {
		return err
	}
	return makeDir(root, dir)
}

// partSuffix is the end of the name of an incomplete file.
const partSuffix = ".carrel-part"

// writeWhole writes a file under another name and renames it when it is complete. A copy that
// breaks off leaves the earlier file, and never an empty or half one.
func writeWhole(root *os.Root, name string, mode fs.FileMode, content io.Reader) error {
	part := name + partSuffix
	_ = root.Remove(part) // left by a killed copy, or a link that O_EXCL refuses
	f, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = replaceFile(root, part, name)
	}
	if err != nil {
		_ = root.Remove(part)
	}
	return err
}

// replaceFile renames part to name. It replaces a link with that name and does not follow it.
func replaceFile(root *os.Root, part, name string) error {
	if info, err := root.Lstat(name); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory here", printable(name))
	}
	return root.Rename(part, name)
}
