package hostbase

import (
	"fmt"
	"io"

	"github.com/carrel-dev/carrel/internal/image/erofs"
	"github.com/carrel-dev/carrel/internal/image/locale"
)

// locales writes the archive of the languages in directories, if there is no archive yet.
func (b *builder) locales() error {
	dir := b.root.Lookup("/" + locale.Dir)
	if dir == nil || !dir.IsDir() || dir.Child(locale.Archive) != nil {
		return nil
	}
	found := map[string]locale.Language{}
	for _, name := range dir.Names() {
		l, err := b.locale(dir.Child(name))
		if err != nil {
			return err
		}
		if l != nil {
			found[name] = *l
		}
	}
	packed := locale.Pack(found)
	if packed == nil {
		return nil
	}
	_, err := b.w.AddFile(dir, locale.Archive, 0o644, packed)
	return err
}

// locale reads the files of a language. It returns nil if one is missing.
func (b *builder) locale(dir *erofs.Node) (*locale.Language, error) {
	if dir == nil || !dir.IsDir() {
		return nil, nil
	}
	var l locale.Language
	size := int64(0)
	for i, name := range locale.Files {
		if name == "" {
			continue
		}
		n := dir.Lookup(name)
		if n == nil || !n.Mode.IsRegular() {
			return nil, nil
		}
		if size += n.Data.Size; size > locale.MaxBytes {
			return nil, nil
		}
		r, err := b.w.Reader(n.Data)
		if err != nil {
			return nil, err
		}
		if l[i], err = io.ReadAll(r); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
	}
	return &l, nil
}
