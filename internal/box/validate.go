//go:build linux

package box

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/carrel-dev/carrel"
)

// maxMounts bounds a Spec. Each mount costs the kernel memory, and time at every lookup.
const maxMounts = 8192

// validate refuses a Spec that contradicts itself or the options.
func (s *Spec) validate(o Options) error {
	if len(s.Args) == 0 || s.Args[0] == "" {
		return invalid("Args", errors.New("no command"))
	}
	if n := len(s.Mounts) + len(s.Hidden); n > maxMounts {
		return invalid("Mounts", fmt.Errorf("%d mounts and hidden paths, the limit is %d: name directories instead of the files in them", n, maxMounts))
	}
	if s.Root.Host && len(s.Root.Lower) > 0 {
		return invalid("Root", errors.New("both this machine's tree and layers"))
	}
	for _, path := range append([]string{s.Root.Upper, s.Root.Work}, s.Root.Lower...) {
		if path != "" {
			if err := clean(path); err != nil {
				return invalid("Root", err)
			}
		}
	}
	switch s.Network {
	case Closed, Host:
	case Wired:
		if s.Light {
			return &carrel.Error{Op: "build box", Kind: carrel.Invalid, Field: "network", Err: errors.New("a box without namespaces has no network of its own"),
				Hint: "take away what opens the network (--allow, --internet, --policy, a profile that does), or say --host-network"}
		}
	default:
		return invalid("Network", fmt.Errorf("unknown %q", s.Network))
	}
	if len(s.Publish) > 0 && (s.Light || s.Network == Host || s.Init) {
		return invalid("Publish", errors.New("only a box with a network of its own, and a stage, publishes ports"))
	}
	if f := s.Seccomp; (o.Watch == nil || o.Detach) && (f.WatchConnect || f.WatchBind || f.WatchWrites || f.WatchRemoves) {
		return invalid("Seccomp", errors.New("calls are watched, but nobody answers (Options.Watch)"))
	}
	for _, m := range s.Mounts {
		if err := m.validate(); err != nil {
			return invalid("Mounts", err)
		}
	}
	for _, h := range s.Hidden {
		if err := clean(h.Path); err != nil {
			return invalid("Hidden", err)
		}
	}
	for _, c := range s.Capabilities {
		if _, err := capability(c); err != nil {
			return invalid("Capabilities", err)
		}
	}
	if len(s.UIDMap) > 0 != (len(s.GIDMap) > 0) {
		return invalid("UIDMap", errors.New("users and groups are mapped both or not at all"))
	}
	for _, d := range s.Devices {
		if err := clean(d); err != nil || filepath.Dir(d) != "/dev" {
			return invalid("Devices", fmt.Errorf("%q is not directly in /dev", d))
		}
	}
	if s.Dir != "" {
		if err := clean(s.Dir); err != nil {
			return invalid("Dir", err)
		}
	}
	return nil
}

func (m Mount) validate() error {
	if err := clean(m.Target); err != nil {
		return err
	}
	if m.Target == "/" && m.Kind != Writable {
		return errors.New("the root directory itself can't be mounted over")
	}
	switch m.Kind {
	case ReadOnly, Writable:
		if m.Source == "" {
			return nil
		}
		return clean(m.Source)
	case Overlay:
		return errors.Join(clean(m.Source), clean(m.Work))
	case Tmpfs, ReadFile:
		return nil
	}
	return fmt.Errorf("unknown kind %q of %s", m.Kind, m.Target)
}

// clean refuses paths that are not absolute or not in their shortest form.
func clean(path string) error {
	switch {
	case strings.ContainsRune(path, 0):
		return fmt.Errorf("%q has a NUL in it", path)
	case !filepath.IsAbs(path):
		return fmt.Errorf("%q is not absolute", path)
	case filepath.Clean(path) != path:
		return fmt.Errorf("%q should be %q", path, filepath.Clean(path))
	}
	return nil
}
