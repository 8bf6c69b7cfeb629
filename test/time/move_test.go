package time

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/snapshot/s3/s3test"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// connect returns a client of a daemon.
func connect(t *testing.T, d *daemontest.Daemon) carrel.Service {
	t.Helper()
	svc, err := client.New(d.URL, d.Key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	return svc
}

// arrived waits until a snapshot is in the object store.
func arrived(ctx context.Context, t *testing.T, svc carrel.Service, id carrel.SnapshotID) {
	t.Helper()
	err := testenv.Within(ctx, 2*time.Minute, func() error {
		sn, err := svc.GetSnapshot(ctx, string(id))
		if err != nil {
			t.Fatal(err)
		}
		if sn.New < 0 {
			return fmt.Errorf("snapshot %s does not get there: %+v", id, sn)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestMove takes a snapshot on one daemon and goes on from it on another. The two share only a
// bucket.
func TestMove(t *testing.T) {
	server := s3test.Start(t)
	bucket := server.Bucket(t)
	env := []string{"AWS_ENDPOINT_URL_S3=" + server.Endpoint, "AWS_ACCESS_KEY_ID=" + server.AccessKey, "AWS_SECRET_ACCESS_KEY=" + server.SecretKey}
	bin, err := filepath.Abs("../../bin/carrel")
	if err != nil {
		t.Fatal(err)
	}
	store := "s3://" + bucket + "/moments"
	here := daemontest.StartBin(t, bin, env, "--snapshot-store", store)
	there := daemontest.StartBin(t, bin, env, "--snapshot-store", store)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	from, to := connect(t, here), connect(t, there)

	sb, err := from.Create(ctx, carrel.CreateOptions{Tier: carrel.GVisor, Timeout: time.Hour, Env: map[string]string{"ORIGIN": "here"}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := from.Computer(ctx, sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	shell, err := daemontest.Begin(ctx, c, carrel.Command{Args: []string{"bash"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shell.Ask(ctx, "n=$((6*7)); head -c 3000000 /dev/urandom > noise; echo sum $(sha256sum < noise)", "sum"); err != nil {
		t.Fatal(err)
	}
	sn, err := from.Snapshot(ctx, sb.ID, carrel.SnapshotOptions{Name: "travel"})
	if err != nil {
		t.Fatal(err)
	}
	sum, err := shell.Ask(ctx, "echo sum $n $(sha256sum < noise)", "sum")
	if err != nil {
		t.Fatal(err)
	}
	arrived(ctx, t, from, sn.ID)
	// The first machine is gone.
	if err := from.Kill(ctx, sb.ID); err != nil {
		t.Fatal(err)
	}
	here.Terminate()
	if err := os.RemoveAll(filepath.Join(here.Dir, "snapshots")); err != nil {
		t.Fatal(err)
	}

	moved, err := to.Create(ctx, carrel.CreateOptions{Template: string(sn.ID), Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if moved.ID == sb.ID || moved.AccessToken == sb.AccessToken {
		t.Error("it is not a sandbox of its own")
	}
	if c, err = to.Computer(ctx, moved.ID); err != nil {
		t.Fatal(err)
	}
	if shell, err = shell.Attach(ctx, c); err != nil {
		t.Fatal(err)
	}
	if got, err := shell.Ask(ctx, "echo sum $n $(sha256sum < noise)", "sum"); err != nil || got != sum {
		t.Errorf("there it is %q, %v; here it was %q", got, err, sum)
	}
	if got := run(t, c, "echo $ORIGIN; hostname; cat /run/carrel/generation"); got != "here\n"+string(moved.ID)+"\n1" {
		t.Errorf("it says of itself: %s", got)
	}
	// It also has its own timeline there.
	if _, err := to.Pause(ctx, moved.ID, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := to.Resume(ctx, moved.ID, carrel.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := to.Create(ctx, carrel.CreateOptions{Template: string(carrel.NewSnapshotID())}); !errors.Is(err, carrel.NotFound) {
		t.Errorf("a snapshot that is nowhere: %v", err)
	}
	here.Restart() // so that the test's end can stop it
}

// TestBadMoments makes a caller's usual mistakes about time, and uses damaged snapshots. It must
// get the right error, and no half-done change.
func TestBadMoments(t *testing.T) {
	d := daemontest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	svc := connect(t, d)
	create := func() carrel.Sandbox {
		sb, err := svc.Create(ctx, carrel.CreateOptions{Tier: carrel.GVisor, Timeout: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return sb
	}
	a, b := create(), create()
	snap := func(id carrel.ID) carrel.Snapshot {
		sn, err := svc.Snapshot(ctx, id, carrel.SnapshotOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return sn
	}
	ofB := snap(b.ID)
	check := func(what string, err error, kind carrel.Kind, texts ...string) {
		t.Helper()
		if !errors.Is(err, kind) {
			t.Errorf("%s: %v (%s), want %s", what, err, carrel.KindOf(err), kind)
			return
		}
		for _, text := range texts {
			if !strings.Contains(err.Error()+" "+carrel.HintOf(err), text) {
				t.Errorf("%s: %q does not say %q", what, err, text)
			}
		}
	}
	_, err := svc.Rollback(ctx, a.ID, ofB.ID, carrel.RollbackOptions{})
	check("another sandbox's moment", err, carrel.Invalid, string(b.ID), "carrel create --from")
	_, err = svc.Rollback(ctx, a.ID, carrel.NewSnapshotID(), carrel.RollbackOptions{})
	check("a moment that is not", err, carrel.NotFound)
	_, err = svc.Fork(ctx, a.ID, carrel.ForkOptions{Count: -1}) // a client asks for large numbers in batches
	check("−1 forks", err, carrel.Invalid, "count")
	_, err = svc.Pause(ctx, carrel.NewID(), carrel.PauseOptions{})
	check("pause nothing", err, carrel.NotFound)
	check("delete nothing", svc.DeleteSnapshot(ctx, string(carrel.NewSnapshotID())), carrel.NotFound)

	// Several pauses at once: one of them does it.
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() { _, err := svc.Pause(ctx, a.ID, carrel.PauseOptions{}); errs <- err }()
	}
	paused := 0
	for range cap(errs) {
		switch err := <-errs; {
		case err == nil:
			paused++
		default:
			check("pause while pausing", err, carrel.Conflict)
		}
	}
	if paused != 1 {
		t.Errorf("%d pauses of one sandbox were answered with success", paused)
	}
	sb, err := svc.Get(ctx, a.ID)
	if err != nil || sb.State != carrel.Paused {
		t.Fatalf("%+v, %v", sb, err)
	}
	check("delete what it resumes from", svc.DeleteSnapshot(ctx, string(sb.Snapshot)), carrel.Conflict, string(a.ID))

	// Damage is found before it has an effect, and the sandbox stays as it is.
	damage := func(id carrel.SnapshotID, how func(path string) error) {
		t.Helper()
		paths, _ := filepath.Glob(filepath.Join(d.Dir, "snapshots", "hot", string(id), "*"))
		done := false
		err := filepath.WalkDir(filepath.Join(d.Dir, "snapshots", "hot", string(id)), func(path string, e os.DirEntry, err error) error {
			if err == nil && strings.HasPrefix(e.Name(), "pages.") {
				done = true
				return how(path)
			}
			return err
		})
		if err != nil || !done {
			t.Fatalf("damage %v: %v", paths, err)
		}
	}
	arrived(ctx, t, svc, sb.Snapshot)
	good := sb.Snapshot
	if _, _, err := svc.Resume(ctx, a.ID, carrel.ResumeOptions{}); err != nil {
		t.Fatalf("resume %s: %v", good, err)
	}
	flip := func(path string) error {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		var buf [1]byte
		if _, err := f.ReadAt(buf[:], 9000); err != nil {
			return err
		}
		buf[0] ^= 1
		_, err = f.WriteAt(buf[:], 9000)
		return err
	}
	// With the packed copy, a damaged hot copy only costs time. Without it, the snapshot is lost.
	ofA := snap(a.ID)
	damage(ofA.ID, flip)
	if _, err := svc.Create(ctx, carrel.CreateOptions{Template: string(ofA.ID)}); err != nil {
		check("a flipped bit", err, carrel.Invalid, string(ofA.ID))
	}
	packs, _ := filepath.Glob(filepath.Join(d.Dir, "snapshots", "blobs", "packs", "*"))
	if len(packs) == 0 {
		t.Fatal("no packs")
	}
	before, err := svc.List(ctx, carrel.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	last := snap(a.ID)
	arrived(ctx, t, svc, last.ID)
	damage(last.ID, func(path string) error { return os.Truncate(path, 4096) })
	packs, _ = filepath.Glob(filepath.Join(d.Dir, "snapshots", "blobs", "packs", "*"))
	for _, p := range packs {
		if err := os.Chmod(p, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(p, 100); err != nil {
			t.Fatal(err)
		}
	}
	_, err = svc.Create(ctx, carrel.CreateOptions{Template: string(last.ID)})
	check("a truncated snapshot", err, carrel.Invalid)
	_, err = svc.Rollback(ctx, a.ID, last.ID, carrel.RollbackOptions{})
	check("roll back to it", err, carrel.Invalid)
	if sb, err := svc.Get(ctx, a.ID); err != nil || sb.State != carrel.Running {
		t.Errorf("after a rollback that could not be: %s, %v", sb.State, err)
	}
	c, err := svc.Computer(ctx, a.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, c, "echo still here"); got != "still here" {
		t.Error(got)
	}
	after, err := svc.List(ctx, carrel.ListOptions{})
	if err != nil || len(after.Sandboxes) != len(before.Sandboxes) {
		t.Errorf("%d sandboxes, there were %d; %v", len(after.Sandboxes), len(before.Sandboxes), err)
	}
}

// TestKillWhileResuming kills sandboxes at random moments of pausing and resuming.
func TestKillWhileResuming(t *testing.T) {
	d := daemontest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	svc := connect(t, d)
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	for i := range rounds {
		sb, err := svc.Create(ctx, carrel.CreateOptions{Tier: carrel.GVisor, Timeout: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			if _, err := svc.Pause(ctx, sb.ID, carrel.PauseOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		done := make(chan error, 1)
		go func() {
			var err error
			if i%2 == 0 {
				_, _, err = svc.Resume(ctx, sb.ID, carrel.ResumeOptions{})
			} else {
				_, err = svc.Pause(ctx, sb.ID, carrel.PauseOptions{})
			}
			done <- err
		}()
		time.Sleep(time.Duration(i*7) * time.Millisecond)
		if err := svc.Kill(ctx, sb.ID); err != nil {
			t.Errorf("round %d: %v", i, err)
		}
		if err := <-done; err != nil && !errors.Is(err, carrel.NotFound) && !errors.Is(err, carrel.Conflict) {
			t.Errorf("round %d: who waited was told %v (%s)", i, err, carrel.KindOf(err))
		}
		if _, err := svc.Get(ctx, sb.ID); !errors.Is(err, carrel.NotFound) {
			t.Errorf("round %d: it is still there: %v", i, err)
		}
	}
	left, _ := filepath.Glob(filepath.Join(d.Dir, "sandboxes", "i*"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
