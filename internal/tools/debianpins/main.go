// Command debianpins writes the pins of the built-in templates: which Debian packages are in each,
// with version, size and SHA-256. It takes the indexes that apt-get update left in a directory. It
// checks them as apt does: the archive's key signs InRelease, InRelease names each index's sum, the
// index names each package's sum.
//
//	go run ./internal/tools/debianpins -lists DIR -arch amd64 > internal/image/debian/pins/amd64.pins
//
// With -kernel it renews only the pin of the kernel, in a file of pins that it reads:
//
//	go run ./internal/tools/debianpins -lists DIR -kernel internal/image/debian/pins/amd64.pins
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

	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/image/debian"
)

func main() {
	lists := flag.String("lists", "/var/lib/apt/lists", "directory of apt's lists, not compressed")
	keyring := flag.String("keyring", "/usr/share/keyrings/debian-archive-keyring.gpg",
		"key ring of the package debian-archive-keyring")
	suite := flag.String("suite", "trixie", "Debian release")
	arch := flag.String("arch", "amd64", "architecture")
	kernel := flag.String("kernel", "", "renew only the kernel's pin in this file, in place")
	flag.Parse()
	err := error(nil)
	if *kernel != "" {
		err = renewKernel(*kernel, *lists, *keyring)
	} else {
		err = run(os.Stdout, *lists, *keyring, *suite, *arch)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "debianpins:", err)
		os.Exit(1)
	}
}

// renewKernel pins the newest kernel in a file of pins. All templates in it stay as they are.
func renewKernel(file, lists, keyring string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	set, err := debian.ParseSet(old)
	if err != nil {
		return err
	}
	_, u, err := readLists(lists, keyring, set.Suite, set.Arch)
	if err != nil {
		return err
	}
	if err := pinKernel(set, u); err != nil {
		return err
	}
	return atomicfile.Write(file, set.Format(), 0o644)
}

// run writes the pins for an architecture.
func run(out io.Writer, lists, keyring, suite, arch string) error {
	set, u, err := readLists(lists, keyring, suite, arch)
	if err == nil {
		err = fill(set, u)
	}
	if err == nil {
		err = pinKernel(set, u)
	}
	if err != nil {
		return err
	}
	_, err = out.Write(set.Format())
	return err
}

// readLists reads the indexes of a release's suites. The set that it returns has no packages yet.
func readLists(lists, keyring, suite, arch string) (*debian.Set, *universe, error) {
	keys, err := os.ReadFile(keyring)
	if err != nil {
		return nil, nil, err
	}
	var all []*candidate
	set := &debian.Set{Suite: suite, Arch: arch}
	for _, s := range []struct{ archive, suite string }{
		{debian.Main, suite}, {debian.Main, suite + "-updates"}, {debian.Security, suite + "-security"},
	} {
		rel, found, err := readSuite(lists, s.suite, s.archive, arch, keys)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", s.suite, err)
		}
		all = append(all, found...)
		if s.suite == suite {
			set.Version = rel.version
		}
		set.Epoch = max(set.Epoch, rel.date.Unix())
	}
	return set, newUniverse(all), nil
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
	slices.SortFunc(set.Pins, byName)
	return nil
}

// kernelPackages are the packages that depend on the newest kernel for virtual machines, by
// architecture. On others the tier microvm has no machines.
var kernelPackages = map[string]string{"amd64": "linux-image-cloud-amd64"}

// pinKernel pins the newest kernel in place of another one. What the package depends on makes an
// initrd and installs a boot loader: machines need neither.
func pinKernel(set *debian.Set, u *universe) error {
	name := kernelPackages[set.Arch]
	if name == "" {
		return nil
	}
	c := u.byName[name]
	if c == nil {
		return fmt.Errorf("no package %s", name)
	}
	i := slices.IndexFunc(c.depends, func(need clause) bool {
		return len(need) == 1 && strings.HasPrefix(need[0].name, "linux-image-")
	})
	if i < 0 {
		return fmt.Errorf("%s depends on no kernel", name)
	}
	kernel := u.choice(c.depends[i])
	if kernel == nil {
		return fmt.Errorf("%s needs %s, which nothing meets", name, c.depends[i][0].name)
	}
	set.Pins = slices.DeleteFunc(set.Pins, func(p debian.Pin) bool {
		return p.Name == set.Kernel || p.Name == kernel.Name
	})
	set.Kernel = kernel.Name
	set.Pins = append(set.Pins, kernel.Pin)
	slices.SortFunc(set.Pins, byName)
	return nil
}

func byName(a, b debian.Pin) int { return strings.Compare(a.Name, b.Name) }
