package main

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

var _ = register(map[string]func(target){
	"victim": victim, "procroot": procRoot, "trace": trace, "signals": signals, "environ": environ, "pids": listPids,
})

// victim is a process that waits for harm. It holds the word "secret" in its memory and in
// descriptor 9 and prints their places. It prints everything that happens to it.
func victim(t target) {
	secret := []byte(t["secret"])
	f, err := os.Open(t["file"])
	if err != nil {
		panic(err)
	}
	if err := unix.Dup2(int(f.Fd()), 9); err != nil {
		panic(err)
	}
	memory := bytes.Clone(secret)
	all := make(chan os.Signal, 10)
	signal.Notify(all, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGIO, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGURG)
	signal.Reset(syscall.SIGURG) // the runtime's own
	fmt.Printf("address %d\n", uintptr(unsafe.Pointer(&memory[0])))
	end := make([]byte, 1)
	done := make(chan bool)
	go func() { _, _ = os.Stdin.Read(end); close(done) }()
	tick := time.NewTicker(10 * time.Millisecond)
	for {
		select {
		case s := <-all:
			fmt.Println("HARM signal", s)
		case <-tick.C:
			if !bytes.Equal(memory, secret) {
				fmt.Printf("HARM memory is %q\n", memory)
				copy(memory, secret)
			}
		case <-done:
			if n, _ := unix.Getpriority(unix.PRIO_PROCESS, 0); n != 20-t.number("nice") {
				fmt.Println("HARM priority", n)
			}
			return
		}
	}
}

// victims returns the processes to attack: the named one and, in a box, all but this one.
func victims(t target) []int {
	pids := []int{t.number("victim")}
	if t.boxed() {
		dirs, _ := filepath.Glob("/proc/[0-9]*")
		for _, d := range dirs {
			if pid, _ := strconv.Atoi(filepath.Base(d)); pid != os.Getpid() {
				pids = append(pids, pid)
			}
		}
		pids = append(pids, os.Getppid())
	}
	return pids
}

// procRoot follows the links of other processes in /proc.
func procRoot(t target) {
	for _, pid := range victims(t) {
		for _, at := range []string{"root", "cwd", "fd/9", "task/" + strconv.Itoa(pid) + "/root"} {
			dir := fmt.Sprintf("/proc/%d/%s", pid, at)
			for _, p := range []string{dir, dir + t["secretfile"], dir + "/.." + t["secretfile"], dir + "/../../../../../.." + t["secretfile"]} {
				data, err := os.ReadFile(p)
				if err == nil {
					show(p, data, err)
				}
			}
			for _, p := range []string{dir + t["file"], dir + "/" + filepath.Base(t["file"]), dir} {
				if err := appendTo(p); err == nil {
					fmt.Println("appended to", p)
				}
			}
		}
	}
}

// trace reads and changes the memory and descriptors of other processes.
func trace(t target) {
	runtime.LockOSThread()
	address := uintptr(t.number("address"))
	for _, pid := range victims(t) {
		name := fmt.Sprintf("%%s of process %d", pid)
		buf := make([]byte, 64)
		local := []unix.Iovec{{Base: &buf[0], Len: uint64(len(buf))}}
		remote := []unix.RemoteIovec{{Base: address, Len: len(buf)}}
		n, err := unix.ProcessVMReadv(pid, local, remote, 0)
		show(fmt.Sprintf(name, "process_vm_readv"), buf[:max(n, 0)], err)
		if f, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0); err == nil {
			if pid != t.number("victim") || !t.boxed() {
				n, err := f.ReadAt(buf, int64(address))
				show(fmt.Sprintf(name, "mem"), buf[:n], err)
			}
			try(fmt.Sprintf(name, "open mem"), nil)
			_, _ = f.WriteAt([]byte("MEM"), int64(address))
			_ = f.Close()
		}
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			for _, n := range []int{9, 0, 3, 4, 5, 6, 7, 8} {
				got, err := unix.PidfdGetfd(fd, n, 0)
				try(fmt.Sprintf(name, fmt.Sprint("pidfd_getfd ", n)), err)
				if err == nil {
					m, err := unix.Pread(got, buf, 0)
					show("descriptor", buf[:max(m, 0)], err)
				}
			}
			_, _, e := unix.Syscall6(unix.SYS_PROCESS_MADVISE, uintptr(fd), uintptr(unsafe.Pointer(&remote[0])), 1, unix.MADV_COLD, 0, 0)
			try(fmt.Sprintf(name, "process_madvise"), errno(e))
			_ = unix.Close(fd)
		}
		_, _, e := unix.Syscall6(unix.SYS_KCMP, uintptr(pid), uintptr(os.Getpid()), 0, 0, 0, 0)
		try(fmt.Sprintf(name, "kcmp"), errno(e))
		err = unix.PtraceSeize(pid)
		if try(fmt.Sprintf(name, "ptrace seize"), err) {
			_ = unix.PtraceInterrupt(pid)
			var st unix.WaitStatus
			_, _ = unix.Wait4(pid, &st, unix.WALL, nil)
			_, err := unix.PtracePokeData(pid, address, []byte("PTRACED!"))
			fmt.Println("poke", err)
			_ = unix.PtraceDetach(pid)
		}
		if err := unix.PtraceAttach(pid); err == nil {
			try(fmt.Sprintf(name, "ptrace attach"), nil)
			var st unix.WaitStatus
			_, _ = unix.Wait4(pid, &st, unix.WALL, nil)
			_ = unix.PtraceDetach(pid)
		}
		n, err = unix.ProcessVMWritev(pid, []unix.Iovec{{Base: cbytes("VMWRITE!"), Len: 8}}, []unix.RemoteIovec{{Base: address, Len: 8}}, 0)
		fmt.Println("process_vm_writev", n, err)
	}
	_, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0, 0, 0, 0)
	fmt.Println("traceme", errno(e)) // the parent is outside, or the box's first process
}

func cbytes(s string) *byte { return (*byte)(cstring(s)) }

// signals sends signals to processes outside by number, whatever that number means inside.
func signals(t target) {
	pid := t.number("victim")
	for name, f := range map[string]func() error{
		"kill":   func() error { return unix.Kill(pid, unix.SIGUSR1) },
		"tgkill": func() error { return unix.Tgkill(pid, pid, unix.SIGUSR2) },
		"sigqueue": func() error {
			var info [128]byte
			*(*int32)(unsafe.Pointer(&info[8])) = -1 // SI_QUEUE
			_, _, e := unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), uintptr(unix.SIGHUP), uintptr(unsafe.Pointer(&info)))
			return errno(e)
		},
		"pidfd": func() error {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				return err
			}
			return unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0)
		},
		"pidfd of the parent": func() error {
			fd, err := unix.PidfdOpen(t.number("victim"), 0)
			if err != nil {
				return err
			}
			_, err = unix.PidfdGetfd(fd, 0, 0)
			return err
		},
		"owner of a socket": func() error { // the kernel sends the signal
			p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			if _, err := unix.FcntlInt(uintptr(p[0]), unix.F_SETOWN, pid); err != nil {
				return err
			}
			if _, err := unix.FcntlInt(uintptr(p[0]), unix.F_SETFL, unix.O_ASYNC); err != nil {
				return err
			}
			_, err = unix.Write(p[1], []byte("x"))
			return err
		},
		"priority":  func() error { return unix.Setpriority(unix.PRIO_PROCESS, pid, 7) },
		"affinity":  func() error { var s unix.CPUSet; s.Set(0); return unix.SchedSetaffinity(pid, &s) },
		"rlimit":    func() error { return unix.Prlimit(pid, unix.RLIMIT_CORE, &unix.Rlimit{}, nil) },
		"oom score": func() error { return os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("1000"), 0) },
	} {
		try(name, f())
	}
	if !t.boxed() {
		return
	}
	// Send a signal to everybody. Only in a box: outside that is the whole machine.
	signal.Ignore(syscall.SIGUSR1)
	fmt.Println("everybody:", unix.Kill(-1, unix.SIGUSR1))
	for pid := 2; pid < 70000; pid++ {
		if pid != os.Getpid() && unix.Kill(pid, unix.SIGURG) == nil {
			if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err != nil || !strings.Contains(string(status), "Tgid:") {
				harm("process %d was signalled, and is not in /proc", pid)
			}
		}
	}
}

// environ reads environments: its own, its ancestors' and everybody's.
func environ(t target) {
	fmt.Println(strings.Join(os.Environ(), "\n"))
	paths := []string{"/proc/self/environ", fmt.Sprintf("/proc/%d/environ", os.Getppid()), fmt.Sprintf("/proc/%d/environ", t.number("victim"))}
	if t.boxed() {
		for _, name := range []string{"environ", "cmdline", "task/*/environ", "auxv", "stack", "fdinfo/*"} {
			more, _ := filepath.Glob("/proc/[0-9]*/" + name)
			paths = append(paths, more...)
		}
	}
	for _, p := range paths {
		data, err := os.ReadFile(p)
		show(p, data, err)
	}
	// The processes that made the box may still run and hold its environment in memory.
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", os.Getppid()))
	if err == nil && t.boxed() {
		harm("memory of the parent")
		_ = f.Close()
	}
}

// listPids lists the visible processes.
func listPids(target) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		line, _ := os.ReadFile(d + "/cmdline")
		fmt.Printf("%s %.200q\n", d, line)
	}
}
