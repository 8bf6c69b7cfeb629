package interp

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// procFS is /proc. Its files are made from the machine's state when they are opened. One procFS
// serves all machines, because each view says who reads: a *runner for a process, the *Machine for
// readers outside of all processes. A view without a reader sees an empty directory.
//
// Lookup and ReadDir run under the disk's lock and must not call the disk. Descriptors, environment
// and working directory of a process are not in the process table. Only the process's own goroutine
// may read them, so a process can see only its own.
type procFS struct{}

var _ vfs.Source = procFS{}

// installProc mounts /proc and makes the links into it.
func installProc(f *vfs.FS) error {
	v := f.Root()
	return errors.Join(f.Mount("/proc", procFS{}, vfs.MountOptions{ReadOnly: true, Name: "proc", Type: "proc"}),
		v.Symlink("/proc/self/fd/0", "/dev/stdin"), v.Symlink("/proc/self/fd/1", "/dev/stdout"), v.Symlink("/proc/self/fd/2", "/dev/stderr"),
		v.Symlink("../proc/self/mounts", "/etc/mtab"))
}

// kernel is the version that uname and /proc/version print.
const kernel = "6.1.0-carrel-sim"

// procAsker is the reader of /proc.
type procAsker struct {
	m    *Machine
	self *runner // nil from outside
}

func asker(by any) (procAsker, bool) {
	switch x := by.(type) {
	case *runner:
		return procAsker{x.m, x}, true
	case *Machine:
		return procAsker{m: x}, true
	}
	return procAsker{}, false
}

// procDirs are the directories other than those of processes.
var procDirs = map[string]bool{"": true, "sys": true, "sys/kernel": true, "sys/kernel/random": true, "sys/vm": true, "sys/fs": true}

// procFiles are the files of the machine.
var procFiles = map[string]func(procAsker) string{
	"cpuinfo":                  (procAsker).cpuinfo,
	"meminfo":                  (procAsker).meminfo,
	"uptime":                   (procAsker).uptime,
	"loadavg":                  (procAsker).loadavg,
	"stat":                     (procAsker).stat,
	"version":                  func(procAsker) string { return "Linux version " + kernel + " (carrel@sim) #1 simulated\n" },
	"cmdline":                  func(procAsker) string { return "simulated\n" },
	"filesystems":              func(procAsker) string { return "nodev\tproc\nnodev\ttmpfs\n" },
	"sys/kernel/ostype":        func(procAsker) string { return "Linux\n" },
	"sys/kernel/osrelease":     func(procAsker) string { return kernel + "\n" },
	"sys/kernel/version":       func(procAsker) string { return "#1 simulated\n" },
	"sys/kernel/hostname":      func(a procAsker) string { return a.m.Hostname() + "\n" },
	"sys/kernel/pid_max":       func(procAsker) string { return "4194304\n" },
	"sys/kernel/random/uuid":   (procAsker).uuid,
	"sys/vm/overcommit_memory": func(procAsker) string { return "0\n" },
	"sys/fs/file-max":          func(procAsker) string { return "1048576\n" },
}

// procLinks are the symbolic links other than "self".
var procLinks = map[string]string{"mounts": "self/mounts"}

// procOwn are the files of a process. self is true for files that only the process itself can read.
var procOwn = map[string]struct {
	text func(procAsker, *proc) string
	self bool
}{
	"cmdline": {text: func(_ procAsker, p *proc) string {
		args, _ := p.who()
		return strings.Join(slices.Concat(args, []string{""}), "\x00")
	}},
	"comm":   {text: func(_ procAsker, p *proc) string { return comm(p) + "\n" }},
	"stat":   {text: (procAsker).procStat},
	"status": {text: (procAsker).procStatus},
	"statm": {text: func(_ procAsker, p *proc) string {
		n := p.mem.Load() >> 12
		return fmt.Sprintf("%d %d 0 0 0 %d 0\n", n, n, n)
	}},
	"mounts":  {text: func(a procAsker, _ *proc) string { return a.mounts() }},
	"limits":  {text: (procAsker).procLimits},
	"environ": {text: func(a procAsker, _ *proc) string { return strings.Join(append(a.self.environ(), ""), "\x00") }, self: true},
}

// Lookup implements vfs.Source.
func (procFS) Lookup(by any, path string) (vfs.Entry, error) {
	a, ok := asker(by)
	if !ok {
		if path == "" {
			return vfs.Entry{Ino: 1, Links: 1, Mode: fs.ModeDir | 0o555}, nil
		}
		return vfs.Entry{}, syscall.ENOENT
	}
	e := vfs.Entry{Ino: procIno(path), Links: 1, Mode: 0o444, Modified: a.m.started}
	first, rest, below := strings.Cut(path, "/")
	pid, err := strconv.Atoi(first)
	switch {
	case procDirs[path]:
		e.Mode = fs.ModeDir | 0o555
	case procFiles[path] != nil:
	case procLinks[path] != "":
		e.Mode, e.Target = fs.ModeSymlink|0o777, procLinks[path]
	case path == "self" && a.self != nil:
		e.Mode, e.Target = fs.ModeSymlink|0o777, strconv.Itoa(a.self.p.pid)
	case err == nil && strconv.Itoa(pid) == first:
		p := a.process(pid)
		if p == nil {
			return e, syscall.ENOENT
		}
		_, uid := p.who()
		if e.UID, e.GID, e.Modified = uid, uid, p.started; !below {
			e.Mode = fs.ModeDir | 0o555
			return e, nil
		}
		return e, a.own(p, rest, &e)
	default:
		return e, syscall.ENOENT
	}
	e.Accessed, e.Changed = e.Modified, e.Modified
	return e, nil
}

// own describes a file in a process's directory.
func (a procAsker) own(p *proc, name string, e *vfs.Entry) error {
	e.Accessed, e.Changed = e.Modified, e.Modified
	// A part of a shell that runs concurrently was that shell a moment ago.
	mine := a.self != nil && (a.self.p == p || a.self.self == p.pid)
	if f, ok := procOwn[name]; ok && (mine || !f.self) {
		if f.self {
			e.Mode = 0o400
		}
		return nil
	}
	if !mine {
		return syscall.ENOENT
	}
	num, isFD := strings.CutPrefix(name, "fd/")
	switch {
	case name == "fd":
		e.Mode = fs.ModeDir | 0o500
	case name == "cwd":
		e.Mode, e.Target = fs.ModeSymlink|0o777, a.self.dir
	case name == "root":
		e.Mode, e.Target = fs.ModeSymlink|0o777, "/"
	case name == "exe":
		e.Mode, e.Target = fs.ModeSymlink|0o777, "/usr/bin/"+comm(p)
	case isFD:
		n, err := strconv.Atoi(num)
		if err != nil || strconv.Itoa(n) != num {
			return syscall.ENOENT
		}
		return a.descriptor(n, e)
	default:
		return syscall.ENOENT
	}
	return nil
}

// descriptor describes an open file: a link to the file's name, or to a pipe if it has no name.
func (a procAsker) descriptor(n int, e *vfs.Entry) error {
	d := a.self.fds.get(n)
	if d == nil {
		return syscall.ENOENT
	}
	s := d.stream
	if c, ok := s.(counted); ok {
		s = c.stream
	}
	switch s := s.(type) {
	case fileStream:
		e.Mode, e.Target = fs.ModeSymlink|0o700, s.f.Name()
	case ttyStream:
		e.Mode, e.Target = fs.ModeSymlink|0o700, "/dev/tty"
	case nullStream:
		e.Mode, e.Target = fs.ModeSymlink|0o700, "/dev/null"
	default:
		e.Mode = fs.ModeNamedPipe | 0o600
	}
	return nil
}

// process finds a process by its number.
func (a procAsker) process(pid int) *proc {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	return a.m.procs[pid]
}

// procIno makes an inode number from a path. The same path gives the same number.
func procIno(path string) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(path) {
		h = (h ^ uint64(path[i])) * 1099511628211
	}
	return h >> 24
}

// ReadDir implements vfs.Source.
func (f procFS) ReadDir(by any, path string) ([]vfs.Entry, error) {
	a, ok := asker(by)
	if !ok {
		return nil, nil
	}
	var names []string
	add := func(of string) {
		if rest, ok := strings.CutPrefix(of, path); ok && of != path {
			if path != "" {
				if rest, ok = strings.CutPrefix(rest, "/"); !ok {
					return
				}
			}
			if !strings.Contains(rest, "/") {
				names = append(names, rest)
			}
		}
	}
	first, rest, below := strings.Cut(path, "/")
	switch _, err := strconv.Atoi(first); {
	case err == nil && !below:
		for name := range procOwn {
			names = append(names, name)
		}
		names = append(names, "fd", "cwd", "root", "exe")
	case err == nil && rest == "fd":
		if e, err := f.Lookup(by, path); err != nil || !e.Mode.IsDir() {
			return nil, syscall.ENOENT
		}
		for _, d := range a.self.fds {
			names = append(names, strconv.Itoa(d.n))
		}
	case !procDirs[path]:
		return nil, syscall.ENOTDIR
	default:
		for d := range procDirs {
			add(d)
		}
		for n := range procFiles {
			add(n)
		}
		for n := range procLinks {
			add(n)
		}
	}
	if path == "" {
		names = append(names, "self")
		for _, p := range a.m.table() {
			names = append(names, strconv.Itoa(p.pid))
		}
	}
	out := make([]vfs.Entry, 0, len(names))
	for _, n := range names {
		full := n
		if path != "" {
			full = path + "/" + n
		}
		if e, err := f.Lookup(by, full); err == nil { // processes end, and some files are private
			e.Name = n
			out = append(out, e)
		}
	}
	return out, nil
}

// Open implements vfs.Source. The content is made at this moment.
func (f procFS) Open(by any, path string, _ bool) (vfs.Handle, error) {
	e, err := f.Lookup(by, path)
	if err != nil {
		return nil, err
	}
	if !e.Mode.IsRegular() {
		return nil, syscall.ENXIO
	}
	a, _ := asker(by)
	if text := procFiles[path]; text != nil {
		return procHandle{strings.NewReader(text(a)), e}, nil
	}
	first, rest, _ := strings.Cut(path, "/")
	pid, _ := strconv.Atoi(first) // Lookup has read it
	p := a.process(pid)
	if p == nil {
		return nil, syscall.ESRCH
	}
	return procHandle{strings.NewReader(procOwn[rest].text(a, p)), e}, nil
}

// procHandle is an open file of /proc.
type procHandle struct {
	io.ReaderAt
	e vfs.Entry
}

func (procHandle) WriteAt([]byte, int64) (int, error) { return 0, syscall.EBADF }
func (procHandle) Truncate(int64) error               { return syscall.EINVAL }
func (procHandle) Close() error                       { return nil }
func (h procHandle) Stat() (vfs.Entry, error)         { return h.e, nil }

func (a procAsker) cpuinfo() string {
	var b strings.Builder
	for i := range a.m.cpus {
		fmt.Fprintf(&b, "processor\t: %d\nvendor_id\t: Carrel\ncpu family\t: 6\nmodel\t\t: 1\nmodel name\t: Simulated CPU\nstepping\t: 1\ncpu MHz\t\t: 1000.000\n"+
			"physical id\t: 0\nsiblings\t: %d\ncore id\t\t: %d\ncpu cores\t: %d\nfpu\t\t: yes\nflags\t\t: fpu\nbogomips\t: 2000.00\n\n", i, a.m.cpus, i, a.m.cpus)
	}
	return b.String()
}

func (a procAsker) meminfo() string {
	used, total := a.m.mem.Load()>>10, a.m.limits.Memory>>10
	if total == 0 {
		total = 1 << 20
	}
	free := max(total-used, 0)
	return fmt.Sprintf("MemTotal:       %8d kB\nMemFree:        %8d kB\nMemAvailable:   %8d kB\nBuffers:               0 kB\nCached:                0 kB\n"+
		"SwapCached:            0 kB\nSwapTotal:             0 kB\nSwapFree:              0 kB\n", total, free, free)
}

func (a procAsker) uptime() string {
	up := max(a.m.now().Sub(a.m.started), 0).Seconds()
	return fmt.Sprintf("%.2f %.2f\n", up, up*float64(a.m.cpus))
}

func (a procAsker) loadavg() string {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	return fmt.Sprintf("0.00 0.00 0.00 1/%d %d\n", max(len(a.m.procs), 1), a.m.lastPID)
}

func (a procAsker) stat() string {
	return fmt.Sprintf("cpu  0 0 0 0 0 0 0 0 0 0\nctxt 0\nbtime %d\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n", a.m.started.Unix())
}

// uuid makes a random UUID from the machine's random numbers.
func (a procAsker) uuid() string {
	var b [16]byte
	f, err := a.m.fs.Root().Open("/dev/random")
	if err != nil {
		return "00000000-0000-4000-8000-000000000000\n"
	}
	defer f.Close()
	_, _ = f.Read(b[:]) // a device fills it
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x\n", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (a procAsker) mounts() string {
	var b strings.Builder
	b.WriteString("carrel / tmpfs rw,relatime 0 0\n")
	for _, m := range a.m.fs.Mounts() {
		how := "rw"
		if m.ReadOnly {
			how = "ro"
		}
		escape := strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`).Replace
		fmt.Fprintf(&b, "%s %s %s %s,relatime 0 0\n", escape(m.Name), escape(m.Path), escape(m.Type), how)
	}
	return b.String()
}

// comm is the program's name in the form that the kernel keeps.
func comm(p *proc) string {
	args, _ := p.who()
	if len(args) == 0 {
		return "bash"
	}
	name := base(strings.TrimPrefix(args[0], "-"))
	return name[:min(len(name), 15)]
}

// state is R for the process that reads, and S for the others.
func (a procAsker) state(p *proc) string {
	if a.self != nil && a.self.p == p {
		return "R (running)"
	}
	return "S (sleeping)"
}

func (a procAsker) procStat(p *proc) string {
	tty := 0
	if p.tree.tty != nil {
		tty = 34816
	}
	start := max(p.started.Sub(a.m.started), 0) / (10 * time.Millisecond)
	return fmt.Sprintf("%d (%s) %s %d %d %d %d -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d %d %d 18446744073709551615%s\n",
		p.pid, comm(p), a.state(p)[:1], p.ppid, p.pgid, p.pgid, tty, start, p.mem.Load(), p.mem.Load()>>12, strings.Repeat(" 0", 27))
}

func (a procAsker) procStatus(p *proc) string {
	_, uid := p.who()
	gid, umask, groups := uid, uint32(0o022), ""
	if a.self != nil && a.self.p == p {
		gid, umask = a.self.cred().GID, uint32(a.self.umask)
	}
	kb := p.mem.Load() >> 10
	return fmt.Sprintf("Name:\t%s\nUmask:\t%04o\nState:\t%s\nTgid:\t%d\nNgid:\t0\nPid:\t%d\nPPid:\t%d\nTracerPid:\t0\nUid:\t%[8]d\t%[8]d\t%[8]d\t%[8]d\nGid:\t%[9]d\t%[9]d\t%[9]d\t%[9]d\n"+
		"FDSize:\t64\nGroups:\t%[10]s\nVmPeak:\t%8[11]d kB\nVmSize:\t%8[11]d kB\nVmRSS:\t%8[11]d kB\nThreads:\t1\n",
		comm(p), umask, a.state(p), p.pid, p.pid, p.ppid, 0, uid, gid, groups, kb)
}

func (a procAsker) procLimits(*proc) string {
	row := func(name, value, unit string) string {
		return fmt.Sprintf("%-25s %-20s %-20s %-10s\n", name, value, value, unit)
	}
	procs := "unlimited"
	if a.m.limits.Procs > 0 {
		procs = strconv.Itoa(a.m.limits.Procs)
	}
	return fmt.Sprintf("%-25s %-20s %-20s %-10s\n", "Limit", "Soft Limit", "Hard Limit", "Units") +
		row("Max file size", "unlimited", "bytes") + row("Max processes", procs, "processes") + row("Max open files", "1024", "files")
}
