// Package apart lets a copy of a data directory use its original's store of blobs without changing
// anything of the original's.
//
// The copy has a part of its own below the prefix "copies". It writes, lists and deletes there
// only. It reads a blob from its own part or, if there is none, from the original's. So its garbage
// collection can't see the original's blobs, let alone delete one.
//
// The original does not know the copy. If it deletes a blob, the copy can't read it any more.
package apart

import (
	"context"
	"io"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// Blobs is a [snapshot.Blobs] with a part of its own.
type Blobs struct {
	snapshot.Blobs
	prefix string   // of its own part
	others []string // prefixes to read from, the original's last
}

var _ snapshot.Blobs = (*Blobs)(nil)

// New returns the part with the first name of parts. The others are the parts of the copies between
// the original and this one. Its Close closes under.
func New(under snapshot.Blobs, parts []string) *Blobs {
	b := &Blobs{Blobs: under, prefix: prefixOf(parts[0])}
	for _, name := range parts[1:] {
		b.others = append(b.others, prefixOf(name))
	}
	b.others = append(b.others, "")
	return b
}

func prefixOf(part string) string { return "copies/" + part + "/" }

// Put implements snapshot.Blobs.
func (b *Blobs) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	return b.Blobs.Put(ctx, b.prefix+name, r, size)
}

// Get implements snapshot.Blobs.
func (b *Blobs) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	rc, err := b.Blobs.Get(ctx, b.prefix+name, offset, length)
	for _, prefix := range b.others {
		if carrel.KindOf(err) != carrel.NotFound {
			break
		}
		rc, err = b.Blobs.Get(ctx, prefix+name, offset, length)
	}
	return rc, err
}

// List implements snapshot.Blobs.
func (b *Blobs) List(ctx context.Context, prefix string, fn func(snapshot.BlobInfo) error) error {
	return b.Blobs.List(ctx, b.prefix+prefix, func(i snapshot.BlobInfo) error {
		i.Name = strings.TrimPrefix(i.Name, b.prefix)
		return fn(i)
	})
}

// Delete implements snapshot.Blobs.
func (b *Blobs) Delete(ctx context.Context, name string) error {
	return b.Blobs.Delete(ctx, b.prefix+name)
}
