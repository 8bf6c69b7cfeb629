//go:build linux

package microvm

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/carrel-dev/carrel/internal/driver/microvm/boot"
)

// readModules reads the modules of a directory. first are the wanted ones and all that they depend
// on, in the order of loading. more are all the others.
func readModules(dir string) (first, more []boot.Module, err error) {
	files := map[string]string{}
	list, err := filepath.Glob(filepath.Join(dir, "*"+boot.ModuleSuffix))
	if err != nil {
		return nil, nil, err
	}
	for _, file := range list {
		files[boot.ModuleName(filepath.Base(file))] = file
	}
	seen := map[string]bool{}
	var visit func(name string) error
	visit = func(name string) error {
		file := files[name]
		if seen[name] || file == "" && slices.Contains(boot.Wanted, name) {
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
	for _, name := range boot.Wanted {
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

// readModule reads a module's file.
func readModule(name, file string) (boot.Module, error) {
	data, err := readBounded(file, boot.MaxModule)
	if err != nil {
		return boot.Module{}, err
	}
	m, err := boot.ParseModule(data)
	if err != nil {
		return boot.Module{}, fmt.Errorf("%s: %w", file, err)
	}
	m.Name, m.Data = name, data
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
