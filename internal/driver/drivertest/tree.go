package drivertest

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// ShellTree fills an empty directory with a root for [Harness.Root]: a shell, some tools and the
// libraries they need, taken from this machine.
func ShellTree(dir string) error {
	for _, d := range []string{"tmp", "etc", "root", "usr", "home", "var", "run", "bin", "opt/tool"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(dir, "tmp"), 0o777|fs.ModeSticky); err != nil {
		return err
	}
	for _, tool := range []string{"sh", "cat", "chmod", "chown", "rm", "wc", "hostname", "env", "sleep", "ls", "touch", "id", "mkdir", "stat", "mknod", "ln"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			return err
		}
		if err := copyWithLibraries(path, filepath.Join("bin", tool), dir); err != nil {
			return err
		}
	}
	for _, name := range []string{"opt/readme", "opt/tool/data"} { // for the suite to replace
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// libraryPath finds the absolute paths in what ldd prints.
var libraryPath = regexp.MustCompile(`/[^\s()]+`)

// copyWithLibraries copies a program and the libraries it is linked with.
func copyWithLibraries(path, as, dir string) error {
	list := map[string]string{as: path}
	out, err := exec.Command("ldd", path).Output()
	if err != nil {
		return fmt.Errorf("ldd %s: %w", path, err)
	}
	for _, lib := range libraryPath.FindAllString(string(out), -1) {
		list[lib] = lib
	}
	for to, from := range list {
		to = filepath.Join(dir, to)
		if _, err := os.Stat(to); err == nil {
			continue
		}
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o755)
		}
		if err == nil {
			err = os.WriteFile(to, b, 0o755)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
