package store

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/image"
)

// adopt takes over the image that an older program made of the same machine under the template's
// former prefix. The image gets a second name in dir, so that the older program can go on using
// its own. ok is false if there is no such image, or if it can't be taken.
func (b *cached) adopt(dir string) (_ image.Image, ok bool) {
	if b.former == "" {
		return image.Image{}, false
	}
	print := filepath.Base(dir)[len(b.prefix):]
	old := filepath.Join(b.dir, b.former+print)
	err := b.adoptFrom(old, dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			b.log.Warn("an older program's template can't be used, and is made again", "dir", old, "err",
				err)
		}
		return image.Image{}, false
	}
	img, err := readCached(dir)
	if err != nil {
		return image.Image{}, false
	}
	b.log.Info("adopted an older program's template", "template", img.Name, "dir", old)
	return img, true
}

// errBusy means that another process makes the image just now.
var errBusy = errors.New("another process makes it now")

// adoptFrom links the image of directory old into dir. The caller holds the lock of dir.
func (b *cached) adoptFrom(old, dir string) error {
	lock, err := os.Open(old)
	if err != nil {
		return err
	}
	defer lock.Close() // frees the lock
	if !tryLock(lock, false) {
		return errBusy
	}
	raw, err := os.ReadFile(filepath.Join(old, manifestFile))
	if err != nil {
		return err
	}
	var t carrel.Template
	var more struct {
		Sums string `json:"sums"`
	}
	if err := errors.Join(json.Unmarshal(raw, &t), json.Unmarshal(raw, &more)); err != nil {
		return err
	}
	for _, name := range []string{imageFile, sumsFile} {
		to := filepath.Join(dir, name)
		if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		err := os.Link(filepath.Join(old, name), to)
		if err != nil && !(name == sumsFile && errors.Is(err, fs.ErrNotExist)) { // older than sums
			return err
		}
	}
	t.ID, t.Name, t.Source = b.template.ID, b.template.Name, b.template.Source
	if raw, err = encodeManifest(t, more.Sums); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, manifestFile), append(raw, '\n'), 0o644)
}
