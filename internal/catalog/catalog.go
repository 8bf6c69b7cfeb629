// Package catalog lists the packages that are installed in an image: those of Debian and Alpine, of
// pip and of npm. It reads the databases and the manifests that the package managers left in the
// image, and runs nothing.
//
// An image comes from a stranger. The number of packages, the files that are read and the
// directories that are visited are bounded, no link is followed, and a damaged file counts as
// none: the rest is still listed.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
)

// Bounds of one listing.
const (
	maxPackages    = 200_000
	maxEntries     = 3_000_000
	maxDepth       = 64
	maxDatabase    = 128 << 20 // of a file that lists all packages of a system
	maxManifest    = 4 << 20   // of a file about one package
	maxWord        = 512       // of a name, a version or a licence
	maxTotal       = 1 << 30   // of everything that is read
	maxFieldsBytes = 256 << 10 // of the fields of one package
)

// Packages lists the packages in an image, sorted by kind, name, version and path. system is the
// operating system that the image is of, as "debian 13", or "". Errors: Exhausted, and those of
// reading the image.
func Packages(ctx context.Context,
	files image.Files) (packages []carrel.Package, system string, err error) {
	r := &reader{ctx: ctx, files: files}
	id, version := r.system()
	for _, step := range []func(string) error{r.debian, r.alpine,
		func(string) error { return r.walk(".", 0) }} {
		if err := step(id); err != nil {
			return nil, "", err
		}
	}
	slices.SortFunc(r.found, func(a, b carrel.Package) int {
		for _, c := range [...]int{strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name),
			strings.Compare(a.Version, b.Version)} {
			if c != 0 {
				return c
			}
		}
		return strings.Compare(a.Path, b.Path)
	})
	return slices.Compact(r.found), strings.TrimSpace(id + " " + version), nil
}

// reader reads one image.
type reader struct {
	ctx     context.Context
	files   image.Files
	found   []carrel.Package
	entries int
	bytes   int64
}

// add notes a package, unless it has no name or no version.
func (r *reader) add(p carrel.Package, file string) error {
	p.Name, p.Version, p.Arch, p.License = clean(p.Name), clean(p.Version), clean(p.Arch),
		clean(p.License)
	if p.Name == "" || p.Version == "" {
		return nil
	}
	if len(r.found) >= maxPackages {
		return tooMuch("more than %d packages", maxPackages)
	}
	p.Path = path.Join("/", file)
	r.found = append(r.found, p)
	return nil
}

// clean bounds a word of a stranger's and takes out what no terminal should see.
func clean(word string) string {
	word = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return -1
		}
		return c
	}, strings.ToValidUTF8(strings.TrimSpace(word), ""))
	if len(word) > maxWord {
		word = strings.ToValidUTF8(word[:maxWord], "")
	}
	return word
}

// read returns the content of a regular file; nil if there is none, or it is too large.
func (r *reader) read(name string, most int64) ([]byte, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, err
	}
	info, err := r.files.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (!info.Mode.IsRegular() || info.Size > most) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if r.bytes += info.Size; r.bytes > maxTotal {
		return nil, tooMuch("files about packages of more than %d bytes", int64(maxTotal))
	}
	f, err := r.files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

func tooMuch(format string, args ...any) error {
	return &carrel.Error{Op: "list packages", Kind: carrel.Exhausted,
		Err: fmt.Errorf("the image has "+format, args...)}
}

// system reads which operating system the image is of.
func (r *reader) system() (id, version string) {
	for _, name := range []string{"etc/os-release", "usr/lib/os-release"} {
		raw, err := r.read(name, maxManifest)
		if err != nil || raw == nil {
			continue
		}
		for line := range strings.Lines(string(raw)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			switch value = clean(strings.Trim(value, `"'`)); key {
			case "ID":
				id = strings.ToLower(value)
			case "VERSION_ID":
				version = value
			}
		}
		return id, version
	}
	return "", ""
}

// walk looks for the packages of pip and npm in a directory and below.
func (r *reader) walk(dir string, depth int) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	names, err := r.files.List(dir)
	if err != nil {
		return err
	}
	if r.entries += len(names); r.entries > maxEntries {
		return tooMuch("more than %d files", maxEntries)
	}
	if depth > maxDepth {
		return nil
	}
	slices.Sort(names)
	for _, name := range names {
		full := path.Join(dir, name)
		if dir == "." && (name == "proc" || name == "sys" || name == "dev") {
			continue
		}
		if err := r.visit(full, name, depth); err != nil {
			return err
		}
	}
	return nil
}

// visit looks at one name of a directory.
func (r *reader) visit(full, name string, depth int) error {
	if strings.HasSuffix(name, ".egg-info") {
		if err := r.python(full); err != nil {
			return err
		}
	}
	if !mayBeDirectory(name) && !strings.Contains(path.Dir(full), "node_modules") {
		return nil // in node_modules, "chart.js" is a directory
	}
	info, err := r.files.Lstat(full)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.Mode.IsDir() {
		return nil
	}
	if strings.HasSuffix(name, ".dist-info") {
		return r.python(full + "/METADATA")
	}
	if strings.HasSuffix(name, ".egg-info") {
		return r.python(full + "/PKG-INFO")
	}
	if name == "node_modules" {
		if err := r.npm(full); err != nil {
			return err
		}
	}
	return r.walk(full, depth+1)
}

// plainFiles are endings of names that are not looked at: most files of an image have one, and a
// directory has one seldom.
var plainFiles = []string{".py", ".pyc", ".js", ".mjs", ".cjs", ".ts", ".json", ".md", ".map", ".h",
	".hpp", ".c", ".so", ".a", ".o", ".txt", ".html",
	".gz", ".mo", ".rst", ".css", ".png", ".svg", ".list", ".md5sums", ".conf", ".pm", ".pl", ".rb",
	".java", ".class", ".jar"}

func mayBeDirectory(name string) bool {
	return !slices.Contains(plainFiles, path.Ext(name)) || name[0] == '.'
}
