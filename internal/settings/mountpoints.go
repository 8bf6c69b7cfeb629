package settings

import (
	"os"
	"strings"
)

// mountPoint is a line of /proc/self/mountinfo.
type mountPoint struct {
	device string // of the superblock
	root   string // the part of the filesystem that is mounted
	at     string // where
}

// https://docs.kernel.org/filesystems/proc.html#proc-pid-mountinfo-information-about-mounts
func parseMounts(text string) []mountPoint {
	var out []mountPoint
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) >= 5 {
			out = append(out, mountPoint{f[2], unescapeMount(f[3]), unescapeMount(f[4])})
		}
	}
	return out
}

// unescapeMount decodes the octal escapes of mountinfo.
func unescapeMount(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// below returns the part of path after dir, with its slash.
func below(path, dir string) string {
	if dir == "/" {
		if path == "/" {
			return ""
		}
		return path
	}
	return path[len(dir):]
}

// joinBelow appends a result of below to a directory.
func joinBelow(dir, rest string) string {
	if dir == "/" && rest != "" {
		return rest
	}
	return dir + rest
}

// mountOf returns the mount that contains a path: the innermost, and the last if several are at one
// place.
func mountOf(list []mountPoint, p string) (best mountPoint, ok bool) {
	for _, m := range list {
		if inside(p, m.at) && len(m.at) >= len(best.at) {
			best, ok = m, true
		}
	}
	return best, ok
}

// secondMounts closes other mounts of everything that is closed. It also closes a mount whose
// source has the name of a secret.
func (v *resolver) secondMounts() {
	if v.OS != "linux" || v.Exists != nil {
		return
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return
	}
	v.closeMounts(parseMounts(string(text)))
}

func (v *resolver) closeMounts(list []mountPoint) {
	devices := map[string]int{}
	for _, m := range list {
		devices[m.device]++
		if namedSecret(m.root) && !namedSecret(m.at) && !inside(v.dir, m.at) && !v.inPrivate(m.at) {
			v.alsoClosed(m.at, &decision{op: readDeny, rule: environmentFile.rule, source: "built-in"}, "mounted from "+show(m.root))
		}
	}
	var closed []*decision
	for _, at := range v.tree.points {
		if at.read != nil && at.read.op == readDeny {
			closed = append(closed, at.read)
		}
	}
	for _, d := range closed {
		m, ok := mountOf(list, d.path)
		if !ok || devices[m.device] < 2 {
			continue
		}
		real := joinBelow(m.root, below(d.path, m.at))
		for _, o := range list {
			if o.device != m.device || o == m {
				continue
			}
			here, there := d.path, ""
			switch {
			case inside(real, o.root):
				there = joinBelow(o.at, below(real, o.root))
			case inside(o.root, real):
				here, there = joinBelow(d.path, below(o.root, real)), o.at
			default:
				continue
			}
			if there != here && !v.inPrivate(there) && sameFiles(here, there) {
				v.alsoClosed(there, d, "a second mount of "+v.short(here))
			}
		}
	}
}

// namedSecret reports whether an element of a path has the name of a secret.
func namedSecret(p string) bool {
	for part := range strings.SplitSeq(p, "/") {
		if part != "" && secretName(part) {
			return true
		}
	}
	return false
}

// sameFiles reports whether two paths are one file. They are not if another mount covers one.
func sameFiles(a, b string) bool {
	x, err := os.Lstat(a)
	if err != nil {
		return false
	}
	y, err := os.Lstat(b)
	return err == nil && os.SameFile(x, y)
}
