// Package image is the contract of templates: immutable root filesystems kept as EROFS images,
// which every tier can use.
//
// Package image/store implements it on a directory. An image comes from this machine's own
// toolchain (the built-in "host"), a directory, a tarball, an OCI layout, a docker-save archive or
// a registry. The result is always one uncompressed EROFS file and a manifest. The manifest is
// written last and fsynced: no manifest, no template.
package image

import (
	"context"
	"io"
	"io/fs"
	"time"

	"github.com/carrel-dev/carrel"
)

// Base is the name of the built-in template that sandboxes begin from when nobody names another. It
// is made of Debian's packages, but only on request, because it is big. Until then Host stands in
// for it.
const Base = "base"

// Host is the name of the built-in template made from this machine's toolchain.
const Host = "host"

// Sim is the name of the built-in template of the simulated tier, which needs no files. It takes
// the place of Base where there are no real processes.
const Sim = "sim"

// Kernel is the name by which the kernel of virtual machines is got, as if it were a built-in
// template. It is none: no sandbox begins from it.
const Kernel = "kernel"

// HiddenMark begins the name of an image that List does not show, such as a base of builds. No
// caller can write such a name: package service refuses it.
const HiddenMark = "~"

// DraftMark begins the hidden name of an image whose build is not finished. Its build removes it,
// and a new store removes what an earlier one left of these.
const DraftMark = HiddenMark + "build-"

// IdentityFiles stay as the base has them when a sandbox's files become an image: the guest writes
// the sandbox's own name into them, and its own marks.
var IdentityFiles = []string{"etc/hostname", "etc/hosts", "etc/resolv.conf", "run", ".carrel",
	"dev", "proc", "sys"}

// Image is a template that can be booted.
type Image struct {
	carrel.Template
	Path string // absolute path of the EROFS file
	// View is "" or, for an image that is still being filled, the path at which it can be read as if
	// it were whole. The file at Path then lacks contents, and its superblock.
	View string
	// Lent says that the image goes away after the sandbox it was made for. No copy or link of it
	// is kept, and no sandbox is made ahead.
	Lent bool
}

// Store keeps templates. All methods are safe for concurrent use. Names are 1–63 characters of a–z,
// 0–9, '-', '_', '.', '/' and begin with a letter or digit. A store checks no rights, and does not
// decide which template a caller means by a name: package service does.
type Store interface {
	// List returns all templates, by name.
	List(ctx context.Context) ([]Image, error)
	// ByID describes the template with an ID, or with a lasting one. As long as this store is open,
	// it also finds a template whose name another one has taken. It makes none.
	ByID(id string) (t carrel.Template, ok bool)
	// Named describes the template with a name in a project. A built-in template has its name in
	// every project. A template's tag follows its name, or its lasting ID, after a colon; the ID of
	// a build may stand in place of the tag. Named makes none.
	Named(project, name string) (t carrel.Template, ok bool)
	// Get returns the template with an ID, ready to boot. It makes a built-in template on first
	// use, but not Base: while that has no image of its own, Get returns the one of Host with the ID
	// of Host, the name of Base, and StandIn set. Error: NotFound.
	Get(ctx context.Context, id string) (Image, error)
	// Boot is Get for who makes a sandbox: it also returns an image that is still being filled, with
	// its View. Get's error for such an image is Conflict, or Unavailable if the fill failed.
	Boot(ctx context.Context, id string) (Image, error)
	// Import makes a template of the caller's project from an archive stream. It replaces the
	// project's template of the same name.
	Import(ctx context.Context, name string, archive io.Reader, progress func(carrel.Progress)) (Image, error)
	// ImportDir makes a template from a directory of this machine.
	ImportDir(ctx context.Context, name, dir string, progress func(carrel.Progress)) (Image, error)
	// Pull makes a template from an image in a registry.
	Pull(ctx context.Context, name string, opts carrel.PullOptions,
		progress func(carrel.Progress)) (Image, error)
	// Push sends the template with an ID to a registry. Errors: as carrel.Registries.
	Push(ctx context.Context, id string, opts carrel.PushOptions,
		progress func(carrel.Progress)) (carrel.Pushed, error)
	// Compose makes a template of the image at a path and changes to it: a tar stream in the form
	// of package driver's SnapshotFiles, or nil. Files whose names are in skip, and below, stay as
	// they are in base. t holds everything about the template but ID, Created and Size. The new
	// template takes the name, in its project and with its tag.
	Compose(ctx context.Context, t carrel.Template, base string, changes io.Reader,
		skip []string) (Image, error)
	// Link makes a template that has the image of another one.
	Link(ctx context.Context, id string, t carrel.Template) (Image, error)
	// Rename gives an image the name, tag and origin of t. Its ID stays.
	Rename(ctx context.Context, id string, t carrel.Template) (Image, error)
	// CheckName checks a name for a new template. Errors: Invalid, Forbidden.
	CheckName(op, name string) error
	// Keyed finds the newest image of a project with a Key.
	Keyed(project, key string) (Image, bool)
	// WithContent finds the newest finished image of a project whose Key is of [TwoKeys] and has a
	// content.
	WithContent(project, content string) (Image, bool)
	// SetBuild notes that an image is also the result of a later build.
	SetBuild(ctx context.Context, id, build string) (Image, error)
	// Tagged returns the images that the tags of a template point to, by its lasting ID.
	Tagged(of string) []Image
	// LastingID returns the lasting ID of a project's template by its name or by that ID. It also
	// knows a template that has no default tag, so that [Store.Named] does not. "" is none.
	LastingID(project, nameOrID string) string
	// Untag removes a tag of a template. Error: NotFound.
	Untag(ctx context.Context, of, tag string) error
	// FindBase is PullBase, but pulls nothing: found is false for an image that the project does not
	// have.
	FindBase(ctx context.Context, opts carrel.PullOptions) (img Image, found bool, err error)
	// PullBase returns the image in a registry as a base for builds of the caller's project. It
	// asks the registry each time, and pulls only an image that the project does not have.
	PullBase(ctx context.Context, opts carrel.PullOptions, progress func(carrel.Progress)) (Image,
		error)
	// Hold keeps an image from Collect until release. ok is false for an image that is gone.
	Hold(id string) (release func(), ok bool)
	// Collectable returns the bases of builds that nobody holds.
	Collectable() []Image
	// Collect removes those of them for which may returns true, and returns what it removed. Nobody
	// can get hold of an image in between. may must not call the store.
	Collect(ctx context.Context, may func(Image) bool) ([]Image, error)
	// Thin removes the files of images that nobody has used for some time and that can be made again
	// from another image and the difference. Get makes such an image again. It returns what it made
	// thin; the Size is what that saved.
	Thin(ctx context.Context, opts ThinOptions) ([]Image, error)
	// Make makes the built-in template with a name ahead of its first use. Errors: NotFound,
	// Unavailable (its parts can't be had).
	Make(ctx context.Context, name string, progress func(carrel.Progress)) (Image, error)
	// Files opens an image for reading single files. path is its EROFS file or a link to it.
	// Errors: NotFound, Invalid (no such image).
	Files(ctx context.Context, path string) (Files, error)
	// Update changes how the template with an ID starts; its ID stays. Errors: NotFound, Forbidden
	// (a built-in template), Invalid.
	Update(ctx context.Context, id string, u carrel.TemplateUpdate) (Image, error)
	// Delete removes the template with an ID. Its file goes when its last user has closed it.
	// Errors: NotFound, Forbidden (a built-in template).
	Delete(ctx context.Context, id string) error
	Close() error
}

// Arrivals is an optional part of a Store: templates come to it from other machines.
type Arrivals interface {
	// Arrive makes a template that another machine made, with its ID, name, tag and time. fetch puts
	// its image at a path. sum is the SHA-256 of the image, in hexadecimal. It is idempotent. Errors:
	// Invalid, AlreadyExists (a newer template has the name), Conflict (another one has the ID), and
	// those of fetch.
	Arrive(ctx context.Context, t carrel.Template, sum string,
		fetch func(path string) error) (Image, error)
}

// ThinOptions says which images Store.Thin may make thin.
type ThinOptions struct {
	Unused time.Duration // those that were not used for so long
	// Budget is how many bytes all images that can become thin may have together; 0 is no bound. If
	// they have more, those that were used first become thin, but none that was used in the last
	// Young.
	Budget int64
	Young  time.Duration
	May    func(Image) bool // nil is all; it must not call the store
}

// Files is the content of an image, by path. Names are as in package io/fs: relative to the root,
// which is ".". Symbolic links are never followed, not even in the middle of a name. A Files is for
// one goroutine. The error for a missing file is fs.ErrNotExist, also when an inner part of the
// name is no directory.
type Files interface {
	// Lstat describes a file.
	Lstat(name string) (File, error)
	// List returns the names in a directory, in no order.
	List(name string) ([]string, error)
	// Open reads a regular file.
	Open(name string) (io.ReadCloser, error)
	Close() error
}

// File describes one file of an image.
type File struct {
	Mode         fs.FileMode
	UID, GID     uint32
	Size         int64
	Modified     time.Time
	Target       string // of a symbolic link
	Major, Minor uint32 // of a device
	Inode        uint64 // two names of one file have the same
	Links        int    // how many names it has
}
