// Package fetch is shared by the commands that extract an interpreter from a package of a registry,
// for inclusion in a build. Nothing that was fetched is run.
package fetch

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Main is the main function of such a command. It calls run with the output directory from the flag
// -o. If the interpreter can't be fetched, it prints that, and the features that the build lacks
// without it. It then succeeds, except on a CI machine.
func Main(name, lacks string, run func(out string) error) {
	out := flag.String("o", "", "directory to write into")
	flag.Parse()
	if *out == "" {
		fmt.Fprintf(os.Stderr, "%s: -o is missing\n", name)
		os.Exit(2)
	}
	if err := run(*out); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n%[1]s: this build has no %s\n", name, err, lacks)
		if os.Getenv("CI") != "" {
			os.Exit(1)
		}
	}
}

// Package makes a package manager put one package into an empty directory. The directory's path
// replaces the argument "DIR". It then calls use with the one file there that matches pattern.
func Package(use func(file string) error, pattern, program string, args ...string) error {
	dir, err := os.MkdirTemp("", "carrel-fetch")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	given := make([]string, len(args))
	for i, a := range args {
		if given[i] = a; a == "DIR" {
			given[i] = dir
		}
	}
	cmd := exec.Command(program, given...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("%s brought no package", program)
	}
	return use(files[0])
}

// Known returns an error unless code has the expected SHA-256, in hexadecimal.
func Known(code []byte, sum string) error {
	if got := sha256.Sum256(code); hex.EncodeToString(got[:]) != sum {
		return errors.New("the package's interpreter is not the one that is known")
	}
	return nil
}
