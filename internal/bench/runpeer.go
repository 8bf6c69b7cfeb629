package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Versions of the measured peers.
const (
	srtPackage   = "@anthropic-ai/sandbox-runtime@0.0.83"
	codexPackage = "@openai/codex@0.169.0"
)

// peers returns the other boxes that work here. A missing one is downloaded into the bench's own
// directory. If that fails, it is left out, with a reason.
func (b *runBench) peers(ctx context.Context) []*contestant {
	var list []*contestant
	for _, p := range []struct {
		name string
		make func(context.Context) ([]*contestant, error)
	}{{"bwrap", b.bwrap}, {"srt", b.srt}, {"codex", b.codex}} {
		got, err := p.make(ctx)
		for _, c := range got {
			if err == nil {
				_, err = b.once(ctx, c, "true")
			}
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s is left out: %v\n", p.name, err)
			continue
		}
		list = append(list, got...)
	}
	return list
}

// peersWithNetwork are those that work here with a network. bwrap gives the machine's own, the
// others what goes through their proxies.
func (b *runBench) peersWithNetwork(ctx context.Context) []*contestant {
	var list []*contestant
	for _, c := range b.peers(ctx) {
		switch c.name {
		case "bwrap":
			c.prefix = slices.Insert(slices.Clone(c.prefix), 2, "--share-net")
		case "srt":
			settings := filepath.Join(b.dir, "srt-net.json")
			if write(settings, `{"network":{"allowedDomains":["example.com"],"deniedDomains":[]},"filesystem":{"denyRead":[],"allowWrite":["."],"denyWrite":[]}}`) != nil {
				continue
			}
			c.prefix = []string{c.prefix[0], "-s", settings, "--"}
		case "codex sandbox, workspace-write":
			c.prefix = slices.Insert(slices.Clone(c.prefix), 2, "-c", "sandbox_workspace_write.network_access=true")
		default:
			continue
		}
		if _, err := b.once(ctx, c, "true"); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s with a network is left out: %v\n", c.name, err)
			continue
		}
		list = append(list, c)
	}
	return list
}

// bwrap makes the same namespaces and devices, with the project writable.
func (b *runBench) bwrap(ctx context.Context) ([]*contestant, error) {
	if err := b.need(ctx, "bwrap", "bubblewrap"); err != nil {
		return nil, err
	}
	return []*contestant{{name: "bwrap", prefix: []string{"bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
		"--bind", b.work, b.work, "--die-with-parent", "--new-session", "--chdir", b.work, "--"}}}, nil
}

// srt is sandbox-runtime, started as its users start it, but without npx.
func (b *runBench) srt(ctx context.Context) ([]*contestant, error) {
	for tool, pkg := range map[string]string{"bwrap": "bubblewrap", "socat": "socat", "rg": "ripgrep"} {
		if err := b.need(ctx, tool, pkg); err != nil {
			return nil, err
		}
	}
	program, err := b.npm(ctx, srtPackage, "srt")
	if err != nil {
		return nil, err
	}
	settings := filepath.Join(b.dir, "srt.json")
	err = write(settings, `{"network":{"allowedDomains":[],"deniedDomains":[]},"filesystem":{"denyRead":[],"allowWrite":["."],"denyWrite":[]}}`)
	return []*contestant{{name: "srt", prefix: []string{program, "-s", settings, "--"}, rounds: 5}}, err
}

// codex is Codex's sandbox. It runs the program itself, without npm's script.
func (b *runBench) codex(ctx context.Context) ([]*contestant, error) {
	script, err := b.npm(ctx, codexPackage, "codex")
	if err != nil {
		return nil, err
	}
	program := script
	found, err := filepath.Glob(filepath.Join(b.dir, "npm", "node_modules", "@openai", "codex-*", "vendor", "*", "bin", "codex"))
	if err == nil && len(found) > 0 {
		program = found[0]
	}
	home := filepath.Join(b.dir, "codex")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, err
	}
	env := []string{"CODEX_HOME=" + home}
	return []*contestant{
		{name: "codex sandbox, read-only", prefix: []string{program, "sandbox", "-c", `sandbox_mode="read-only"`, "--"}, env: env, rounds: 2},
		{name: "codex sandbox, workspace-write", prefix: []string{program, "sandbox", "-c", `sandbox_mode="workspace-write"`, "--"}, env: env, rounds: 2},
	}, nil
}

// npm installs a package into the bench's own directory and returns its program.
func (b *runBench) npm(ctx context.Context, pkg, program string) (string, error) {
	prefix := filepath.Join(b.dir, "npm")
	cmd := exec.CommandContext(ctx, "npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", prefix, pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install %s: %w: %.300s", pkg, err, out)
	}
	return filepath.Join(prefix, "node_modules", ".bin", program), nil
}

// need finds a tool, or unpacks its Debian package into the bench's own directory.
func (b *runBench) need(ctx context.Context, tool, pkg string) error {
	root := filepath.Join(b.dir, "tools")
	bin := filepath.Join(root, "usr", "bin")
	if _, err := os.Stat(filepath.Join(bin, tool)); err == nil {
		return nil
	}
	if _, err := exec.LookPath(tool); err == nil {
		return nil
	}
	debs := filepath.Join(b.dir, "debs", pkg)
	if err := os.MkdirAll(debs, 0o755); err != nil {
		return err
	}
	packages := []string{pkg}
	if pkg == "socat" {
		packages = append(packages, "libwrap0") // not on each machine
	}
	get := exec.CommandContext(ctx, "apt-get", append([]string{"download", "-qq"}, packages...)...)
	get.Dir = debs
	if out, err := get.CombinedOutput(); err != nil {
		return fmt.Errorf("%s is not installed, and apt-get download: %w: %.300s", tool, err, out)
	}
	found, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return err
	}
	for _, deb := range found {
		if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", deb, root).CombinedOutput(); err != nil {
			return fmt.Errorf("unpack %s: %w: %.300s", deb, err, out)
		}
	}
	if err := wrap(root, bin, tool); err != nil {
		return err
	}
	if !strings.HasPrefix(b.env[0], "PATH="+bin) {
		b.env[0] = "PATH=" + bin + ":" + strings.TrimPrefix(b.env[0], "PATH=")
	}
	return nil
}

// wrap writes a script that starts a tool with the libraries that came with it, if the tool needs
// that.
func wrap(root, bin, tool string) error {
	libs, err := filepath.Glob(filepath.Join(root, "*", "lib", "*-linux-gnu"))
	if err != nil || len(libs) == 0 || tool != "socat" {
		return err
	}
	real := filepath.Join(bin, tool)
	if err := os.Rename(real, real+".real"); err != nil {
		return err
	}
	script := fmt.Sprintf("#!/bin/sh\nLD_LIBRARY_PATH='%s' exec '%s.real' \"$@\"\n", strings.Join(libs, ":"), real)
	return os.WriteFile(real, []byte(script), 0o755)
}
