//go:build linux

package guard

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/seccomp"
	"github.com/carrel-dev/carrel/internal/refusal"
)

// outside is the rule for paths that no other rule names.
const outside = "built-in: only the working directory is written to"

// add logs a refusal with the program that tried.
func (g *Guard) add(c seccomp.Call, r refusal.Refusal) {
	r.Program, r.PID = program(c.PID)
	if r.Operation == "" {
		r.Operation = c.Name
	}
	g.log.Add(r)
}

// protected refuses a call that would break the protection of a name.
func (g *Guard) protected(c seccomp.Call, full string, p *pattern) seccomp.Answer {
	g.add(c, refusal.Refusal{
		Kind: refusal.Write, What: full, Rule: p.Rule, Allow: p.Allow, Certain: true,
		Reason: p.Pattern + " is protected: what is written there is run or obeyed outside of the box",
	})
	return refuse
}

// unwritable reports a write to a path that is not writable. It does not report a write that would
// fail without a box, too. The kind decides only which permission the kernel would check.
func (g *Guard) unwritable(c seccomp.Call, p *place, k kind, quiet bool) {
	st, exists := p.stat()
	fd, name := p.fd, ""
	if exists && (k == opens || k == changes) {
		name = p.base
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFCHR, unix.S_IFBLK, unix.S_IFIFO, unix.S_IFSOCK:
			if k == opens {
				return // no wall refuses it there
			}
		}
	}
	flags := unix.AT_EACCESS | unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	err := unix.Faccessat(fd, name, unix.W_OK, flags)
	if err != nil && err != unix.EROFS && k != changes {
		return
	}
	if k == changes && int(st.Uid) != unix.Geteuid() && unix.Geteuid() != 0 {
		return
	}
	full := p.full()
	r := refusal.Refusal{
		Kind: refusal.Write, What: full, Rule: outside, Certain: err == unix.EROFS, Minor: quiet || habit(c, full, k),
		Reason: "it is not in a directory that may be written to", Allow: "--write " + quote(whole(p.dir)),
	}
	if g.rules.Home != "" && p.dir == g.rules.Home {
		r.Allow = "--write " + quote(full)
	}
	if rule := g.rule(full); rule != nil && rule.Rule != "" {
		r.Rule, r.Allow = rule.Rule, rule.Allow
	}
	if flag := g.cacheOf(full); flag != "" {
		r.Allow = flag
	}
	g.add(c, r)
}

// cacheOf is the flag of the profile that opens the cache which a path lies in, or is above:
// programs make what leads to their cache first, "~/.cargo" before "~/.cargo/registry". Where
// several have theirs ("~/.cache"), all are named.
func (g *Guard) cacheOf(full string) string {
	for dir := full; dir != "/"; dir = parent(dir) {
		if profile := g.rules.Caches[dir]; profile != "" {
			return "--profile " + profile
		}
	}
	var profiles []string
	for dir, profile := range g.rules.Caches {
		if below(dir, full) && !slices.Contains(profiles, profile) {
			profiles = append(profiles, profile)
		}
	}
	if profiles == nil {
		return ""
	}
	slices.Sort(profiles)
	return "--profile " + strings.Join(profiles, "|")
}

// denied reports a call that the filter refused.
func (g *Guard) denied(c seccomp.Call) {
	r := refusal.Refusal{
		Kind: refusal.Syscall, What: c.Name, Rule: "built-in: system calls", Certain: true,
		Reason: "no box has a use for it", Minor: probe(c),
	}
	switch c.Name {
	case "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd":
		r.Reason = "processes may not look into one another"
	case "socket", "socketpair":
		r.Reason = "sockets of this kind reach past the network of the box"
	case "clone", "unshare", "setns":
		r.Reason = "a box makes no namespaces inside"
	case "ioctl":
		r.Reason = "it would type into the terminal"
	}
	g.add(c, r)
}

// program returns the name of a thread's process, and its pid in its own pid namespace.
func program(pid int) (name string, inside int) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return "", 0
	}
	leader := ""
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		switch key {
		case "Name":
			name = strings.TrimSpace(value)
		case "Tgid":
			leader = strings.TrimSpace(value)
		case "NStgid":
			if len(fields) > 0 {
				inside, _ = strconv.Atoi(fields[len(fields)-1])
			}
		}
	}
	if leader != strconv.Itoa(pid) {
		if comm, err := os.ReadFile("/proc/" + leader + "/comm"); err == nil {
			name = strings.TrimSuffix(string(comm), "\n")
		}
	}
	return name, inside
}

// stores are directories in which programs keep their own files. below is the number of elements
// after it that name the program. Allowing only a subdirectory of a program's directory would not
// help.
var stores = []struct {
	part  string
	below int
}{{"/.cache/", 1}, {"/.config/", 1}, {"/.local/share/", 1}, {"/.local/state/", 1}, {"/.npm/", 0}, {"/.cargo/", 1}, {"/go/pkg/", 1}, {"/.gradle/", 0}, {"/.m2/", 0}, {"/.nuget/", 0}, {"/.rustup/", 0}}

// whole returns the directory to propose for a write in dir.
func whole(dir string) string {
	for _, s := range stores {
		before, rest, found := strings.Cut(dir+"/", s.part)
		if !found {
			continue
		}
		kept := before + strings.TrimSuffix(s.part, "/")
		for range s.below {
			var first string
			if first, rest, _ = strings.Cut(rest, "/"); first != "" {
				kept += "/" + first
			}
		}
		return kept
	}
	return dir
}

// quote quotes a path for a shell.
func quote(path string) string {
	for _, r := range path {
		if r != '/' && r != '.' && r != '-' && r != '_' && r != '+' && r != ',' && r != '@' && r != ':' &&
			(r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r < 0x80 {
			return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
		}
	}
	return path
}
