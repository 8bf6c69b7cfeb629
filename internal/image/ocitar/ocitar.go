// Package ocitar writes an image of a few files as one tarball: an OCI image layout. It also
// contains the index that "docker load" of older versions needs.
//
// The same files give the same bytes: entries are in the caller's order, the owner is root, and all
// times come from the caller.
package ocitar

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// File is one file of the image. The directories above it are made.
type File struct {
	Name   string      // absolute, without ".."
	Mode   fs.FileMode // permissions only; 0 means 0644
	Source string      // a file of this machine, or "" for Data
	Data   []byte
	Link   string // if set, the target of a symbolic link
}

// Image describes the image to write.
type Image struct {
	Ref          string // its name when it is loaded, such as carrel:1.2.3
	Architecture string // Go's name of it; the system is Linux
	Created      time.Time
	Config       v1.Config
	Files        []File
}

// Write writes the image to w. Errors name the file that can't be read or has a bad name.
func Write(w io.Writer, img Image) error {
	layer, err := layerOf(img)
	if err != nil {
		return err
	}
	built, err := assemble(img, layer)
	if err != nil {
		return err
	}
	return writeLayout(w, img, built)
}

// assemble makes the image from its one layer.
func assemble(img Image, layer v1.Layer) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	built, err := mutate.Append(base, mutate.Addendum{
		Layer: layer, History: v1.History{Created: v1.Time{Time: img.Created}, CreatedBy: "ocitar"},
	})
	if err != nil {
		return nil, err
	}
	file, err := built.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", img.Architecture, img.Config
	file.Created = v1.Time{Time: img.Created}
	return mutate.ConfigFile(built, file)
}

// layerOf packs the files into a layer. The layer is kept compressed in memory.
func layerOf(img Image) (v1.Layer, error) {
	var packed bytes.Buffer
	tw := tar.NewWriter(&packed)
	seen := map[string]bool{"/": true}
	for _, f := range img.Files {
		if !strings.HasPrefix(f.Name, "/") || path.Clean(f.Name) != f.Name {
			return nil, fmt.Errorf("%q: want an absolute path without dots", f.Name)
		}
		if err := addParents(tw, f.Name, img.Created, seen); err != nil {
			return nil, err
		}
		if err := addFile(tw, f, img.Created); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	if err := tw.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(packed.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}

// addParents adds the missing directories above a file to the layer.
func addParents(tw *tar.Writer, name string, when time.Time, seen map[string]bool) error {
	dir := path.Dir(name)
	if seen[dir] {
		return nil
	}
	if err := addParents(tw, dir, when, seen); err != nil {
		return err
	}
	seen[dir] = true
	return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir[1:] + "/", Mode: 0o755, ModTime: when, Format: tar.FormatPAX})
}

// addFile adds one file.
func addFile(tw *tar.Writer, f File, when time.Time) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: f.Name[1:], Mode: int64(f.Mode.Perm()), ModTime: when, Format: tar.FormatPAX}
	if h.Mode == 0 {
		h.Mode = 0o644
	}
	if f.Link != "" {
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.Link, 0o777
		return tw.WriteHeader(h)
	}
	data := f.Data
	if f.Source != "" {
		var err error
		if data, err = os.ReadFile(f.Source); err != nil {
			return err
		}
	}
	h.Size = int64(len(data))
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	_, err := tw.Write(data)
	return err
}

// writeLayout writes the image's parts and their two indexes.
func writeLayout(w io.Writer, img Image, built v1.Image) error {
	manifest, err := built.RawManifest()
	if err != nil {
		return err
	}
	config, err := built.RawConfigFile()
	if err != nil {
		return err
	}
	layers, err := built.Layers()
	if err != nil {
		return err
	}
	digest, err := built.Digest()
	if err != nil {
		return err
	}
	configDigest, err := built.ConfigName()
	if err != nil {
		return err
	}
	parts := []part{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{blobName(configDigest), config}, {blobName(digest), manifest},
	}
	layerNames := make([]string, len(layers))
	for i, l := range layers {
		p, err := layerPart(l)
		if err != nil {
			return err
		}
		parts, layerNames[i] = append(parts, p), p.name
	}
	index, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{{
		MediaType: types.OCIManifestSchema1, Digest: digest, Size: int64(len(manifest)),
		Platform:    &v1.Platform{OS: "linux", Architecture: img.Architecture},
		Annotations: map[string]string{"org.opencontainers.image.ref.name": img.Ref, "io.containerd.image.name": img.Ref},
	}}})
	if err != nil {
		return err
	}
	older, err := json.Marshal([]map[string]any{{"Config": blobName(configDigest), "RepoTags": []string{img.Ref}, "Layers": layerNames}})
	if err != nil {
		return err
	}
	parts = append(parts, part{"index.json", index}, part{"manifest.json", older})
	return writeParts(w, parts, img.Created)
}

// part is a file of the tarball.
type part struct {
	name string
	data []byte
}

// blobName is the path in a layout of the blob with this digest.
func blobName(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }

// layerPart returns a layer in the layout's form, compressed.
func layerPart(l v1.Layer) (part, error) {
	digest, err := l.Digest()
	if err != nil {
		return part{}, err
	}
	r, err := l.Compressed()
	if err != nil {
		return part{}, err
	}
	defer func() { _ = r.Close() }()
	data, err := io.ReadAll(r)
	return part{blobName(digest), data}, err
}

// writeParts writes the tarball.
func writeParts(w io.Writer, parts []part, when time.Time) error {
	tw := tar.NewWriter(w)
	for _, p := range parts {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: p.name, Mode: 0o644, Size: int64(len(p.data)), ModTime: when}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if _, err := tw.Write(p.data); err != nil {
			return err
		}
	}
	return tw.Close()
}
