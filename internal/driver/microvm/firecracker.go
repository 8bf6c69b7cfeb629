//go:build linux

package microvm

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/microvm/boot"
	"github.com/carrel-dev/carrel/internal/linux/tap"
)

// This file starts Firecracker. It was written from that program's documentation, and has been run
// with a stand-in only (fake_test.go). Firecracker opens its files by their names, is configured
// through its API, and knows the network by the name of a TAP device. It needs KVM.

const hintFirecracker = "install Firecracker 1.8 or newer (https://github.com/firecracker-microvm/firecracker/releases), or QEMU (on Debian: apt-get install qemu-system-x86)"

// firecrackerProgram is the VMM's usual name.
const firecrackerProgram = "firecracker"

// Since this version the devices are in ACPI's tables, where Debian's kernel looks for them.
const (
	firecrackerMajor = 1
	firecrackerMinor = 8
)

// firecrackerMB is the VMM's memory beside the machine's own. Its authors promise 5 MiB; the cache of
// files that it writes counts, too.
const firecrackerMB = 64

// Paths in Firecracker's root. A snapshot's state names the disks and the TAP device, so these never
// change.
const (
	firecrackerPath = "/firecracker"
	runDir          = "/run"
	apiSocket       = runDir + "/api"
	diskPaths       = "/disks/" // and a disk's name
	savedMemory     = "/save/ram"
	savedState      = "/save/state"
	tunDevice       = "/dev/net/tun"
	randomDevice    = "/dev/urandom" // where the kernel's call gives nothing yet
	tapName         = "tap0"
	cardName        = "eth0"
)

// Descriptors of Firecracker: the socket is the stage's, the others those of a machine that is
// loaded.
const (
	handFD = firstFD + iota
	loadMemoryFD
	loadStateFD
)

// firecrackerMTU is the largest packet: Firecracker's card does not tell its machine of another one.
// Segments may be larger, because both ends leave them to the other.
const firecrackerMTU = 1500

// targets are the files in Spec.Dir into which Firecracker writes a snapshot, by those of the
// snapshot. It can open no other file for writing, besides the sandbox's disk.
var targets = map[string]string{ramFile: "save-ram", stateFile: "save-state"}

// firecracker is an engine.
type firecracker struct{}

func (firecracker) name() string    { return EngineFirecracker }
func (firecracker) title() string   { return "Firecracker" }
func (firecracker) hint() string    { return hintFirecracker }
func (firecracker) emulates() bool  { return false }
func (firecracker) needsELF() bool  { return true }
func (firecracker) overheadMB() int { return firecrackerMB }

// rights are for the TAP device and the packet socket.
func (firecracker) rights() []uintptr { return []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW} }

// find looks for the program, and for the devices that it needs.
func (e firecracker) find(ctx context.Context, d *Driver) (*machine, error) {
	program, err := exec.LookPath(cmp.Or(d.opts.Firecracker, firecrackerProgram))
	if err != nil {
		return nil, err
	}
	if program, err = filepath.EvalSymlinks(program); err != nil {
		return nil, err
	}
	text, err := askVersion(ctx, program)
	if err != nil {
		return nil, err
	}
	version, err := firecrackerVersion(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	switch {
	case d.opts.NoKVM:
		return nil, errors.New("machines of Firecracker need KVM, which is switched off")
	case !isThere(d.kvmFile()):
		return nil, fmt.Errorf("machines of Firecracker need KVM, and this host has no %s", kvmDevice)
	case !isThere(tunDevice):
		return nil, fmt.Errorf("the network of Firecracker needs %s (modprobe tun)", tunDevice)
	}
	return &machine{engine: e, program: program, version: version,
		devices: map[string]string{kvmDevice: d.deviceFor(d.kvmFile()), tunDevice: d.deviceFor(tunDevice)}}, nil
}

// isThere reports whether a file exists.
func isThere(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// versionForm is the line with the program's version: "Firecracker v1.10.1". Other lines are about
// snapshots, or are its log.
var versionForm = regexp.MustCompile(`(?m)^Firecracker v((\d{1,4})\.(\d{1,4})\.[0-9A-Za-z.+-]{1,64})\r?$`)

// firecrackerVersion finds the version in what the program says of itself.
func firecrackerVersion(text string) (string, error) {
	parts := versionForm.FindStringSubmatch(text)
	if parts == nil {
		return "", fmt.Errorf("it does not say its version: %q", words([]byte(text)))
	}
	major, _ := strconv.Atoi(parts[2])
	minor, _ := strconv.Atoi(parts[3])
	if major < firecrackerMajor || major == firecrackerMajor && minor < firecrackerMinor {
		return "", fmt.Errorf("it is version %s, and %d.%d is needed", parts[1], firecrackerMajor, firecrackerMinor)
	}
	return "Firecracker v" + parts[1], nil
}

// instanceName is a VMM's name for itself, or the beginning of it: letters, digits and hyphens.
func instanceName(mark string) string { return strings.ReplaceAll(mark, "/", "-") }

// equip implements engine.
func (firecracker) equip(ctx context.Context, d *Driver, l *launch) error {
	disk, err := l.makeDisk(ctx)
	if err != nil {
		if disk != nil {
			disk.Close()
		}
		return err
	}
	err = d.give(disk, l.uid)
	disk.Close()
	if err != nil {
		return err
	}
	l.order.MTU = firecrackerMTU
	l.shown, l.writeable = map[string]string{}, map[string]string{diskPaths + "write": filepath.Join(l.spec.Dir, diskFile)}
	for name, image := range map[string]string{"root": l.spec.Root.Image, "guest": l.spec.Guest} {
		if l.shown[diskPaths+name], err = filepath.EvalSymlinks(image); err != nil {
			return err
		}
		if d.root && !isReadableByAll(image) {
			return fmt.Errorf("%s can't be read by the VMM's user: chmod a+r it", image)
		}
	}
	if err := d.addTargets(l); err != nil {
		return err
	}
	host, hand, err := socketPair()
	if err != nil {
		return err
	}
	l.host, l.files = host, append(l.files, hand)
	if err := d.addMemory(ctx, l); err != nil || !l.restores() {
		return err
	}
	// The VMM may not read the snapshot's file, and would share its offset with others.
	from := l.from.files[stateFile]
	state, err := seal(ctx, from, l.from.side.Sizes[stateFile])
	if err != nil {
		return err
	}
	l.files = append(l.files, state)
	return nil
}

// addTargets makes the empty files into which a VMM writes a snapshot.
func (d *Driver) addTargets(l *launch) error {
	for file, at := range map[string]string{ramFile: savedMemory, stateFile: savedState} {
		name := filepath.Join(l.spec.Dir, targets[file])
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		err = d.give(f, l.uid)
		f.Close()
		if err != nil {
			return err
		}
		l.writeable[at] = name
	}
	return nil
}

// removeTargets removes them.
func removeTargets(dir string) {
	for _, name := range targets {
		_ = os.Remove(filepath.Join(dir, name))
	}
}

// give makes a VMM the owner of a file.
func (d *Driver) give(f *os.File, uid int) error {
	if !d.root {
		return nil // it runs as we do
	}
	return f.Chown(uid, -1)
}

// socketPair makes the two ends over which the stage hands the link out.
func socketPair() (ours, stages *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "hand"), os.NewFile(uintptr(fds[1]), "hand"), nil
}

// equipExtract implements engine. The VMM opens both disks by name, and may change the second. So it
// reads a copy of the first, which is its own.
func (firecracker) equipExtract(ctx context.Context, d *Driver, l *launch, disk, out *os.File) (func(), error) {
	undo := func() { _ = os.Remove(out.Name()) }
	own, err := os.CreateTemp(l.spec.Dir, ".disk-*")
	if err != nil {
		undo()
		return nil, err
	}
	defer own.Close()
	undo = func() { _, _ = os.Remove(out.Name()), os.Remove(own.Name()) }
	info, err := disk.Stat()
	if err == nil {
		err = copySparse(ctx, own, disk, info.Size())
	}
	if err = errors.Join(err, d.give(own, l.uid), d.give(out, l.uid)); err != nil {
		undo()
		return nil, err
	}
	l.shown = map[string]string{diskPaths + "write": own.Name()}
	l.writeable = map[string]string{diskPaths + "tar": out.Name()}
	return undo, nil
}

// order implements engine.
func (firecracker) order(d *Driver, m *machine, l *launch) (order, error) {
	o := order{
		Program: firecrackerPath,
		Args:    []string{firecrackerPath, "--id", instanceName(d.mark) + string(l.spec.ID), "--api-sock", apiSocket},
		Files:   map[string]string{firecrackerPath: m.program, kernelPath: m.kernel, initrdPath: m.initrd},
		Devices: map[string]string{kvmDevice: m.devices[kvmDevice], tunDevice: m.devices[tunDevice], randomDevice: randomDevice},
		Run:     runDir, Writeable: l.writeable, Descriptors: l.restores(),
		MaxFile: uint64(max(l.spec.Limits.MemoryMB<<20, maxState)),
	}
	if isDynamic(m.program) {
		o.Shared = systemFiles()
	}
	for at, name := range l.shown {
		o.Files[at] = name
	}
	for _, name := range l.writeable {
		info, err := os.Stat(name)
		if err != nil {
			return order{}, err
		}
		o.MaxFile = max(o.MaxFile, uint64(info.Size()))
	}
	if l.host != nil {
		o.TAP = &lent{Name: tapName, MTU: l.order.MTU, Device: m.devices[tunDevice], Socket: handFD}
	}
	return o, nil
}

// isDynamic reports whether a program needs the host's libraries. The releases of Firecracker do
// not.
func isDynamic(program string) bool {
	f, err := elf.Open(program)
	if err != nil {
		return false
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return true
		}
	}
	return false
}

// hostEnd takes the link from the stage, which sent it before it became the VMM.
func (firecracker) hostEnd(l *launch) (*os.File, error) {
	hand := l.host
	l.host = nil
	defer hand.Close()
	link, err := tap.Receive(int(hand.Fd()))
	if err != nil {
		return nil, fmt.Errorf("the machine's link: %w", err)
	}
	tap.Enlarge(link)
	return link, nil
}

// boot implements engine.
func (firecracker) boot(ctx context.Context, m *machine, l *launch) error {
	requests, err := bootRequests(m, l)
	if err != nil {
		return err
	}
	a := dialAPI(process{l.pid, l.pidfd})
	defer a.close()
	return a.all(ctx, requests)
}

// Bodies of requests.
type (
	machineConfig struct {
		CPUs     int `json:"vcpu_count"`
		MemoryMB int `json:"mem_size_mib"`
	}
	bootSource struct {
		Kernel string `json:"kernel_image_path"`
		Initrd string `json:"initrd_path"`
		Args   string `json:"boot_args"`
	}
	drive struct {
		ID       string `json:"drive_id"`
		Path     string `json:"path_on_host"`
		Root     bool   `json:"is_root_device"`
		ReadOnly bool   `json:"is_read_only"`
	}
	networkInterface struct {
		ID     string `json:"iface_id"`
		MAC    string `json:"guest_mac"`
		Device string `json:"host_dev_name"`
	}
	action struct {
		Type string `json:"action_type"`
	}
	vmState struct {
		State string `json:"state"`
	}
	snapshotCreate struct {
		Type   string `json:"snapshot_type"`
		State  string `json:"snapshot_path"`
		Memory string `json:"mem_file_path"`
	}
	snapshotLoad struct {
		State  string        `json:"snapshot_path"`
		Memory memoryBackend `json:"mem_backend"`
		Resume bool          `json:"resume_vm"`
	}
	memoryBackend struct {
		Type string `json:"backend_type"`
		Path string `json:"backend_path"`
	}
)

// bootRequests configure a machine and start it. The drives' order is that of the disks inside, see
// package boot. None is a root device, because the kernel starts from the initrd.
func bootRequests(m *machine, l *launch) ([]apiRequest, error) {
	line, err := firecrackerLine(l.order)
	if err != nil {
		return nil, err
	}
	put := func(path string, body any) apiRequest { return apiRequest{http.MethodPut, path, body} }
	out := []apiRequest{
		put("/machine-config", machineConfig{processors(l.spec.Limits.CPUs), l.spec.Limits.MemoryMB}),
		put("/boot-source", bootSource{kernelPath, initrdPath, line}),
	}
	var names []string
	switch {
	case l.order.Extract:
		names = []string{"write", "tar"}
	case !l.order.Trial:
		names = []string{"root", "guest", "write"}
	}
	for _, name := range names {
		_, writeable := l.writeable[diskPaths+name]
		out = append(out, put("/drives/"+name, drive{ID: name, Path: diskPaths + name, ReadOnly: !writeable}))
	}
	if !l.order.Trial && !l.order.Extract {
		out = append(out, put("/network-interfaces/"+cardName, networkInterface{cardName, driver.GuestMAC, tapName}))
	}
	return append(out, put("/actions", action{"InstanceStart"})), nil
}

// firecrackerLine is the kernel's command line. The VMM ends when the machine resets by the keyboard's
// controller, which is not looked for at the start. There is no PCI; the devices are in ACPI's tables.
func firecrackerLine(order boot.Order) (string, error) {
	text, err := order.Encode()
	if err != nil {
		return "", err
	}
	return "console=ttyS0 quiet panic=-1 reboot=k pci=off i8042.noaux i8042.nomux i8042.nopnp i8042.dumbkbd" +
		" oops=panic 8250.nr_uarts=1 cryptomgr.notests audit=0 random.trust_cpu=on " + text, nil
}

// deviceFor returns the file by which VMMs open a device. Where only root may open the host's own,
// it is a node in the driver's directory, which nobody else reaches.
func (d *Driver) deviceFor(file string) string {
	var st unix.Stat_t
	if !d.root || unix.Stat(file, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Mode&0o006 == 0o006 {
		return file
	}
	node := filepath.Join(d.opts.Root, "device-"+filepath.Base(file))
	var made unix.Stat_t
	if unix.Lstat(node, &made) != nil || made.Mode&unix.S_IFMT != unix.S_IFCHR || made.Rdev != st.Rdev {
		_ = os.Remove(node)
		if err := unix.Mknod(node, unix.S_IFCHR|0o600, int(st.Rdev)); err != nil {
			return file
		}
	}
	if os.Chmod(node, 0o666) != nil {
		return file
	}
	fd, err := unix.Open(node, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0) // not on a filesystem without devices
	if err != nil {
		return file
	}
	_ = unix.Close(fd)
	return node
}
