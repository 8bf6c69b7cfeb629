package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image/stargz"
)

// maxJSON bounds a manifest or configuration.
const maxJSON = 8 << 20

// files is the place of an exported image's parts: a tree or a directory.
type files interface {
	// open opens a file. The error for a missing one is fs.ErrNotExist.
	open(name string) (io.ReadCloser, error)
}

type treeFiles struct{ t *Tree }

func (f treeFiles) open(name string) (io.ReadCloser, error) {
	r, err := f.t.open(name)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(r), nil
}

type rootFiles struct{ r *os.Root }

func (f rootFiles) open(name string) (io.ReadCloser, error) { return f.r.Open(name) }

// findImage looks for an exported image among files. It returns nil when there is none.
func findImage(f files) (*Source, string, error) {
	if isOCI(f) {
		src, err := ociImage(f)
		return src, "OCI layout", err
	}
	raw, err := read(f, "manifest.json")
	if err != nil {
		return nil, "", nil
	}
	var saved []savedImage
	if json.Unmarshal(raw, &saved) != nil || len(saved) == 0 || saved[0].Config == "" {
		return nil, "", nil // some other manifest.json
	}
	src, err := dockerImage(f, saved)
	return src, "docker archive", err
}

func read(f files, name string) ([]byte, error) {
	rc, err := f.open(name)
	if err != nil {
		return nil, err
	}
	defer rc.Close()
	return readAll(name, rc, maxJSON)
}

// isOCI reports whether files are an OCI layout.
func isOCI(f files) bool {
	raw, err := read(f, "oci-layout")
	var marker struct {
		Version string `json:"imageLayoutVersion"`
	}
	if err != nil || json.Unmarshal(raw, &marker) != nil || marker.Version == "" {
		return false
	}
	_, err = read(f, "index.json")
	return err == nil
}

// savedImage is one image in a docker-save archive's manifest.json.
type savedImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func dockerImage(f files, saved []savedImage) (*Source, error) {
	if len(saved) > 1 {
		var names []string
		for _, s := range saved {
			names = append(names, s.RepoTags...)
		}
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "archive",
			Err:  fmt.Errorf("it holds %d images: %s", len(saved), strings.Join(names, ", ")),
			Hint: "save one image at a time: docker save IMAGE"}
	}
	raw, err := read(f, saved[0].Config)
	if err != nil {
		return nil, missing(saved[0].Config, err)
	}
	src := &Source{}
	if src.Config, err = v1.ParseConfigFile(bytes.NewReader(raw)); err != nil {
		return nil, invalid("%s: %w", saved[0].Config, err)
	}
	if digest, _, err := v1.SHA256(bytes.NewReader(raw)); err == nil {
		src.Digest = digest.String() // docker's image ID
	}
	for _, name := range saved[0].Layers {
		src.Layers = append(src.Layers, Layer{Open: func(context.Context) (io.ReadCloser, error) {
			rc, err := f.open(path.Clean(name))
			if err != nil {
				return nil, missing(name, err)
			}
			return rc, nil
		}})
	}
	return src, nil
}

func missing(name string, err error) error {
	var ce *carrel.Error
	if errors.As(err, &ce) {
		return err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return invalid("%s is missing from the archive", name)
	}
	return invalid("%s: %w", name, err)
}

// ociImage finds the image for this machine in an OCI layout.
func ociImage(f files) (*Source, error) {
	raw, err := read(f, "index.json")
	if err != nil {
		return nil, missing("index.json", err)
	}
	manifest, digest, err := chooseManifest(f, "index.json", raw, 0)
	if err != nil {
		return nil, err
	}
	rawConfig, err := blob(f, manifest.Config.Digest)
	if err != nil {
		return nil, err
	}
	src := &Source{Digest: digest.String()}
	if src.Config, err = v1.ParseConfigFile(bytes.NewReader(rawConfig)); err != nil {
		return nil, invalid("the configuration %s: %w", manifest.Config.Digest, err)
	}
	for _, d := range manifest.Layers {
		name, err := blobName(d.Digest)
		if err != nil {
			return nil, err
		}
		open := func(context.Context) (io.ReadCloser, error) {
			rc, err := f.open(name)
			if err != nil {
				return nil, missing(name, err)
			}
			return rc, nil
		}
		src.Layers = append(src.Layers, Layer{Digest: d.Digest, Open: open,
			Stargz: d.Annotations[stargz.Annotation] != ""})
	}
	return src, nil
}

// chooseManifest follows an index, and indexes inside it, to the one manifest for this machine.
func chooseManifest(f files, name string, raw []byte, depth int) (*v1.Manifest, v1.Hash, error) {
	const maxDepth = 4
	if depth > maxDepth {
		return nil, v1.Hash{}, invalid("indexes nested more than %d deep", maxDepth)
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, v1.Hash{}, invalid("%s: %w", name, err)
	}
	d, err := ChoosePlatform(index.Manifests)
	if err != nil {
		return nil, v1.Hash{}, err
	}
	raw, err = blob(f, d.Digest)
	if err != nil {
		return nil, v1.Hash{}, err
	}
	if d.MediaType.IsIndex() {
		return chooseManifest(f, d.Digest.String(), raw, depth+1)
	}
	m, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, v1.Hash{}, invalid("the manifest %s: %w", d.Digest, err)
	}
	return m, d.Digest, nil
}

// ChoosePlatform picks the entry of an index that is for this machine.
func ChoosePlatform(all []v1.Descriptor) (v1.Descriptor, error) {
	var fits []v1.Descriptor
	var others []string
	for _, d := range all {
		switch p := d.Platform; {
		case !d.MediaType.IsImage() && !d.MediaType.IsIndex() && d.MediaType != "":
		case p == nil || p.OS == "" && p.Architecture == "" || p.OS == "linux" && p.Architecture == runtime.GOARCH:
			fits = append(fits, d)
		case p.OS == "unknown": // an attestation, no image
		default:
			others = append(others, p.String())
		}
	}
	if len(fits) == 0 {
		err := fmt.Errorf("no image for linux/%s, only for: %s", runtime.GOARCH, strings.Join(others, ", "))
		if len(others) == 0 {
			err = errors.New("an index without images")
		}
		return v1.Descriptor{}, &carrel.Error{Op: op, Kind: carrel.Unsupported, Field: "archive", Err: err,
			Hint: "this machine needs an image for linux/" + runtime.GOARCH}
	}
	best := fits[0]
	names := map[v1.Hash]string{}
	for _, d := range fits {
		if best.Platform != nil && best.Platform.Variant != "" && d.Platform != nil && d.Platform.Variant == "" {
			best = d
		}
		if d.Platform == nil {
			names[d.Digest] = d.Annotations["org.opencontainers.image.ref.name"]
		}
	}
	if len(names) > 1 {
		return v1.Descriptor{}, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "archive",
			Err: fmt.Errorf("it holds %d images", len(names)), Hint: "export one image at a time"}
	}
	return best, nil
}

func blobName(h v1.Hash) (string, error) {
	// ParseIndexManifest and ParseManifest accept only well-formed hashes, but a missing hash stays
	// empty.
	if h.Algorithm == "" || strings.ContainsAny(h.Algorithm+h.Hex, "/.") {
		return "", invalid("a part without a digest")
	}
	return "blobs/" + h.Algorithm + "/" + h.Hex, nil
}

// blob reads a small blob and checks its digest.
func blob(f files, h v1.Hash) ([]byte, error) {
	name, err := blobName(h)
	if err != nil {
		return nil, err
	}
	raw, err := read(f, name)
	if err != nil {
		return nil, missing(name, err)
	}
	got, _, err := v1.SHA256(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	if h.Algorithm != "sha256" || got != h {
		return nil, invalid("the contents of %s do not match its name", name)
	}
	return raw, nil
}
