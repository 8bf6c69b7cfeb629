// Package image is the contract of templates: immutable root filesystems kept as
// EROFS images, which every tier can use.
//
// Package image/store implements it on a directory. An image comes from this
// machine's own toolchain (the built-in "base"), a directory, a tarball, an OCI
// layout, a docker-save archive or a registry; whatever the source, the result
// is one uncompressed EROFS file and a manifest. The manifest is written last
// and fsynced: no manifest, no template.
package image

import (
	"context"
	"io"
	"io/fs"
	"time"

	"github.com/carrel-dev/carrel"
)

// Base is the name of the built-in template made from this machine's toolchain.
const Base = "base"

// Sim is the name of the built-in template of the simulated tier, which needs no
// files: what stands for Base where there are no real processes.
const Sim = "sim"

// Image is a template that can be booted.
type Image struct {
	carrel.Template
	Path string // absolute path of the EROFS file
}

// Store keeps templates. All methods are safe for concurrent use. Names are 1–63
// characters of a–z, 0–9, '-', '_', '.', '/' and begin with a letter or digit.
type Store interface {
	// List returns all templates, by name.
	List(ctx context.Context) ([]Image, error)
	// Get finds one by ID or name, making the built-in ones on first use. A name is looked
	// for among the built-in ones, those of the caller's project and the public ones of the
	// default project, in this order. It checks nobody's rights: an ID finds any.
	Get(ctx context.Context, nameOrID string) (Image, error)
	// Import makes a template of the caller's project from an archive stream, and replaces
	// its one of the same name.
	Import(ctx context.Context, name string, archive io.Reader, progress func(carrel.Progress)) (Image, error)
	// ImportDir makes a template from a directory of this machine.
	ImportDir(ctx context.Context, name, dir string, progress func(carrel.Progress)) (Image, error)
	// Pull makes a template from an image in a registry.
	Pull(ctx context.Context, name, ref string, progress func(carrel.Progress)) (Image, error)
	// Files opens an image by the path of its EROFS file, or of a link to it, for reading
	// single files. Errors: NotFound, Invalid (no such image).
	Files(ctx context.Context, path string) (Files, error)
	// Update changes how one starts; its ID stays.
	Update(ctx context.Context, nameOrID string, u carrel.TemplateUpdate) (Image, error)
	// Delete removes one; the file goes when its last user has.
	Delete(ctx context.Context, nameOrID string) error
	Close() error
}

// Files is what an image holds, by path. Names are as in package io/fs: relative to
// the root, which is ".". No symbolic link is followed, in the middle of a name
// neither. It is for one goroutine. What is not there is fs.ErrNotExist, also where
// something in the middle of a name is no directory.
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
}
