package debian

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/driver/microvm/boot"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/archive"
)

const opKernel = "get kernel"

// kernelFormat goes up when this code makes another directory of the same package.
const kernelFormat = 1

// Names in the directory of a Kernels.
const (
	kernelPrefix   = "kernel-"
	kernelDraft    = ".new-"
	kernelInUse    = "current"     // a file with the name of the directory that machines boot from
	kernelManifest = "kernel.json" // in each kernel's directory
)

// KernelOptions configures a Kernels.
type KernelOptions struct {
	Set     *Set // nil is no pinned packages
	Fetcher *Fetcher
	Dir     string       // holds the kernels; made if missing. It belongs to one process
	Log     *slog.Logger // nil discards
}

// Kernels keeps the kernel of virtual machines in a directory: that of the pinned package, and
// until it has been got, that of an older one. It is safe for concurrent use.
type Kernels struct {
	opts KernelOptions
	turn chan struct{} // one entry: who gets a kernel
}

// NewKernels returns a Kernels. It reads and writes nothing.
func NewKernels(opts KernelOptions) *Kernels {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Kernels{opts: opts, turn: make(chan struct{}, 1)}
}

// manifest says what is in a kernel's directory. The directory gets its name only with it.
type manifest struct {
	Package string            `json:"package"`
	Version string            `json:"version"`
	SHA256  string            `json:"sha256"` // of the package
	Made    time.Time         `json:"made"`
	Files   map[string]string `json:"files"` // SHA-256 of each, by its path
}

// Dir returns the directory of the kernel that machines boot. Error: fs.ErrNotExist if there is none.
func (k *Kernels) Dir() (string, error) {
	name, err := k.inUse()
	if err != nil {
		return "", err
	}
	return filepath.Join(k.opts.Dir, name), nil
}

// inUse returns the name of the kernel's directory.
func (k *Kernels) inUse() (string, error) {
	raw, err := os.ReadFile(filepath.Join(k.opts.Dir, kernelInUse))
	name := strings.TrimSpace(string(raw))
	if err == nil && (!strings.HasPrefix(name, kernelPrefix) || strings.ContainsRune(name, '/')) {
		err = fmt.Errorf("%s names no kernel", filepath.Join(k.opts.Dir, kernelInUse))
	}
	return name, err
}

// State says which kernel machines boot, as "package version", and whether this program has another
// one pinned. Error: fs.ErrNotExist if there is none.
func (k *Kernels) State() (kernel string, outdated bool, err error) {
	dir, err := k.Dir()
	if err != nil {
		return "", false, err
	}
	m, err := readKernelManifest(dir)
	if err != nil {
		return "", false, err
	}
	pin, err := k.pin()
	return m.Package + " " + m.Version, err == nil && filepath.Base(dir) != k.name(pin), nil
}

// pin returns the pinned package.
func (k *Kernels) pin() (Pin, error) {
	if k.opts.Set != nil {
		if p, ok := k.opts.Set.pin(k.opts.Set.Kernel); ok {
			return p, nil
		}
	}
	return Pin{}, &carrel.Error{Op: opKernel, Kind: carrel.Unsupported,
		Err:  fmt.Errorf("no kernel for virtual machines is pinned for %s", runtime.GOARCH),
		Hint: "give one of your own: carrel serve --microvm-kernel DIR"}
}

// name is that of a package's directory. It changes with the choice of modules.
func (k *Kernels) name(pin Pin) string {
	h := sha256.New()
	fmt.Fprintf(h, "format %d %s %q %q %q %q\n", kernelFormat, pin.SHA256, boot.Wanted, moreModules,
		filterPatterns, notFilters)
	return kernelPrefix + hex.EncodeToString(h.Sum(nil))[:20]
}

// Get brings the pinned kernel, unless it is there and whole. From then on machines boot it. An
// interrupted download is continued by the next Get, and changes nothing else. Errors: Unavailable
// (the package can't be had, or has other bits), Unsupported (none is pinned for this machine).
func (k *Kernels) Get(ctx context.Context, progress func(carrel.Progress)) (carrel.Template, error) {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return carrel.Template{}, archive.Classify(opKernel, context.Cause(ctx))
	}
	pin, err := k.pin()
	if err != nil {
		return carrel.Template{}, err
	}
	dir := filepath.Join(k.opts.Dir, k.name(pin))
	m, err := checkKernel(dir)
	if err == nil {
		err = k.use(dir)
	} else {
		if !errors.Is(err, fs.ErrNotExist) {
			k.opts.Log.Warn("the machines' kernel is damaged and will be made again", "err", err)
		}
		m, err = k.make(ctx, pin, dir, image.NewMeter(progress))
	}
	if err != nil {
		return carrel.Template{}, archive.Classify(opKernel, asOp(opKernel, err))
	}
	return carrel.Template{Name: image.Kernel, BuiltIn: true, Created: m.Made,
		Source: m.Package + " " + m.Version, Digest: "sha256:" + m.SHA256}, nil
}

// asOp gives an error of another step the name of the operation that a caller asked for.
func asOp(op string, err error) error {
	var ce *carrel.Error
	if !errors.As(err, &ce) {
		return err
	}
	named := *ce
	named.Op = op
	return &named
}

// make fetches the package and makes its directory. The caller has the turn.
func (k *Kernels) make(ctx context.Context, pin Pin, dir string, meter *image.Meter) (m manifest, err error) {
	began := time.Now()
	if err := k.opts.Fetcher.Fetch(ctx, []Pin{pin}, meter); err != nil {
		return m, err
	}
	meter.Stage(image.StageUnpack, 0)
	meter.Flush()
	if err := os.MkdirAll(k.opts.Dir, 0o700); err != nil {
		return m, err
	}
	k.sweep(dir)
	draft, err := os.MkdirTemp(k.opts.Dir, kernelDraft)
	if err != nil {
		return m, err
	}
	defer os.RemoveAll(draft) // it is gone after success
	deb, err := k.opts.Fetcher.Open(pin)
	if err == nil {
		err = errors.Join(unpackKernel(deb, pin, draft), deb.Close())
	}
	if err != nil {
		return m, fmt.Errorf("package %s: %w", pin.Name, err)
	}
	m = manifest{Package: pin.Name, Version: pin.Version, SHA256: pin.SHA256, Made: began.UTC()}
	if m.Files, err = sumFiles(draft); err != nil {
		return m, err
	}
	if err := m.write(draft); err != nil {
		return m, err
	}
	if err = context.Cause(ctx); err == nil {
		err = os.RemoveAll(dir) // a damaged one
	}
	if err == nil {
		err = os.Rename(draft, dir)
	}
	if err == nil {
		err = k.use(dir)
	}
	if err != nil {
		return m, err
	}
	k.opts.Fetcher.Prune(k.opts.Set.Pins, time.Now())
	k.opts.Log.Info("got the kernel of virtual machines", "package", pin.Name, "version", pin.Version,
		"modules", len(m.Files)-1, "took", time.Since(began).Round(time.Millisecond))
	return m, nil
}

// use has machines boot the kernel in a directory.
func (k *Kernels) use(dir string) error {
	name := filepath.Base(dir)
	if old, err := k.inUse(); err == nil && old == name {
		return nil
	}
	// The write also makes the directory's own name durable. No link, because backups leave links out.
	return atomicfile.Write(filepath.Join(k.opts.Dir, kernelInUse), []byte(name+"\n"), 0o644)
}

// sweep removes what dead processes left, and older kernels than the one in use. That one stays even
// if another takes its place now, because a machine's start may read it.
func (k *Kernels) sweep(dir string) {
	used, _ := k.inUse() // without one, none stays
	entries, _ := os.ReadDir(k.opts.Dir)
	for _, e := range entries {
		draft, kernel := strings.HasPrefix(e.Name(), "."), strings.HasPrefix(e.Name(), kernelPrefix)
		if !draft && !kernel || e.Name() == used || e.Name() == filepath.Base(dir) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(k.opts.Dir, e.Name())); err != nil {
			k.opts.Log.Warn("remove an old kernel", "name", e.Name(), "err", err)
		}
	}
}

// write writes the manifest, and makes it and all other files of the directory durable. There are
// some hundred: to sync each would take seconds.
func (m manifest) write(dir string) error {
	raw, err := json.MarshalIndent(m, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, kernelManifest), append(raw, '\n'), 0o644)
	}
	if err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return os.NewSyscallError("syncfs", unix.Syncfs(int(d.Fd())))
}

// readKernelManifest reads the manifest of a kernel's directory.
func readKernelManifest(dir string) (m manifest, err error) {
	raw, err := os.ReadFile(filepath.Join(dir, kernelManifest))
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	return m, err
}

// checkKernel compares a kernel's directory with its manifest.
func checkKernel(dir string) (manifest, error) {
	m, err := readKernelManifest(dir)
	if err != nil {
		return m, err
	}
	files, err := sumFiles(dir)
	if err != nil {
		return m, err
	}
	for name, sum := range m.Files {
		if files[name] != sum {
			return m, fmt.Errorf("%s has other bits than it was written with", filepath.Join(dir, name))
		}
	}
	if len(m.Files) == 0 {
		return m, fmt.Errorf("%s names no files", filepath.Join(dir, kernelManifest))
	}
	return m, nil
}

// sumFiles returns the SHA-256 of each file of a kernel's directory, by its path in it.
func sumFiles(dir string) (map[string]string, error) {
	out := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || name == kernelManifest {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		sum := sha256.Sum256(data)
		out[name] = hex.EncodeToString(sum[:])
		return err
	})
	return out, err
}
