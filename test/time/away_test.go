package time

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot/s3/s3test"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// far is a daemon whose snapshots lie in an object store, with a paused sandbox whose only copy is
// there.
type far struct {
	*daemontest.Daemon
	server *s3test.Server
	bucket string
	svc    carrel.Service
	box    carrel.ID
	at     carrel.SnapshotID
}

// newFar makes one.
func newFar(ctx context.Context, t *testing.T) *far {
	t.Helper()
	f := &far{server: s3test.Start(t)}
	f.bucket = f.server.Bucket(t)
	bin, err := filepath.Abs("../../bin/carrel")
	if err != nil {
		t.Fatal(err)
	}
	f.Daemon = daemontest.StartBin(t, bin, []string{"AWS_ENDPOINT_URL_S3=" + f.server.Endpoint,
		"AWS_ACCESS_KEY_ID=" + f.server.AccessKey, "AWS_SECRET_ACCESS_KEY=" + f.server.SecretKey,
		"CARREL_SNAPSHOT_STORE=" + "s3://" + f.bucket + "/moments"}, "--default-tier", "sim")
	f.svc = connect(t, f.Daemon)
	f.box = f.write(ctx, t, "word")
	sb, err := f.svc.Pause(ctx, f.box, carrel.PauseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.at = sb.Snapshot
	arrived(ctx, t, f.svc, f.at)
	return f
}

// write makes a sandbox with a file.
func (f *far) write(ctx context.Context, t *testing.T, word string) carrel.ID {
	t.Helper()
	sb, err := f.svc.Create(ctx, carrel.CreateOptions{Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	c, err := f.svc.Computer(ctx, sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Files("").Write(ctx, "word", strings.NewReader(word)); err != nil {
		t.Fatal(err)
	}
	return sb.ID
}

// reads checks the file of a sandbox.
func (f *far) reads(ctx context.Context, t *testing.T, id carrel.ID, word string) {
	t.Helper()
	c, err := f.svc.Computer(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Run(ctx, carrel.Command{Args: []string{"cat", "word"}})
	if err != nil || string(res.Stdout) != word {
		t.Fatalf("%v, %v", res, err)
	}
}

// away stops the daemon, which loses its own copies, and then the object store.
func (f *far) away(t *testing.T) {
	t.Helper()
	_ = f.svc.Close()
	f.Terminate()
	if err := os.RemoveAll(filepath.Join(f.Dir, "snapshots", "hot", string(f.at))); err != nil {
		t.Fatal(err)
	}
	f.server.Stop()
}

// back starts the daemon.
func (f *far) back(t *testing.T) {
	t.Helper()
	f.Restart()
	f.svc = connect(t, f.Daemon)
}

// unavailable returns why the snapshot can't be read.
func (f *far) unavailable(ctx context.Context, t *testing.T) string {
	t.Helper()
	sn, err := f.svc.GetSnapshot(ctx, string(f.at))
	if err != nil {
		t.Fatal(err)
	}
	return sn.Unavailable
}

// objects lists the names in a bucket.
func (f *far) objects(t *testing.T, bucket string) (names []string) {
	t.Helper()
	for o := range f.server.Client(t).ListObjects(t.Context(), bucket,
		minio.ListObjectsOptions{Recursive: true}) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		names = append(names, o.Key)
	}
	return names
}

// TestObjectStoreIsAway starts a daemon while its object store is away. Everything is still listed,
// what needs the store says so, the rest works, and all goes on when the store is back.
func TestObjectStoreIsAway(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	f := newFar(ctx, t)
	before := f.objects(t, f.bucket)
	f.away(t)
	f.back(t)
	page, err := f.svc.ListSnapshots(ctx, carrel.SnapshotListOptions{Auto: true})
	if err != nil || len(page.Snapshots) != 1 || page.Snapshots[0].ID != f.at ||
		page.Snapshots[0].Unavailable == "" {
		t.Errorf("the list: %+v, %v", page.Snapshots, err)
	}
	_, _, err = f.svc.Resume(ctx, f.box, carrel.ResumeOptions{})
	if carrel.KindOf(err) != carrel.Unavailable ||
		!strings.Contains(carrel.HintOf(err), "nothing in it is lost") {
		t.Errorf("resume: %v (%s)", err, carrel.HintOf(err))
	}
	if sb, err := f.svc.Get(ctx, f.box); err != nil || sb.State != carrel.Paused {
		t.Errorf("the paused sandbox: %+v, %v", sb.State, err)
	}
	other := f.write(ctx, t, "other") // this machine alone is enough for it
	sb, err := f.svc.Pause(ctx, other, carrel.PauseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.svc.Resume(ctx, other, carrel.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	f.reads(ctx, t, other, "other")

	f.server.Restart(t)
	testenv.Eventually(t, "the store is back", func() bool { return f.unavailable(ctx, t) == "" })
	if _, _, err := f.svc.Resume(ctx, f.box, carrel.ResumeOptions{}); err != nil {
		t.Fatalf("resume: %v (%s)", err, carrel.HintOf(err))
	}
	f.reads(ctx, t, f.box, "word")
	arrived(ctx, t, f.svc, sb.Snapshot)
	after := strings.Join(f.objects(t, f.bucket), "\n")
	for _, name := range before {
		if !strings.Contains(after, name) {
			t.Errorf("object %s is gone", name)
		}
	}
}

// TestObjectStoreIsUnknown names another bucket than the one with the snapshots. The daemon refuses
// it: at its start, and when the store comes back later.
func TestObjectStoreIsUnknown(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	f := newFar(ctx, t)
	right, wrong := f.bucket, f.server.Bucket(t)
	f.away(t)
	f.Setenv("CARREL_SNAPSHOT_STORE", "s3://"+wrong+"/moments")
	f.back(t) // it can't know yet
	f.server.Restart(t)
	testenv.Eventually(t, "the daemon sees the other store", func() bool {
		return strings.Contains(f.unavailable(ctx, t), "is no snapshot store, or an empty one")
	})
	if _, _, err := f.svc.Resume(ctx, f.box, carrel.ResumeOptions{}); carrel.KindOf(
		err) != carrel.Conflict {
		t.Errorf("resume: %v", err)
	}
	other := f.write(ctx, t, "other")
	if _, err := f.svc.Pause(ctx, other, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	_ = f.svc.Close()
	f.Terminate()
	serve := exec.Command(f.Bin, "--data-dir", f.Dir, "serve", "--listen", "127.0.0.1:0")
	serve.Env = append(os.Environ(), "AWS_ENDPOINT_URL_S3="+f.server.Endpoint,
		"AWS_ACCESS_KEY_ID="+f.server.AccessKey, "AWS_SECRET_ACCESS_KEY="+f.server.SecretKey,
		"CARREL_SNAPSHOT_STORE="+"s3://"+wrong+"/moments")
	out, err := serve.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "this machine's snapshots lie in") ||
		!strings.Contains(string(out), "hint: name the right bucket") {
		t.Errorf("a start with another store: %v\n%s", err, out)
	}
	if names := f.objects(t, wrong); len(names) != 0 {
		t.Errorf("the other bucket got %v", names)
	}
	f.Setenv("CARREL_SNAPSHOT_STORE", "s3://"+right+"/moments")
	f.back(t)
	if _, _, err := f.svc.Resume(ctx, f.box, carrel.ResumeOptions{}); err != nil {
		t.Fatalf("resume: %v (%s)", err, carrel.HintOf(err))
	}
	f.reads(ctx, t, f.box, "word")
}
