package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image/store"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
)

// stock is an unchanged container runtime, on the root image of our sandboxes: runsc from the same
// module, or runc.
type stock struct {
	name, bin, dir string
	flags          []string
	image          string // the root as EROFS
	root           string // the root as a directory; "" if the runtime reads the image
	count          int
	// group is a cgroup with the weight of one sandbox. On a busy machine, a process without a
	// group gets as much processor time as all groups of a daemon together.
	group *cgroup.Group
}

// runsc prepares stock runsc.
func (s *session) runsc(ctx context.Context) (*stock, error) {
	if s.stocked != nil {
		return s.stocked, nil
	}
	if os.Getuid() != 0 {
		return nil, &carrel.Error{Op: "runsc", Kind: carrel.Unsupported, Err: fmt.Errorf("stock runsc needs root")}
	}
	bin, err := s.built(ctx, "runsc")
	if err != nil {
		return nil, err
	}
	st, err := s.stock(ctx, "runsc", bin)
	if err != nil {
		return nil, err
	}
	st.flags = []string{"--ignore-cgroups", "--network=none"}
	s.stocked = st
	return st, nil
}

// runc prepares runc, with the root image mounted.
func (s *session) runc(ctx context.Context) (*stock, error) {
	if s.runced != nil {
		return s.runced, nil
	}
	bin, err := exec.LookPath("runc")
	if err != nil || os.Getuid() != 0 {
		return nil, &carrel.Error{Op: "runc", Kind: carrel.Unsupported, Err: fmt.Errorf("runc is not installed, or this is not root"), Hint: "apt-get install runc"}
	}
	st, err := s.stock(ctx, "runc", bin)
	if err != nil {
		return nil, err
	}
	st.root = filepath.Join(st.dir, "image")
	if err := os.Mkdir(st.root, 0o755); err != nil {
		return nil, err
	}
	if err := unix.Mount(st.image, st.root, "erofs", unix.MS_RDONLY, ""); err != nil {
		return nil, fmt.Errorf("mount the template for runc: %w", err)
	}
	s.undo.Add(func() { _ = unix.Unmount(st.root, unix.MNT_DETACH) })
	s.runced = st
	return st, nil
}

func (s *session) stock(ctx context.Context, name, bin string) (*stock, error) {
	scratch, err := s.scratch()
	if err != nil {
		return nil, err
	}
	st := &stock{name: name, bin: bin, dir: filepath.Join(scratch, "stock-"+name)}
	if err := os.MkdirAll(st.dir, 0o755); err != nil {
		return nil, err
	}
	if st.group, err = s.peerGroup(name); err != nil {
		return nil, err
	}
	images, err := store.Open(ctx, store.Options{Dir: filepath.Join(st.dir, "templates"), CacheDir: s.o.CacheDir})
	if err != nil {
		return nil, err
	}
	defer images.Close()
	img, err := images.Get(ctx, store.HostID)
	st.image = img.Path
	return st, err
}

// peerGroup makes a cgroup for a peer, next to those of the daemons.
func (s *session) peerGroup(name string) (*cgroup.Group, error) {
	h, err := cgroup.Open(fmt.Sprintf("carrel/bench-%d", os.Getpid()))
	if err != nil {
		return nil, err
	}
	s.undo.Add(func() { _ = h.Close() })
	g, err := h.Create(name, cgroup.Limits{})
	if err != nil {
		return nil, err
	}
	s.undo.Add(func() { _ = g.Destroy(context.Background()) })
	return g, nil
}

// bundle writes an OCI bundle whose first process is args.
func (s *stock) bundle(args ...string) (string, error) {
	dir, err := os.MkdirTemp(s.dir, "bundle")
	if err != nil {
		return "", err
	}
	root := map[string]any{"path": s.root, "readonly": true}
	annotations := map[string]string{}
	if s.root == "" {
		if err := os.Mkdir(filepath.Join(dir, "rootfs"), 0o755); err != nil {
			return "", err
		}
		root = map[string]any{"path": "rootfs"}
		const prefix = "dev.gvisor.spec.rootfs."
		annotations = map[string]string{prefix + "source": s.image, prefix + "type": "erofs", prefix + "overlay": "memory"}
	}
	spec := map[string]any{
		"ociVersion": "1.1.0", "hostname": "stock", "root": root, "annotations": annotations,
		"process": map[string]any{"args": args, "cwd": "/", "env": []string{"PATH=/usr/bin:/bin"}, "user": map[string]int{"uid": 0, "gid": 0}},
		"mounts": []map[string]string{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
			{"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"},
		},
		"linux": map[string]any{"namespaces": []map[string]string{{"type": "pid"}, {"type": "network"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}}},
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o600)
}

// run runs a command of the runtime. Processes that it starts must not hold our streams.
func (s *stock) run(ctx context.Context, args ...string) error {
	log, err := os.CreateTemp(s.dir, "log")
	if err != nil {
		return err
	}
	defer os.Remove(log.Name())
	defer log.Close()
	null, err := os.CreateTemp(s.dir, "in") // runsc gives its standard input to the sandbox's user
	if err != nil {
		return err
	}
	defer os.Remove(null.Name())
	defer null.Close()
	all := append([]string{"--root", filepath.Join(s.dir, "state")}, s.flags...)
	cmd := exec.CommandContext(ctx, s.bin, append(all, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = null, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if err = s.group.Start(cmd.SysProcAttr, cmd.Start); err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%s %v: %w: %.600s", s.name, args, err, text)
	}
	return nil
}

// next returns a new container name.
func (s *stock) next() string {
	s.count++
	return fmt.Sprintf("bench%d", s.count)
}

// start runs a container in the background.
func (s *stock) start(ctx context.Context, bundle, id string) error {
	return s.run(ctx, "run", "-detach", "-bundle", bundle, id)
}

// remove ends a container.
func (s *stock) remove(ctx context.Context, id string) error {
	return s.run(context.WithoutCancel(ctx), "delete", "-force", id)
}

// creating is "run" and "exec" of a new container each time. That corresponds to our create and its
// first command.
func (s *stock) creating() (*runner, error) {
	bundle, err := s.bundle("/bin/sleep", "1000000")
	return &runner{name: "stock " + s.name, once: func(ctx context.Context) (time.Duration, error) {
		id, start := s.next(), time.Now()
		err := s.start(ctx, bundle, id)
		if err == nil {
			err = s.run(ctx, "exec", id, "/bin/echo", "ready")
		}
		took := time.Since(start)
		if end := s.remove(ctx, id); err == nil {
			err = end
		}
		return took, err
	}}, err
}

// executing is "exec" in a running container; the function ends the container.
func (s *stock) executing(ctx context.Context) (*runner, func(), error) {
	bundle, err := s.bundle("/bin/sleep", "1000000")
	if err != nil {
		return nil, nil, err
	}
	id := s.next()
	if err := s.start(ctx, bundle, id); err != nil {
		return nil, nil, err
	}
	return &runner{name: "stock " + s.name, once: func(ctx context.Context) (time.Duration, error) {
		start := time.Now()
		err := s.run(ctx, "exec", id, "/bin/true")
		return time.Since(start), err
	}}, func() { _ = s.remove(ctx, id) }, nil
}

// moments measures checkpoint and restore of stock runsc, with its fastest settings: no
// compression, pages loaded in the background.
func (s *stock) moments(ctx context.Context, n, mb int) (save, restore []float64, err error) {
	bundle, err := s.bundle(holder(mb)...)
	if err != nil {
		return nil, nil, err
	}
	id := s.next()
	if err := s.start(ctx, bundle, id); err != nil {
		return nil, nil, err
	}
	defer func() { _ = s.remove(ctx, id) }()
	for held := false; !held; time.Sleep(20 * time.Millisecond) {
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		held = s.run(ctx, "exec", id, "/bin/ls", "/tmp/held") == nil
	}
	for i := range n + 1 {
		image := filepath.Join(s.dir, fmt.Sprintf("checkpoint%d", i))
		start := time.Now()
		if err := s.run(ctx, "checkpoint", "-compression=none", "-image-path", image, id); err != nil {
			return nil, nil, err
		}
		saved := time.Since(start)
		if err := s.remove(ctx, id); err != nil {
			return nil, nil, err
		}
		id = s.next()
		start = time.Now()
		if err := s.run(ctx, "restore", "-detach", "-background", "-bundle", bundle, "-image-path", image, id); err != nil {
			return nil, nil, err
		}
		if err := s.run(ctx, "exec", id, "/bin/echo", "ready"); err != nil {
			return nil, nil, err
		}
		if i > 0 {
			save, restore = append(save, ms(saved)), append(restore, ms(time.Since(start)))
		}
		_ = os.RemoveAll(image)
	}
	return save, restore, nil
}
