package pod

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel"
)

// Lack is a setting of a pod that is not as Carrel needs or wants it.
type Lack struct {
	// Tiers are those that don't work for it. With none, the setting is about safety alone.
	Tiers []carrel.Tier
	// Problem is what was found, and Hint names the field of Kubernetes that changes it.
	Problem, Hint string
}

// Inspector looks at the pod that it runs in. It changes nothing.
type Inspector struct {
	// Root is the root directory; "" is the process's own.
	Root string
	// DataDir is the daemon's data directory.
	DataDir string
	// Unshare tries to make a user namespace in this process, which has several threads. The kernel
	// then says EINVAL; a filter of system calls says something else before.
	Unshare func() error
	// OverlayFS says whether a directory is on an overlay, as a container's own files are.
	OverlayFS func(dir string) bool
	// Lone reports whether the error of Unshare is the kernel's own for several threads.
	Lone func(error) bool
}

var realTiers = []carrel.Tier{carrel.GVisor, carrel.NS}

const (
	container = "spec.containers[].securityContext."
	// unlimited is at most what version 1 of control groups shows where there is no limit.
	unlimited = 1 << 60
)

// Inspect lists what is not as it should be: first what a tier needs, then what makes the pod safer.
func (i Inspector) Inspect() []Lack {
	var out []Lack
	for _, look := range []func() *Lack{i.filter, i.namespaces, i.profile, i.proc,
		i.users, i.capabilities, i.escalation, i.token, i.memory, i.volume} {
		if lack := look(); lack != nil {
			out = append(out, *lack)
		}
	}
	return out
}

// read returns a file's text; "" if there is none.
func (i Inspector) read(name string) string {
	text, err := os.ReadFile(filepath.Join("/", i.Root, name))
	if err != nil {
		return ""
	}
	return string(bytes.TrimRight(text, "\n\x00"))
}

// status is a field of this process's status.
func (i Inspector) status(field string) string {
	for line := range strings.Lines(i.read("/proc/self/status")) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// filter finds a seccomp profile that forbids user namespaces.
func (i Inspector) filter() *Lack {
	err := i.Unshare()
	if err == nil || i.Lone(err) {
		return nil
	}
	return &Lack{Tiers: realTiers, Problem: "the pod's filter of system calls refuses user namespaces: " + err.Error(),
		Hint: "set " + container + "seccompProfile: {type: Unconfined}, or a Localhost profile that lets unshare, clone, setns and mount pass"}
}

// namespaces finds settings of the node that forbid user namespaces.
func (i Inspector) namespaces() *Lack {
	for _, setting := range []struct{ name, refuses, want string }{
		{"user/max_user_namespaces", "0", "a number above 0"},
		{"kernel/unprivileged_userns_clone", "0", "1"},
		{"kernel/apparmor_restrict_unprivileged_userns", "1", "0"},
	} {
		if i.read("/proc/sys/"+setting.name) == setting.refuses {
			key := strings.ReplaceAll(setting.name, "/", ".")
			return &Lack{Tiers: realTiers, Problem: "the node refuses user namespaces: " + key + " is " + setting.refuses,
				Hint: "on the node, set sysctl " + key + " to " + setting.want + "; no field of a pod does that"}
		}
	}
	return nil
}

// profile finds an AppArmor profile that is enforced.
func (i Inspector) profile() *Lack {
	for _, name := range []string{"/proc/self/attr/apparmor/current", "/proc/self/attr/current"} {
		if text := i.read(name); strings.HasSuffix(text, "(enforce)") {
			return &Lack{Tiers: realTiers, Problem: "the AppArmor profile " + text + " refuses mounts",
				Hint: "set " + container + "appArmorProfile: {type: Unconfined}"}
		}
	}
	return nil
}

// proc finds mounts that hide parts of /proc.
func (i Inspector) proc() *Lack {
	for line := range strings.Lines(i.read("/proc/self/mountinfo")) {
		fields := strings.Fields(line)
		if len(fields) > 4 && strings.HasPrefix(fields[4], "/proc/") {
			return &Lack{Tiers: []carrel.Tier{carrel.NS}, Problem: "parts of the pod's /proc are hidden, such as " + fields[4],
				Hint: "set " + container + "procMount: Unmasked; it needs spec.hostUsers: false"}
		}
	}
	return nil
}

// users finds a pod without a user namespace.
func (i Inspector) users() *Lack {
	fields := strings.Fields(i.read("/proc/self/uid_map"))
	if len(fields) != 3 || fields[0] != "0" || fields[1] != "0" {
		return nil
	}
	if i.uid() == "0" {
		return &Lack{Problem: "the pod's root is the node's root", Hint: "set spec.hostUsers: false, and spec.securityContext.runAsUser to an ordinary user"}
	}
	return &Lack{Problem: "the pod's users are the node's users", Hint: "set spec.hostUsers: false"}
}

// uid is the user that this process runs as.
func (i Inspector) uid() string {
	fields := strings.Fields(i.status("Uid"))
	if len(fields) < 2 {
		return ""
	}
	return fields[1]
}

// capabilities finds capabilities, which no tier needs.
func (i Inspector) capabilities() *Lack {
	if bits, err := strconv.ParseUint(i.status("CapBnd"), 16, 64); err != nil || bits == 0 {
		return nil
	}
	return &Lack{Problem: "the container may have capabilities (CapBnd " + i.status("CapBnd") + "), and needs none",
		Hint: "set " + container + "capabilities: {drop: [ALL]} and spec.securityContext.runAsUser"}
}

// escalation finds a container whose programs may gain privileges.
func (i Inspector) escalation() *Lack {
	if i.status("NoNewPrivs") != "0" {
		return nil
	}
	return &Lack{Problem: "programs of the container may gain privileges", Hint: "set " + container + "allowPrivilegeEscalation: false"}
}

// token finds a token for the API server.
func (i Inspector) token() *Lack {
	const name = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	if _, err := os.Stat(filepath.Join("/", i.Root, name)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return &Lack{Problem: "a token for the API server lies in " + name + ", for whoever breaks out of a sandbox",
		Hint: "set spec.automountServiceAccountToken: false"}
}

// memory finds a container without a memory limit.
func (i Inspector) memory() *Lack {
	for _, name := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		limit := i.read(name)
		if n, err := strconv.ParseUint(limit, 10, 64); limit == "" || err == nil && n < unlimited {
			continue
		}
		return &Lack{Problem: "the container has no memory limit, so its sandboxes may use up the node's memory",
			Hint: "set spec.containers[].resources.limits.memory"}
	}
	return nil
}

// volume finds a data directory that ends with the container.
func (i Inspector) volume() *Lack {
	dir := i.DataDir
	for !i.exists(dir) && dir != "/" && dir != "." {
		dir = filepath.Dir(dir) // it will be made there
	}
	if !i.OverlayFS(dir) {
		return nil
	}
	return &Lack{Problem: "the data directory " + i.DataDir + " is in the container's own files, and ends with it",
		Hint: "mount a volume there: spec.volumes and spec.containers[].volumeMounts"}
}

func (i Inspector) exists(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

// For selects what a tier lacks; "" selects what is about safety alone.
func For(lacks []Lack, tier carrel.Tier) []Lack {
	var out []Lack
	for _, lack := range lacks {
		if tier == "" && len(lack.Tiers) == 0 || slices.Contains(lack.Tiers, tier) {
			out = append(out, lack)
		}
	}
	return out
}
