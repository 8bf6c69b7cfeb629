package run

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/carrel-dev/carrel/internal/box"
	"github.com/carrel-dev/carrel/internal/settings"
)

// private are the directories that every box has for itself.
var private = []string{"/dev/shm", "/run", "/tmp", "/var/tmp"}

// planOf makes a plan for rules below an existing directory.
func planOf(t *testing.T, b settings.Box, rules ...settings.PathRule) *plan {
	t.Helper()
	if b.ReadDefault == "" {
		b.ReadDefault, b.WriteDefault = settings.Readable, settings.Readable
	}
	b.Private = private
	b.Paths = rules
	p, err := newPlan(&b, []string{"true"}, nil, func(lower string) (layer, error) { return layer{lower, "/upper" + lower, "/work" + lower}, nil })
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// mountsBelow returns the plan's mounts at or below dir, as "kind path".
func mountsBelow(p *plan, dir string) (out []string) {
	for _, m := range p.spec.Mounts {
		if rel, err := filepath.Rel(dir, m.Target); err == nil && filepath.IsLocal(rel) {
			out = append(out, string(m.Kind)+" "+rel)
		}
	}
	return out
}

func TestTheMostSpecificRuleBecomesTheLastMount(t *testing.T) {
	dir, err := os.MkdirTemp("/var", "carrel-plan-")
	if err != nil {
		dir = t.TempDir() // below /tmp, which needs more mounts
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, name := range []string{"w/ro/rw", "secret/open", "w/secret"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	rule := func(name string, a settings.Access) settings.PathRule {
		return settings.PathRule{Path: filepath.Join(dir, name), Access: a, Rule: "test " + name}
	}
	p := planOf(t, settings.Box{Dir: dir}, rule("w", settings.Writable), rule("w/ro", settings.Readable), rule("w/ro/rw", settings.Writable),
		rule("w/secret", settings.Denied), rule("secret", settings.Denied), rule("secret/open", settings.Readable))
	want := []string{"tmpfs secret", "ro secret/open", "rw w", "ro w/ro", "rw w/ro/rw"}
	if got := mountsBelow(p, dir); !slices.Equal(got, want) {
		t.Errorf("mounts %q, want %q", got, want)
	}
	if len(p.spec.Hidden) != 1 || p.spec.Hidden[0].Path != filepath.Join(dir, "w/secret") || len(p.hidden) != 1 {
		t.Errorf("hidden: %+v", p.spec.Hidden)
	}
}

func TestWhatLiesInAPrivateDirectoryIsNotSeen(t *testing.T) {
	dir := t.TempDir()
	if !within(dir, private...) {
		t.Setenv("TMPDIR", "/tmp")
		dir = t.TempDir()
	}
	for _, name := range []string{"w", "secret"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := planOf(t, settings.Box{Dir: dir}, settings.PathRule{Path: dir + "/secret", Access: settings.Denied}, settings.PathRule{Path: dir + "/w", Access: settings.Writable})
	if got := mountsBelow(p, dir); !slices.Equal(got, []string{"rw w"}) || len(p.spec.Hidden) != 0 {
		t.Errorf("mounts %q, hidden %+v: the working directory alone is to be seen", got, p.spec.Hidden)
	}
	p = planOf(t, settings.Box{Dir: dir, Overlay: true}, settings.PathRule{Path: dir + "/w", Access: settings.Writable})
	if got := mountsBelow(p, dir); !slices.Equal(got, []string{"ro w", "overlay w"}) {
		t.Errorf("with an overlay: %q", got)
	}
}

func TestNetworksOfAPlan(t *testing.T) {
	for want, b := range map[box.Network]settings.Box{box.Closed: {Closed: true}, box.Wired: {}, box.Host: {Host: true}} {
		if p := planOf(t, b); p.spec.Network != want || p.spec.Seccomp.Network {
			t.Errorf("%+v has network %s", b, p.spec.Network)
		}
	}
	if p := planOf(t, settings.Box{Closed: true, Light: true}); !p.spec.Seccomp.Network {
		t.Error("a light box without a network has sockets")
	}
}

func TestProtectedNamesOfReadOnlyPlacesAreLeftToTheWalls(t *testing.T) {
	dir := t.TempDir()
	p := planOf(t, settings.Box{Dir: dir, Protected: []settings.Protected{{Pattern: "/etc/profile"}, {Pattern: dir + "/x"}, {Pattern: ".git/hooks", Deep: true}}},
		settings.PathRule{Path: dir, Access: settings.Writable})
	if len(p.rules.Protected) != 2 || p.rules.Protected[0].Pattern != "x" || p.rules.Protected[1].Dir != dir {
		t.Errorf("protected: %+v", p.rules.Protected)
	}
}
