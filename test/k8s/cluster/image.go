package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/carrel-dev/carrel/internal/image/ocitar"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// Image is an image to make of files of this machine.
type Image struct {
	Ref        string
	Entrypoint []string
	Env        []string
	Files      map[string]string // the path inside: the file here
	Texts      map[string]string // the path inside: the text
	Programs   []string          // of this machine, with the libraries that they load
}

// Import makes an image and gives it to containerd. Pods use it under Ref.
func (c *Cluster) Import(ctx context.Context, image Image) error {
	files, err := image.files()
	if err != nil {
		return err
	}
	name := c.sub("image.tar")
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	defer os.Remove(name)
	err = ocitar.Write(out, ocitar.Image{Ref: image.Ref, Architecture: runtime.GOARCH, Created: time.Unix(0, 0),
		Config: v1.Config{Entrypoint: image.Entrypoint, Env: append([]string{"PATH=/usr/bin"}, image.Env...)},
		Files:  files})
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("make %s: %w", image.Ref, err)
	}
	// containerd may still be starting.
	return testenv.Within(ctx, startPatience, func() error {
		cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "ctr"), "-a", c.socket(), "-n", "k8s.io",
			"images", "import", "--local", name)
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("import %s: %w: %s", image.Ref, err, text)
		}
		return nil
	})
}

// files lists the image's files in a fixed order.
func (i Image) files() ([]ocitar.File, error) {
	sources := maps.Clone(i.Files)
	if sources == nil {
		sources = map[string]string{}
	}
	for _, program := range i.Programs {
		path, err := exec.LookPath(program)
		if err != nil {
			return nil, err
		}
		sources["/usr/bin/"+program] = path
		loaded, err := libraries(path)
		if err != nil {
			return nil, err
		}
		for _, library := range loaded {
			sources[merged(library)] = library
		}
	}
	var out []ocitar.File
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		out = append(out, ocitar.File{Name: name, Mode: fs.FileMode(0o755), Source: sources[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(i.Texts)) {
		out = append(out, ocitar.File{Name: name, Data: []byte(i.Texts[name])})
	}
	if len(i.Programs) > 0 {
		for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
			out = append(out, ocitar.File{Name: "/" + dir, Link: "usr/" + dir})
		}
	}
	return out, nil
}

// merged is the path of a library below /usr. /lib and /lib64 are links there, as in Debian.
func merged(library string) string {
	if strings.HasPrefix(library, "/lib") {
		return "/usr" + library
	}
	return library
}

// libraries are those that a program loads. A static one has none.
func libraries(program string) ([]string, error) {
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		return nil, nil // ldd fails with a static program
	}
	var found []string
	for _, word := range strings.Fields(string(out)) {
		if strings.HasPrefix(word, "/") {
			found = append(found, word)
		}
	}
	return found, nil
}
