// Crosscheck type-checks programs for other systems, from source and without generating code. A
// build for each system would compile everything again, the standard library too, and take many
// times as long. But only a build finds problems of the linker, such as a missing assembly file:
// "make cross-build" does that.
//
//	crosscheck darwin/arm64 windows/amd64 -- ./cmd/carrel
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	at := slices.Index(os.Args, "--")
	if at < 2 || at+1 == len(os.Args) {
		fmt.Fprintln(os.Stderr, "usage: crosscheck SYSTEM/PROCESSOR... -- PACKAGE...")
		os.Exit(2)
	}
	failed := false
	for _, target := range os.Args[1:at] {
		count, err := check(target, os.Args[at+1:])
		if err != nil {
			failed = true
			fmt.Fprintf(os.Stderr, "%s: %v\n", target, err)
			continue
		}
		fmt.Printf("%s: %d packages\n", target, count)
	}
	if failed {
		os.Exit(1)
	}
}

// check type-checks packages and everything they import outside the standard library. It returns
// the number of these packages.
func check(target string, patterns []string) (int, error) {
	system, processor, ok := strings.Cut(target, "/")
	if !ok {
		return 0, errors.New("not SYSTEM/PROCESSOR")
	}
	env := append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0")
	paths, err := imported(env, patterns)
	if err != nil {
		return 0, err
	}
	// Function bodies are checked only in named packages, so name all of them.
	const mode = packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
		packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesSizes | packages.NeedModule
	loaded, err := packages.Load(&packages.Config{Mode: mode, Env: env}, paths...)
	if err != nil {
		return 0, err
	}
	return len(loaded), problems(loaded)
}

// imported lists packages and everything they import outside the standard library.
func imported(env, patterns []string) ([]string, error) {
	const mode = packages.NeedName | packages.NeedImports | packages.NeedDeps | packages.NeedModule
	roots, err := packages.Load(&packages.Config{Mode: mode, Env: env}, patterns...)
	if err != nil {
		return nil, err
	}
	var paths []string
	packages.Visit(roots, nil, func(p *packages.Package) {
		if p.Module != nil {
			paths = append(paths, p.PkgPath)
		}
	})
	return paths, problems(roots)
}

// problems joins the errors of packages and of their imports.
func problems(loaded []*packages.Package) error {
	var errs []error
	packages.Visit(loaded, nil, func(p *packages.Package) {
		for _, e := range p.Errors {
			errs = append(errs, e)
		}
	})
	return errors.Join(errs...)
}
