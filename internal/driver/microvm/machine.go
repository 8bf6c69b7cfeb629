//go:build linux

package microvm

import (
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/microvm/boot"
)

// Accelerators.
const (
	kvm = "kvm" // hardware
	tcg = "tcg" // QEMU translates the machine's instructions
)

// machine holds what all machines of a driver have in common.
type machine struct {
	engine  engine
	program string // path, without links
	accel   string
	source  string // directory of the kernel, as Options give it
	kernel  string // paths of the boot files
	initrd  string
	tscKHz  int // of this host, for tcg; 0 is unknown
	version string
	cpu     string // the processor that machines see, for snapshots

	devices map[string]string // files by which Firecracker opens devices, by the host's names
}

// Sizes of a VMM, in MiB.
const (
	qemuMB     = 160 // memory beside the machine's own: QEMU, and the kernel's file
	smallCache = 128 // of translated code: a boot has 70 MB of it
	bigCache   = 256
	bigMemory  = 512 // machines from this size on get the bigger one
	trialMB    = 128
)

// vmmTasks is the most threads that a VMM may have: one for each processor, and those that wait for
// disks.
const vmmTasks = 160

// maxCPUs bounds the processors of a machine.
const maxCPUs = 16

// processors is the number of processors of a machine. The control group bounds their time.
func processors(cpus float64) int {
	return int(max(1, min(math.Ceil(cpus), float64(runtime.NumCPU()), maxCPUs)))
}

// cacheMB is the size of the translator's cache.
func cacheMB(memoryMB int) int {
	if memoryMB >= bigMemory {
		return bigCache
	}
	return smallCache
}

// vmmMemory is the most memory that a VMM may use, in bytes.
func (m *machine) vmmMemory(memoryMB int) int64 {
	mb := memoryMB + m.engine.overheadMB()
	if m.accel == tcg {
		mb += cacheMB(memoryMB)
	}
	return int64(mb) << 20
}

// Descriptors of QEMU, after the standard ones and the stage's own.
const (
	rootFD = firstFD + iota
	guestFD
	writeFD
	linkFD
	controlFD
	ramFD // of a restored machine
)

// Descriptors of a QEMU that reads a disk.
const (
	readFD = firstFD + iota
	tarFD
)

// descriptors is the directory in which a restored VMM finds its memory.
const descriptors = "/fd"

// maxMemoryMB bounds the memory of a saved machine.
const maxMemoryMB = 1 << 20

// Paths in a VMM's root.
const (
	kernelPath = "/kernel"
	initrdPath = "/initrd"
)

// disk is a disk on QEMU's command line.
type disk struct {
	fd      int
	name    string
	options string
}

// Options of disks.
const (
	readOnly  = "read-only=on"
	writeable = "cache.no-flush=on,discard=unmap"
)

// args is QEMU's command line. limits are the machine's. A trial has no disk and no link. A
// restored machine has its kernel in its memory.
func (m *machine) args(mark string, limits carrel.Limits, order boot.Order, restored bool) ([]string, error) {
	line, err := m.commandLine(order)
	if err != nil {
		return nil, err
	}
	memory := strconv.Itoa(limits.MemoryMB)
	args := []string{m.program, "-name", mark,
		"-M", "microvm,acpi=on,pcie=off,usb=off,memory-backend=ram",
		"-m", memory, "-smp", strconv.Itoa(processors(limits.CPUs)),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		// The standard output is the file for the console's text.
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
	}
	if m.accel == kvm {
		args = append(args, "-accel", "kvm", "-cpu", "host")
	} else {
		args = append(args, "-accel", fmt.Sprintf("tcg,tb-size=%d", cacheMB(limits.MemoryMB)), "-cpu", "max")
	}
	if restored {
		args = append(args, "-object", fmt.Sprintf("memory-backend-file,id=%s,size=%sM,share=off,mem-path=%s/%d", ramBlock, memory, descriptors, ramFD), "-incoming", "defer")
	} else {
		args = append(args, "-object", "memory-backend-ram,id="+ramBlock+",size="+memory+"M", "-kernel", kernelPath, "-initrd", initrdPath, "-append", line)
	}
	if order.Trial {
		return args, nil
	}
	// The order of the devices is the order of the disks inside, see package boot.
	disks := []disk{{rootFD, "root", readOnly}, {guestFD, "guest", readOnly}, {writeFD, "write", writeable}}
	if order.Extract {
		disks = []disk{{readFD, "write", readOnly}, {tarFD, "tar", writeable}}
	}
	for _, disk := range disks {
		args = append(args,
			"-add-fd", fmt.Sprintf("fd=%d,set=%d", disk.fd, disk.fd),
			"-blockdev", fmt.Sprintf("driver=file,node-name=%s,filename=/dev/fdset/%d,locking=off,auto-read-only=off,%s", disk.name, disk.fd, disk.options),
			"-device", "virtio-blk-device,drive="+disk.name)
	}
	if order.Extract {
		return args, nil
	}
	return append(args,
		"-chardev", fmt.Sprintf("socket,id=control,fd=%d,server=on,wait=off", controlFD), "-mon", "chardev=control,mode=control",
		"-netdev", fmt.Sprintf("dgram,id=link,local.type=fd,local.str=%d", linkFD),
		"-device", fmt.Sprintf("virtio-net-device,netdev=link,mac=%s,host_mtu=%d", driver.GuestMAC, order.MTU)), nil
}

// moduleKeys is the step of the kernel's start that loads the keys for the signatures of modules.
// Without it they are not checked. The machine's root may load any module anyway. The checks are a
// tenth of what an emulated machine executes until its first program.
const moduleKeys = "load_system_certificate_list"

// commandLine is the kernel's.
func (m *machine) commandLine(order boot.Order) (string, error) {
	text, err := order.Encode()
	if err != nil {
		return "", err
	}
	words := []string{"console=ttyS0", "quiet", "panic=-1", "reboot=t", "oops=panic", "8250.nr_uarts=1",
		"cryptomgr.notests", "audit=0", "random.trust_cpu=on", text}
	if m.accel == tcg {
		// By emulation the layout of the kernel's memory, zeros in it, and the remedies for real
		// processors' leaks stop nobody, and cost time.
		words = append(words, "no_timer_check", "nokaslr", "mitigations=off", "init_on_alloc=0", "initcall_blacklist="+moduleKeys)
		if m.tscKHz > 0 {
			// On a busy host the kernel would fail to measure this, and hang for ever. It would also
			// compare it with timer interrupts, which come late, and then live by those.
			words = append(words, "tsc_early_khz="+strconv.Itoa(m.tscKHz), "tsc=reliable")
		}
	}
	return strings.Join(words, " "), nil
}
