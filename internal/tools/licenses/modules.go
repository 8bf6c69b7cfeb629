package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	classifier "github.com/google/licenseclassifier/v2"
	"github.com/google/licenseclassifier/v2/assets"
)

// linked is the output of "go list" for a package.
type linked struct {
	ImportPath string
	Dir        string
	Standard   bool
	Module     *struct {
		Path, Version, Dir string
		Main               bool
	}
}

// targets are the systems that the programs are built for.
var targets = []string{"linux/amd64", "linux/arm64", "darwin/arm64", "windows/amd64"}

// packagesOf lists everything that packages link on some target. For each target it leaves out
// packages that do not exist there.
func packagesOf(patterns []string) ([]linked, error) {
	seen := map[string]linked{}
	for _, target := range targets {
		system, processor, _ := strings.Cut(target, "/")
		cmd := exec.Command("go", append([]string{"list", "-e", "-deps", "-json=ImportPath,Dir,Standard,Module"}, patterns...)...)
		cmd.Env = append(cmd.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0")
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		for d := json.NewDecoder(out); ; {
			var p linked
			if err = d.Decode(&p); err != nil {
				break
			}
			seen[p.ImportPath] = p
		}
		if err == io.EOF {
			err = nil
		}
		if err = errors.Join(err, cmd.Wait()); err != nil {
			return nil, fmt.Errorf("go list for %s: %w", target, err)
		}
	}
	var all []linked
	for _, p := range seen {
		all = append(all, p)
	}
	return all, nil
}

// modules makes a notice for each linked module except ours, and one for the standard library.
func modules(patterns []string) ([]notice, error) {
	packages, err := packagesOf(patterns)
	if err != nil {
		return nil, err
	}
	known, err := assets.DefaultClassifier()
	if err != nil {
		return nil, err
	}
	roots, files := map[string]notice{}, map[string][]string{}
	for _, p := range packages {
		n, root := notice{}, ""
		switch {
		case p.Standard && !strings.HasPrefix(p.ImportPath, "vendor/"):
			n, root = standardLibrary()
			p.Dir = root
		case p.Module != nil && !p.Module.Main && p.Dir != "":
			n, root = notice{Name: p.Module.Path, Version: p.Module.Version}, p.Module.Dir
		default:
			continue
		}
		found, err := licenceFiles(p.Dir, root)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.ImportPath, err)
		}
		roots[root], files[root] = n, append(files[root], found...)
	}
	var all []notice
	for root, n := range roots {
		if err := n.read(known, root, files[root]); err != nil {
			return nil, fmt.Errorf("%s: %w", n.Name, err)
		}
		all = append(all, n)
	}
	return all, nil
}

// standardLibrary returns the notice of the part that every Go program contains.
func standardLibrary() (n notice, root string) {
	out, err := exec.Command("go", "env", "GOROOT", "GOVERSION").Output()
	fields := strings.Fields(string(out))
	if err != nil || len(fields) != 2 {
		return notice{Name: "the Go standard library"}, ""
	}
	return notice{Name: "the Go standard library", Version: fields[1]}, fields[0]
}

// licenceName matches names of files with licences and notices. Source files with such a name do
// not count. Neither do licences of a module's documents (LICENSE.docs) or logo, because those are
// not linked.
var licenceName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|copyright|unlicense|notice|patents|authors)([.-].*)?$`)

var otherWorks = regexp.MustCompile(`(?i)(\.go|\.docs|-logo)$`)

// licenceFiles returns the licence and notice files of a directory and its parents, up to root.
func licenceFiles(dir, root string) ([]string, error) {
	var out []string
	for {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Type().IsRegular() && licenceName.MatchString(e.Name()) && !otherWorks.MatchString(e.Name()) {
				out = append(out, filepath.Join(dir, e.Name()))
			}
		}
		if dir == root || !strings.HasPrefix(dir, root) {
			return out, nil
		}
		dir = filepath.Dir(dir)
	}
}

// read adds the texts of files and recognises their licences.
func (n *notice) read(known *classifier.Classifier, root string, files []string) error {
	slices.Sort(files)
	for _, file := range slices.Compact(files) {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		n.Texts = append(n.Texts, text{filepath.ToSlash(rel), string(data)})
		for _, m := range known.Match(data).Matches {
			if m.MatchType == "License" || m.MatchType == "Header" {
				n.Licenses = append(n.Licenses, spdxName(m.Name))
			}
		}
	}
	slices.Sort(n.Licenses)
	n.Licenses = slices.Compact(n.Licenses)
	return nil
}

// spdxName returns the SPDX name of a licence that the classifier calls something else.
func spdxName(name string) string {
	if name == "BSD-0-Clause" {
		return "0BSD"
	}
	return name
}
