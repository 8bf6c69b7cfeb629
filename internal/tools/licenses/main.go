// Licenses writes the notices of all parts of Carrel's programs: the linked modules, the Go
// standard library, and parts named on the command line. It fails for a module without a recognised
// licence, and for a licence that is not allowed.
//
//	licenses -o notices.json.gz [-add NAME,VERSION,LICENSE,FILE,...]... PACKAGE...
//
// It does not touch a file that is already right, so that make builds nothing again.
//
// It recognises licences with the same classifier as go-licenses.
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// notice is one part of the programs. It matches package notices of the main module.
type notice struct {
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	Licenses []string `json:"licenses"`
	Texts    []text   `json:"texts"`
}

// text is a file of a part's licence.
type text struct {
	File string `json:"file"`
	Text string `json:"text"`
}

// allowed are the licences, by their SPDX names, that parts of the programs may have.
var allowed = []string{
	"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MPL-2.0", "PSF-2.0", "Unlicense", "Zlib",
}

func main() {
	out := flag.String("o", "", "the file to write")
	var added []notice
	flag.Func("add", "a part that is no module: NAME,VERSION,LICENSE,FILE,...", func(s string) error {
		n, err := byHand(s)
		added = append(added, n)
		return err
	})
	flag.Parse()
	if *out == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*out, added, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

// run gathers, checks and writes.
func run(out string, added []notice, packages []string) error {
	all, err := modules(packages)
	if err != nil {
		return err
	}
	all = append(all, added...)
	if err := refused(all); err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b notice) int { return cmp.Compare(a.Name, b.Name) })
	packed, err := pack(all)
	if err != nil {
		return err
	}
	if was, err := os.ReadFile(out); err == nil && bytes.Equal(was, packed) {
		return nil
	}
	return os.WriteFile(out, packed, 0o644)
}

// refused lists the parts without a known licence, and those with one that is not allowed.
func refused(all []notice) error {
	var errs []error
	for _, n := range all {
		if len(n.Licenses) == 0 {
			errs = append(errs, fmt.Errorf("%s %s: no known licence", n.Name, n.Version))
		}
		for _, l := range n.Licenses {
			if !slices.Contains(allowed, l) {
				errs = append(errs, fmt.Errorf("%s %s: licence %s is not allowed", n.Name, n.Version, l))
			}
		}
	}
	return errors.Join(errs...)
}

// byHand reads a part in the form NAME,VERSION,LICENSE,FILE,...
func byHand(s string) (notice, error) {
	f := strings.Split(s, ",")
	if len(f) < 4 {
		return notice{}, errors.New("not of the form NAME,VERSION,LICENSE,FILE and more files")
	}
	n := notice{Name: f[0], Version: f[1], Licenses: []string{f[2]}}
	for _, file := range f[3:] {
		data, err := os.ReadFile(file)
		if err != nil {
			return notice{}, err
		}
		n.Texts = append(n.Texts, text{filepath.Base(file), string(data)})
	}
	return n, nil
}

// pack returns the same bytes for the same notices.
func pack(all []notice) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	err = errors.Join(json.NewEncoder(z).Encode(all), z.Close())
	return b.Bytes(), err
}
