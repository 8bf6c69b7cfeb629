package oshost

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/guest/agent"
)

var _ agent.SocketOwner = (*System)(nil)

const (
	// maxSocketTable is how much of one table of sockets is read, in bytes.
	maxSocketTable = 2 << 20
	// maxSockets bounds the sockets of one port that are searched for.
	maxSockets = 16
	// maxDescriptors bounds the descriptors of one process that are checked.
	maxDescriptors = 16 << 10
	// maxAncestors bounds the walk up the tree of processes.
	maxAncestors = 64
)

// SocketOwner finds the process whose socket has a local port, as ss and netstat do: the kernel's
// tables have the socket's inode, and a descriptor of the process is a link to that. It does not
// find a process of another network namespace.
//
// gVisor's tables are the same, except that the table for IPv6 UDP is empty there.
func (s *System) SocketOwner(ctx context.Context, udp bool, port uint16) (agent.Owner, bool) {
	tables := []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"}
	if udp {
		tables = []string{"/proc/self/net/udp", "/proc/self/net/udp6"}
	}
	var links []string
	for _, table := range tables {
		f, err := os.Open(table)
		if err != nil {
			continue // a kernel without it
		}
		for _, inode := range socketInodes(io.LimitReader(f, maxSocketTable), udp, port) {
			links = append(links, "socket:["+strconv.FormatUint(inode, 10)+"]")
		}
		_ = f.Close()
	}
	if len(links) == 0 || ctx.Err() != nil {
		return agent.Owner{}, false
	}
	self := os.Getpid()
	pids := processIDs()
	slices.Reverse(pids) // a program that connects is mostly a young one
	for _, pid := range pids {
		if ctx.Err() != nil {
			return agent.Owner{}, false
		}
		if pid != self && hasDescriptor(ctx, pid, links) {
			return describeProcess(pid), true
		}
	}
	return agent.Owner{}, false
}

// socketInodes finds the inodes of the sockets with a local port in a table of /proc/net (see
// proc_net_tcp.txt of the kernel). It leaves out listening sockets: they have the port too, but do
// not connect.
func socketInodes(table io.Reader, udp bool, port uint16) []uint64 {
	const local, state, inode, listening = 1, 3, 9, "0A"
	suffix := fmt.Appendf(nil, ":%04X", port)
	var out []uint64
	sc := bufio.NewScanner(table)
	for sc.Scan() && len(out) < maxSockets {
		if !bytes.Contains(sc.Bytes(), suffix) {
			continue
		}
		f := bytes.Fields(sc.Bytes())
		if len(f) <= inode || !bytes.HasSuffix(f[local], suffix) || !udp && string(f[state]) == listening {
			continue
		}
		n, err := strconv.ParseUint(string(f[inode]), 10, 64)
		if err == nil && n != 0 && !slices.Contains(out, n) { // 0: nobody has it any more
			out = append(out, n)
		}
	}
	return out
}

// processIDs lists the existing processes, in ascending order.
func processIDs() []int {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1) // what was read is worth having
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// hasDescriptor reports whether a descriptor of a process is one of these links. It begins with the
// highest, because a process with many sockets asks about its newest.
func hasDescriptor(ctx context.Context, pid int, links []string) bool {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd/"
	d, err := os.Open(dir)
	if err != nil {
		return false // it has just ended
	}
	defer d.Close()
	names, _ := d.Readdirnames(maxDescriptors) // after an error, use the names that were read
	buf := make([]byte, 64)
	for i, name := range slices.Backward(names) {
		if i%64 == 0 && ctx.Err() != nil {
			return false
		}
		n, err := unix.Readlink(dir+name, buf)
		if err == nil && slices.Contains(links, string(buf[:n])) {
			return true
		}
	}
	return false
}

// describeProcess reads a process's name and its ancestors.
func describeProcess(pid int) agent.Owner {
	o := agent.Owner{PID: pid}
	name, parent, session := processStat(pid)
	o.Name = name
	for range maxAncestors {
		if parent <= 0 || slices.Contains(o.Ancestors, parent) {
			break
		}
		o.Ancestors = append(o.Ancestors, parent)
		_, parent, _ = processStat(parent)
	}
	// After its parent's end a process is a child of process 1, but still in its old session.
	if session > 0 && !slices.Contains(o.Ancestors, session) {
		o.Ancestors = append(o.Ancestors, session)
	}
	return o
}

// processStat reads /proc/PID/stat; see proc_pid_stat(5). The name is in parentheses and may itself
// contain some.
func processStat(pid int) (name string, parent, session int) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", 0, 0
	}
	return parseStat(string(data))
}

func parseStat(text string) (name string, parent, session int) {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return "", 0, 0
	}
	f := strings.Fields(text[end+1:])
	const ppid, sid = 1, 3 // after the state
	if len(f) <= sid {
		return text[open+1 : end], 0, 0
	}
	parent, _ = strconv.Atoi(f[ppid]) // the kernel writes numbers
	session, _ = strconv.Atoi(f[sid])
	return text[open+1 : end], parent, session
}
