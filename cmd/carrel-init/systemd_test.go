//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/driver/microvm/boot"
)

// TestReadInit reads the files that a template may have.
func TestReadInit(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ name, text, want string }{
		{"usual", "systemd\n", "systemd"}, {"bare", "systemd", "systemd"}, {"empty", "\n", ""},
		{"long", strings.Repeat("x", 1<<20), strings.Repeat("x", boot.MaxInitFile)},
	} {
		file := filepath.Join(dir, c.name)
		if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := readInit(file); err != nil || got != c.want {
			t.Errorf("%s: %.20q, %v", c.name, got, err)
		}
	}
	if got, err := readInit(filepath.Join(dir, "missing")); err != nil || got != "" {
		t.Errorf("missing: %q, %v", got, err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("usual", link); err != nil {
		t.Fatal(err)
	}
	if got, err := readInit(link); err == nil {
		t.Errorf("a link leads to %q", got)
	}
	if got, err := readInit(dir); err == nil {
		t.Errorf("a directory says %q", got)
	}
}

// TestUnits writes the guest's service with words that systemd would change.
func TestUnits(t *testing.T) {
	dir := t.TempDir()
	order := boot.Order{Pids: 100, Args: []string{"/.carrel/guest", "-gateway", `10.1.1.1,%h $HOME "x" \`}, Env: []string{"PRICE=$5"}}
	if err := writeUnits(dir, order); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "system/sysinit.target.wants", unitName)) // through the link
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{`ExecStart="/.carrel/guest" "-gateway" "10.1.1.1,%%h $$HOME \"x\" \\"`, `Environment="PRICE=$5"`,
		"LimitNPROC=100", "FailureAction=reboot-force", "DefaultDependencies=no"} {
		if !strings.Contains(string(raw), "\n"+line+"\n") {
			t.Errorf("no line %s in\n%s", line, raw)
		}
	}
	for _, name := range masked {
		if to, err := os.Readlink(filepath.Join(dir, "system", name)); err != nil || to != os.DevNull {
			t.Errorf("%s leads to %q, %v", name, to, err)
		}
	}
}
