package cgroup

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// mount is one mounted cgroup hierarchy.
type mount struct {
	dir  string // where it is mounted
	root string // the group of the hierarchy that is mounted there
	v2   bool
	has  map[Controller]bool // version 1: the controllers on it
}

// path returns the directory of a group. group is its path in the hierarchy, as in
// /proc/self/cgroup.
func (m mount) path(group string) string {
	if rel, ok := strings.CutPrefix(group, m.root); ok {
		return filepath.Join(m.dir, rel)
	}
	return filepath.Join(m.dir, group)
}

// readMounts lists the cgroup mounts of this process.
func readMounts() ([]mount, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseMounts(f)
}

// parseMounts reads the format of /proc/self/mountinfo:
//
//	36 35 98:0 /root /dir rw,noatime master:1 - cgroup cgroup rw,cpu,cpuacct
func parseMounts(r io.Reader) ([]mount, error) {
	var out []mount
	s := bufio.NewScanner(r)
	for s.Scan() {
		before, after, ok := strings.Cut(s.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 6 || len(right) < 3 {
			continue
		}
		m := mount{root: unescape(left[3]), dir: unescape(left[4])}
		switch right[0] {
		case "cgroup2":
			m.v2 = true
		case "cgroup":
			m.has = map[Controller]bool{}
			for _, o := range strings.Split(right[2], ",") {
				m.has[Controller(o)] = true
			}
		default:
			continue
		}
		out = append(out, m)
	}
	return out, s.Err()
}

// unescape undoes the octal escapes that the kernel writes for blanks in paths.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// ownGroups reads /proc/PID/cgroup. It returns the path by controller; version 2 has the key "".
func ownGroups(file string) (map[string]string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 {
			continue
		}
		for _, c := range strings.Split(parts[1], ",") {
			out[c] = parts[2]
		}
	}
	return out, nil
}

// readWords reads a file of words, such as cgroup.controllers.
func readWords(file string) map[Controller]bool {
	b, _ := os.ReadFile(file)
	out := map[Controller]bool{}
	for _, w := range strings.Fields(string(b)) {
		switch c := Controller(w); c {
		case Memory, CPU, Pids:
			out[c] = true
		}
	}
	return out
}
