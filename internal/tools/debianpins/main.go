// Command debianpins writes the pins of the built-in templates: which Debian packages are in each,
// with version, size and SHA-256. It takes the indexes that apt-get update left in a directory. It
// checks them as apt does: the archive's key signs InRelease, InRelease names each index's sum, the
// index names each package's sum.
//
//	go run ./internal/tools/debianpins -lists DIR -arch amd64 > internal/image/debian/pins/amd64.pins
//
// docs/builtin-templates.md says how to make DIR.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/internal/image/debian"
)

func main() {
	lists := flag.String("lists", "/var/lib/apt/lists", "directory of apt's lists, not compressed")
	keyring := flag.String("keyring", "/usr/share/keyrings/debian-archive-keyring.gpg",
		"key ring of the package debian-archive-keyring")
	suite := flag.String("suite", "trixie", "Debian release")
	arch := flag.String("arch", "amd64", "architecture")
	flag.Parse()
	if err := run(os.Stdout, *lists, *keyring, *suite, *arch); err != nil {
		fmt.Fprintln(os.Stderr, "debianpins:", err)
		os.Exit(1)
	}
}

// run writes the pins for an architecture.
func run(out io.Writer, lists, keyring, suite, arch string) error {
	keys, err := os.ReadFile(keyring)
	if err != nil {
		return err
	}
	var all []*candidate
	set := &debian.Set{Suite: suite, Arch: arch}
	for _, s := range []struct{ archive, suite string }{
		{debian.Main, suite}, {debian.Main, suite + "-updates"}, {debian.Security, suite + "-security"},
	} {
		rel, found, err := readSuite(lists, s.suite, s.archive, arch, keys)
		if err != nil {
			return fmt.Errorf("%s: %w", s.suite, err)
		}
		all = append(all, found...)
		if s.suite == suite {
			set.Version = rel.version
		}
		set.Epoch = max(set.Epoch, rel.date.Unix())
	}
	if err := fill(set, newUniverse(all)); err != nil {
		return err
	}
	_, err = out.Write(set.Format())
	return err
}

// readSuite reads and checks InRelease and the index of one suite.
func readSuite(lists, suite, archive, arch string, keys []byte) (*release, []*candidate, error) {
	file, err := one(filepath.Join(lists, "*_dists_"+suite+"_InRelease"))
	if err != nil {
		return nil, nil, err
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	rel, err := verifyRelease(raw, keys)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", filepath.Base(file), err)
	}
	if rel.codename != suite {
		return nil, nil, fmt.Errorf("InRelease is of %q", rel.codename)
	}
	name := "main/binary-" + arch + "/Packages"
	index, err := os.ReadFile(strings.TrimSuffix(file, "InRelease") +
		strings.ReplaceAll(name, "/", "_"))
	if err != nil {
		return nil, nil, err
	}
	if err := rel.check(name, index); err != nil {
		return nil, nil, err
	}
	found, err := readIndex(bytes.NewReader(index), archive)
	return rel, found, err
}

// one returns the only file that a pattern matches.
func one(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%d files match %s: run apt-get update first", len(found),
			filepath.Base(pattern))
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
}

// fill resolves every template and pins the packages.
func fill(set *debian.Set, u *universe) error {
	pins := map[string]debian.Pin{}
	essential := u.essential()
	if len(essential) == 0 {
		return errors.New("no essential packages")
	}
	for _, r := range recipes {
		found, err := u.resolve(append(slices.Clone(essential), strings.Fields(r.packages)...))
		if err != nil {
			return fmt.Errorf("template %s: %w", r.name, err)
		}
		t := debian.Contents{Name: r.name}
		for _, c := range found {
			t.Packages = append(t.Packages, c.Name)
			pins[c.Name] = c.Pin
		}
		set.Templates = append(set.Templates, t)
	}
	for _, p := range pins {
		set.Pins = append(set.Pins, p)
	}
	slices.SortFunc(set.Pins, func(a, b debian.Pin) int { return strings.Compare(a.Name, b.Name) })
	return nil
}
