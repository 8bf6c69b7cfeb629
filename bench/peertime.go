package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/internal/image/store"
)

// diskUsage is how many bytes of the disk a directory takes.
func diskUsage(dir string) (int64, error) {
	var sum int64
	seen := map[uint64]bool{}
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // files come and go
		}
		if info, err := e.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok && !seen[st.Ino] {
				seen[st.Ino] = true
				sum += st.Blocks * 512
			}
		}
		return nil
	})
	return sum, err
}

// stock is runsc as it comes, from the same module, on the same root image.
type stock struct {
	bin, dir, bundle string
}

// newStock builds runsc and writes a bundle whose process holds so many megabytes.
func newStock(ctx context.Context, d *daemon, o options, mb int) (*stock, error) {
	s := &stock{bin: filepath.Join(d.dir, "runsc"), dir: filepath.Join(d.dir, "stock"), bundle: filepath.Join(d.dir, "stock", "bundle")}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", s.bin, "./bench/runsc")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build runsc: %v: %s", err, out)
	}
	if err := os.MkdirAll(filepath.Join(s.bundle, "rootfs"), 0o755); err != nil {
		return nil, err
	}
	st, err := store.Open(ctx, store.Options{Dir: filepath.Join(s.dir, "templates"), CacheDir: o.cache})
	if err != nil {
		return nil, err
	}
	defer st.Close()
	img, err := st.Get(ctx, "base")
	if err != nil {
		return nil, err
	}
	const annotation = "dev.gvisor.spec.rootfs."
	spec := map[string]any{
		"ociVersion": "1.1.0", "hostname": "stock", "root": map[string]any{"path": "rootfs"},
		"process": map[string]any{"args": holder(mb), "cwd": "/", "env": []string{"PATH=/usr/bin:/bin"}, "user": map[string]int{"uid": 0, "gid": 0}},
		"mounts":  []map[string]string{{"destination": "/proc", "type": "proc", "source": "proc"}},
		"linux":   map[string]any{"namespaces": []map[string]string{{"type": "pid"}, {"type": "network"}, {"type": "mount"}}},
		"annotations": map[string]string{annotation + "source": img.Path, annotation + "type": "erofs",
			annotation + "overlay": "memory"},
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	return s, os.WriteFile(filepath.Join(s.bundle, "config.json"), raw, 0o600)
}

// run runs a command of runsc. What it starts must not hold our streams.
func (s *stock) run(ctx context.Context, args ...string) error {
	log, err := os.CreateTemp(s.dir, "log")
	if err != nil {
		return err
	}
	defer os.Remove(log.Name())
	defer log.Close()
	null, err := os.CreateTemp(s.dir, "in") // it gives its standard input away, see timeCommand
	if err != nil {
		return err
	}
	defer os.Remove(null.Name())
	defer null.Close()
	cmd := exec.CommandContext(ctx, s.bin, append([]string{"--root", filepath.Join(s.dir, "root"), "--ignore-cgroups", "--network=none"}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = null, log, log
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("runsc %v: %w: %s", args, err, text)
	}
	return nil
}

// stockTime measures checkpoint and restore of stock runsc, with the fastest of its
// own settings: no compression, pages loaded in the background.
func stockTime(ctx context.Context, d *daemon, o options) ([]row, error) {
	s, err := newStock(ctx, d, o, 50)
	if err != nil {
		return nil, err
	}
	id := "stock0"
	if err := s.run(ctx, "run", "-detach", "-bundle", s.bundle, id); err != nil {
		return nil, err
	}
	defer func() { _ = s.run(context.WithoutCancel(ctx), "delete", "-force", id) }()
	for held := false; !held; time.Sleep(20 * time.Millisecond) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		held = s.run(ctx, "exec", id, "/bin/ls", "/tmp/held") == nil
	}
	var save, restore []float64
	for i := range o.samples(10) + 1 {
		image := filepath.Join(s.dir, fmt.Sprintf("image%d", i))
		start := time.Now()
		if err := s.run(ctx, "checkpoint", "-compression=none", "-image-path", image, id); err != nil {
			return nil, err
		}
		saved := time.Since(start)
		if err := s.run(ctx, "delete", "-force", id); err != nil {
			return nil, err
		}
		id = fmt.Sprintf("stock%d", i+1)
		start = time.Now()
		if err := s.run(ctx, "restore", "-detach", "-background", "-bundle", s.bundle, "-image-path", image, id); err != nil {
			return nil, err
		}
		if err := s.run(ctx, "exec", id, "/bin/echo", "ready"); err != nil {
			return nil, err
		}
		if i > 0 {
			save, restore = append(save, ms(saved)), append(restore, ms(time.Since(start)))
		}
		_ = os.RemoveAll(image)
	}
	return []row{
		summarise("stock runsc checkpoint, 50 MB held", "ms", save),
		summarise("stock runsc restore and exec, 50 MB held", "ms", restore),
	}, nil
}
