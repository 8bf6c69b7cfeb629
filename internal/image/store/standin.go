package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
)

// ownBase returns the template base that is made of packages. It returns nil while host stands in
// for it: until it has been made, and for ever with Options.HostBase. It has then no image.
func (s *Store) ownBase() *builtIn {
	t := s.builtIns.find(BaseID, "")
	if t == nil || s.opts.HostBase || !t.known() {
		return nil
	}
	return t
}

// getBase returns base's own image, or that of the template that stands in for it. The latter has
// the stand-in's ID: what is made of it lies on that image, also after base has been made.
func (s *Store) getBase(ctx context.Context) (image.Image, error) {
	if t := s.ownBase(); t != nil {
		return s.getBuiltIn(ctx, t)
	}
	img, err := s.getHost(ctx)
	img.Name, img.StandIn = image.Base, image.Host
	return img, err
}

// listedBase is the entry for List.
func (s *Store) listedBase() image.Image {
	if t := s.ownBase(); t != nil {
		return t.listed()
	}
	img := s.host.listed()
	img.ID, img.Name, img.StandIn = BaseID, image.Base, image.Host
	return img
}

// makeBase makes the template base of packages. It replaces one of older packages.
func (s *Store) makeBase(ctx context.Context,
	progress func(carrel.Progress)) (image.Image, error) {
	t := s.builtIns.find(BaseID, "")
	switch {
	case s.opts.HostBase:
		return image.Image{}, &carrel.Error{Op: opBuiltIn, Kind: carrel.Unsupported, Field: "name",
			Err:  errors.New("this service's base is always the template host"),
			Hint: "start it with --base auto"}
	case t == nil:
		return image.Image{}, &carrel.Error{Op: opBuiltIn, Kind: carrel.Unsupported, Field: "name",
			Err:  errors.New("base is made of Debian's packages, and none are pinned for this machine"),
			Hint: "the template host stands in for it"}
	}
	return s.builtIns.get(ctx, t, true, progress)
}

// PrepareBase makes base of packages, unless there is one. One of older packages will do.
func (s *Store) PrepareBase(ctx context.Context, progress func(carrel.Progress)) error {
	if s.ownBase() != nil {
		return nil
	}
	_, err := s.makeBase(ctx, progress)
	return err
}

// BaseState says what the template base is.
func (s *Store) BaseState() BaseState {
	own := s.ownBase()
	return BaseState{Template: s.listedBase().Template, Forced: s.opts.HostBase,
		Unknown:  s.builtIns.find(BaseID, "") == nil,
		Outdated: own != nil && !own.isCurrent()}
}

// BaseState says what the template base is.
type BaseState struct {
	carrel.Template      // its StandIn is "" for base's own image
	Forced          bool // Options.HostBase
	Outdated        bool // this program has newer packages
	Unknown         bool // this program knows no packages for this machine
}

// loadBase takes base's image if an earlier process made it: that of this program's packages, or
// else the newest of other ones. So an upgrade of this program does not bring the stand-in back.
func (s *Store) loadBase(ctx context.Context, t *builtIn) error {
	if s.opts.HostBase {
		return nil
	}
	err := t.load(ctx)
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if print, ok := newestPrint(t.cached); ok {
		return t.hold(ctx, print)
	}
	return nil
}

// InspectBase says what the template base would be for a store with these options. It opens none.
func InspectBase(opts Options) BaseState {
	opts.CacheDir = cmp.Or(opts.CacheDir, filepath.Join(opts.Dir, ".cache"))
	st := BaseState{Template: carrel.Template{ID: BaseID, Name: image.Base, Source: hostSource,
		BuiltIn: true, StandIn: image.Host}, Forced: opts.HostBase, Unknown: true}
	for _, d := range opts.BuiltIns {
		if d.Template.ID != BaseID {
			continue
		}
		st.Unknown = false
		if opts.HostBase {
			continue
		}
		c := newCached(opts, builtInPrefix(d.Template.Name), d.Template)
		img, err := readCached(filepath.Join(c.dir, c.prefix+d.Print))
		print, other := newestPrint(c)
		if err != nil && other {
			img, err = readCached(filepath.Join(c.dir, c.prefix+print))
			st.Outdated = err == nil
		}
		if err == nil {
			st.Template = img.Template
		}
	}
	return st
}

// newestPrint returns the fingerprint of the newest image in the cache.
func newestPrint(b *cached) (print string, ok bool) {
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return "", false
	}
	var newest carrel.Template
	for _, e := range entries {
		if !e.IsDir() || !b.owns(e.Name()) {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(b.dir, e.Name(), manifestFile))
		var t carrel.Template
		if err != nil || json.Unmarshal(raw, &t) != nil {
			continue
		}
		if t.Created.After(newest.Created) {
			newest, print = t, strings.TrimPrefix(e.Name(), b.prefix)
		}
	}
	return print, print != ""
}
