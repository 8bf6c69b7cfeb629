package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// Images are the root filesystems and guests that snapshots lie on. Other machines get them from
// the shared blobs, too:
//
//	images/<sum>             a packed manifest with one file; the content is in packs, like any other
//	imageusers/<sum>/<user>  a mark of what needs the image: a snapshot's ID, or a template's
//
// The name of an image is the SHA-256 of its content, so it is stored once, and equal parts of
// several images are stored once, too. A GC deletes an image without users. The marks of snapshots
// go with their manifests.

// imageName is the name of the only file in an image's manifest.
const imageName = "image"

func imageBlob(sum string) string           { return "images/" + sum }
func imageUserBlob(sum, user string) string { return "imageusers/" + sum + "/" + user }

// doomedImage is the mark of an image that a GC deletes, as doomedBlob.
func doomedImage(sum string) string { return "doomedimages/" + sum }

// imageIDOf is the ID in the manifest of an image. No snapshot has one of this form.
func imageIDOf(sum string) carrel.SnapshotID { return carrel.SnapshotID("image-" + sum) }

// checkImage refuses what is not the name of an image.
func checkImage(op, sum string) error {
	if b, err := hex.DecodeString(sum); err != nil || len(b) != sha256.Size || strings.ToLower(sum) != sum {
		return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "image", Err: fmt.Errorf("%.80q is not the SHA-256 of an image", sum)}
	}
	return nil
}

// PutImage implements [snapshot.Mover].
func (s Moving) PutImage(ctx context.Context, sum, path, user string) error {
	const op = "publish image"
	if err := checkImage(op, sum); err != nil {
		return err
	}
	return classify(op, "", s.putImage(ctx, sum, path, user))
}

func (s Moving) putImage(ctx context.Context, sum, path, user string) error {
	if err := s.needShared(); err != nil {
		return err
	}
	// The mark comes first. A GC that does not see it is seen by its own mark.
	if err := s.putMark(ctx, imageUserBlob(sum, user)); err != nil {
		return err
	}
	_, doomed, err := s.mark(ctx, doomedImage(sum))
	if err != nil {
		return err
	}
	if !doomed {
		_, err := s.imageManifest(ctx, sum)
		if carrel.KindOf(err) != carrel.NotFound {
			return err
		}
	}
	if err := s.lockBackground(ctx); err != nil {
		return err
	}
	defer func() { <-s.bg }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	return s.packImage(ctx, sum, path)
}

// packImage packs an image and publishes its manifest. The caller holds bg.
func (s Moving) packImage(ctx context.Context, sum, path string) error {
	m, err := s.describeImage(ctx, sum, path)
	if err != nil {
		return err
	}
	avoid, err := s.deadPacks(ctx)
	if err != nil {
		return err
	}
	for {
		out, b, err := s.packFiles(ctx, m, filepath.Dir(path), filepath.Base(path), avoid)
		if err != nil {
			return err
		}
		if err := putBytes(ctx, s.opts.Blobs, imageBlob(sum), b); err != nil {
			return err
		}
		dead, err := s.deadPacks(ctx)
		if err != nil {
			return err
		}
		if !usesAny(out, dead) {
			return nil
		}
		avoid = dead
	}
}

// describeImage makes the manifest of an image. It reads all of it.
func (s Moving) describeImage(ctx context.Context, sum, path string) (snapshot.Manifest, error) {
	f, err := os.Open(path)
	if err != nil {
		return snapshot.Manifest{}, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return snapshot.Manifest{}, err
	}
	sf := &sumFile{f: f, size: fi.Size()}
	if err := sumAll(ctx, []*sumFile{sf}, s.opts.Workers); err != nil {
		return snapshot.Manifest{}, err
	}
	return snapshot.Manifest{Version: snapshot.ManifestVersion, ID: imageIDOf(sum), Created: time.Now().UTC(), Size: sf.size,
		Files: []snapshot.File{{Name: imageName, Size: sf.size, Sum: encodeSums(sf.sums)}}}, nil
}

// imageManifest reads the packed manifest of an image. Errors: NotFound, Invalid.
func (s Moving) imageManifest(ctx context.Context, sum string) (*packed, error) {
	b, err := s.readBlob(ctx, imageBlob(sum))
	if carrel.KindOf(err) == carrel.NotFound {
		return nil, &carrel.Error{Kind: carrel.NotFound, Field: "image", Err: fmt.Errorf("image %s is not in the snapshot store", sum),
			Hint: "publish the sandbox or the template again on a machine that has it"}
	} else if err != nil {
		return nil, err
	}
	p, err := parsePacked(b, imageIDOf(sum))
	if err == nil && (len(p.Manifest.Files) != 1 || p.Manifest.Files[0].Name != imageName) {
		err = invalid("the manifest of image %s has other files", sum)
	}
	return p, err
}

// GetImage implements [snapshot.Mover].
func (s Moving) GetImage(ctx context.Context, sum, path string) error {
	const op = "fetch image"
	if err := checkImage(op, sum); err != nil {
		return err
	}
	return classify(op, "", s.getImage(ctx, sum, path))
}

func (s Moving) getImage(ctx context.Context, sum, path string) error {
	if err := s.needShared(); err != nil {
		return err
	}
	p, err := s.imageManifest(ctx, sum)
	if err != nil {
		return err
	}
	if err := s.makeRoom("fetch image", p.Manifest.Size); err != nil {
		return err
	}
	dir, done, err := s.fillDir()
	if err != nil {
		return err
	}
	defer done()
	if err := s.claim(filepath.Base(dir), stored(p)); err != nil {
		return err
	}
	if err := s.unpack(ctx, p, filepath.Join(dir, filesDir)); err != nil {
		if lost, ok := errors.AsType[*missingPack](err); ok {
			err = invalid("content of image %s is missing: %w", sum, lost)
		}
		return err
	}
	got := filepath.Join(dir, filesDir, imageName)
	if has, err := image.SHA256(ctx, got); err != nil {
		return err
	} else if has != sum {
		return invalid("the content of image %s has the SHA-256 %s", sum, has)
	}
	// Sentries get it as an open file.
	if err := os.Chmod(got, 0o644); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return moveFile(got, path)
}

// moveFile makes a file durable and gives it another name, also on another filesystem. The name
// appears when all of the content is there.
func moveFile(from, to string) error {
	err := syncFile(from)
	if err == nil {
		err = os.Rename(from, to)
	}
	if errors.Is(err, unix.EXDEV) {
		err = copyFile(from, to)
	}
	if err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(to))
}

// copyFile is moveFile to another filesystem.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(filepath.Dir(to), ".part-")
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	err = errors.Join(err, out.Chmod(0o644), out.Sync(), out.Close())
	if err == nil {
		err = os.Rename(out.Name(), to)
	}
	if err != nil {
		_ = os.Remove(out.Name())
	}
	return err
}

// syncFile makes the content of a file durable.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// markImages marks the content of all images.
func (g *collector) markImages(ctx context.Context) error {
	g.images = map[string]snapshot.BlobInfo{}
	if !g.s.opts.Shared {
		return nil
	}
	err := g.s.opts.Blobs.List(ctx, imageBlob(""), func(b snapshot.BlobInfo) error {
		g.images[strings.TrimPrefix(b.Name, imageBlob(""))] = b
		return nil
	})
	if err != nil {
		return err
	}
	for sum := range g.images {
		p, err := g.s.imageManifest(ctx, sum)
		switch kind := carrel.KindOf(err); {
		case kind == carrel.NotFound: // it has been deleted
		case kind == carrel.Invalid:
			g.bad = fmt.Errorf("read image %s: %w", sum, err)
		case err != nil:
			return err
		default:
			g.use(p, true)
		}
	}
	return nil
}

// removeImages deletes the images that nothing uses. Their packs go with the next collection. A
// user's mark may come before the manifest of the snapshot, so young marks count.
func (g *collector) removeImages(ctx context.Context) error {
	s := g.s
	used, dead := map[string]bool{}, []string{}
	if len(g.images) == 0 {
		return nil
	}
	err := s.opts.Blobs.List(ctx, "imageusers/", func(b snapshot.BlobInfo) error {
		sum, user, _ := strings.Cut(strings.TrimPrefix(b.Name, "imageusers/"), "/")
		if _, known := g.manifests[carrel.SnapshotID(user)]; known || time.Since(b.Modified) < s.opts.Grace || !isSnapshot(user) {
			used[sum] = true
		} else {
			dead = append(dead, b.Name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range dead {
		if err := s.opts.Blobs.Delete(ctx, name); err != nil {
			return err
		}
	}
	for sum, b := range g.images {
		if used[sum] || time.Since(b.Modified) < s.opts.Grace {
			continue
		}
		if err := g.removeImage(ctx, sum, b.Size); err != nil {
			return err
		}
	}
	return nil
}

// removeImage deletes one image, unless it has got a user meanwhile.
func (g *collector) removeImage(ctx context.Context, sum string, size int64) error {
	s := g.s
	if err := s.putMark(ctx, doomedImage(sum)); err != nil {
		return err
	}
	used := false
	err := s.opts.Blobs.List(ctx, imageUserBlob(sum, ""), func(snapshot.BlobInfo) error {
		used = true
		return nil
	})
	if err == nil && !used {
		if err = s.opts.Blobs.Delete(ctx, imageBlob(sum)); err == nil {
			g.out.Freed += size
		}
	}
	return errors.Join(err, s.opts.Blobs.Delete(ctx, doomedImage(sum)))
}

// isSnapshot reports whether the user of an image is a snapshot.
func isSnapshot(user string) bool {
	_, err := carrel.ParseSnapshotID(user)
	return err == nil
}
