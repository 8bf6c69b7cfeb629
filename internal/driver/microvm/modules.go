//go:build linux

package microvm

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// wantedModules are the modules for a machine's devices and its filesystems, and the one by which
// the guest ends connections after a restore. A kernel may have some
// of them built in; then the directory does not have them.
var wantedModules = []string{"virtio_mmio", "virtio_blk", "virtio_net", "erofs", "overlay", "tcp_diag"}

// maxModule bounds the size of a module, in bytes.
const maxModule = 16 << 20

// module is a module's file.
type module struct {
	name string // with "_" for "-"
	data []byte
}

// readModules reads the wanted modules of a directory and all that they depend on, in the order of
// loading.
func readModules(dir string) ([]module, error) {
	files := map[string]string{}
	list, err := filepath.Glob(filepath.Join(dir, "*.ko"))
	if err != nil {
		return nil, err
	}
	for _, file := range list {
		files[moduleName(filepath.Base(file))] = file
	}
	var out []module
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
		data, err := readBounded(file, maxModule)
		if err != nil {
			return err
		}
		needs, err := dependencies(data)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, n := range needs {
			if err := visit(n); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		out = append(out, module{name, data})
		return nil
	}
	for _, name := range wantedModules {
		if err := visit(name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// moduleName is the name of a module's file, as dependencies name it.
func moduleName(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(file, ".ko"), "-", "_")
}

// dependencies reads the names of the modules that a module needs, out of its section .modinfo.
func dependencies(data []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	s := f.Section(".modinfo")
	if s == nil || s.Type == elf.SHT_NOBITS {
		return nil, fmt.Errorf("no module: it has no section .modinfo")
	}
	info, err := s.Data()
	if err != nil {
		return nil, err
	}
	for field := range strings.SplitSeq(string(info), "\x00") {
		if list, ok := strings.CutPrefix(field, "depends="); ok && list != "" {
			return strings.Split(strings.ReplaceAll(list, "-", "_"), ","), nil
		}
	}
	return nil, nil
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
