//go:build linux

package gitdir

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkAudit measures the audit of a command's files, and "git status" in the same tree.
func BenchmarkAudit(b *testing.B) {
	for _, files := range []int{5_000, 50_000} {
		root := b.TempDir()
		for d := range files / 50 {
			dir := filepath.Join(root, fmt.Sprint(d%20), fmt.Sprint(d))
			if err := os.MkdirAll(dir, 0o755); err != nil {
				b.Fatal(err)
			}
			for f := range 50 {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(f)), nil, 0o644); err != nil {
					b.Fatal(err)
				}
			}
		}
		git := func(args ...string) {
			cmd := exec.Command("git", append([]string{"-C", root, "-c", "user.name=x", "-c", "user.email=x"}, args...)...)
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
		}
		git("init", "-q")
		git("add", ".")
		git("commit", "-q", "-m", "x")
		since := unix.NsecToTimespec(time.Now().Add(time.Second).UnixNano())
		before := Remember([]string{root + "/.git"})
		b.Run(fmt.Sprintf("audit/%d", files), func(b *testing.B) {
			for b.Loop() {
				a := &Audit{Roots: []string{root}, Since: since, Before: before, Seize: func(int, string) (string, error) { return "", errors.New("nothing is to be taken") }, Tell: func(Finding) {}}
				if err := a.Run(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("status/%d", files), func(b *testing.B) {
			for b.Loop() {
				git("status", "--short")
			}
		})
	}
}
