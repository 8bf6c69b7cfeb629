package debian

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Archives from which packages come. A mirror serves Security beside Main.
const (
	Main     = "debian"
	Security = "debian-security"
)

// Pin is one package, exactly: these bits and no others.
type Pin struct {
	Name, Version string
	Arch          string // "amd64", "all"
	Archive       string // Main or Security
	Path          string // in the archive
	Size          int64
	SHA256        string // in hex
}

// Contents names the packages of one template.
type Contents struct {
	Name     string
	Packages []string
}

// Set is the pins of one release for one architecture.
type Set struct {
	Suite   string // "trixie"
	Version string // "13.1"
	Arch    string
	// Epoch is the date of the pinned indexes, in seconds since 1970. No file of a template is
	// younger.
	Epoch     int64
	Templates []Contents
	// Kernel is the package with the kernel of virtual machines, one of Pins; "" is none.
	Kernel string
	Pins   []Pin // sorted by name
}

//go:embed pins/*.pins
var embedded embed.FS

// Pinned returns this program's pins for the machine's architecture. The error says that there are
// none.
func Pinned() (*Set, error) {
	raw, err := embedded.ReadFile("pins/" + runtime.GOARCH + ".pins")
	if err != nil {
		return nil, fmt.Errorf("no Debian packages are pinned for %s", runtime.GOARCH)
	}
	return ParseSet(raw)
}

const pinsHeader = "# Pinned Debian packages. Written by internal/tools/debianpins; do not edit.\n"

// Format returns the set as a text that ParseSet reads.
func (s *Set) Format() []byte {
	var b bytes.Buffer
	b.WriteString(pinsHeader)
	fmt.Fprintf(&b, "release %s %s %s %d\n", s.Suite, s.Version, s.Arch, s.Epoch)
	for _, t := range s.Templates {
		fmt.Fprintf(&b, "template %s %s\n", t.Name, strings.Join(t.Packages, " "))
	}
	if s.Kernel != "" {
		fmt.Fprintf(&b, "kernel %s\n", s.Kernel)
	}
	for _, p := range s.Pins {
		fmt.Fprintf(&b, "package %s %s %s %s %s %d %s\n", p.Name, p.Version, p.Arch, p.Archive, p.Path,
			p.Size, p.SHA256)
	}
	return b.Bytes()
}

// ParseSet reads a set and checks it.
func ParseSet(raw []byte) (*Set, error) {
	s := &Set{}
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		if err := s.line(f); err != nil {
			return nil, fmt.Errorf("pins: %q: %w", strings.Join(f[:min(2, len(f))], " "), err)
		}
	}
	if s.Suite == "" {
		return nil, errors.New("pins: no release")
	}
	for _, t := range s.Templates {
		if _, err := s.packages(t); err != nil {
			return nil, fmt.Errorf("pins: %w", err)
		}
	}
	if _, ok := s.pin(s.Kernel); !ok && s.Kernel != "" {
		return nil, fmt.Errorf("pins: kernel %s is not pinned", s.Kernel)
	}
	return s, nil
}

// line reads one line, split into fields.
func (s *Set) line(f []string) (err error) {
	switch {
	case f[0] == "release" && len(f) == 5:
		s.Suite, s.Version, s.Arch = f[1], f[2], f[3]
		s.Epoch, err = strconv.ParseInt(f[4], 10, 64)
		return err
	case f[0] == "template" && len(f) > 2:
		s.Templates = append(s.Templates, Contents{Name: f[1], Packages: f[2:]})
		return nil
	case f[0] == "kernel" && len(f) == 2:
		s.Kernel = f[1]
		return nil
	case f[0] == "package" && len(f) == 8:
		p := Pin{Name: f[1], Version: f[2], Arch: f[3], Archive: f[4], Path: f[5], SHA256: f[7]}
		if p.Size, err = strconv.ParseInt(f[6], 10, 64); err != nil {
			return err
		}
		if n := len(s.Pins); n > 0 && s.Pins[n-1].Name >= p.Name {
			return errors.New("not sorted")
		}
		s.Pins = append(s.Pins, p)
		return p.check()
	}
	return errors.New("not understood")
}

func (p Pin) check() error {
	switch {
	case !isHex(p.SHA256) || len(p.SHA256) != 64:
		return errors.New("not a SHA-256")
	case p.Size <= 0 || p.Size > maxDeb:
		return fmt.Errorf("a size of %d", p.Size)
	case p.Archive != Main && p.Archive != Security:
		return fmt.Errorf("archive %q", p.Archive)
	case path.IsAbs(p.Path) || path.Clean(p.Path) != p.Path || strings.HasPrefix(p.Path, ".."):
		return fmt.Errorf("path %q", p.Path)
	case strings.Trim(p.Name, "abcdefghijklmnopqrstuvwxyz0123456789+-.") != "":
		return errors.New("not a package name")
	}
	return nil
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// pin finds a package.
func (s *Set) pin(name string) (Pin, bool) {
	i, ok := slices.BinarySearchFunc(s.Pins, name,
		func(p Pin, name string) int { return strings.Compare(p.Name, name) })
	if !ok {
		return Pin{}, false
	}
	return s.Pins[i], true
}

// packages returns the pins of a template's packages.
func (s *Set) packages(t Contents) ([]Pin, error) {
	out := make([]Pin, 0, len(t.Packages))
	for _, name := range t.Packages {
		p, ok := s.pin(name)
		if !ok {
			return nil, fmt.Errorf("template %s: package %s is not pinned", t.Name, name)
		}
		out = append(out, p)
	}
	return out, nil
}

// time is the set's date.
func (s *Set) time() time.Time { return time.Unix(s.Epoch, 0).UTC() }
