package fulldisk

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
	"github.com/carrel-dev/carrel/test/miniroot"
)

func connect(t *testing.T, d *daemontest.Daemon) carrel.Service {
	t.Helper()
	svc, err := client.New(d.URL, d.Key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	return svc
}

// tiers are the tiers that the tests run in.
var tiers = []carrel.Tier{carrel.GVisor, carrel.NS, carrel.Sim}

// options asks for a sandbox of a tier.
func options(tier carrel.Tier) carrel.CreateOptions {
	o := carrel.CreateOptions{Tier: tier, Timeout: 10 * time.Minute}
	if tier == carrel.Sim {
		o.Template = "sim"
	}
	return o
}

// lack takes something of a disk, and gives it back.
type lack struct {
	mkfs       []string
	take, give func(t *testing.T, dir string)
	tight      bool // a part of it can be given back
}

// TestFullDiskIsLeft fills the disk of a daemon to the last byte, kills the daemon, and starts it
// again. It must start, kill, delete and give space back, and then work as before.
func TestFullDiskIsLeft(t *testing.T) {
	// With -short, TestNoInodes has another.
	leaveInTiers(t, lack{take: fill, give: free, tight: true}, testenv.Few(1, tiers...)...)
}

// TestNoInodes is TestFullDiskIsLeft for a disk with room but without inodes.
func TestNoInodes(t *testing.T) {
	leaveInTiers(t, lack{mkfs: []string{"-N", "3000"}, take: takeInodes, give: giveInodes},
		testenv.Few(1, carrel.NS, carrel.Sim, carrel.GVisor)...)
}

func leaveInTiers(t *testing.T, l lack, tiers ...carrel.Tier) {
	for _, tier := range tiers {
		t.Run(string(tier), func(t *testing.T) {
			dir := disk(t, 640, l.mkfs...)
			d := daemontest.StartOn(t, dir, miniroot.Archive(t))
			leave(t, d, dir, tier, l)
		})
	}
}

func leave(t *testing.T, d *daemontest.Daemon, dir string, tier carrel.Tier, l lack) {
	ctx := t.Context()
	svc := connect(t, d)
	run, err := svc.Create(ctx, options(tier))
	if err != nil {
		t.Fatal(err)
	}
	paused, err := svc.Create(ctx, options(tier))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := svc.Pause(ctx, paused.ID, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	snap, err := svc.Snapshot(ctx, run.ID, carrel.SnapshotOptions{Name: "mine-" + string(tier)})
	if err != nil {
		t.Fatal(err)
	}
	say := func(svc carrel.Service) {
		t.Helper()
		c, err := svc.Computer(ctx, run.ID)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Run(ctx, carrel.Command{Shell: "echo alive"})
		if err != nil || string(res.Stdout) != "alive\n" {
			t.Fatalf("the sandbox does not run: %+v %v", res, err)
		}
	}
	say(svc)
	l.take(t, dir)

	// A pause finds no room. It says so in one line, and the sandbox runs on.
	if _, err := svc.Pause(ctx, run.ID, carrel.PauseOptions{}); err == nil {
		if tier != carrel.Sim {
			t.Error("a pause without room succeeded")
		}
	} else {
		checkFull(t, err)
		say(svc)
	}
	// With some room, but too little: nothing is written.
	if tier == carrel.GVisor && l.tight {
		pauseTight(t, svc, dir, run.ID)
		say(svc)
	}
	// A create is refused, and leaves nothing.
	if _, err := svc.Create(ctx, options(tier)); err == nil {
		t.Error("a create without room succeeded")
	} else {
		checkFull(t, err)
	}

	d.Kill9()
	l.take(t, dir)
	d.Restart()
	svc = connect(t, d)
	if tier != carrel.Sim {
		say(svc)
	}
	l.take(t, dir)
	if err := svc.DeleteSnapshot(ctx, string(snap.ID)); err != nil {
		t.Error(err)
	}
	if err := svc.Kill(ctx, paused.ID); err != nil {
		t.Error(err)
	}
	if err := svc.Kill(ctx, run.ID); err != nil {
		var ce *carrel.Error
		if tier != carrel.Sim || !errors.As(err, &ce) || ce.Kind != carrel.NotFound {
			t.Error(err)
		}
	}
	page, err := svc.List(ctx, carrel.ListOptions{})
	if err != nil || len(page.Sandboxes) != 0 {
		t.Errorf("after killing all: %v, %v", page.Sandboxes, err)
	}
	l.give(t, dir)
	testenv.EventuallyNil(t, "sandboxes are created again", func() error {
		sb, err := svc.Create(ctx, options(tier))
		if err != nil {
			return err
		}
		if _, err := svc.Pause(ctx, sb.ID, carrel.PauseOptions{}); err != nil {
			return err
		}
		return svc.Kill(ctx, sb.ID)
	})
}

// pauseTight pauses a sandbox with much memory on a disk with little room. The pause is refused,
// and takes no room from others even for a moment.
func pauseTight(t *testing.T, svc carrel.Service, dir string, id carrel.ID) {
	t.Helper()
	ctx := t.Context()
	c, err := svc.Computer(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	// Files in /dev/shm are memory of the sandbox.
	res, err := c.Run(ctx, carrel.Command{Shell: "head -c 48000000 /dev/urandom > /dev/shm/memory",
		User: "root"})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	if err := os.Truncate(ballast(dir), fileSize(t, ballast(dir))-12<<20); err != nil {
		t.Fatal(err)
	}
	least, low := left(t, dir), lowest(t, dir)
	_, err = svc.Pause(ctx, id, carrel.PauseOptions{})
	if got := low(); got < 4<<20 {
		t.Errorf("the pause left %d bytes of %d for a moment", got, least)
	}
	if err == nil {
		t.Fatal("a pause without room succeeded")
	}
	checkFull(t, err)
	fill(t, dir)
}

// checkFull checks an error that a full disk causes.
func checkFull(t *testing.T, err error) {
	t.Helper()
	var ce *carrel.Error
	if !errors.As(err, &ce) || ce.Kind != carrel.Exhausted && ce.Kind != carrel.Unavailable {
		t.Errorf("kind: %v", err)
	}
	if text := err.Error(); strings.Contains(text, "\n") || strings.Contains(text, "goroutine") ||
		len(text) > 400 {
		t.Errorf("not one line: %s", text)
	}
	if carrel.HintOf(err) == "" {
		t.Errorf("no hint: %v", err)
	}
}
