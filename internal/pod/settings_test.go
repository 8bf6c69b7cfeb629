package pod_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/pod"
)

var errSeveralThreads = errors.New("several threads")

// goodPod are the files of a pod with all settings as they should be.
var goodPod = map[string]string{
	"proc/self/status":                  "Uid:\t10001\t10001\t10001\t10001\nNoNewPrivs:\t1\nCapBnd:\t0000000000000000\n",
	"proc/self/uid_map":                 "         0     655360      65536\n",
	"proc/self/mountinfo":               "1 0 0:1 / / rw - overlay o rw\n2 1 0:2 / /proc rw - proc proc rw\n",
	"proc/sys/user/max_user_namespaces": "1000\n",
	"proc/self/attr/current":            "unconfined\n",
	"sys/fs/cgroup/memory.max":          "4294967296\n",
	"var/run/secrets/other/token":       "",
}

// TestInspect changes one setting at a time, and expects the field of Kubernetes in the hint.
func TestInspect(t *testing.T) {
	const masked = "3 2 0:3 / /proc/kcore rw - tmpfs tmpfs rw\n"
	for name, c := range map[string]struct {
		files   map[string]string
		unshare error
		overlay bool
		tiers   string // that don't work
		hint    string
	}{
		"all is well":   {},
		"seccomp":       {unshare: os.ErrPermission, tiers: "gvisor ns", hint: "seccompProfile"},
		"no namespaces": {files: map[string]string{"proc/sys/user/max_user_namespaces": "0\n"}, tiers: "gvisor ns", hint: "user.max_user_namespaces"},
		"AppArmor":      {files: map[string]string{"proc/self/attr/current": "cri-containerd.apparmor.d (enforce)\n"}, tiers: "gvisor ns", hint: "appArmorProfile"},
		"masked":        {files: map[string]string{"proc/self/mountinfo": goodPod["proc/self/mountinfo"] + masked}, tiers: "ns", hint: "procMount"},
		"host's users":  {files: map[string]string{"proc/self/uid_map": "0 0 4294967295\n"}, hint: "hostUsers"},
		"capabilities":  {files: map[string]string{"proc/self/status": "Uid:\t0\t0\t0\t0\nNoNewPrivs:\t1\nCapBnd:\t00000000a80425fb\n"}, hint: "capabilities"},
		"escalation":    {files: map[string]string{"proc/self/status": "Uid:\t1\t1\t1\t1\nNoNewPrivs:\t0\nCapBnd:\t0\n"}, hint: "allowPrivilegeEscalation"},
		"token":         {files: map[string]string{"var/run/secrets/kubernetes.io/serviceaccount/token": "x"}, hint: "automountServiceAccountToken"},
		"no limit":      {files: map[string]string{"sys/fs/cgroup/memory.max": "max\n"}, hint: "resources.limits.memory"},
		"no limit, version 1": {files: map[string]string{"sys/fs/cgroup/memory.max": "",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, hint: "resources.limits.memory"},
		"no volume": {overlay: true, hint: "volumeMounts"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, files := range []map[string]string{goodPod, c.files} {
				for name, text := range files {
					name = filepath.Join(root, name)
					if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			if c.unshare == nil {
				c.unshare = errSeveralThreads
			}
			lacks := pod.Inspector{Root: root, DataDir: filepath.Join(root, "not", "there"),
				Unshare:   func() error { return c.unshare },
				Lone:      func(err error) bool { return errors.Is(err, errSeveralThreads) },
				OverlayFS: func(string) bool { return c.overlay }}.Inspect()
			if c.hint == "" {
				if len(lacks) != 0 {
					t.Errorf("it finds %+v", lacks)
				}
				return
			}
			if len(lacks) != 1 || !strings.Contains(lacks[0].Hint, c.hint) {
				t.Fatalf("it finds %+v; want one about %s", lacks, c.hint)
			}
			var tiers []string
			for _, tier := range []carrel.Tier{carrel.GVisor, carrel.NS} {
				if len(pod.For(lacks, tier)) > 0 {
					tiers = append(tiers, string(tier))
				}
			}
			if got := strings.Join(tiers, " "); got != c.tiers {
				t.Errorf("it stops %q, want %q", got, c.tiers)
			}
		})
	}
}
