//go:build linux

package box

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRemedies(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		sysctl map[string]string
		status map[string]string
		want   string
	}{
		{"none allowed", unix.ENOSPC, map[string]string{"user.max_user_namespaces": "0"}, nil, "sysctl -w user.max_user_namespaces=15000 (it is 0)"},
		{"all used", unix.ENOSPC, map[string]string{"user.max_user_namespaces": "12"}, nil, "(it is 12)"},
		{"Debian's", unix.EPERM, map[string]string{"kernel.unprivileged_userns_clone": "0"}, nil, "kernel.unprivileged_userns_clone=1"},
		{"AppArmor", unix.EACCES, map[string]string{"kernel.apparmor_restrict_unprivileged_userns": "1"}, nil, "kernel.apparmor_restrict_unprivileged_userns=0"},
		{"in a box", unix.EPERM, nil, map[string]string{"Seccomp": "2", "NoNewPrivs": "1"}, "inside a box"},
		{"in a container", unix.EPERM, nil, map[string]string{"Seccomp": "2", "NoNewPrivs": "0"}, "seccomp=unconfined"},
		{"old kernel", unix.EINVAL, nil, nil, "CONFIG_USER_NS"},
		{"unknown", unix.EPERM, nil, nil, "security module"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := remedy(fmt.Errorf("x: %w", c.err), func(n string) string { return c.sysctl[n] }, func(k, v string) bool { return c.status[k] == v })
			if !strings.Contains(got, c.want) || !strings.Contains(got, "--light") {
				t.Errorf("%q", got)
			}
		})
	}
}

func TestProbe(t *testing.T) {
	if err := namespaces(); err != nil {
		t.Log(err) // a host without boxes: log the reason
		if !strings.Contains(err.Error(), "namespaces") {
			t.Error(err)
		}
	}
}

func FuzzRefuseName(f *testing.F) {
	q := "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01"
	f.Add([]byte(q))
	f.Add([]byte(q[:20]))
	f.Add([]byte(strings.Repeat("\xc0", 40)))
	if reply, name := refuseName([]byte(q)); name != "example.com" || string(reply) != "\x12\x34\x81\x83"+q[4:] {
		f.Errorf("%q %q", reply, name)
	}
	f.Fuzz(func(t *testing.T, q []byte) {
		reply, _ := refuseName(q)
		if reply != nil && (len(reply) > len(q) || reply[2]&0x80 == 0) {
			t.Errorf("%q", reply)
		}
	})
}

func TestUnescape(t *testing.T) {
	if got := unescape(`/a\040b\134c`); got != `/a b\c` {
		t.Error(got)
	}
}
