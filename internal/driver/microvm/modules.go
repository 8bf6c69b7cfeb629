//go:build linux

package microvm

import (
	"bytes"
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/internal/driver/microvm/boot"
)

// wantedModules are the modules for a machine's devices and its filesystems, and the one by which
// the guest ends connections after a restore. A kernel may have some
// of them built in; then the directory does not have them.
var wantedModules = []string{"virtio_mmio", "virtio_blk", "virtio_net", "erofs", "overlay", "tcp_diag"}

// readModules reads the modules of a directory. first are the wanted ones and all that they depend
// on, in the order of loading. more are all the others.
func readModules(dir string) (first, more []boot.Module, err error) {
	files := map[string]string{}
	list, err := filepath.Glob(filepath.Join(dir, "*.ko"))
	if err != nil {
		return nil, nil, err
	}
	for _, file := range list {
		files[moduleName(filepath.Base(file))] = file
	}
	seen := map[string]bool{}
	var visit func(name string) error
	visit = func(name string) error {
		file := files[name]
		if seen[name] || file == "" && slices.Contains(wantedModules, name) {
			return nil
		}
		if file == "" {
			return fmt.Errorf("module %s is not in %s", name, dir)
		}
		seen[name] = true
		m, err := readModule(name, file)
		if err != nil {
			return err
		}
		for _, n := range m.Needs {
			if err := visit(n); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		first = append(first, m)
		return nil
	}
	for _, name := range wantedModules {
		if err := visit(name); err != nil {
			return nil, nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if seen[name] {
			continue
		}
		m, err := readModule(name, files[name])
		if err != nil {
			return nil, nil, err
		}
		more = append(more, m)
	}
	return first, more, nil
}

// moduleName is the name of a module's file, as dependencies name it.
func moduleName(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(file, ".ko"), "-", "_")
}

// readModule reads a module's file.
func readModule(name, file string) (boot.Module, error) {
	data, err := readBounded(file, boot.MaxModule)
	if err != nil {
		return boot.Module{}, err
	}
	m, err := parseModule(data)
	if err != nil {
		return boot.Module{}, fmt.Errorf("%s: %w", file, err)
	}
	m.Name, m.Data = name, data
	return m, nil
}

// parseModule reads the modules that a module needs, and its aliases, out of its section .modinfo.
func parseModule(data []byte) (m boot.Module, err error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return m, err
	}
	s := f.Section(".modinfo")
	if s == nil || s.Type == elf.SHT_NOBITS {
		return m, fmt.Errorf("no module: it has no section .modinfo")
	}
	info, err := s.Data()
	if err != nil {
		return m, err
	}
	for field := range strings.SplitSeq(string(info), "\x00") {
		if list, ok := strings.CutPrefix(field, "depends="); ok && list != "" {
			m.Needs = strings.Split(strings.ReplaceAll(list, "-", "_"), ",")
		}
		if alias, ok := strings.CutPrefix(field, "alias="); ok {
			m.Aliases = append(m.Aliases, alias)
		}
	}
	return m, nil
}

// readBounded reads a file that is not larger than most bytes.
func readBounded(file string, most int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, fmt.Errorf("%s is no file of at most %d bytes", file, most)
	}
	return os.ReadFile(file)
}
