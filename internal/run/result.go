package run

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/internal/settings"
)

// resultFile is a file that the runner writes after the command: a report, a diff. Its directory is
// opened before the command starts, and a link in place of the file is never followed. The command
// may put a link, a pipe or another directory wherever it writes, and this process can write where
// the box can't.
type resultFile struct {
	flag, path string
	dir        *os.Root
	was        fs.FileInfo // the directory
	base       string
	stream     *os.File // a descriptor of the caller; dir is nil then
}

// openResult fixes the place of the file that a flag names.
func openResult(b *settings.Box, flag, path string) (*resultFile, error) {
	r := &resultFile{flag: flag, path: path}
	if n, ok := descriptor(path); ok {
		r.stream = os.NewFile(uintptr(n), path)
		if _, err := r.stream.Stat(); err != nil {
			return nil, invalid(flag, fmt.Errorf("%s is not open", path))
		}
		return r, nil
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, invalid(flag, err)
	}
	if path == "" || strings.HasSuffix(path, "/") {
		return nil, invalid(flag, fmt.Errorf("%q names no file", path))
	}
	dir, err := trustedDir(b, filepath.Dir(full))
	if err != nil {
		return nil, invalid(flag, err)
	}
	r.base = filepath.Base(full)
	if err := r.target(b, filepath.Join(dir, r.base)); err != nil || r.stream != nil {
		return r, err
	}
	if r.dir, err = os.OpenRoot(dir); err != nil {
		return nil, invalid(flag, err)
	}
	if r.was, err = r.dir.Stat("."); err != nil {
		_ = r.dir.Close()
		return nil, invalid(flag, err)
	}
	return r, nil
}

// descriptor returns the number of this process's descriptor that a path names.
func descriptor(path string) (int, bool) {
	switch path {
	case "/dev/stdout":
		return 1, true
	case "/dev/stderr":
		return 2, true
	}
	for _, dir := range []string{"/dev/fd/", "/proc/self/fd/"} {
		if text, ok := strings.CutPrefix(path, dir); ok {
			n, err := strconv.Atoi(text)
			return n, err == nil && n >= 0
		}
	}
	return 0, false
}

// target looks at the file's place before the command starts. A regular file will be replaced. A
// device that the box can't reach is opened now.
func (r *resultFile) target(b *settings.Box, full string) error {
	info, err := os.Lstat(full)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return invalid(r.flag, err)
	case info.Mode()&fs.ModeSymlink != 0:
		if to, err := os.Stat(full); err == nil && !to.Mode().IsRegular() {
			return invalid(r.flag, fmt.Errorf("%s is a link to something that is no file: name where it leads", r.path))
		}
		return nil
	case info.Mode().IsRegular():
		return nil
	case info.Mode()&fs.ModeCharDevice != 0 && !reaches(b, full):
		r.stream, err = os.OpenFile(full, os.O_WRONLY, 0)
		if err != nil {
			return invalid(r.flag, err)
		}
		return nil
	case info.IsDir():
		return invalid(r.flag, fmt.Errorf("%s is a directory", r.path))
	}
	return invalid(r.flag, fmt.Errorf("%s is no file: for a pipe name a descriptor, such as /dev/fd/3 or >(…) of the shell", r.path))
}

// reaches reports whether the box may write at a path. The file there may then come from the
// command, or from an earlier box.
func reaches(b *settings.Box, path string) bool {
	access, rule := b.Access(path)
	return access == settings.Writable && !slices.Contains(b.Private, rule.Path)
}

// trustedDir resolves the links of a directory's path, except links where the box may write.
func trustedDir(b *settings.Box, dir string) (string, error) {
	at, rest := string(filepath.Separator), strings.Split(dir, string(filepath.Separator))
	if volume := filepath.VolumeName(dir); volume != "" {
		return dir, nil // no box has been there
	}
	for links := 0; len(rest) > 0; {
		var next string
		next, rest = filepath.Join(at, rest[0]), rest[1:]
		to, err := os.Readlink(next)
		if err != nil { // no link
			at = next
			continue
		}
		if links++; links > 40 {
			return "", fmt.Errorf("%s has too many links", dir)
		}
		if reaches(b, next) {
			return "", fmt.Errorf("%s is a link in a directory that the box writes to, and may be the work of a box: name where it leads", next)
		}
		rest = append(strings.Split(to, string(filepath.Separator)), rest...)
		if filepath.IsAbs(to) {
			at = string(filepath.Separator)
		}
	}
	return at, nil
}

// create begins the file. The file gets its name when the writer is closed, so it is complete or
// missing.
func (r *resultFile) create() (*resultWriter, error) {
	if r.stream != nil {
		return &resultWriter{result: r, file: r.stream}, nil
	}
	temp := "." + r.base + "." + rand.Text()[:10]
	f, err := r.dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, r.failed(err)
	}
	return &resultWriter{result: r, file: f, temp: temp}, nil
}

// write is create, one text and Close.
func (r *resultFile) write(text []byte) error {
	w, err := r.create()
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return errors.Join(err, w.Close())
}

// failed adds the flag to an error.
func (r *resultFile) failed(err error) error { return fmt.Errorf("%s %s: %w", r.flag, r.path, err) }

// resultWriter writes a resultFile.
type resultWriter struct {
	result *resultFile
	file   *os.File
	temp   string
	bad    bool
}

// Write implements io.Writer.
func (w *resultWriter) Write(b []byte) (int, error) {
	n, err := w.file.Write(b)
	if err != nil {
		w.bad = true
		err = w.result.failed(err)
	}
	return n, err
}

// Close gives the file its name. If the directory has moved, it returns an error.
func (w *resultWriter) Close() error {
	if w.temp == "" {
		return nil // the caller's
	}
	r := w.result
	err := w.file.Sync()
	err = errors.Join(err, w.file.Close())
	if err == nil && !w.bad {
		err = r.dir.Rename(w.temp, r.base)
	}
	if err != nil || w.bad {
		_ = r.dir.Remove(w.temp)
		if err != nil {
			err = r.failed(err)
		}
		return err
	}
	full, err := filepath.Abs(r.path)
	if err != nil {
		return r.failed(err)
	}
	if now, err := os.Stat(filepath.Dir(full)); err != nil || !os.SameFile(now, r.was) {
		return r.failed(errors.New("its directory was moved or replaced while the command ran, and the file is where the directory is now"))
	}
	return nil
}
