package ready

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

const (
	startLine = "/bin/server"
	readyLine = "/bin/server check"
)

// TestGolden starts a template once. Each sandbox created then has the server running, in the state
// of that moment, and is otherwise its own. A changed template is started anew.
func TestGolden(t *testing.T) {
	h := open(t)
	dir := root(t)
	h.cli(t, "template", "import", "srv", dir, "--start", startLine, "--ready", readyLine)

	first := h.create(t, carrel.CreateOptions{Template: "srv"}) // no snapshot yet: it boots, and does not wait for one
	if how := h.started(t, first.ID); how != "cold" {
		t.Errorf("the first one was started %s", how)
	}
	daemontest.Eventually(t, 4*time.Minute, "the first one started its server itself", func() bool { _, err := h.get(t, first.ID); return err == nil })
	h.ripe(t, "srv")
	if n := h.Kernels(); n != 1 {
		t.Errorf("%d kernels run, of which one is a sandbox's", n)
	}

	since := time.Now()
	boxes, all := make([]carrel.Sandbox, 3), make([]told, 3)
	daemontest.InParallel(t, len(boxes), func(i int) (err error) {
		boxes[i], err = h.svc.Create(t.Context(), carrel.CreateOptions{Template: "srv", Timeout: time.Hour,
			Env: map[string]string{"SECRET": "of one " + string(rune('a'+i))}})
		return err
	})
	for i, sb := range boxes {
		all[i] = h.at(t, sb)
		if how := h.started(t, sb.ID); how != "golden" {
			t.Errorf("%s was started %s", sb.ID, how)
		}
	}
	siblings(t, since, boxes, all)
	for i, sb := range boxes {
		if got, want := h.run(t, sb, "echo $SECRET; cat /proc/sys/kernel/hostname"), "of one "+string(rune('a'+i))+"\n"+string(sb.ID); got != want {
			t.Errorf("a command in %s sees %q, want %q", sb.ID, got, want)
		}
		strangers(t, h, sb, boxes[(i+1)%len(boxes)].AccessToken)
	}

	h.cli(t, "template", "start", "srv", "--start", startLine+" second")
	h.kill(t, append(boxes, first)...)
	cold := h.create(t, carrel.CreateOptions{Template: "srv"}) // the snapshot is of another start command
	if how := h.started(t, cold.ID); how != "cold" {
		t.Errorf("right after the change one was started %s", how)
	}
	h.ripe(t, "srv")
	again := h.create(t, carrel.CreateOptions{Template: "srv"})
	if x := h.at(t, again); x.Born == all[0].Born || !slices.Equal(x.Args, []string{"second"}) {
		t.Errorf("after the change: %+v", x)
	}
	h.kill(t, cold, again)

	// Another image under the name.
	if err := os.WriteFile(filepath.Join(dir, "etc/release"), []byte("three\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h.cli(t, "template", "import", "srv", dir, "--start", startLine+" third", "--ready", readyLine)
	h.kill(t, h.create(t, carrel.CreateOptions{Template: "srv"}))
	h.ripe(t, "srv")
	third := h.create(t, carrel.CreateOptions{Template: "srv"})
	if x := h.at(t, third); !slices.Equal(x.Args, []string{"third"}) || h.run(t, third, "cat /etc/release") != "three" {
		t.Errorf("after the import: %+v", x)
	}

	// The snapshot survives a kill of the daemon.
	before := h.at(t, third)
	h.Kill9()
	h.Restart()
	h.connect(t)
	if x := h.at(t, h.create(t, carrel.CreateOptions{Template: "srv"})); x.Born != before.Born {
		t.Errorf("after the daemon's death: %+v, want what was born %s", x, before.Born)
	}
	h.cli(t, "kill", "--all")
	h.cli(t, "template", "rm", "srv")
	daemontest.Eventually(t, 4*time.Minute, "what was kept went with its template", func() bool { return h.snapshots(t) == 0 && h.Kernels() == 0 })
}

// strangers tries a sandbox's guest with the token of another.
func strangers(t *testing.T, h *house, sb carrel.Sandbox, token string) {
	t.Helper()
	for tok, want := range map[string]int{token: http.StatusUnauthorized, sb.AccessToken: http.StatusOK} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+"/envs", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("E2b-Sandbox-Id", string(sb.ID))
		req.Header.Set("E2b-Sandbox-Port", "49983")
		req.Header.Set("X-Access-Token", tok)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s answers %s, want %d", sb.ID, resp.Status, want)
		}
	}
}

// snapshots counts the snapshots in the store, finished or not.
func (h *house) snapshots(t *testing.T) int {
	t.Helper()
	n := 0
	for _, dir := range []string{"hot", "drafts"} {
		all, err := os.ReadDir(filepath.Join(h.Dir, "snapshots", dir))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		n += len(all)
	}
	return n
}

// TestGoldenKeptReady has the pool restore sandboxes ahead from a template's own start. When the
// template changes, ready sandboxes are given up.
func TestGoldenKeptReady(t *testing.T) {
	h := open(t, "--warm", "3", "--warm-floor", "srv=3")
	h.cli(t, "template", "import", "srv", root(t), "--start", startLine, "--ready", readyLine)
	full := func() bool { golden, other := h.kept(t, "srv"); return golden == 3 && other == 0 }
	daemontest.Eventually(t, 4*time.Minute, "the pool is full", full)

	since := time.Now()
	boxes, all := make([]carrel.Sandbox, 3), make([]told, 3)
	daemontest.InParallel(t, len(boxes), func(i int) (err error) {
		opts := carrel.CreateOptions{Template: "srv", Timeout: time.Hour}
		if i > 0 { // one takes over the identity that it finds, others bring some of it
			opts.Env = map[string]string{"SECRET": "of one " + string(rune('a'+i))}
		}
		boxes[i], err = h.svc.Create(t.Context(), opts)
		return err
	})
	for i, sb := range boxes {
		all[i] = h.at(t, sb)
		if how := h.started(t, sb.ID); how != "warm" {
			t.Errorf("%s was started %s", sb.ID, how)
		}
	}
	siblings(t, since, boxes, all)
	if got := h.run(t, boxes[0], "echo $SECRET") + h.run(t, boxes[2], "echo $SECRET"); got != "of one c" {
		t.Errorf("commands see %q", got)
	}
	for i, sb := range boxes {
		strangers(t, h, sb, boxes[(i+1)%len(boxes)].AccessToken)
	}
	h.kill(t, boxes...)

	daemontest.Eventually(t, 4*time.Minute, "the pool is full again", full)
	h.cli(t, "template", "start", "srv", "--start", startLine+" second")
	daemontest.Eventually(t, 4*time.Minute, "what is ready is of the new start", func() bool {
		if !full() || h.state(t, "srv") != "ready" {
			return false
		}
		sb := h.create(t, carrel.CreateOptions{Template: "srv"})
		defer h.kill(t, sb)
		x, err := h.get(t, sb.ID) // a ready one that has booted starts its server only now
		return err == nil && slices.Equal(x.Args, []string{"second"}) && x.Born != all[0].Born && h.started(t, sb.ID) == "warm"
	})
}

// TestGoldenKilled kills the daemon while a template is started. Nothing of that may be left, and
// the next daemon must start the template anew.
func TestGoldenKilled(t *testing.T) {
	h := open(t)
	h.cli(t, "template", "import", "srv", root(t), "--start", startLine, "--ready", "/bin/sleep 1; "+readyLine)
	for _, wait := range []time.Duration{100 * time.Millisecond, time.Second, 2 * time.Second} { // during the boot, before it is ready, and around the snapshot
		sb := h.create(t, carrel.CreateOptions{Template: "srv"})
		h.kill(t, sb)
		time.Sleep(wait)
		h.Kill9()
		h.Restart()
		h.connect(t)
		daemontest.Eventually(t, 4*time.Minute, "what the dead daemon was at is gone", func() bool {
			boxes, _ := filepath.Glob(filepath.Join(h.Dir, "sandboxes", "i*"))
			drafts, _ := filepath.Glob(filepath.Join(h.Dir, "snapshots", "drafts", "*"))
			return len(boxes) == 0 && len(drafts) == 0 && h.Kernels() == 0
		})
		if page, err := h.svc.List(t.Context(), carrel.ListOptions{}); err != nil || len(page.Sandboxes) != 0 {
			t.Errorf("listed: %+v, %v", page, err)
		}
	}
	h.kill(t, h.create(t, carrel.CreateOptions{Template: "srv"}))
	h.ripe(t, "srv")
	sb := h.create(t, carrel.CreateOptions{Template: "srv"})
	h.at(t, sb)
	h.kill(t, sb)
	if n := h.snapshots(t); n != 1 {
		t.Errorf("%d snapshots are kept, want one", n)
	}
}

// TestGoldenNeverReady has a template whose ready command never succeeds. New sandboxes must boot,
// and a client that asks must get the reason. It takes the two minutes that a template is given.
func TestGoldenNeverReady(t *testing.T) {
	testenv.Long(t, "takes more than two minutes")
	t.Parallel()
	h := open(t)
	h.cli(t, "template", "import", "srv", root(t), "--start", startLine, "--ready", "echo the cache is cold; false")
	sb := h.create(t, carrel.CreateOptions{Template: "srv"})
	daemontest.Eventually(t, 4*time.Minute, "it is told why not", func() bool { return strings.Contains(h.state(t, "srv"), "did not succeed within") })
	if why := h.state(t, "srv"); !strings.Contains(why, "status 1") || !strings.Contains(why, "the cache is cold") {
		t.Errorf("inspect says %q", why)
	}
	daemontest.Eventually(t, 4*time.Minute, "the one that booted has its server", func() bool { _, err := h.get(t, sb.ID); return err == nil })
	other := h.create(t, carrel.CreateOptions{Template: "srv"})
	if how := h.started(t, other.ID); how != "cold" {
		t.Errorf("another one was started %s", how)
	}
	h.kill(t, sb, other)
	if n := h.snapshots(t); n != 0 || h.Kernels() != 0 {
		t.Errorf("%d snapshots and %d kernels are left", n, h.Kernels())
	}
	// Errors of the start command are shown, too.
	if out := h.cli(t, "template", "inspect", "srv"); !strings.Contains(out, "did not succeed") {
		t.Errorf("inspect: %s", out)
	}
}
