package admission

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// readMachine asks the kernel.
func readMachine(dir string) (Machine, error) {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return Machine{}, err
	}
	m := Machine{Memory: field(raw, "MemAvailable:") << 10, MemoryTotal: field(raw, "MemTotal:") << 10}
	if used, limit, ok := container("/proc/self/cgroup", "/sys/fs/cgroup"); ok && limit < m.MemoryTotal {
		m.Memory, m.MemoryTotal = min(m.Memory, max(limit-used, 0)), limit
	}
	var fs syscall.Statfs_t
	if syscall.Statfs(dir, &fs) == nil {
		m.Disk, m.DiskTotal = int64(fs.Bavail)*fs.Bsize, int64(fs.Blocks)*fs.Bsize
		m.Inodes, m.InodesTotal = int64(fs.Ffree), int64(fs.Files)
	}
	var lim syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim) == nil {
		if n, ok := openFiles(); ok {
			m.FilesTotal = int(min(lim.Cur, 1<<30))
			m.Files = m.FilesTotal - n
		}
	}
	m.Tasks, m.TasksTotal, m.TasksBound = tasks("/proc")
	return m, nil
}

// tasks returns how many more processes and threads there may be, how many in all, and the name of
// the kernel setting that bounds them.
func tasks(proc string) (left, total int, bound string) {
	raw, err := os.ReadFile(filepath.Join(proc, "loadavg")) // 0.1 0.2 0.3 running/all last
	if err != nil {
		return 0, 0, ""
	}
	fields := bytes.Fields(raw)
	if len(fields) < 4 {
		return 0, 0, ""
	}
	_, all, _ := bytes.Cut(fields[3], []byte("/"))
	n, err := strconv.Atoi(string(all))
	if err != nil {
		return 0, 0, ""
	}
	for _, name := range []string{"pid_max", "threads-max"} {
		if most, ok := number(filepath.Join(proc, "sys/kernel", name)); ok && (total == 0 || int(most) < total) {
			total, bound = int(most), "kernel."+name
		}
	}
	return total - n, total, bound
}

// openFiles counts this process's descriptors. Since Linux 6.2, the size of the directory is their
// number. Before, the size is 0, and the number of allocated bits is an upper bound.
func openFiles() (int, bool) {
	info, err := os.Stat("/proc/self/fd")
	if err != nil {
		return 0, false
	}
	if n := int(info.Size()); n > 0 {
		return n, true
	}
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		return 0, false
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	return len(names), err == nil
}

// field reads one number of /proc/meminfo.
func field(raw []byte, name string) int64 {
	for line := range bytes.Lines(raw) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			n, _ := strconv.ParseInt(string(bytes.Fields(rest)[0]), 10, 64)
			return n
		}
	}
	return 0
}

// container finds the tightest memory limit among this process's cgroups, and how much of it is
// used and can't be dropped.
func container(self, root string) (used, limit int64, ok bool) {
	f, err := os.Open(self)
	if err != nil {
		return 0, 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		part := strings.SplitN(lines.Text(), ":", 3)
		if len(part) != 3 {
			continue
		}
		v2 := part[0] == "0" && part[1] == ""
		if !v2 && part[1] != "memory" {
			continue
		}
		base, limitFile, usedFile, cold := root, "memory.max", "memory.current", "inactive_file"
		if !v2 {
			base, limitFile, usedFile, cold = filepath.Join(root, "memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
		}
		for dir := filepath.Join("/", part[2]); ; dir = filepath.Dir(dir) {
			at := filepath.Join(base, dir)
			if l, found := number(filepath.Join(at, limitFile)); found && l > 0 && (!ok || l < limit) {
				u, _ := number(filepath.Join(at, usedFile))
				raw, _ := os.ReadFile(filepath.Join(at, "memory.stat"))
				used, limit, ok = u-field(raw, cold+" "), l, true
			}
			if dir == "/" {
				break
			}
		}
	}
	return used, limit, ok
}

// number reads a file with one number. ok is false for "max".
func number(path string) (int64, bool) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	return n, err == nil
}
