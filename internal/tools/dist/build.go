package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// pkg is the prefix of the import paths of programs and of the version's variable.
const pkg = "github.com/carrel-dev/carrel/"

// build compiles the program for a platform and returns its file. The binary for Linux contains
// three programs for the same processor. They are compiled first and take the places of the
// embedded files by an overlay, so this machine's own files stay unchanged.
func (r *release) build(ctx context.Context, p platform) (string, error) {
	dir := filepath.Join(r.work, p.file())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "carrel")
	if p.os == "windows" {
		program += ".exe"
	}
	var args []string
	if p.os == "linux" {
		overlay, err := r.buildCarried(ctx, p, dir)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	return program, r.compile(ctx, p, "carrel", program, "", args...)
}

// compile builds one command. more goes to the linker, args to the compiler.
func (r *release) compile(ctx context.Context, p platform, command, out, more string, args ...string) error {
	flags := strings.TrimSpace("-s -w -X " + pkg + "internal/version.Version=" + r.version + " " + more)
	args = append([]string{"build", "-trimpath", "-ldflags", flags, "-o", out}, args...)
	c := exec.CommandContext(ctx, "go", append(args, pkg+"cmd/"+command)...)
	c.Env = append(os.Environ(), "GOOS="+p.os, "GOARCH="+p.arch, "CGO_ENABLED=0")
	c.Stderr = os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("go build %s: %w", command, err)
	}
	return nil
}

// buildCarried makes the programs inside the binary for Linux. It returns the overlay file that
// tells Go's compiler where they are.
func (r *release) buildCarried(ctx context.Context, p platform, dir string) (string, error) {
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct{ command, linker string }{
		{"carrel-guest", "-R 0x10000"}, // as the Makefile says why
		{"carrel-sudo", ""}, {"carrel-box", ""}, {"carrel-sentry", ""}, {"carrel-init", ""},
	} {
		if err := r.compile(ctx, p, c.command, in(c.command), c.linker); err != nil {
			return "", err
		}
	}
	if err := runTool(ctx, "guestimage", "-o", in("guest.erofs"), in("carrel-guest"), in("carrel-sudo")); err != nil {
		return "", err
	}
	if err := runTool(ctx, "pack", "-o", in("carrel-sentry"), in("carrel-sentry")); err != nil {
		return "", err
	}
	for name, digits := range map[string]int{"carrel-box": 32, "carrel-init": 64} {
		program, err := os.ReadFile(in(name))
		if err != nil {
			return "", err
		}
		sum := sha256.Sum256(program)
		if err := os.WriteFile(in(name+".sum"), []byte(hex.EncodeToString(sum[:])[:digits]+"\n"), 0o644); err != nil {
			return "", err
		}
	}
	return writeOverlay(in("overlay.json"), map[string]string{
		"internal/guest/guestbin/assets/guest.erofs":                in("guest.erofs"),
		"internal/guest/guestbin/assets/guest.erofs.sum":            in("guest.erofs.sum"),
		"internal/guest/guestbin/assets/carrel-init":                in("carrel-init"),
		"internal/guest/guestbin/assets/carrel-init.sum":            in("carrel-init.sum"),
		"internal/box/stagebin/assets/carrel-box":                   in("carrel-box"),
		"internal/box/stagebin/assets/carrel-box.sum":               in("carrel-box.sum"),
		"internal/driver/gvisor/sentrybin/assets/carrel-sentry.zst": in("carrel-sentry.zst"),
		"internal/driver/gvisor/sentrybin/assets/carrel-sentry.sum": in("carrel-sentry.sum"),
	})
}

// writeOverlay writes which files replace which files of the repository.
func writeOverlay(name string, files map[string]string) (string, error) {
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	replace := make(map[string]string, len(files))
	for at, is := range files {
		replace[filepath.Join(root, at)] = is
	}
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	return name, os.WriteFile(name, raw, 0o644)
}

// runTool runs one of the repository's own tools, on this machine.
func runTool(ctx context.Context, tool string, args ...string) error {
	return run(ctx, nil, "go", append([]string{"run", "./internal/tools/" + tool}, args...)...)
}

// run runs a program with additional environment variables.
func run(ctx context.Context, env []string, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...)
	c.Env = append(os.Environ(), env...)
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
