package service

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/image"
)

// imageSumsFile remembers the SHA-256 of images, which take seconds to compute.
const imageSumsFile = ".image-sums.json"

// imageSums knows the SHA-256 of image files. It computes each once for each version of the file.
type imageSums struct {
	file string

	once sync.Once
	mu   sync.Mutex
	by   map[string]string // sums, by the version of a file
}

// versionText writes the version of a file: its place, size and time of change.
func versionText(fi os.FileInfo) string {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d-%d-%d-%d", st.Dev, st.Ino, fi.Size(), fi.ModTime().UnixNano())
}

// load reads the file. If it is damaged, the sums are computed again.
func (s *imageSums) load() {
	s.once.Do(func() {
		s.by = map[string]string{}
		if raw, err := os.ReadFile(s.file); err == nil && json.Unmarshal(raw, &s.by) != nil {
			s.by = map[string]string{}
		}
	})
}

// of returns the sum and size of an image.
func (s *imageSums) of(ctx context.Context, path string) (carrel.MovedImage, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return carrel.MovedImage{}, err
	}
	img := carrel.MovedImage{Name: filepath.Base(path), Size: fi.Size()}
	s.load()
	version := versionText(fi)
	s.mu.Lock()
	img.Sum = s.by[version]
	s.mu.Unlock()
	if img.Sum != "" {
		return img, nil
	}
	if img.Sum, err = image.SHA256(ctx, path); err != nil {
		return img, err
	}
	s.note(version, img.Sum)
	return img, nil
}

// maxSums bounds the remembered sums. Beyond it, all are forgotten: they are only a cache.
const maxSums = 10_000

// note remembers a sum. If the file can't be written, only this process knows it.
func (s *imageSums) note(version, sum string) {
	if version == "" {
		return
	}
	s.load()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.by) >= maxSums {
		clear(s.by)
	}
	s.by[version] = sum
	if raw, err := json.Marshal(s.by); err == nil {
		_ = atomicfile.Write(s.file, raw, 0o600)
	}
}

// find returns the name of a file in dir whose sum is known.
func (s *imageSums) find(dir, sum string) (name string, ok bool) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", false
	}
	s.load()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && fi.Mode().IsRegular() && s.by[versionText(fi)] == sum {
			return e.Name(), true
		}
	}
	return "", false
}
