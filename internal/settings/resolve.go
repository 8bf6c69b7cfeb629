package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/gitdir"
)

// layer is a Layer while Resolve works on it.
type layer struct {
	Layer
	place     int
	data      []byte
	file      string
	has       map[string]bool
	flags     bool
	untrusted bool
	profile   bool
	builtIn   bool
}

// at returns the name of a layer's entry for people: "--read", ".carrel.yaml: read.allow[0]".
func (l *layer) at(key string, i int) string {
	if l.flags {
		return flagNames[key]
	}
	return fmt.Sprintf("%s: %s[%d]", l.Source, key, i)
}

var flagNames = map[string]string{
	"read.allow": "--read", "read.deny": "--no-read", "write.allow": "--write", "write.deny": "--no-write", "write.protect": "--protect", "write.unprotect": "--unprotect",
	"network.allow": "--allow", "network.deny": "--deny", "network.sockets": "--socket", "network.publish": "--publish", "network.policy": "--policy", "env.pass": "--env", "env.strip": "--no-env", "env.set": "--env", "profiles": "--profile",
}

// ofFlag puts the flag into an error, in place of the key that it stands for.
func ofFlag(err error) error {
	var e *carrel.Error
	if !errors.As(err, &e) {
		return err
	}
	key, _, _ := strings.Cut(strings.TrimPrefix(e.Field, "flags: "), "[")
	out := *e
	switch flag := flagNames[key]; {
	case flag != "":
		out.Field = flag
	case !strings.Contains(key, "."):
		out.Field = "--" + key
	}
	return &out
}

// resolver is one run of Resolve.
type resolver struct {
	Request
	home, dir string // links resolved
	box       *Box
	layers    []*layer // weakest first; a layer's place is its index
	tree      tree
	links     map[string]string // directories, resolved
	missing   map[string]bool   // directories that do not exist
	names     map[string][]string
	wanted    []*wanted
	guarded   []Protected
	depth     int
	patterned []string // directories that a layer wants searched for a pattern
	git       repositories
}

// Resolve reads the files, merges the layers and looks at the filesystem. Errors are carrel.Invalid
// with Field naming the file and key. A text of more than 1 MiB, or a binary file, is refused
// before it is parsed.
func Resolve(r Request) (*Box, error) {
	v := &resolver{Request: r, box: &Box{}, links: map[string]string{}, missing: map[string]bool{}, names: map[string][]string{}, depth: maxDepth, git: repositories{configs: map[string][]gitdir.Entry{}}}
	v.tree.points = make(map[string]*point, 64)
	v.tree.system = map[string]*decision{}
	if err := v.places(); err != nil {
		return nil, err
	}
	if err := v.readLayers(); err != nil {
		return nil, err
	}
	for _, step := range []func() error{v.scalars, v.builtInPaths, v.paths, v.network, v.environment} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	for _, l := range v.layers {
		if !l.builtIn && (!l.flags || !l.empty()) {
			v.box.Layers = append(v.box.Layers, l.Source)
		}
	}
	return v.box, nil
}

// places finds the working directory and the home.
func (v *resolver) places() error {
	if v.OS == "" {
		v.OS = "linux"
	}
	for _, p := range []struct {
		name, path string
		into       *string
	}{{"working directory", v.Request.Dir, &v.dir}, {"home directory", v.Request.Home, &v.home}} {
		if !strings.HasPrefix(p.path, "/") {
			return invalid(p.name, "", "%s is not absolute", show(p.path))
		}
		*p.into = filepath.Clean(p.path)
		if v.Exists != nil {
			continue
		}
		real, err := filepath.EvalSymlinks(p.path)
		switch {
		case err == nil:
			*p.into = real
		case p.into == &v.dir:
			return invalid(p.name, "", "%w", err)
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission):
			return invalid(p.name, "", "%w", err)
		}
	}
	v.box.Dir, v.box.Home = v.dir, v.home
	return nil
}

// readLayers reads the files and puts the layers in order: built-in, profiles, user, project,
// --settings, flags.
func (v *resolver) readLayers() error {
	var said []*layer
	add := func(l *layer, err error) error {
		if err == nil && l != nil {
			said = append(said, l)
		}
		return err
	}
	if !v.NoFiles {
		if err := add(v.load(filepath.Join(v.configDir(), userFile), false)); err != nil {
			return err
		}
		if err := add(v.loadProject()); err != nil {
			return err
		}
	}
	if v.File != "" {
		name := v.File
		if !filepath.IsAbs(name) {
			name = filepath.Join(v.dir, name)
		}
		if err := add(v.load(name, true)); err != nil {
			return err
		}
	}
	if err := check("flags", v.Flags); err != nil {
		return ofFlag(err)
	}
	said = append(said, &layer{Layer: Layer{Source: "flags", Dir: v.dir, Settings: v.Flags}, flags: true})
	v.layers = []*layer{{Layer: Layer{Source: "built-in", Dir: v.dir}, builtIn: true}}
	if err := v.addProfiles(said); err != nil {
		return err
	}
	v.layers = append(v.layers, said...)
	for i, l := range v.layers {
		l.place = i
	}
	return nil
}

// addProfiles adds the profiles that the layers name, in that order.
func (v *resolver) addProfiles(said []*layer) error {
	for _, l := range said {
		for i, name := range l.Profiles {
			if slices.Contains(v.box.Profiles, name) {
				continue
			}
			p, ok := findProfile(name)
			if !ok {
				hint := "one of: " + strings.Join(profileNames(), ", ")
				if n := near(name, profileNames()); n != "" {
					hint = "did you mean " + n + "?"
				}
				return invalid(l.at("profiles", i), hint, "there is no profile %s", show(name))
			}
			v.box.Profiles = append(v.box.Profiles, name)
			v.layers = append(v.layers, &layer{Layer: Layer{Source: Source("profile " + name), Dir: v.dir, Settings: p.Settings}, profile: true})
		}
	}
	return nil
}

// configDir and stateDir return the user's directories, from the caller's environment.
func (v *resolver) configDir() string { return v.userDir(v.ConfigDir, "XDG_CONFIG_HOME", ".config") }
func (v *resolver) stateDir() string {
	return v.userDir(v.StateDir, "XDG_STATE_HOME", ".local/state")
}

func (v *resolver) userDir(given, variable, below string) string {
	if given != "" {
		return given
	}
	if d := v.getenv(variable); filepath.IsAbs(d) {
		return filepath.Join(d, "carrel")
	}
	return filepath.Join(v.home, below, "carrel")
}

func (v *resolver) getenv(name string) string {
	value := ""
	for _, e := range v.Env {
		if k, val, ok := strings.Cut(e, "="); ok && k == name {
			value = val
		}
	}
	return value
}

// loadProject reads the project's file, and leaves out entries that it may not have.
func (v *resolver) loadProject() (*layer, error) {
	name := findProject(v.dir)
	if name == "" {
		if v.Trust {
			return nil, invalid("--trust", "", "there is no %s in %s or above it", projectFile, show(v.dir))
		}
		return nil, nil
	}
	l, err := v.load(name, false)
	if l == nil || err != nil {
		return nil, err
	}
	store := trust(v.stateDir())
	if v.Trust {
		if err := store.keep(name, l.data); err != nil {
			return nil, fmt.Errorf("trust %s: %w", show(name), err)
		}
		return l, nil
	}
	if l.untrusted = !store.holds(name, l.data); l.untrusted {
		v.onlyCloses(l)
	}
	return l, nil
}

// note adds a note for --explain. Notes that begin with "!" are always shown.
func (v *resolver) note(format string, args ...any) {
	n := fmt.Sprintf(format, args...)
	if !slices.Contains(v.box.Notes, n) {
		v.box.Notes = append(v.box.Notes, n)
	}
}

// short writes a path in the way of a person, safe for a terminal.
func (v *resolver) short(p string) string {
	if v.home != "/" && inside(p, v.home) {
		p = "~" + p[len(v.home):]
	}
	return show(p)
}

// exists reports whether a path exists. It does not follow a link at the end.
func (v *resolver) exists(p string) bool {
	if v.Exists != nil {
		return v.Exists(p)
	}
	_, err := os.Lstat(p)
	return err == nil
}

// canonical resolves all links except in the last element.
func (v *resolver) canonical(p string) string {
	if v.Exists != nil || p == "/" {
		return p
	}
	dir, last := filepath.Split(p)
	return filepath.Join(v.realDir(filepath.Clean(dir)), last)
}

// realDir resolves a directory, or its existing part.
func (v *resolver) realDir(dir string) string {
	if real, ok := v.links[dir]; ok {
		return real
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		real = dir
		if dir != "/" {
			real = filepath.Join(v.realDir(filepath.Dir(dir)), filepath.Base(dir))
		}
	}
	v.links[dir] = real
	return real
}

// empty reports whether a layer has no settings.
func (l *layer) empty() bool { return l.said() == 0 }

// tierOf turns a word into a tier.
func tierOf(word string) carrel.Tier {
	if word == "" {
		return carrel.NS
	}
	return carrel.Tier(word)
}
