package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

var _ = register(map[string]func(target){
	"sysctl": sysctl, "procfiles": procFiles, "devices": devices, "namespaces": namespaces, "keyring": keyring, "keyadd": keyAdd,
	"bpf": bpf, "uring": uring, "uffd": userfault, "families": families, "ipc": ipc, "ipcmake": ipcMake, "shm": sharedMemory,
	"cgroup": cgroups, "foreign": foreign, "clocks": clocks, "core": coreDump, "suid": setuidCopy, "suidchild": setuidChild,
	"hostname": hostname, "perf": perf, "caps": caps,
})

// sysctl opens every kernel setting for writing, and writes its present value into the most
// dangerous ones.
func sysctl(target) {
	for _, root := range []string{"/proc/sys", "/sys/kernel", "/sys/module", "/sys/fs", "/sys/power", "/sys/devices/system"} {
		_ = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil
			}
			if fd, err := unix.Open(p, unix.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
				harm("%s is open for writing", p)
				_ = unix.Close(fd)
			}
			return nil
		})
	}
	for _, p := range []string{"core_pattern", "hostname", "modprobe", "hotplug", "poweroff_cmd", "sysrq", "randomize_va_space"} {
		p = "/proc/sys/kernel/" + p
		if old, err := os.ReadFile(p); err == nil {
			try("write "+p, os.WriteFile(p, old, 0))
		}
	}
}

// procFiles opens the files that describe or control the kernel. It does not use them.
func procFiles(target) {
	for _, p := range []string{"/proc/kcore", "/proc/kmsg", "/proc/kpageflags", "/proc/kpagecount", "/proc/kpagecgroup", "/proc/kallsyms.addresses", "/proc/mtrr",
		"/proc/vmallocinfo", "/proc/slabinfo", "/proc/timer_list", "/proc/sched_debug", "/proc/keys", "/proc/key-users", "/proc/latency_stats",
		"/proc/scsi/scsi", "/proc/1/mem", "/sys/firmware/memmap", "/sys/kernel/debug", "/sys/kernel/tracing/trace", "/sys/kernel/security", "/sys/fs/bpf", "/sys/firmware/acpi/tables"} {
		if f, err := os.Open(p); err == nil {
			entries, derr := f.ReadDir(1)
			if info, _ := f.Stat(); info != nil && info.IsDir() && (derr != nil || len(entries) == 0) {
				continue // an empty directory hides it
			}
			if info, _ := f.Stat(); info != nil && info.Mode().IsRegular() || len(entries) > 0 {
				harm("%s is open", p)
			}
			_ = f.Close()
		}
	}
	for _, p := range []string{"/proc/sysrq-trigger", "/proc/irq/default_smp_affinity", "/proc/sys/vm/drop_caches", "/proc/acpi/wakeup"} {
		if fd, err := unix.Open(p, unix.O_WRONLY, 0); err == nil {
			harm("%s is open for writing", p)
			_ = unix.Close(fd)
		}
	}
}

// devices opens devices that give the whole machine away, by name and by nodes that it makes.
func devices(t target) {
	var paths []string
	for _, p := range []string{"mem", "kmem", "port", "kmsg", "kvm", "fuse", "loop-control", "loop0", "tty0", "tty1", "vcs", "vcsa1", "console", "hwrng", "vsock", "userfaultfd",
		"autofs", "btrfs-control", "net/tun", "vga_arbiter", "nvram", "rtc0", "uinput", "vhost-net", "mapper/control", "snapshot"} {
		paths = append(paths, "/dev/"+p)
	}
	more, _ := filepath.Glob("/dev/[svhn][dvr]*")
	for _, p := range append(paths, more...) {
		for name, flags := range map[string]int{"reading": unix.O_RDONLY, "writing": unix.O_WRONLY} {
			if fd, err := unix.Open(p, flags|unix.O_NONBLOCK|unix.O_NOCTTY, 0); err == nil {
				harm("%s is open for %s", p, name)
				_ = unix.Close(fd)
			}
		}
	}
	for _, dir := range []string{t["project"], "/tmp", "/dev", "/dev/shm"} {
		for name, node := range map[string][2]uint32{"disk": {unix.S_IFBLK, uint32(t.number("disk"))}, "mem": {unix.S_IFCHR, uint32(unix.Mkdev(1, 1))}, "kmsg": {unix.S_IFCHR, uint32(unix.Mkdev(1, 11))}} {
			p := filepath.Join(dir, "node-"+name)
			if unix.Mknod(p, node[0]|0o666, int(node[1])) == nil {
				fd, err := unix.Open(p, unix.O_RDONLY|unix.O_NONBLOCK, 0)
				try("open own node "+p, err)
				_ = unix.Close(fd)
				harm("node %s", p)
				_ = unix.Unlink(p)
			}
		}
	}
}

// namespaces makes new namespaces and enters others, by each call that can do it.
func namespaces(t target) {
	for name, flag := range map[string]uintptr{"user": unix.CLONE_NEWUSER, "user and mount": unix.CLONE_NEWUSER | unix.CLONE_NEWNS, "user and net": unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		"user and pid": unix.CLONE_NEWUSER | unix.CLONE_NEWPID, "user, ipc, uts": unix.CLONE_NEWUSER | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS, "user and cgroup": unix.CLONE_NEWUSER | unix.CLONE_NEWCGROUP,
		"mount": unix.CLONE_NEWNS, "time": unix.CLONE_NEWUSER | unix.CLONE_NEWTIME} {
		if flag&unix.CLONE_NEWTIME == 0 { // clone has no such flag
			try("clone "+name, start(&syscall.SysProcAttr{Cloneflags: flag}))
			try("clone3 "+name, clone3(flag))
		}
		try("unshare "+name, start(&syscall.SysProcAttr{Unshareflags: flag}))
	}
	if t.boxed() {
		found, _ := filepath.Glob("/proc/[0-9]*/ns/*")
		for _, p := range found {
			if fd, err := unix.Open(p, unix.O_RDONLY, 0); err == nil {
				if err := unix.Setns(fd, 0); err == nil {
					harm("setns %s", p)
				}
				_ = unix.Close(fd)
			}
		}
		for n := 3; n < 100; n++ {
			if unix.Setns(n, 0) == nil {
				harm("setns of descriptor %d", n)
			}
		}
	} else {
		try("user namespace entered by the whole program", start(&syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}}))
	}
}

// start runs a program that does nothing.
func start(attr *syscall.SysProcAttr) error {
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"attack", "nothing"}, &syscall.ProcAttr{Sys: attr})
	if err != nil {
		return err
	}
	_, err = syscall.Wait4(pid, nil, 0, nil)
	return err
}

// clone3 makes a child that ends at once.
func clone3(flags uintptr) error {
	args := [11]uint64{uint64(flags), 0, 0, 0, uint64(unix.SIGCHLD)}
	pid, _, e := syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	if e == 0 && pid == 0 {
		for {
			_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	if e == 0 {
		_, _ = unix.Wait4(int(pid), nil, 0, nil)
	}
	return errno(e)
}

// keyAdd puts "secret" into the user's keyring. With remove=1 it unlinks it.
func keyAdd(t target) {
	if t["remove"] != "" {
		for _, name := range []string{t["name"], t["name"] + "-planted"} {
			if id, err := unix.KeyctlSearch(unix.KEY_SPEC_USER_KEYRING, "user", name, 0); err == nil {
				_, err = unix.KeyctlInt(unix.KEYCTL_UNLINK, id, unix.KEY_SPEC_USER_KEYRING, 0, 0)
				fmt.Println("unlink", name, err)
				if name != t["name"] {
					harm("the key %s was planted", name)
				}
			}
		}
		return
	}
	id, err := unix.AddKey("user", t["name"], []byte(t["secret"]), unix.KEY_SPEC_USER_KEYRING)
	if err == nil {
		err = unix.KeyctlSetperm(id, 0x3f3f0000) // for possessors and for the user
	}
	fmt.Println("key", id, err)
}

// keyring looks for the caller's keys, and leaves a key.
func keyring(t target) {
	for _, ring := range []int{unix.KEY_SPEC_USER_KEYRING, unix.KEY_SPEC_SESSION_KEYRING, unix.KEY_SPEC_USER_SESSION_KEYRING, unix.KEY_SPEC_PROCESS_KEYRING} {
		id, err := unix.KeyctlSearch(ring, "user", t["name"], 0)
		fmt.Println("search", ring, id, err)
		if err != nil {
			id = t.number("key")
		}
		buf := make([]byte, 100)
		n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, id, buf, 0)
		show("key", buf[:max(min(n, 100), 0)], err)
	}
	_, err := unix.AddKey("user", t["name"]+"-planted", []byte("x"), unix.KEY_SPEC_USER_KEYRING)
	try("add_key", err)
	_, err = unix.RequestKey("user", t["name"], "", unix.KEY_SPEC_PROCESS_KEYRING)
	try("request_key", err)
	_, err = unix.KeyctlJoinSessionKeyring("")
	try("new session keyring", err)
	data, err := os.ReadFile("/proc/keys")
	if err == nil && len(data) > 0 {
		harm("/proc/keys is readable")
	}
}

// bpf makes a map and loads a program.
func bpf(target) {
	attr := [12]uint32{2, 4, 4, 1} // an array of one
	fd, _, e := unix.Syscall(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if try("bpf map", errno(e)) {
		_ = unix.Close(int(fd))
	}
	insns := [2]uint64{0xb7, 0x95} // r0 = 0; exit
	license := cstring("GPL")
	prog := struct {
		kind, count     uint32
		insns, license  uint64
		level, size     uint32
		log             uint64
		version, flags_ uint32
	}{1, 2, uint64(uintptr(unsafe.Pointer(&insns))), uint64(uintptr(license)), 0, 0, 0, 0, 0}
	fd, _, e = unix.Syscall(unix.SYS_BPF, 5, uintptr(unsafe.Pointer(&prog)), unsafe.Sizeof(prog))
	if try("bpf program", errno(e)) {
		_ = unix.Close(int(fd))
	}
}

// perf samples.
func perf(target) {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Config: unix.PERF_COUNT_SW_CPU_CLOCK, Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, 0)
	if try("perf_event_open", err) {
		_ = unix.Close(fd)
	}
}

// uring makes an io_uring. Its openat, connect and send never pass a system call filter.
func uring(t target) {
	var params [120]byte
	fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params)), 0)
	if try("io_uring_setup", errno(e)) {
		data, err := uringRead(int(fd), &params, t["secret"])
		show("by io_uring "+t["secret"], data, err)
	}
}

// userfault handles page faults itself. That can stop the kernel in the middle of a copy.
func userfault(target) {
	fd, _, e := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|1, 0, 0) // user mode only
	if try("userfaultfd", errno(e)) {
		_ = unix.Close(int(fd))
	}
	if fd, err := unix.Open("/dev/userfaultfd", unix.O_RDWR, 0); err == nil {
		harm("/dev/userfaultfd is open")
		_ = unix.Close(fd)
	}
}

// families makes sockets that reach more than the network.
func families(target) {
	for _, s := range []struct {
		name               string
		family, kind, prot int
	}{{"vsock", unix.AF_VSOCK, unix.SOCK_STREAM, 0}, {"packet", unix.AF_PACKET, unix.SOCK_RAW, 0x300}, {"packet dgram", unix.AF_PACKET, unix.SOCK_DGRAM, 0x300}, {"alg", unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
		{"bluetooth", unix.AF_BLUETOOTH, unix.SOCK_RAW, 1}, {"can", unix.AF_CAN, unix.SOCK_RAW, 1}, {"tipc", unix.AF_TIPC, unix.SOCK_RDM, 0}, {"key", unix.AF_KEY, unix.SOCK_RAW, 2}, {"xdp", unix.AF_XDP, unix.SOCK_RAW, 0},
		{"rds", unix.AF_RDS, unix.SOCK_SEQPACKET, 0}, {"smc", unix.AF_SMC, unix.SOCK_STREAM, 0}, {"kcm", unix.AF_KCM, unix.SOCK_SEQPACKET, 0}, {"qipcrtr", unix.AF_QIPCRTR, unix.SOCK_DGRAM, 0},
		{"x25", unix.AF_X25, unix.SOCK_SEQPACKET, 0}, {"nfc", unix.AF_NFC, unix.SOCK_SEQPACKET, 1}, {"mctp", unix.AF_MCTP, unix.SOCK_DGRAM, 0}, {"raw", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW}, {"raw icmp", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		{"raw 6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_RAW}, {"audit", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}, {"netfilter", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
		{"uevents", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT}, {"connector", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_CONNECTOR}, {"xfrm", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM}, {"generic", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC}} {
		fd, err := unix.Socket(s.family, s.kind, s.prot)
		if err == nil {
			_ = unix.Close(fd)
		}
		try("socket "+s.name, err)
	}
	// Those that a program needs.
	for name, s := range map[string][2]int{"tcp": {unix.AF_INET, unix.SOCK_STREAM}, "udp": {unix.AF_INET, unix.SOCK_DGRAM}, "tcp6": {unix.AF_INET6, unix.SOCK_STREAM}, "udp6": {unix.AF_INET6, unix.SOCK_DGRAM}, "netlink": {unix.AF_NETLINK, unix.SOCK_RAW}} {
		fd, err := unix.Socket(s[0], s[1], 0)
		fmt.Println("ordinary", name, err == nil)
		_ = unix.Close(fd)
	}
}

// ipcMake makes System V objects with "secret" in them, or removes them.
func ipcMake(t target) {
	key := t.number("key")
	if t["remove"] != "" {
		if id, err := unix.SysvShmGet(key, 0, 0); err == nil {
			if data, err := unix.SysvShmAttach(id, 0, 0); err == nil && strings.HasPrefix(string(data), "HARM") {
				harm("the shared memory is %.20q", data)
			}
			_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
		}
		if id, _, e := unix.Syscall(unix.SYS_MSGGET, uintptr(key), 0, 0); e == 0 {
			_, _, _ = unix.Syscall(unix.SYS_MSGCTL, id, unix.IPC_RMID, 0)
		}
		return
	}
	id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|0o600)
	if err != nil {
		panic(err)
	}
	data, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		panic(err)
	}
	copy(data, t["secret"])
	queue, _, e := unix.Syscall(unix.SYS_MSGGET, uintptr(key), unix.IPC_CREAT|0o600, 0)
	message := append(make([]byte, 8), t["secret"]...)
	message[0] = 1
	_, _, e2 := unix.Syscall6(unix.SYS_MSGSND, queue, uintptr(unsafe.Pointer(&message[0])), uintptr(len(message)-8), unix.IPC_NOWAIT, 0, 0)
	fd, err := mqOpen(t["queue"], unix.O_CREAT|unix.O_RDWR)
	_, _, e3 := unix.Syscall6(unix.SYS_MQ_TIMEDSEND, uintptr(fd), uintptr(cstring(t["secret"])), uintptr(len(t["secret"])), 0, 0, 0)
	fmt.Println("made", e, e2, err, e3)
}

// ipc looks for them.
func ipc(t target) {
	key := t.number("key")
	for _, id := range []int{find(unix.SysvShmGet(key, 0, 0)), t.number("shm")} {
		data, err := unix.SysvShmAttach(id, 0, 0)
		show("shmat", data[:min(len(data), 100)], err)
		if err == nil {
			copy(data, "HARM")
		}
	}
	queue, _, e := unix.Syscall(unix.SYS_MSGGET, uintptr(key), 0, 0)
	fmt.Println("msgget", errno(e))
	buf := make([]byte, 200)
	if e == 0 {
		n, _, e := unix.Syscall6(unix.SYS_MSGRCV, queue, uintptr(unsafe.Pointer(&buf[0])), 150, 0, unix.IPC_NOWAIT, 0)
		show("msgrcv", buf[:min(n, 200)], errno(e))
	}
	fd, err := mqOpen(t["queue"], unix.O_RDWR)
	if err == nil {
		big := make([]byte, 8192)
		n, _, e := unix.Syscall6(unix.SYS_MQ_TIMEDRECEIVE, uintptr(fd), uintptr(unsafe.Pointer(&big[0])), 8192, 0, 0, 0)
		show("mq", big[:min(n, 200)], errno(e))
	}
	for _, p := range []string{"/proc/sysvipc/shm", "/proc/sysvipc/msg", "/dev/mqueue" + t["queue"]} {
		data, _ := os.ReadFile(p)
		if strings.Contains(string(data), t["key"]) {
			harm("%s tells", p)
		}
	}
}

func find(id int, err error) int {
	if err != nil {
		return -1
	}
	return id
}

func mqOpen(name string, flags int) (int, error) {
	fd, _, e := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(cstring(strings.TrimPrefix(name, "/"))), uintptr(flags|unix.O_NONBLOCK), 0o600, 0, 0, 0)
	return int(fd), errno(e)
}

// sharedMemory uses /dev/shm.
func sharedMemory(t target) {
	entries, err := os.ReadDir("/dev/shm")
	show("/dev/shm", []byte(fmt.Sprint(entries)), err)
	data, err := os.ReadFile(t["file"])
	show(t["file"], data, err)
	fmt.Println(appendTo(t["file"]), os.WriteFile(t["file"]+".new", []byte(mark), 0o666))
}

// cgroups opens files that free or limit other groups.
func cgroups(target) {
	for _, root := range []string{"/sys/fs/cgroup", "/cgroup"} {
		_ = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return nil
			case d.IsDir() && strings.Count(p, "/") > 7:
				return fs.SkipDir
			case d.IsDir():
				if unix.Access(p, unix.W_OK) == nil {
					harm("groups may be made in %s", p)
				}
				return nil
			}
			switch d.Name() {
			case "release_agent", "notify_on_release", "cgroup.procs", "tasks", "devices.allow", "memory.limit_in_bytes", "memory.max", "cgroup.event_control", "cgroup.subtree_control":
				if fd, err := unix.Open(p, unix.O_WRONLY, 0); err == nil {
					harm("%s is open for writing", p)
					_ = unix.Close(fd)
				}
			}
			return nil
		})
	}
}

// foreign calls the kernel as 32-bit and x32 programs do, to pass filters that know only one
// architecture's numbers.
func foreign(target) {
	if n := int80(20, 0, 0, 0); n > 0 {
		harm("int 0x80 getpid is %d", n)
	} else {
		fmt.Println("no int 0x80:", n)
	}
	if n := int80(425, 4, 0, 0); n != -int(unix.ENOSYS) && n != -int(unix.EPERM) {
		harm("int 0x80 io_uring_setup: %d", n)
	}
	if n := int80(288, 0, 0, 0); n != -int(unix.ENOSYS) && n != -int(unix.EPERM) { // keyctl
		harm("int 0x80 keyctl: %d", n)
	}
	pid, _, e := unix.RawSyscall(0x40000000|unix.SYS_GETPID, 0, 0, 0)
	if e == 0 {
		harm("x32 getpid is %d", pid)
	}
	fmt.Println("no x32:", e)
}

// clocks sets times and other global values of the machine to their present values.
func clocks(target) {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_REALTIME, &now)
	try("clock_settime", errno2(unix.Syscall(unix.SYS_CLOCK_SETTIME, unix.CLOCK_REALTIME, uintptr(unsafe.Pointer(&now)), 0)))
	var tx unix.Timex
	tx.Modes = 0x8000 // ADJ_OFFSET_SINGLESHOT would be read-only; this needs the right
	tx.Modes = 0x4000
	tx.Tick = 10000
	_, err := unix.Adjtimex(&tx)
	try("adjtimex", err)
	try("swapoff", errno2(unix.Syscall(unix.SYS_SWAPOFF, uintptr(cstring("/nowhere")), 0, 0)))
	for name, n := range map[string]uintptr{"init_module": unix.SYS_INIT_MODULE, "kexec_load": unix.SYS_KEXEC_LOAD, "iopl": unix.SYS_IOPL, "quotactl": unix.SYS_QUOTACTL} {
		_, _, e := unix.Syscall6(n, 0, 0, ^uintptr(0), 0, 0, 0)
		fmt.Println("no", name, e)
	}
}

func errno2(_, _ uintptr, e syscall.Errno) error { return errno(e) }

// coreDump crashes in the working directory with a raised limit.
func coreDump(t target) {
	var l unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_CORE, &l)
	l.Cur = l.Max
	fmt.Println("limit", l.Max, unix.Setrlimit(unix.RLIMIT_CORE, &l))
	pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", "kill -SEGV $$"}, &syscall.ProcAttr{Dir: t["project"], Files: []uintptr{0, 1, 2}})
	if err == nil {
		_, _ = syscall.Wait4(pid, nil, 0, nil)
	}
	found, _ := filepath.Glob(t["project"] + "/core*")
	for _, p := range found {
		harm("core dump %s", p)
	}
}

// setuidCopy runs a program that belongs to root and is set-uid.
func setuidCopy(t target) {
	pid, err := syscall.ForkExec(t["program"], []string{"attack", "suidchild", "secret=" + t["secret"]}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
	fmt.Println("started", err)
	if err == nil {
		_, _ = syscall.Wait4(pid, nil, 0, nil)
	}
}

// setuidChild is that program: it reads a file that only root may read.
func setuidChild(t target) {
	fmt.Println("ids", os.Getuid(), os.Geteuid())
	data, err := os.ReadFile(t["secret"])
	show(t["secret"], data, err)
}

// hostname sets the machine's name to its present name.
func hostname(target) {
	name, _ := os.Hostname()
	try("sethostname", unix.Sethostname([]byte(name)))
	try("setdomainname", unix.Setdomainname([]byte("(none)")))
}

// caps uses capabilities, and checks whether there are any.
func caps(t target) {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		if len(f) == 2 && (f[0] == "CapEff:" || f[0] == "CapPrm:" || f[0] == "CapInh:" || f[0] == "CapBnd:" || f[0] == "CapAmb:") && strings.Trim(f[1], "0") != "" {
			harm("%s", strings.TrimSpace(line))
		}
		if len(f) == 2 && (f[0] == "NoNewPrivs:" && f[1] == "0" || f[0] == "Seccomp:" && f[1] == "0") {
			harm("%s", strings.TrimSpace(line))
		}
	}
	if unix.Geteuid() != 0 || !t.boxed() {
		return
	}
	try("setuid", unix.Setresuid(12345, 12345, 12345))
	try("setgroups", unix.Setgroups([]int{12345}))
	p := filepath.Join(t["project"], "owned")
	_ = os.WriteFile(p, nil, 0o600)
	try("chown", os.Chown(p, 12345, 12345))
}
