package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/carrel-dev/carrel/internal/image/ocitar"
)

// item is a file of an archive.
type item struct {
	name   string // in the archive
	source string // on this machine
	mode   fs.FileMode
}

// writeManuals writes the manual pages and the shells' completions. They come from this machine's
// build.
func (r *release) writeManuals(ctx context.Context) error {
	dir := filepath.Join(r.work, "share")
	for _, shell := range []string{"bash", "zsh", "fish"} {
		out, err := exec.CommandContext(ctx, "bin/carrel", "completion", shell).Output()
		if err != nil {
			return fmt.Errorf("carrel completion %s: %w", shell, err)
		}
		name := filepath.Join(dir, "completion", "carrel."+shell)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, out, 0o644)); err != nil {
			return err
		}
	}
	man := filepath.Join(dir, "man")
	if err := run(ctx, []string{fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.when.Unix())}, "go", "run", "./internal/tools/manpages", "-o", man); err != nil {
		return err
	}
	pages, err := filepath.Glob(filepath.Join(man, "*.1"))
	if err != nil || len(pages) == 0 {
		return fmt.Errorf("no manual pages were written: %w", err)
	}
	for _, page := range pages { // packages keep them compressed
		if err := r.compress(page); err != nil {
			return err
		}
	}
	return nil
}

// compress writes FILE.gz next to a file.
func (r *release) compress(name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	w, _ := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	if _, err := w.Write(data); err != nil {
		return err
	}
	return errors.Join(w.Close(), os.WriteFile(name+".gz", buf.Bytes(), 0o644))
}

// archive writes the archive for install.sh and for unpacking by hand: a tarball, and for Windows a
// zip file.
func (r *release) archive(p platform, program string) error {
	stem := "carrel_" + r.version + "_" + p.file()
	items := []item{
		{filepath.Base(program), program, 0o755},
		{"LICENSE", "LICENSE", 0o644}, {"README.md", "README.md", 0o644}, {"CHANGELOG.md", "CHANGELOG.md", 0o644},
	}
	if p.os == "windows" {
		return r.write(stem+".zip", func(w io.Writer) error { return r.zip(w, items) })
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		name := "completion/carrel." + shell
		items = append(items, item{name, filepath.Join(r.work, "share", name), 0o644})
	}
	pages, err := filepath.Glob(filepath.Join(r.work, "share/man/*.1"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		items = append(items, item{"man/" + filepath.Base(page), page, 0o644})
	}
	if p.os == "linux" {
		for _, unit := range []string{"carrel.service", "carrel.socket", "carrel-drain.service"} {
			items = append(items, item{"systemd/" + unit, "dist/systemd/" + unit, 0o644})
		}
	}
	return r.write(stem+".tar.gz", func(w io.Writer) error { return r.tar(w, stem, items) })
}

// tar writes a compressed tarball with everything below one directory.
func (r *release) tar(w io.Writer, top string, items []item) error {
	zw, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	tw := tar.NewWriter(zw)
	for _, it := range items {
		data, err := os.ReadFile(it.source)
		if err != nil {
			return err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: top + "/" + it.name, Mode: int64(it.mode), Size: int64(len(data)), ModTime: r.when}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if _, err := tw.Write(data); err != nil {
			return err
		}
	}
	return errors.Join(tw.Close(), zw.Close())
}

// zip writes a zip file.
func (r *release) zip(w io.Writer, items []item) error {
	zw := zip.NewWriter(w)
	for _, it := range items {
		data, err := os.ReadFile(it.source)
		if err != nil {
			return err
		}
		h := &zip.FileHeader{Name: it.name, Method: zip.Deflate, Modified: r.when}
		h.SetMode(it.mode)
		f, err := zw.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := f.Write(data); err != nil {
			return err
		}
	}
	return zw.Close()
}

// write makes a file of the release. The file is complete or does not exist.
func (r *release) write(name string, fill func(io.Writer) error) error {
	tmp := filepath.Join(r.work, name)
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	if err := errors.Join(fill(f), f.Close(), os.Chmod(tmp, 0o644)); err != nil {
		return err
	}
	return r.keep(tmp, name)
}

// keep moves a file into the release's directory.
func (r *release) keep(from, name string) error {
	if err := os.Chtimes(from, r.when, r.when); err != nil {
		return err
	}
	r.made = append(r.made, name)
	return os.Rename(from, filepath.Join(r.out, name))
}

// copyFile puts a file of the repository into the release.
func (r *release) copyFile(from, name string, mode fs.FileMode) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	tmp := filepath.Join(r.work, name)
	if err := errors.Join(os.WriteFile(tmp, data, mode), os.Chmod(tmp, mode)); err != nil {
		return err
	}
	return r.keep(tmp, name)
}

// writePackage makes a .deb or .rpm file of dist/nfpm.yaml.
func (r *release) writePackage(ctx context.Context, kind string, p platform, program string) error {
	name := "carrel_" + r.version + "_" + p.arch + "." + kind
	tmp := filepath.Join(r.work, name)
	env := []string{
		"CARREL_VERSION=" + r.version, "CARREL_ARCH=" + p.arch, "CARREL_PROGRAM=" + program,
		"CARREL_SHARE=" + filepath.Join(r.work, "share"), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.when.Unix()),
	}
	if err := run(ctx, env, "bin/nfpm", "package", "--config", "dist/nfpm.yaml", "--packager", kind, "--target", tmp); err != nil {
		return err
	}
	return r.keep(tmp, name)
}

// image writes an image with the program and the certificate authorities that it trusts.
func (r *release) image(p platform, program string) error {
	var roots bytes.Buffer
	for c := range bundle.Roots() {
		if c.Constraint != nil { // a plain file can't hold such an authority's constraints
			continue
		}
		if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate}); err != nil {
			return err
		}
	}
	name := "carrel_" + r.version + "_image_" + p.arch + ".tar"
	return r.write(name, func(w io.Writer) error {
		return ocitar.Write(w, ocitar.Image{
			Ref: "carrel:" + strings.ReplaceAll(r.version, "~", "-"), Architecture: p.arch, Created: r.when,
			Config: v1.Config{
				Entrypoint: []string{"/usr/bin/carrel"}, Cmd: []string{"serve", "--listen", "0.0.0.0:7070"},
				Env:          []string{"PATH=/usr/bin", "CARREL_DATA_DIR=/var/lib/carrel", "HOME=/root"},
				ExposedPorts: map[string]struct{}{"7070/tcp": {}}, Volumes: map[string]struct{}{"/var/lib/carrel": {}},
				Labels: map[string]string{
					"org.opencontainers.image.title": "carrel", "org.opencontainers.image.version": r.version,
					"org.opencontainers.image.licenses": "Apache-2.0",
				},
			},
			Files: []ocitar.File{
				{Name: "/usr/bin/carrel", Mode: 0o755, Source: program},
				{Name: "/etc/ssl/certs/ca-certificates.crt", Data: roots.Bytes()},
				{Name: "/usr/share/doc/carrel/LICENSE", Source: "LICENSE"},
			},
		})
	})
}

// sum writes the checksums of all files.
func (r *release) sum() error {
	slices.Sort(r.made)
	var lines strings.Builder
	for _, name := range r.made {
		data, err := os.ReadFile(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		fmt.Fprintf(&lines, "%s  %s\n", hex.EncodeToString(sum[:]), name)
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(lines.String()), 0o644)
}
