package policy

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/carrel-dev/carrel"
)

// Preset is a named list of rules.
type Preset struct {
	Name        string        `json:"name"`
	Description string        `json:"description"`
	Rules       []carrel.Rule `json:"rules"`
}

//go:embed presets.yaml
var presetsFile []byte

// builtInPresets reads the built-in presets once. They are part of the program, and tests read them
// too.
var builtInPresets = sync.OnceValue(func() []Preset {
	list, err := readPresets("presets.yaml", presetsFile)
	if err != nil {
		panic(err)
	}
	return list
})

// house holds the presets that AddPresets added.
var house struct {
	sync.RWMutex
	list []Preset
}

func readPresets(name string, data []byte) ([]Preset, error) {
	var file struct {
		Presets []Preset `json:"presets"`
	}
	if err := decodeFile(name, data, &file, nil); err != nil {
		return nil, err
	}
	return file.Presets, nil
}

// AddPresets adds the presets of a file to the built-in ones, for this process. The file has the
// form of the built-in ones: "presets", a list of "name", "description" and "rules". After an
// error, none is added. A policy keeps the names of its presets and not their rules. So when a
// preset is removed, everything that it opened is closed. Error: Invalid, NotFound.
func AddPresets(file string) error {
	data, err := readFile(file)
	if err != nil {
		return &carrel.Error{Op: "read presets", Kind: carrel.NotFound, Err: err}
	}
	list, err := readPresets(file, data)
	if err != nil {
		return err
	}
	house.Lock()
	defer house.Unlock()
	all := slices.Clone(house.list)
	for _, p := range list {
		wrong := func(format string, args ...any) error {
			return &carrel.Error{Op: "read presets", Kind: carrel.Invalid, Field: "presets", Err: fmt.Errorf("%s: preset %s: "+format, append([]any{file, clip(p.Name)}, args...)...)}
		}
		same := func(q Preset) bool { return q.Name == p.Name }
		switch {
		case p.Name == "deny" || p.Name == "allow" || p.Name == "" || strings.ContainsFunc(p.Name, notPresetName):
			return wrong("that is no name: lower case letters, digits and '-'")
		case slices.ContainsFunc(builtInPresets(), same):
			return wrong("there is a built-in one of that name")
		case slices.ContainsFunc(all[len(house.list):], same):
			return wrong("it is there twice")
		}
		if err := Check(carrel.Policy{Rules: p.Rules}); err != nil {
			return wrong("%w", err)
		}
		all = append(slices.DeleteFunc(all, same), p)
	}
	house.list = all
	return nil
}

// notPresetName reports whether a character can't be in a preset's name.
func notPresetName(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' }

// Presets returns all presets, the built-in ones first.
func Presets() []Preset {
	house.RLock()
	defer house.RUnlock()
	return slices.Concat(builtInPresets(), house.list)
}

// findPreset returns a preset by its name.
func findPreset(name string) (Preset, bool) {
	all := Presets()
	i := slices.IndexFunc(all, func(p Preset) bool { return p.Name == name })
	if i < 0 {
		return Preset{}, false
	}
	return all[i], true
}

// addPresets adds the rules of presets, after the policy's own.
func (p *Policy) addPresets(names []string, left *int) *fault {
	for i, name := range names {
		at := fmt.Sprintf("presets[%d]", i)
		if slices.Contains(names[:i], name) {
			return faultf(at, "", "%s is given twice", clip(name))
		}
		preset, ok := findPreset(name)
		if !ok {
			var known []string
			for _, p := range Presets() {
				known = append(known, p.Name)
			}
			return faultf(at, "one of: "+strings.Join(known, ", "), "there is no preset %s", clip(name))
		}
		for _, r := range preset.Rules {
			dests, err := p.addRule(at, "preset "+name, r, left)
			if err == nil && len(dests) == 0 {
				err = faultf(at, "write it into the policy itself", "a preset can't open %s", HostName)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
