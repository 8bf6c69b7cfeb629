package datadir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/datadir"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// house is a daemon with sandboxes.
type house struct {
	d       *daemontest.Daemon
	running carrel.ID // "" in a tier whose sandboxes end with the daemon
	paused  carrel.ID
	pid     int // of a process in the running sandbox
}

// tiers are the tiers under test.
var tiers = []carrel.Tier{carrel.GVisor, carrel.NS, carrel.Sim}

// eachTier runs a test in every tier. In the short form it runs in one.
func eachTier(t *testing.T, short carrel.Tier, test func(t *testing.T, tier carrel.Tier)) {
	for _, tier := range tiers {
		if testing.Short() && tier != short {
			continue
		}
		t.Run(string(tier), func(t *testing.T) {
			if tier != carrel.Sim && os.Geteuid() != 0 {
				testenv.Need(t, string(tier), errors.New("not root: the daemon may lack control groups here"))
			}
			test(t, tier)
		})
	}
}

func connect(t *testing.T, d *daemontest.Daemon) carrel.Service {
	t.Helper()
	svc, err := client.New(d.URL, d.Key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	return svc
}

// build starts a daemon with a running and a paused sandbox.
func build(t *testing.T, tier carrel.Tier, extra ...string) *house {
	t.Helper()
	h := &house{d: daemontest.Start(t, append([]string{"--default-tier", string(tier)}, extra...)...)}
	ctx := t.Context()
	svc := connect(t, h.d)
	o := carrel.CreateOptions{Timeout: time.Hour, Tier: tier}
	if tier == carrel.Sim {
		o.Template = "sim"
	}
	for _, id := range []*carrel.ID{&h.paused, &h.running} {
		sb, err := svc.Create(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		*id = sb.ID
		c, err := svc.Computer(ctx, sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Files("").Write(ctx, "word", strings.NewReader(string(sb.ID))); err != nil {
			t.Fatal(err)
		}
		if id == &h.running && tier != carrel.Sim {
			p, err := c.Start(ctx, carrel.Command{Shell: "exec sleep 100000"})
			if err != nil {
				t.Fatal(err)
			}
			h.pid = p.PID()
			_ = p.Close()
		}
		if id == &h.paused {
			if _, err := svc.Pause(ctx, sb.ID, carrel.PauseOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if tier == carrel.Sim {
		h.running = ""
	}
	return h
}

// lives checks that the running sandbox of a house has its file and its process.
func (h *house) lives(ctx context.Context, svc carrel.Service) error {
	if h.running == "" {
		return nil
	}
	if err := has(ctx, svc, h.running, h.running); err != nil {
		return err
	}
	c, err := svc.Computer(ctx, h.running)
	if err != nil {
		return err
	}
	all, err := c.Processes(ctx)
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.PID == h.pid {
			return nil
		}
	}
	return fmt.Errorf("its process %d is gone: %v", h.pid, all)
}

// has checks that a sandbox answers and has the file of the sandbox was.
func has(ctx context.Context, svc carrel.Service, id, was carrel.ID) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	c, err := svc.Computer(ctx, id)
	if err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	res, err := c.Run(ctx, carrel.Command{Args: []string{"/bin/cat", "word"}})
	if err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	if string(res.Stdout) != string(was) {
		return fmt.Errorf("%s: its file holds %q, want %q (%s)", id, res.Stdout, was, res.Stderr)
	}
	return nil
}

// wakes resumes a sandbox and checks its file.
func wakes(ctx context.Context, svc carrel.Service, id, was carrel.ID) error {
	if _, _, err := svc.Resume(ctx, id, carrel.ResumeOptions{}); err != nil {
		return fmt.Errorf("resume %s: %w", id, err)
	}
	return has(ctx, svc, id, was)
}

// must fails the test at an error.
func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// copyOf copies a directory with cp -a, sockets and all.
func copyOf(t *testing.T, dir, to string) string {
	t.Helper()
	if out, err := exec.Command("cp", "-a", dir, to).CombinedOutput(); err != nil {
		// Files come and go while a daemon runs. cp copies the others.
		t.Logf("cp -a: %v\n%s", err, out)
	}
	return to
}

// ids lists the sandboxes of a daemon.
func ids(t *testing.T, svc carrel.Service) map[carrel.ID]carrel.Sandbox {
	t.Helper()
	page, err := svc.List(t.Context(), carrel.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[carrel.ID]carrel.Sandbox{}
	for _, sb := range page.Sandboxes {
		out[sb.ID] = sb
	}
	return out
}

// only returns the one sandbox of a daemon.
func only(t *testing.T, svc carrel.Service) carrel.ID {
	t.Helper()
	all := ids(t, svc)
	for id := range all {
		if len(all) == 1 {
			return id
		}
	}
	t.Fatalf("there is not one sandbox but %v", all)
	return ""
}

// saysCopy checks that the log and the doctor tell that a daemon serves a copy.
func saysCopy(t *testing.T, d *daemontest.Daemon) {
	t.Helper()
	if !strings.Contains(d.Log(), "this data directory is not the original") {
		t.Errorf("the log does not say that the directory is a copy:\n%s", d.Log())
	}
	out, err := d.CLI("doctor").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "it is a copy of") ||
		!strings.Contains(string(out), "--adopt-copy") {
		t.Errorf("carrel doctor: %v\n%s", err, out)
	}
}

// TestCopyOfARunningHouse starts a daemon on the copy of a live daemon's directory. The copy has
// the paused sandbox under a new ID. Whatever it does, the original's sandboxes live.
func TestCopyOfARunningHouse(t *testing.T) {
	t.Parallel()
	eachTier(t, carrel.GVisor, func(t *testing.T, tier carrel.Tier) {
		h := build(t, tier)
		ctx, svc := t.Context(), connect(t, h.d)
		dir := copyOf(t, h.d.Dir, filepath.Join(t.TempDir(), "copy"))
		// Before its daemon runs, the copy's daemon.json names the original's.
		if out, err := exec.Command(h.d.Bin, "--data-dir", dir, "kill",
			"--all").CombinedOutput(); err == nil {
			t.Errorf("the command line takes the original's daemon for the copy's: %s", out)
		}
		other := daemontest.StartIn(t, dir, "--default-tier", string(tier))
		must(t, "the original, beside its copy", h.lives(ctx, svc))
		saysCopy(t, other)
		theirs := connect(t, other)
		next := only(t, theirs)
		if next == h.paused {
			t.Fatalf("the copy serves the original's %s", next)
		}
		must(t, "resume in the copy", wakes(ctx, theirs, next, h.paused))
		must(t, "resume in the original", wakes(ctx, svc, h.paused, h.paused))
		if out, err := other.CLI("kill", "--all").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		other.Kill9()
		other.Restart()
		must(t, "the original, after its copy killed all", h.lives(ctx, svc))
		must(t, "the original's other", has(ctx, svc, h.paused, h.paused))
	})
}

// TestCopyInTheOriginalsPlace moves the original away and puts its copy at the old path. The daemon
// of the copy must not take the processes of the original for its own. Then the original is adopted
// where it is now.
func TestCopyInTheOriginalsPlace(t *testing.T) {
	t.Parallel()
	eachTier(t, carrel.NS, func(t *testing.T, tier carrel.Tier) {
		h := build(t, tier)
		ctx := t.Context()
		h.d.Terminate()
		old, aside := h.d.Dir, filepath.Join(t.TempDir(), "aside")
		must(t, "move it", os.Rename(old, aside))
		copyOf(t, aside, old)
		other := daemontest.StartIn(t, old, "--default-tier", string(tier))
		saysCopy(t, other)
		next := only(t, connect(t, other))
		must(t, "resume in the copy", wakes(ctx, connect(t, other), next, h.paused))
		h.d.RestartIn(aside)
		svc := connect(t, h.d)
		must(t, "the original, moved", h.lives(ctx, svc))
		must(t, "its paused sandbox", wakes(ctx, svc, h.paused, h.paused))
		other.Terminate()
		other.Restart()
		must(t, "the original, after the copy's daemon came back", h.lives(ctx, svc))
		must(t, "its other", has(ctx, svc, h.paused, h.paused))
	})
}

// TestMove moves the directory of a stopped daemon to a long path, and the next daemon has all its
// sandboxes. A sandbox that ran meanwhile can be paused and resumed, which takes its control
// socket.
func TestMove(t *testing.T) {
	t.Parallel()
	eachTier(t, carrel.Sim, func(t *testing.T, tier carrel.Tier) {
		h := build(t, tier)
		ctx := t.Context()
		h.d.Terminate()
		to := filepath.Join(t.TempDir(), strings.Repeat("a-long-name-", 8), "data")
		must(t, "make the place", os.MkdirAll(filepath.Dir(to), 0o700))
		must(t, "move it", os.Rename(h.d.Dir, to))
		h.d.RestartIn(to)
		svc := connect(t, h.d)
		if strings.Contains(h.d.Log(), "not the original") {
			t.Errorf("a moved directory is taken for a copy:\n%s", h.d.Log())
		}
		must(t, "after the move", h.lives(ctx, svc))
		must(t, "the paused one", wakes(ctx, svc, h.paused, h.paused))
		if h.running == "" {
			return
		}
		if _, err := svc.Pause(ctx, h.running, carrel.PauseOptions{}); err != nil {
			t.Fatalf("pause after the move: %v", err)
		}
		must(t, "the sandbox that ran through the move", wakes(ctx, svc, h.running, h.running))
		h.d.Kill9()
		h.d.Restart()
		must(t, "after another start", has(ctx, connect(t, h.d), h.running, h.running))
	})
}

// TestAdoptCopy makes a copy of a stopped daemon's directory the owner, at its first start and
// later.
func TestAdoptCopy(t *testing.T) {
	t.Parallel()
	eachTier(t, carrel.NS, func(t *testing.T, tier carrel.Tier) {
		h := build(t, tier)
		ctx := t.Context()
		h.d.Terminate()
		dir := copyOf(t, h.d.Dir, filepath.Join(t.TempDir(), "copy"))
		later := copyOf(t, h.d.Dir, filepath.Join(t.TempDir(), "later"))
		h.d.Restart()
		svc := connect(t, h.d)

		first := daemontest.StartIn(t, dir, "--default-tier", string(tier), "--adopt-copy")
		theirs := connect(t, first)
		if got := only(t, theirs); got != h.paused {
			t.Fatalf("the owner serves %s, not %s", got, h.paused)
		}
		must(t, "resume in the owner", wakes(ctx, theirs, h.paused, h.paused))
		must(t, "the original", h.lives(ctx, svc))
		if h.running != "" {
			checkLost(t, theirs, h.running)
		}

		second := daemontest.StartIn(t, later, "--default-tier", string(tier))
		if got := only(t, connect(t, second)); got == h.paused {
			t.Fatalf("a copy serves the original's %s", got)
		}
		second.Terminate()
		second.RestartIn(later, "--adopt-copy")
		again := connect(t, second)
		must(t, "the owner's, under its old ID", wakes(ctx, again, h.paused, h.paused))
		if _, err := again.Pause(ctx, h.paused, carrel.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		second.Terminate()
		second.RestartIn(later)
		if strings.Contains(lastStart(second), "not the original") {
			t.Error("an adopted copy is still taken for a copy")
		}
		must(t, "after another start", wakes(ctx, connect(t, second), h.paused, h.paused))
		must(t, "the original, at last", h.lives(ctx, svc))
		must(t, "its paused sandbox", wakes(ctx, svc, h.paused, h.paused))
	})
}

// checkLost checks that a sandbox is gone, with the true reason.
func checkLost(t *testing.T, svc carrel.Service, id carrel.ID) {
	t.Helper()
	_, err := svc.Get(t.Context(), id)
	if !errors.Is(err, carrel.NotFound) {
		t.Errorf("the original's running sandbox: %v", err)
	}
	if err == nil || !strings.Contains(err.Error(), "a copy") {
		t.Errorf("its end has another reason: %v", err)
	}
}

// lastStart is the daemon's log since its last start.
func lastStart(d *daemontest.Daemon) string {
	log := d.Log()
	return log[strings.LastIndex(log[:strings.LastIndex(log, "msg=ready")], "msg=ready")+1:]
}

// TestRunningIsPausedInTheCopy checks that a sandbox that runs in the original, and was paused
// before, is paused at that moment in the copy.
func TestRunningIsPausedInTheCopy(t *testing.T) {
	t.Parallel()
	h := build(t, carrel.GVisor)
	ctx, svc := t.Context(), connect(t, h.d)
	must(t, "resume", wakes(ctx, svc, h.paused, h.paused))
	h.d.Terminate()
	other := daemontest.StartIn(t, copyOf(t, h.d.Dir, filepath.Join(t.TempDir(), "copy")))
	next := only(t, connect(t, other))
	must(t, "resume in the copy", wakes(ctx, connect(t, other), next, h.paused))
	h.d.Restart()
	must(t, "the original", has(ctx, connect(t, h.d), h.paused, h.paused))
	must(t, "the original's other", h.lives(ctx, connect(t, h.d)))
}

// TestOtherFilesystem copies a directory to another filesystem.
func TestOtherFilesystem(t *testing.T) {
	testenv.Long(t, "copies what TestCopyOfARunningHouse copies on one filesystem")
	t.Parallel()
	h := build(t, carrel.GVisor)
	ctx, svc := t.Context(), connect(t, h.d)
	other := daemontest.StartIn(t, copyOf(t, h.d.Dir, filepath.Join(tmpfs(t), "copy")))
	saysCopy(t, other)
	must(t, "resume in the copy", wakes(ctx, connect(t, other), only(t, connect(t, other)), h.paused))
	must(t, "the original", h.lives(ctx, svc))
}

// tmpfs mounts another filesystem.
func tmpfs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "mode=700", "tmpfs",
		dir).CombinedOutput(); err != nil {
		testenv.Need(t, "mount", fmt.Errorf("mount a tmpfs: %w %s", err, out))
	}
	t.Cleanup(func() {
		testenv.EventuallyNil(t, "the filesystem is unmounted", func() error {
			out, err := exec.Command("umount", dir).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	})
	return dir
}

// TestOtherHost is a directory that has come to another host with its disk: the inodes are the
// same.
func TestOtherHost(t *testing.T) {
	t.Parallel()
	h := build(t, carrel.GVisor)
	must(t, "end what does not come along", connect(t, h.d).Kill(t.Context(), h.running))
	h.d.Terminate()
	name := filepath.Join(h.d.Dir, datadir.File)
	was, err := datadir.Read(h.d.Dir)
	must(t, "read the identity", err)
	elsewhere := was
	elsewhere.Host, elsewhere.Boot = "another", "another"
	raw, err := elsewhere.Encode()
	must(t, "encode", err)
	must(t, "write", os.WriteFile(name, raw, 0o600))
	h.d.Restart()
	saysCopy(t, h.d)
	svc := connect(t, h.d)
	must(t, "resume", wakes(t.Context(), svc, only(t, svc), h.paused))
}

// TestRestoredBesideTheOriginal restores a backup on the machine where the original runs on.
func TestRestoredBesideTheOriginal(t *testing.T) {
	testenv.Long(t, "makes and restores a backup")
	t.Parallel()
	h := build(t, carrel.GVisor)
	ctx, svc := t.Context(), connect(t, h.d)
	file, to := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "data")
	if out, err := h.d.CLI("backup", file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command(h.d.Bin, "--data-dir", to, "restore",
		file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	other := daemontest.StartIn(t, to)
	theirs := connect(t, other)
	must(t, "the original", h.lives(ctx, svc))
	if got := only(t, theirs); got != h.paused {
		t.Fatalf("restored %s, not %s", got, h.paused)
	}
	must(t, "resume what was restored", wakes(ctx, theirs, h.paused, h.paused))
	must(t, "resume in the original", wakes(ctx, svc, h.paused, h.paused))
	a, errA := datadir.Read(h.d.Dir)
	b, errB := datadir.Read(to)
	if errA != nil || errB != nil || a.ID == b.ID || b.CopyOf != a.ID {
		t.Errorf("identities %+v and %+v (%v, %v)", a, b, errA, errB)
	}
}

// TestSharedStore lets a copy delete all that it has from a store of packs that it shares with its
// original, and collect garbage. The original loses nothing.
func TestSharedStore(t *testing.T) {
	t.Parallel()
	store := filepath.Join(t.TempDir(), "store")
	h := build(t, carrel.GVisor, "--snapshot-store", store, "--snapshot-cache", "1")
	ctx, svc := t.Context(), connect(t, h.d)
	packs := func() int {
		all, err := filepath.Glob(filepath.Join(store, "packs", "*"))
		must(t, "list packs", err)
		return len(all)
	}
	testenv.Eventually(t, "the snapshot is packed", func() bool { return packs() > 0 })
	had := packs()
	other := daemontest.StartIn(t, copyOf(t, h.d.Dir, filepath.Join(t.TempDir(), "copy")),
		"--snapshot-store", store)
	theirs := connect(t, other)
	next := only(t, theirs)
	must(t, "resume in the copy, from the original's packs", wakes(ctx, theirs, next, h.paused))
	must(t, "kill in the copy", theirs.Kill(ctx, next))
	page, err := theirs.ListSnapshots(ctx, carrel.SnapshotListOptions{Auto: true})
	must(t, "list snapshots", err)
	for _, sn := range page.Snapshots {
		must(t, "delete a snapshot", theirs.DeleteSnapshot(ctx, string(sn.ID)))
	}
	if out, err := other.CLI("snapshot", "gc").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := packs(); got != had {
		t.Errorf("the original had %d packs and has %d", had, got)
	}
	must(t, "resume in the original", wakes(ctx, svc, h.paused, h.paused))
}
