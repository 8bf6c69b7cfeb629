package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/archive"
	"github.com/carrel-dev/carrel/internal/image/store"
)

// baseOf is the template base of a test, made of "packages" that a letter names.
func baseOf(letter string) image.BuiltIn {
	t := carrel.Template{ID: store.BaseID, Name: "base", Source: "packages " + letter, BuiltIn: true,
		Digest: "sha256:" + letter, User: "user"}
	return image.BuiltIn{Template: t, Print: strings.Repeat(letter, 20),
		Make: func(ctx context.Context, dir string, _ *image.Meter) (*os.File, carrel.Template, error) {
			imp := archive.Importer{NewFile: func() (*os.File, error) {
				return os.CreateTemp(dir, "part-*")
			}}
			f, _, err := imp.Stream(ctx, smallRoot())
			return f, t, err
		},
	}
}

// isStandIn checks that base is host's image.
func isStandIn(t *testing.T, s *store.Store) image.Image {
	t.Helper()
	img, err := s.Get(t.Context(), store.BaseID)
	host, herr := s.Get(t.Context(), store.HostID)
	must(t, errors.Join(err, herr))
	if img.ID != store.HostID || img.Name != "base" || img.StandIn != "host" || img.Path != host.Path {
		t.Errorf("base is %+v", img)
	}
	named, ok := s.Named("p", "base")
	if !ok || named.ID != store.BaseID || named.Name != "base" || named.StandIn != "host" {
		t.Errorf("base is named %+v", named)
	}
	return img
}

// isOwn checks that base is made of the packages of a letter.
func isOwn(t *testing.T, s *store.Store, letter string) {
	t.Helper()
	img, err := s.Get(t.Context(), store.BaseID)
	must(t, err)
	if img.ID != store.BaseID || img.StandIn != "" || img.Digest != "sha256:"+letter ||
		read(t, img.Path, "etc/os-release") == "" {
		t.Errorf("base is %+v", img)
	}
	if named, ok := s.Named("p", "base"); !ok || named.Digest != img.Digest || named.StandIn != "" {
		t.Errorf("base is named %+v", named)
	}
}

// TestStandIn has host stand in for base until base is made, and again where the options say so.
func TestStandIn(t *testing.T) {
	cache, host := t.TempDir(), smallHost(t)
	opts := store.Options{CacheDir: cache, Host: host, BuiltIns: []image.BuiltIn{baseOf("a")}}
	s := open(t, opts)
	before := isStandIn(t, s)
	if st := store.InspectBase(opts); st.StandIn != "host" || st.Forced || st.Unknown {
		t.Errorf("inspected: %+v", st)
	}
	if _, err := s.Make(t.Context(), "base:latest", nil); err != nil {
		t.Fatal(err)
	}
	isOwn(t, s, "a")
	if img, err := s.Get(t.Context(), before.ID); err != nil || img.Path != before.Path ||
		img.Name != "host" {
		t.Errorf("the template under what was made before: %+v %v", img, err)
	}
	list, err := s.List(t.Context())
	must(t, err)
	for i, want := range []string{store.BaseID, store.HostID, store.SimID} {
		if len(list) != 3 || list[i].ID != want {
			t.Errorf("listed: %+v", list)
		}
	}
	isOwn(t, open(t, opts), "a")
	if st := store.InspectBase(opts); st.StandIn != "" || st.Digest != "sha256:a" || st.Outdated {
		t.Errorf("inspected: %+v", st)
	}
	opts.HostBase = true
	s = open(t, opts)
	isStandIn(t, s)
	if st, in := s.BaseState(), store.InspectBase(opts); !st.Forced || st.StandIn != "host" ||
		!in.Forced || in.StandIn != "host" {
		t.Errorf("%+v, inspected %+v", st, in)
	}
	_, err = s.Make(t.Context(), "base", nil)
	wantKind(t, err, carrel.Unsupported, "name")
	s = open(t, store.Options{CacheDir: cache, Host: host}) // a machine without pinned packages
	isStandIn(t, s)
	_, err = s.Make(t.Context(), "base", nil)
	wantKind(t, err, carrel.Unsupported, "name")
}

// TestBaseIsNeverFirstUsed looks for every way in which a caller may use base. None makes it.
func TestBaseIsNeverFirstUsed(t *testing.T) {
	b := baseOf("a")
	b.Make = func(context.Context, string, *image.Meter) (*os.File, carrel.Template, error) {
		t.Error("base is made")
		return nil, carrel.Template{}, errors.New("not asked for")
	}
	s := open(t, store.Options{CacheDir: t.TempDir(), Host: smallHost(t),
		BuiltIns: []image.BuiltIn{b}})
	must(t, s.Prepare(t.Context(), nil))
	isStandIn(t, s)
	if bad := s.CheckImages(t.Context(), 0); bad != 0 {
		t.Errorf("%d damaged images", bad)
	}
}

// TestBaseOfOlderPackages upgrades the program. The base of the older packages stays until the new
// one is made.
func TestBaseOfOlderPackages(t *testing.T) {
	cache, host := t.TempDir(), smallHost(t)
	s := open(t, store.Options{CacheDir: cache, Host: host, BuiltIns: []image.BuiltIn{baseOf("a")}})
	must(t, s.PrepareBase(t.Context(), nil))
	must(t, s.Close())
	opts := store.Options{CacheDir: cache, Host: host, BuiltIns: []image.BuiltIn{baseOf("b")}}
	s = open(t, opts)
	isOwn(t, s, "a")
	must(t, s.PrepareBase(t.Context(), nil)) // an older one will do
	isOwn(t, s, "a")
	if in := store.InspectBase(opts); !s.BaseState().Outdated || !in.Outdated ||
		in.Digest != "sha256:a" {
		t.Errorf("%+v, inspected %+v", s.BaseState(), in)
	}
	if _, err := s.Make(t.Context(), "base", nil); err != nil {
		t.Fatal(err)
	}
	isOwn(t, s, "b")
	if s.BaseState().Outdated {
		t.Error("it is outdated still")
	}
	must(t, s.Close())
	isOwn(t, open(t, opts), "b")
	if _, err := os.Stat(filepath.Join(cache, "template-base-"+strings.Repeat("a",
		20))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the older image is still there: %v", err)
	}
}

// age makes the cache look as older programs left it: the template of this machine was base.
func age(t *testing.T, host image.Image) (old string) {
	t.Helper()
	dir := filepath.Dir(host.Path)
	old = filepath.Join(filepath.Dir(dir), strings.Replace(filepath.Base(dir), "host-", "base-", 1))
	must(t, os.Rename(dir, old))
	name := filepath.Join(old, "template.json")
	raw, err := os.ReadFile(name)
	must(t, err)
	var m map[string]any
	must(t, json.Unmarshal(raw, &m))
	m["id"], m["name"] = store.BaseID, "base"
	raw, err = json.Marshal(m)
	must(t, err)
	must(t, os.WriteFile(name, raw, 0o644))
	return old
}

// TestAdopt opens the cache of an older program. Its image of this machine becomes host's, without
// another making. The older program can go on with it until the machine changes.
func TestAdopt(t *testing.T) {
	cache, host := t.TempDir(), smallHost(t)
	s := open(t, store.Options{CacheDir: cache, Host: host})
	first, err := s.Get(t.Context(), store.HostID)
	must(t, err)
	must(t, s.Close())
	before, err := os.Stat(first.Path)
	must(t, err)
	old := age(t, first)
	s = open(t, store.Options{CacheDir: cache, Host: host})
	img, err := s.Get(t.Context(), store.HostID)
	must(t, err)
	after, err := os.Stat(img.Path)
	must(t, err)
	if !os.SameFile(before, after) || img.ID != store.HostID || img.Name != "host" ||
		!img.Created.Equal(first.Created) {
		t.Errorf("not adopted: %+v", img)
	}
	if bad := s.CheckImages(t.Context(), 0); bad != 0 {
		t.Error("the adopted image is taken for damaged")
	}
	if _, err := os.Stat(filepath.Join(old, "image.erofs")); err != nil {
		t.Errorf("the older program lost its image: %v", err)
	}
	must(t, s.Close())
	must(t, os.WriteFile(filepath.Join(host.Root, "usr/bin/new"), []byte("\x7fELF"), 0o755))
	s = open(t, store.Options{CacheDir: cache, Host: host})
	must(t, s.Prepare(t.Context(), nil))
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old directory is still there: %v", err)
	}
}

// TestAdoptDamaged meets older caches that can't be adopted. Host is made anew.
func TestAdoptDamaged(t *testing.T) {
	for name, spoil := range map[string]func(old string) error{
		"no manifest": func(old string) error { return os.Remove(filepath.Join(old, "template.json")) },
		"a bad manifest": func(old string) error {
			return os.WriteFile(filepath.Join(old, "template.json"), []byte("{"), 0o644)
		},
		"no image": func(old string) error { return os.Remove(filepath.Join(old, "image.erofs")) },
	} {
		t.Run(name, func(t *testing.T) {
			cache, host := t.TempDir(), smallHost(t)
			s := open(t, store.Options{CacheDir: cache, Host: host})
			first, err := s.Get(t.Context(), store.HostID)
			must(t, err)
			must(t, s.Close())
			must(t, spoil(age(t, first)))
			s = open(t, store.Options{CacheDir: cache, Host: host})
			img, err := s.Get(t.Context(), store.HostID)
			if err != nil || img.Created.Equal(first.Created) || img.Name != "host" {
				t.Errorf("%+v, %v", img, err)
			}
			if bad := s.CheckImages(t.Context(), 0); bad != 0 {
				t.Error("the new image is taken for damaged")
			}
		})
	}
}
