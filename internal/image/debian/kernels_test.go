package debian_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver/microvm/boot"
	"github.com/carrel-dev/carrel/internal/driver/microvm/boot/boottest"
	"github.com/carrel-dev/carrel/internal/image/debian"
)

// kernelFiles are the files of a kernel's package, whose modules lie below root and end in suffix.
// Each asked module is there but fuse, which is built in. erofs needs libx, which needs lib_y.
func kernelFiles(t testing.TB, root, suffix string) (out []file) {
	t.Helper()
	dir := root + "lib/modules/6.0-test/"
	module := func(place string, fields ...string) file {
		data := boottest.Module(append(fields, "license=GPL")...)
		if suffix != ".ko" {
			data = compress(t, strings.TrimPrefix(suffix, ".ko."), data)
		}
		return file{name: dir + "kernel/" + place + suffix, text: string(data)}
	}
	out = append(out, file{name: "./boot/vmlinuz-6.0-test", text: "the kernel"},
		file{name: "./boot/config-6.0-test", text: "no part"},
		file{name: dir + "modules.builtin", text: "kernel/fs/fuse/fuse.ko\nkernel/fs/ext4/ext4.ko\n"},
		module("fs/erofs/erofs", "depends=libx,ext4"), module("lib/libx", "depends=lib-y"), module("lib/lib-y", "depends="),
		module("net/netfilter/nf_tables"), module("net/ipv4/netfilter/ip-tables"), module("net/netfilter/nf_nat_sip"),
		module("drivers/net/huge"))
	for _, name := range slices.Concat(boot.Wanted, debian.MoreModules) {
		if name != "erofs" && name != "fuse" {
			out = append(out, module("drivers/"+strings.ReplaceAll(name, "_", "-"), "depends="))
		}
	}
	return out
}

// kernelDeb is a kernel's package. version tells it from others.
func kernelDeb(t testing.TB, version string, files ...file) packed {
	t.Helper()
	return deb(t, "linux-image-"+version+"-cloud", "xz", "", nil, files...)
}

// kernelSet pins one kernel.
func kernelSet(d packed) *debian.Set {
	return &debian.Set{Suite: "trixie", Version: "13.0", Arch: "amd64", Kernel: d.pin.Name, Pins: pinsOf(d)}
}

// kernelsOf returns kernels in dir, with packages from a mirror.
func kernelsOf(t testing.TB, d packed, m *mirror, dir string) (*debian.Kernels, *debian.Fetcher) {
	t.Helper()
	f := m.fetcher(t)
	f.Attempts = 1
	return debian.NewKernels(debian.KernelOptions{Set: kernelSet(d), Fetcher: f, Dir: dir}), f
}

// namesIn returns what is in a directory that need not be there.
func namesIn(t testing.TB, dir string) []string {
	t.Helper()
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return names(t, dir)
}

// TestKernels gets a kernel of modules in each form in which Debian has them.
func TestKernels(t *testing.T) {
	for _, c := range []struct{ name, root, suffix string }{
		{"trixie", "./usr/", ".ko.xz"}, {"bookworm", "./", ".ko"}, {"zstd", "./usr/", ".ko.zst"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := kernelDeb(t, "6.0", kernelFiles(t, c.root, c.suffix)...)
			k, f := kernelsOf(t, d, newMirror(t, d), filepath.Join(t.TempDir(), "kernel"))
			if _, err := k.Dir(); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("before: %v", err)
			}
			var stages []string
			tm, err := k.Get(t.Context(), func(p carrel.Progress) {
				if !slices.Contains(stages, p.Stage) {
					stages = append(stages, p.Stage)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if tm.Name != "kernel" || tm.Digest != "sha256:"+d.pin.SHA256 || tm.Source != d.pin.Name+" 1.0-1" || tm.Created.IsZero() ||
				!slices.Equal(stages, []string{"fetch", "unpack"}) {
				t.Errorf("%+v, stages %v", tm, stages)
			}
			checkKernelDir(t, k)
			// It is there: no mirror and no package is needed any more.
			f.Mirror = debian.Mirror{}
			if err := os.RemoveAll(f.Dir); err != nil {
				t.Fatal(err)
			}
			if again, err := k.Get(t.Context(), nil); err != nil || again.Digest != tm.Digest {
				t.Errorf("again: %+v, %v", again, err)
			}
		})
	}
}

// checkKernelDir compares the kernel in use with what the package has for a machine.
func checkKernelDir(t testing.TB, k *debian.Kernels) {
	t.Helper()
	dir, err := k.Dir()
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := os.ReadFile(filepath.Join(dir, "vmlinuz")); err != nil || string(raw) != "the kernel" {
		t.Errorf("vmlinuz: %q, %v", raw, err)
	}
	want := []string{"libx.ko", "lib_y.ko", "nf_tables.ko", "ip_tables.ko"}
	for _, name := range slices.Concat(boot.Wanted, debian.MoreModules) {
		if name != "fuse" {
			want = append(want, name+".ko")
		}
	}
	slices.Sort(want)
	if got := names(t, filepath.Join(dir, "modules")); !slices.Equal(got, want) {
		t.Errorf("modules %v, want %v", got, want)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "modules/erofs.ko"))
	if err != nil {
		t.Fatal(err)
	}
	if m, err := boot.ParseModule(raw); err != nil || !slices.Equal(m.Needs, []string{"libx", "ext4"}) {
		t.Errorf("erofs.ko: %+v, %v", m, err)
	}
}

// TestKernelsRefuse has packages that can't be used. Nothing of them stays, and the kernel that
// there was before is in use.
func TestKernelsRefuse(t *testing.T) {
	good := kernelFiles(t, "./usr/", ".ko.xz")
	without := func(part string) []file {
		return slices.DeleteFunc(slices.Clone(good), func(f file) bool { return strings.Contains(f.name, part) })
	}
	const at = "./usr/lib/modules/6.0-test/kernel/"
	for _, c := range []struct {
		name, want string
		d          packed
		change     func(m *mirror, k *packed)
	}{
		{"other bits", "linux-image-6.1-cloud", kernelDeb(t, "6.1", good...), func(m *mirror, _ *packed) {
			m.set(func(w http.ResponseWriter, _ *http.Request, raw []byte) bool {
				raw = slices.Clone(raw)
				raw[len(raw)/2]++
				_, _ = w.Write(raw)
				return true
			})
		}},
		{"cut off", "linux-image-6.1-cloud", kernelDeb(t, "6.1", good...), func(m *mirror, _ *packed) {
			m.set(func(w http.ResponseWriter, _ *http.Request, raw []byte) bool {
				_, _ = w.Write(raw[:len(raw)/2])
				return true
			})
		}},
		{"not there", "no longer has", kernelDeb(t, "6.1", good...), func(m *mirror, _ *packed) {
			m.set(func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
				http.NotFound(w, r)
				return true
			})
		}},
		{"no kernel", "it has no kernel", kernelDeb(t, "6.1", without("vmlinuz")...), nil},
		{"no wanted module", `no module "overlay"`, kernelDeb(t, "6.1", without("overlay")...), nil},
		{"no needed module", `no module "lib_y"`, kernelDeb(t, "6.1", without("lib-y")...), nil},
		{"a module that is none", "module overlay", kernelDeb(t, "6.1",
			append(without("overlay"), file{name: at + "fs/overlay.ko.xz", text: "none"})...), nil},
		{"another version", "it says that it is", kernelDeb(t, "6.1", good...), func(_ *mirror, d *packed) { d.pin.Version = "2" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			old := kernelDeb(t, "6.0", good...)
			m := newMirror(t, old, c.d)
			dir := filepath.Join(t.TempDir(), "kernel")
			before, _ := kernelsOf(t, old, m, dir)
			if _, err := before.Get(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			was, d := names(t, dir), c.d
			if c.change != nil {
				c.change(m, &d)
			}
			k, _ := kernelsOf(t, d, m, dir)
			_, err := k.Get(t.Context(), nil)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "get kernel: ") {
				t.Errorf("%v", err)
			}
			if got := names(t, dir); !slices.Equal(got, was) {
				t.Errorf("left: %v, there was %v", got, was)
			}
			checkKernelDir(t, k)
			if kernel, outdated, err := k.State(); err != nil || !outdated || kernel != "linux-image-6.0-cloud 1.0-1" {
				t.Errorf("in use: %q %v %v", kernel, outdated, err)
			}
		})
	}
}

// TestKernelsChange gets a newer kernel, twice. The one that was in use stays one time longer, for
// the machines that are starting.
func TestKernelsChange(t *testing.T) {
	files := kernelFiles(t, "./usr/", ".ko.xz")
	var all []packed
	for n := range 3 {
		all = append(all, kernelDeb(t, fmt.Sprint("6.", n), files...))
	}
	m, dir := newMirror(t, all...), filepath.Join(t.TempDir(), "kernel")
	// What a killed process may leave.
	if err := os.MkdirAll(filepath.Join(dir, ".new-123/modules"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".current.123"), []byte("kernel-g"), 0o600); err != nil {
		t.Fatal(err)
	}
	for n, d := range all {
		k, _ := kernelsOf(t, d, m, dir)
		if _, err := k.Get(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		checkKernelDir(t, k)
		if kernel, outdated, err := k.State(); err != nil || outdated || kernel != d.pin.Name+" 1.0-1" {
			t.Errorf("in use: %q %v %v", kernel, outdated, err)
		}
		if got, want := len(names(t, dir)), 1+min(2, n+1); got != want {
			t.Errorf("%v, want %d entries", names(t, dir), want)
		}
	}
}

// TestKernelsRepair damages a kernel that is there.
func TestKernelsRepair(t *testing.T) {
	d := kernelDeb(t, "6.0", kernelFiles(t, "./usr/", ".ko.xz")...)
	k, _ := kernelsOf(t, d, newMirror(t, d), filepath.Join(t.TempDir(), "kernel"))
	for _, damage := range []func(dir string) error{
		func(string) error { return nil },
		func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "vmlinuz"), []byte("The kernel"), 0o644)
		},
		func(dir string) error { return os.Remove(filepath.Join(dir, "modules/lib_y.ko")) },
		func(dir string) error { return os.WriteFile(filepath.Join(dir, "kernel.json"), []byte("{"), 0o644) },
		func(dir string) error { return os.Remove(filepath.Join(dir, "kernel.json")) },
		func(dir string) error { return os.RemoveAll(dir) },
	} {
		dir, err := k.Dir()
		if err == nil {
			err = damage(dir)
		} else if errors.Is(err, fs.ErrNotExist) {
			err = nil // the first time
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Get(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		checkKernelDir(t, k)
	}
}

// TestKernelsCalledOff ends a context while the mirror is silent: it leaves nothing, and the next
// one has its turn.
func TestKernelsCalledOff(t *testing.T) {
	d := kernelDeb(t, "6.0", kernelFiles(t, "./usr/", ".ko.xz")...)
	m, dir := newMirror(t, d), filepath.Join(t.TempDir(), "kernel")
	k, _ := kernelsOf(t, d, m, dir)
	ctx, cancel := context.WithCancel(t.Context())
	m.set(func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
		cancel()
		<-r.Context().Done()
		return true
	})
	if _, err := k.Get(ctx, nil); carrel.KindOf(err) != carrel.TimedOut {
		t.Errorf("%v", err)
	}
	if left := namesIn(t, dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	m.set(nil)
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	errs := make(chan error)
	for range 4 {
		go func() {
			_, err := k.Get(ctx, nil)
			errs <- err
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	checkKernelDir(t, k)
	if asked := m.requests(); len(asked) != 2 {
		t.Errorf("%d requests: %v", len(asked), asked)
	}
}

// TestKernelsWithoutPin asks on a machine for which no kernel is pinned.
func TestKernelsWithoutPin(t *testing.T) {
	for _, set := range []*debian.Set{nil, {Suite: "trixie", Arch: "arm64"}} {
		k := debian.NewKernels(debian.KernelOptions{Set: set, Fetcher: debian.NewFetcher(debian.Mirror{}, t.TempDir()), Dir: t.TempDir()})
		if _, err := k.Get(t.Context(), nil); carrel.KindOf(err) != carrel.Unsupported || !strings.Contains(carrel.HintOf(err), "--microvm-kernel") {
			t.Errorf("%v, hint %q", err, carrel.HintOf(err))
		}
	}
}

// TestKernelsElsewhere has a name that leads out of the directory.
func TestKernelsElsewhere(t *testing.T) {
	dir := t.TempDir()
	k := debian.NewKernels(debian.KernelOptions{Dir: dir})
	for _, to := range []string{"", "/etc", "../kernel-x", "kernel-x/../../y"} {
		if err := os.WriteFile(filepath.Join(dir, "current"), []byte(to), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := k.Dir(); err == nil {
			t.Errorf("%s is taken for a kernel: %s", to, got)
		}
	}
}

// TestPinnedKernel checks that the program's own pins have a kernel where there are machines.
func TestPinnedKernel(t *testing.T) {
	raw, err := os.ReadFile("pins/amd64.pins")
	if err != nil {
		t.Fatal(err)
	}
	set, err := debian.ParseSet(raw)
	if err != nil || !strings.HasPrefix(set.Kernel, "linux-image-") || !strings.HasSuffix(set.Kernel, "-cloud-amd64") {
		t.Errorf("%q, %v", set.Kernel, err)
	}
	if _, err := debian.ParseSet([]byte("release trixie 13 amd64 1\nkernel linux-image\n")); err == nil {
		t.Error("a kernel that is not pinned")
	}
	if got := string(set.Format()); got != string(raw) {
		t.Error("the file is not what its own reader writes")
	}
}
