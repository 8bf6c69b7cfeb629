package ready

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// TestBaseReady shows that the user of a ready sandbox finds no traces of how it was made ready,
// with both protocols of clients. Its programs must also find their language in one file.
func TestBaseReady(t *testing.T) {
	h := open(t, "--warm", "1", "--warm-floor", "base=1")
	daemontest.Eventually(t, 4*time.Minute, "one is ready", func() bool {
		st, err := h.svc.(carrel.Pools).Pool(t.Context())
		return err == nil && st.Ready == 1
	})
	sb := h.create(t, carrel.CreateOptions{Template: "base"})
	if how := h.started(t, sb.ID); how != "warm" {
		t.Errorf("it was started %s", how)
	}
	for line, want := range map[string]string{
		"for p in /proc/[0-9]*; do read name <$p/comm; echo $name; done": "guest sh",
		"ls -A ~ /tmp /var/tmp": "/home/user: .bashrc .profile /tmp: /var/tmp:",
	} {
		if got := strings.Join(strings.Fields(h.run(t, sb, line)), " "); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	if _, err := os.Stat("/usr/lib/locale/C.utf8/LC_CTYPE"); err != nil {
		return // this machine does not have that language
	}
	if got := h.run(t, sb, "grep -c /locale /proc/self/maps; grep -c /locale-archive /proc/self/maps; locale charmap"); got != "1\n1\nUTF-8" {
		t.Errorf("a program's language lies in %q", got)
	}
}
