package move

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/snapshot/s3/s3test"
	"github.com/carrel-dev/carrel/test/daemontest"
	"github.com/carrel-dev/carrel/test/miniroot"
)

// node is one daemon, with its clients.
type node struct {
	*daemontest.Daemon
	carrel.Service
	carrel.Movement
}

// fleet is some daemons on one store.
type fleet struct {
	server  *s3test.Server
	bucket  string
	archive string // a small root filesystem; each node imports it itself
	nodes   []*node
}

// programs are in the sandboxes, besides the usual ones.
var programs = []string{"base64", "hostname"}

// start starts n daemons on one bucket.
func start(t testing.TB, n int, extra ...string) *fleet {
	t.Helper()
	f := &fleet{server: s3test.Start(t), archive: miniroot.Archive(t, programs...)}
	f.bucket = f.server.Bucket(t)
	t.Setenv("AWS_ENDPOINT_URL_S3", f.server.Endpoint)
	t.Setenv("AWS_ACCESS_KEY_ID", f.server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", f.server.SecretKey)
	for range n {
		f.add(t, extra...)
	}
	return f
}

// add starts one more daemon.
func (f *fleet) add(t testing.TB, extra ...string) *node {
	t.Helper()
	d := daemontest.StartOn(t, t.TempDir(), f.archive, append([]string{"--snapshot-store", "s3://" + f.bucket + "/moments"}, extra...)...)
	svc, err := client.New(d.URL, d.Key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	nd := &node{Daemon: d, Service: svc, Movement: svc.(*client.Client).Movement()}
	f.nodes = append(f.nodes, nd)
	return nd
}

// blobs lists the files of the bucket whose keys begin with prefix.
func (f *fleet) blobs(t testing.TB, prefix string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(f.server.Dir, f.bucket, "moments", filepath.FromSlash(prefix)+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// create makes a sandbox.
func (n *node) create(ctx context.Context, t testing.TB, o carrel.CreateOptions) carrel.Sandbox {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = time.Hour
	}
	sb, err := n.Create(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

// pause pauses a sandbox, and publishes it.
func (n *node) pause(ctx context.Context, t testing.TB, id carrel.ID) carrel.Passport {
	t.Helper()
	if _, err := n.Pause(ctx, id, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	p, err := n.Publish(ctx, string(id))
	if err != nil {
		t.Fatalf("publish: %v", err)
	}
	return p
}

// move moves a sandbox that runs here to another node, where it runs on.
func (n *node) move(ctx context.Context, t testing.TB, id carrel.ID, to *node) {
	t.Helper()
	p := n.pause(ctx, t, id)
	sb, err := to.Adopt(ctx, p)
	if err != nil {
		t.Fatalf("adopt: %v", err)
	}
	if sb.State != carrel.Paused || sb.ID != id || sb.Snapshot != p.Snapshot {
		t.Fatalf("adopted: %+v", sb)
	}
	if err := n.Release(ctx, id); err != nil {
		t.Fatalf("release: %v", err)
	}
	if _, _, err := to.Resume(ctx, id, carrel.ResumeOptions{}); err != nil {
		t.Fatalf("resume: %v", err)
	}
}

// computer returns a sandbox's computer.
func (n *node) computer(ctx context.Context, t testing.TB, id carrel.ID) carrel.Computer {
	t.Helper()
	c, err := n.Computer(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// run runs a line in a sandbox and returns its output. The line must succeed.
func (n *node) run(ctx context.Context, t testing.TB, id carrel.ID, line string) string {
	t.Helper()
	res, err := n.computer(ctx, t, id).Run(ctx, carrel.Command{Shell: line})
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if res.ExitCode != 0 {
		t.Fatalf("%s: %s\n%s%s", line, res.Status, res.Stdout, res.Stderr)
	}
	return strings.TrimSpace(string(res.Stdout))
}

// wantKind checks the kind and the words of an error.
func wantKind(t testing.TB, what string, err error, kind carrel.Kind, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: %v (%s), want %s", what, err, carrel.KindOf(err), kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error()+" "+carrel.HintOf(err), w) {
			t.Errorf("%s: %q does not say %q", what, err.Error(), w)
		}
	}
}

// gc collects a node's store.
func (n *node) gc(t testing.TB) {
	t.Helper()
	if out, err := n.CLI("snapshot", "gc").CombinedOutput(); err != nil {
		t.Fatalf("gc: %v: %s", err, out)
	}
}
