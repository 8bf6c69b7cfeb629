package boot

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// The kernel asks for modules that nobody loaded at the start, by their names and aliases: for a
// filesystem that is mounted, a kind of network device that is made, a rule of a packet filter. A
// machine has them packed in its memory, and its guest is the program that the kernel runs for that.

// Names of the store of modules.
const (
	More       = "more"                 // the directory in the initrd
	Store      = More + "/modules"      // the store in it
	MoreMount  = "/.carrel/modules"     // where the sandbox sees the directory
	StorePath  = MoreMount + "/modules" // and the store
	ModprobeAt = "/proc/sys/kernel/modprobe"
)

// MaxModule bounds the size of a module, in bytes.
const MaxModule = 16 << 20

// maxNeeds bounds the modules that one is loaded with.
const maxNeeds = 100

// index is the entry of a store that says what its modules need, and which names they have.
const index = "index.json"

// Module is a module of the kernel.
type Module struct {
	Name    string // with "_" for "-"
	Data    []byte
	Needs   []string // the modules that must be loaded before
	Aliases []string
}

// names is the index.
type names struct {
	Needs   map[string][]string `json:"needs"`
	Aliases map[string][]string `json:"aliases"`
}

// Pack makes a store. The same modules always give the same bytes.
func Pack(modules []Module) ([]byte, error) {
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	all := names{map[string][]string{}, map[string][]string{}}
	for _, m := range modules {
		f, err := w.Create(m.Name)
		if err == nil {
			_, err = f.Write(m.Data)
		}
		if err != nil {
			return nil, err
		}
		all.Needs[m.Name] = m.Needs
		for _, a := range m.Aliases {
			if !strings.ContainsAny(a, "*?[") { // patterns are for devices that no machine has
				all.Aliases[plain(a)] = append(all.Aliases[plain(a)], m.Name)
			}
		}
	}
	f, err := w.Create(index)
	if err == nil {
		err = json.NewEncoder(f).Encode(all)
	}
	if err == nil {
		err = w.Close()
	}
	return buf.Bytes(), err
}

// plain is a name in the one form in which names are compared.
func plain(name string) string { return strings.ReplaceAll(name, "-", "_") }

// Load calls insert with each module that a name or an alias stands for, after those that it needs.
// A module may come that is loaded already. Error: when the store has nothing of that name.
func Load(store io.ReaderAt, size int64, name string, insert func(module string, data []byte) error) error {
	r, err := zip.NewReader(store, size)
	if err != nil {
		return err
	}
	var all names
	if err := decode(r, index, func(f io.Reader) error { return json.NewDecoder(f).Decode(&all) }); err != nil {
		return err
	}
	name = plain(name)
	wanted := all.Aliases[name]
	if _, ok := all.Needs[name]; ok {
		wanted = []string{name}
	}
	if len(wanted) == 0 {
		return fmt.Errorf("no module is named %q", name)
	}
	seen := map[string]bool{}
	var visit func(name string) error
	visit = func(name string) error {
		if seen[name] {
			return nil
		}
		if seen[name] = true; len(seen) > maxNeeds {
			return fmt.Errorf("it needs more than %d modules", maxNeeds)
		}
		for _, n := range all.Needs[name] {
			if err := visit(n); err != nil {
				return err
			}
		}
		if _, ok := all.Needs[name]; !ok {
			return nil // it was loaded at the start, or is built in
		}
		return decode(r, name, func(f io.Reader) error {
			data, err := io.ReadAll(io.LimitReader(f, MaxModule))
			if err == nil {
				err = insert(name, data)
			}
			return err
		})
	}
	for _, name := range wanted {
		if err := visit(name); err != nil {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return nil
}

// decode reads one entry.
func decode(r *zip.Reader, name string, read func(io.Reader) error) error {
	f, err := r.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return read(f)
}
