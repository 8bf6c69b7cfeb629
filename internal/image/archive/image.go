package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/image/hostbase"
	"github.com/carrel-dev/carrel/internal/image/stargz"
)

// Source is an image as a list of layers.
type Source struct {
	Config *v1.ConfigFile
	Digest string // of its manifest; may be ""
	Layers []Layer
}

// Layer is one layer. In a Source the lowest layer comes first.
type Layer struct {
	// Digest is the hash of the stream as it is; zero when not known.
	Digest v1.Hash
	// Open returns the stream, which may be compressed.
	Open func(ctx context.Context) (io.ReadCloser, error)
	// Stargz says that the stream ends with a table of contents, which is no file of the image.
	Stargz bool
	// TOC is the layer's table of contents, for [Importer.Late]. With it, the layer is not opened.
	TOC *stargz.TOC
	// Chunk fetches a chunk of a layer with a TOC, and checks it.
	Chunk func(ctx context.Context, c stargz.Chunk) ([]byte, error)
}

// Result is a template's tree and its source's settings for running it.
type Result struct {
	Format  string // "root filesystem", "OCI layout", "docker archive", "directory", "registry"
	Digest  string
	Env     map[string]string
	User    string
	WorkDir string
	Start   []string
	Entry   int // words of Start that are the entrypoint
	OnBuild []string
	Labels  map[string]string
}

// Image puts an image's layers on top of each other and completes the tree.
func (t *Tree) Image(ctx context.Context, src *Source, format string) (_ *Result, err error) {
	cfg := src.Config
	if cfg.OS != "" && cfg.OS != "linux" || cfg.Architecture != "" && cfg.Architecture != runtime.GOARCH {
		return nil, &carrel.Error{Op: op, Kind: carrel.Unsupported, Field: "archive",
			Err:  fmt.Errorf("the image is for %s/%s, this machine is linux/%s", cfg.OS, cfg.Architecture, runtime.GOARCH),
			Hint: "export or pull the image for platform linux/" + runtime.GOARCH}
	}
	if n := len(cfg.RootFS.DiffIDs); n != len(src.Layers) {
		return nil, invalid("the image's configuration names %d layers, its manifest %d", n, len(src.Layers))
	}
	for i, l := range src.Layers {
		if t.late != nil && l.TOC != nil {
			err = t.addLater(ctx, i, l)
		} else {
			err = t.addLayer(ctx, l, cfg.RootFS.DiffIDs[i])
		}
		if err != nil {
			return nil, fmt.Errorf("layer %d of %d: %w", i+1, len(src.Layers), err)
		}
	}
	t.touched = nil
	res := &Result{Format: format, Digest: src.Digest, Env: map[string]string{},
		WorkDir: cfg.Config.WorkingDir, Labels: cfg.Config.Labels,
		Start: append(append([]string(nil), cfg.Config.Entrypoint...), cfg.Config.Cmd...),
		Entry: len(cfg.Config.Entrypoint), OnBuild: cfg.Config.OnBuild}
	for _, kv := range cfg.Config.Env {
		if k, v, ok := strings.Cut(kv, "="); ok && k != "" {
			res.Env[k] = v
		}
	}
	if err := t.complete(); err != nil {
		return nil, err
	}
	res.User, err = t.user(cfg.Config.User)
	return res, err
}

// addLayer adds one layer and checks both its hashes.
func (t *Tree) addLayer(ctx context.Context, l Layer, diffID v1.Hash) error {
	rc, err := l.Open(ctx)
	if err != nil {
		return err
	}
	defer rc.Close()
	packed := &hashReader{r: rc, h: sha256.New()}
	plain := sha256.New()
	t.stargz = l.Stargz
	if err := t.tar(ctx, packed, true, plain); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, packed); err != nil {
		return streamError(sourceError{err})
	}
	if err := sameHash("digest", l.Digest, packed.h); err != nil {
		return err
	}
	return sameHash("diff ID", diffID, plain)
}

type hashReader struct {
	r io.Reader
	h hash.Hash
}

func (h *hashReader) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	h.h.Write(p[:n])
	return n, err
}

func sameHash(what string, want v1.Hash, got hash.Hash) error {
	if want == (v1.Hash{}) {
		return nil
	}
	if want.Algorithm != "sha256" {
		return invalid("the %s is of kind %q: only sha256 is known", what, want.Algorithm)
	}
	if hex.EncodeToString(got.Sum(nil)) != want.Hex {
		return invalid("the layer's contents do not match its %s %s", what, want)
	}
	return nil
}

// complete makes the objects that every sandbox needs and an image may lack: the mount points, and
// the files that describe the network.
func (t *Tree) complete() error {
	t.limits.MaxEntries += 100 // these are ours
	for _, d := range []struct {
		path string
		perm fs.FileMode
		own  bool // mount point: must be the root's own directory, not the image's entry
	}{
		{"proc", 0o555, true}, {"sys", 0o555, true}, {"dev", 0o755, true}, {strings.TrimPrefix(driver.GuestMount, "/"), 0o755, true},
		{"run", 0o755, false}, {"tmp", 0o777 | fs.ModeSticky, false}, {"etc", 0o755, false}, {"root", 0o700, false},
	} {
		if c := t.Root.Child(d.path); d.own && c != nil && !c.IsDir() {
			t.Root.Remove(d.path).Release(t.w.Discard)
		}
		if t.find(d.path) != nil {
			continue
		}
		dir, err := t.dir([]string{d.path}, true)
		if err != nil {
			return invalid("/%s can't be a directory: %w", d.path, err)
		}
		dir.Mode = fs.ModeDir | d.perm
	}
	etc := t.find("etc")
	if !etc.IsDir() {
		return invalid("/etc is not a directory")
	}
	if _, err := t.w.AddFile(etc, "resolv.conf", 0o644, []byte(hostbase.Resolv)); err != nil {
		return Classify(op, err)
	}
	if h := etc.Child("hosts"); h == nil || h.Mode.IsRegular() && h.Data.Size == 0 {
		if _, err := t.w.AddFile(etc, "hosts", 0o644, []byte(hostbase.Hosts)); err != nil {
			return Classify(op, err)
		}
	}
	return nil
}

// rootFS completes a tree that already is a root filesystem.
func (t *Tree) rootFS(format string) (*Result, error) {
	if t.Root.Len() == 0 {
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "archive", Err: errors.New("it holds no files"),
			Hint: "give a root filesystem: a directory with bin, etc, usr, …"}
	}
	if err := t.complete(); err != nil {
		return nil, err
	}
	user, err := t.user("")
	return &Result{Format: format, User: user}, err
}
