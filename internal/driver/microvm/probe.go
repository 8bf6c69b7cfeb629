//go:build linux

package microvm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/driver/microvm/boot"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// qemuProgram is the VMM's usual name.
const qemuProgram = "qemu-system-x86_64"

// Limits of the boot files, in bytes.
const (
	maxKernel = 128 << 20
	maxInit   = 32 << 20
)

// Limits of a trial. KVM that is broken fails at once or never ends. Emulation on a host that has
// ten times as much to do as it can is slow and works.
const (
	kvmTrial = 5 * time.Second
	tcgTrial = 90 * time.Second
)

// verdictFile in Root holds the verdict about the accelerator.
const verdictFile = "accelerator.json"

// Hints for what a host may lack.
const (
	hintQEMU   = "install QEMU for x86 (on Debian: apt-get install qemu-system-x86)"
	hintKernel = "get Debian's: carrel template get kernel; or name a directory with one: carrel serve --microvm-kernel DIR"
	hintBuild  = "build it with: make build"
	hintTrial  = "see whether the VMM boots anything on this host"
)

// unsupported is the error of a host that lacks something.
func unsupported(err error, hint string) error {
	return &carrel.Error{Op: "probe microvm", Kind: carrel.Unsupported, Err: err, Hint: hint}
}

// Probe implements driver.Driver. The first time it boots a machine, which takes one to two seconds.
// The verdict is remembered, also for later drivers with the same QEMU and kernels.
func (d *Driver) Probe(ctx context.Context) error {
	_, err := d.prepare(ctx)
	return err
}

// prepare makes the boot files and chooses the accelerator, once for each kernel.
func (d *Driver) prepare(ctx context.Context) (*machine, error) {
	source, noKernel := d.findKernel()
	if m := d.ready.Load(); m != nil && (m.source == source || noKernel != nil) {
		return m, nil
	}
	select {
	case d.preparing <- struct{}{}:
		defer func() { <-d.preparing }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if m := d.ready.Load(); m != nil && m.source == source {
		return m, nil
	}
	m, err := d.findParts(ctx, source, noKernel)
	if err != nil {
		return nil, err
	}
	if err := d.chooseAccelerator(ctx, m); err != nil {
		return nil, err
	}
	if m.cpu = tcgCPU(m.tscKHz); m.accel == kvm {
		m.cpu = hostCPU()
	}
	d.ready.Store(m)
	return m, nil
}

// findKernel returns the directory of the kernel. An error says why there is none.
func (d *Driver) findKernel() (string, error) {
	if d.opts.Kernel != "" {
		return d.opts.Kernel, nil
	}
	if d.opts.FindKernel == nil {
		return "", errors.New("none is given")
	}
	return d.opts.FindKernel()
}

// findParts looks for the VMM and makes the boot files. noKernel says why there is no kernel in
// source.
func (d *Driver) findParts(ctx context.Context, source string, noKernel error) (*machine, error) {
	if runtime.GOARCH != "amd64" {
		return nil, unsupported(fmt.Errorf("no machine for %s", runtime.GOARCH), "use an amd64 host")
	}
	m, err := d.findEngine(ctx)
	if err != nil {
		return nil, err
	}
	m.source = source
	if d.opts.Init == "" {
		return nil, unsupported(errors.New("this binary was built without carrel-init, the first program of machines"), hintBuild)
	}
	if noKernel != nil {
		return nil, unsupported(fmt.Errorf("there is no kernel for machines: %w", noKernel), hintKernel)
	}
	image, err := d.readKernel(m.source)
	if err != nil {
		return nil, unsupported(fmt.Errorf("the machines' kernel: %w", err), hintKernel)
	}
	if m.engine.needsELF() && !bytes.HasPrefix(image, []byte(elf.ELFMAG)) {
		return nil, unsupported(fmt.Errorf("%s starts an unpacked kernel only, and this one can't be unpacked here", m.engine.title()),
			"put vmlinux, the kernel as an ELF file, into the directory of --microvm-kernel")
	}
	initrd, err := d.makeInitrd(m.source)
	if err != nil {
		return nil, unsupported(fmt.Errorf("the machines' initrd: %w", err), hintKernel)
	}
	if m.kernel, err = d.keep("kernel", image); err != nil {
		return nil, err
	}
	if m.initrd, err = d.keep("initrd", initrd); err != nil {
		return nil, err
	}
	m.tscKHz = tscKHz()
	return m, nil
}

// readKernel reads the kernel in a directory: vmlinux, or vmlinuz, which it unpacks if it can.
func (d *Driver) readKernel(dir string) ([]byte, error) {
	data, err := readBounded(filepath.Join(dir, "vmlinux"), maxKernel)
	if err == nil {
		return trimELF(data)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	image, err := readBounded(filepath.Join(dir, "vmlinuz"), maxKernel)
	if err != nil {
		return nil, err
	}
	if data, err = unpackKernel(image); err != nil {
		d.log.Info("machines boot the kernel's image as it is", "err", err)
		return image, nil
	}
	return data, nil
}

// build names everything that must be equal for memory to be restored. The kernel is part of the
// memory. The version names the engine, too.
func (m *machine) build() string {
	return fmt.Sprintf("vm%d %s %s", snapshotFormat, m.accel, m.version)
}

// tcgCPU names the processor of an emulated machine: the one thing of the host that it sees is the
// rate of the time stamp counter.
func tcgCPU(kHz int) string { return fmt.Sprintf("%s %d", tcg, kHz) }

// maxClockError is how much the rates of two hosts may differ, as one part of this many. A restored
// machine's clock is wrong by that.
const maxClockError = 2000

// sees reports whether a saved processor is one that machines see here.
func (m *machine) sees(cpu string) bool {
	if m.accel == kvm {
		return cpu == m.cpu
	}
	text, emulated := strings.CutPrefix(cpu, tcg+" ")
	kHz, err := strconv.Atoi(text)
	return emulated && err == nil && max(kHz, m.tscKHz)-min(kHz, m.tscKHz) <= m.tscKHz/maxClockError
}

// hostCPU names the host's processor and its features.
func hostCPU() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(b), "\n\n")
	var wanted []string
	for line := range strings.Lines(first) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "model name", "stepping", "flags":
			wanted = append(wanted, strings.TrimSpace(value))
		}
	}
	sum := sha256.Sum256([]byte(strings.Join(wanted, "\n")))
	return kvm + " " + hex.EncodeToString(sum[:16])
}

// findQEMU returns the VMM's path without links. The VMM's root has the host's directories of
// programs only.
func findQEMU(given string) (string, error) {
	path, err := exec.LookPath(given)
	if given == "" {
		path, err = exec.LookPath(qemuProgram)
	}
	if err != nil {
		return "", err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", err
	}
	if !slices.ContainsFunc(systemDirs, func(dir string) bool { return strings.HasPrefix(path, dir+"/") }) {
		return "", fmt.Errorf("%s lies in none of %s", path, strings.Join(systemDirs, ", "))
	}
	return path, nil
}

// makeInitrd puts carrel-init and the modules of a kernel's directory into an archive: first those that are loaded at the
// start.
func (d *Driver) makeInitrd(dir string) ([]byte, error) {
	init, err := readBounded(d.opts.Init, maxInit)
	if err != nil {
		return nil, err
	}
	first, more, err := readModules(filepath.Join(dir, "modules"))
	if err != nil {
		return nil, err
	}
	var a archive
	a.add(boot.Init, cpioFile, init)
	a.add(boot.Modules, cpioDir, nil)
	for i, m := range first {
		a.add(fmt.Sprintf("%s/%02d-%s.ko", boot.Modules, i, m.Name), cpioFile, m.Data)
	}
	if len(more) > 0 {
		store, err := boot.Pack(more)
		if err != nil {
			return nil, err
		}
		a.add(boot.More, cpioDir, nil)
		a.add(boot.Store, cpioFile, store)
	}
	return a.end(), nil
}

// keep writes a boot file into Root, under a name that follows from its content. Machines run on
// after their driver, so a file under that name is never changed.
func (d *Driver) keep(kind string, data []byte) (string, error) {
	sum := sha256.Sum256(data)
	path := filepath.Join(d.opts.Root, kind+"-"+hex.EncodeToString(sum[:16]))
	if info, err := os.Stat(path); err == nil && info.Size() == int64(len(data)) {
		return path, nil
	}
	return path, atomicfile.Write(path, data, 0o644) // each VMM has a uid of its own, and reads it
}

// verdict is the remembered choice of the accelerator.
type verdict struct {
	For   string `json:"for"` // everything that it depends on
	Accel string `json:"accel"`
}

// chooseAccelerator boots a machine with KVM if this host seems to have it, and else by emulation.
// The device alone proves nothing: on some hosts a VMM with KVM ends or hangs.
func (d *Driver) chooseAccelerator(ctx context.Context, m *machine) error {
	var uts unix.Utsname
	_ = unix.Uname(&uts)
	_, kvmErr := os.Stat(d.kvmFile())
	v := verdict{For: strings.Join([]string{m.version, filepath.Base(m.kernel), filepath.Base(m.initrd),
		unix.ByteSliceToString(uts.Release[:]), proc.BootID(), fmt.Sprint(kvmErr == nil && !d.opts.NoKVM, d.root)}, " ")}
	file := filepath.Join(d.opts.Root, verdictFile)
	var old verdict
	if b, err := readBounded(file, 4<<10); err == nil && json.Unmarshal(b, &old) == nil &&
		old.For == v.For && (old.Accel == kvm || old.Accel == tcg && m.engine.emulates()) {
		m.accel = old.Accel
		return nil
	}
	var errs []error
	for _, try := range []struct {
		accel string
		limit time.Duration
	}{{kvm, kvmTrial}, {tcg, tcgTrial}} {
		if try.accel == kvm && (kvmErr != nil || d.opts.NoKVM) || try.accel == tcg && !m.engine.emulates() {
			continue
		}
		m.accel = try.accel
		began := time.Now()
		err := d.try(ctx, m, try.limit)
		if err == nil {
			d.log.Info("virtual machines boot", "accelerator", m.accel, "engine", m.version, "took", time.Since(began), "before", errors.Join(errs...))
			v.Accel = m.accel
			b, err := json.Marshal(v)
			if err != nil {
				return err
			}
			return atomicfile.Write(file, b, 0o600)
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		errs = append(errs, fmt.Errorf("%s: %w", try.accel, err))
	}
	return unsupported(fmt.Errorf("no machine boots: %w", errors.Join(errs...)), hintTrial)
}

// try boots a machine without disks and link, and waits for its end.
func (d *Driver) try(ctx context.Context, m *machine, limit time.Duration) error {
	l := &launch{spec: driver.Spec{ID: carrel.NewID(), Limits: carrel.Limits{CPUs: 1, MemoryMB: trialMB}}, order: boot.Order{Trial: true}}
	return d.runToEnd(ctx, m, l, limit, boot.Works)
}

// Report implements driver.Reporter.
func (d *Driver) Report(context.Context) []driver.Finding {
	out := hosted.GroupFindings(d.groups, map[cgroup.Controller]string{
		cgroup.Memory: "the driver watches the memory of machines itself",
		cgroup.CPU:    "processor limits are not enforced",
		cgroup.Pids:   "the threads of a machine on the host are not bounded",
	})
	if m := d.ready.Load(); m != nil && m.accel == tcg {
		out = append(out, driver.Finding{
			What: "machines run by emulation: slowly, and QEMU's translator is no wall that its authors vouch for",
			Why:  "no machine boots with KVM on this host",
			Hint: "use a host whose /dev/kvm works, or --tier gvisor",
		})
	}
	if m := d.ready.Load(); m != nil && m.engine.name() == EngineFirecracker {
		out = append(out, driver.Finding{
			What: "machines run in " + m.version + ", with which this driver has not been tested",
			Why:  "it was written from Firecracker's documentation, and tested with a stand-in",
			Hint: "install QEMU and say --microvm-engine qemu, if that is not enough",
		})
	}
	if !d.root {
		out = append(out, driver.Finding{
			What: "all machines share one host uid",
			Why:  fmt.Sprintf("running as uid %d, which may give out no others", os.Geteuid()),
			Hint: "run as the host's root to give each sandbox a uid of its own",
		})
	}
	return out
}
