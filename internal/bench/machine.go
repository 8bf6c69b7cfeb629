package bench

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// machine describes the machine of a run.
type machine struct {
	CPU        string  `json:"cpu"`
	Cores      int     `json:"cores"`
	MemoryMiB  int64   `json:"memoryMiB"`
	Kernel     string  `json:"kernel"`
	LoadBefore float64 `json:"loadBefore"` // load average over a minute
	LoadAfter  float64 `json:"loadAfter"`
	KVM        bool    `json:"kvm"`
	Version    string  `json:"version,omitempty"`
}

// String returns one line for people.
func (m machine) String() string {
	kvm := "without KVM"
	if m.KVM {
		kvm = "with KVM"
	}
	return fmt.Sprintf("machine: %d cores (%s), %d MiB memory, %s, Linux %s, load %.1f before and %.1f after",
		m.Cores, m.CPU, m.MemoryMiB, kvm, m.Kernel, m.LoadBefore, m.LoadAfter)
}

func thisMachine() machine {
	m := machine{CPU: "unknown processor", Cores: runtime.NumCPU(), MemoryMiB: memInfo("MemTotal:") >> 20, LoadBefore: load()}
	if raw, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(raw)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				m.CPU = strings.TrimSpace(v)
				break
			}
		}
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	m.KVM = kvmWorks()
	return m
}

// kvmWorks reports whether virtual machines run here: the kernel can make one, and the processor
// has the needed features. Without these features the device may exist and do little more than
// interpret (PVM, in a machine that is itself virtual).
func kvmWorks() bool {
	if info, err := os.ReadFile("/proc/cpuinfo"); err != nil || runtime.GOARCH == "amd64" && !hasFlag(string(info), "svm", "vmx") {
		return false
	}
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer kvm.Close()
	const createVM = 0xAE01 // KVM_CREATE_VM
	fd, err := unix.IoctlRetInt(int(kvm.Fd()), createVM)
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	return true
}

// hasFlag reports whether the first processor of /proc/cpuinfo has one of the flags.
func hasFlag(info string, flags ...string) bool {
	for line := range strings.Lines(info) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "flags" {
			return slices.ContainsFunc(strings.Fields(v), func(f string) bool { return slices.Contains(flags, f) })
		}
	}
	return false
}

// load returns the load average over the last minute.
func load() float64 {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	v, _ := strconv.ParseFloat(strings.Fields(string(raw))[0], 64)
	return v
}

// memInfo returns one line of /proc/meminfo, in bytes.
func memInfo(name string) int64 {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	return kilobytes(string(raw), name)
}

// kilobytes reads a "Name:  N kB" line as bytes.
func kilobytes(text, name string) int64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10
		}
	}
	return 0
}
