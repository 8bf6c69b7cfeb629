package fleet

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot/s3/s3test"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
	"github.com/carrel-dev/carrel/test/miniroot"
)

// counter counts in a variable of a shell, and writes the number where others can read it. A file in
// memory has what it began with.
const counter = `mkdir -p /dev/shm && echo "$1" > /dev/shm/seed
( n=0; while :; do n=$((n+1)); echo $n > /tmp/count; sleep 0.05; done ) >/dev/null 2>&1 &`

// onWalls starts a fleet of n nodes of gVisor sandboxes with one object store.
func onWalls(t *testing.T, n int, extra ...string) *fleetOf {
	t.Helper()
	store, archive := s3test.Start(t), miniroot.Archive(t, "sleep", "cat", "mkdir")
	t.Setenv("AWS_ENDPOINT_URL_S3", store.Endpoint)
	t.Setenv("AWS_ACCESS_KEY_ID", store.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", store.SecretKey)
	bucket := store.Bucket(t)
	f := start(t, 0)
	for i := range n {
		f.nodes = append(f.nodes, daemontest.StartOn(t, t.TempDir(), archive, append([]string{"--node-name", fmt.Sprintf("node-%d", i),
			"--join", f.fronts[0].NodesURL(), "--join-token-file", filepath.Join(f.dir, "token"), "--fleet-listen", freePort(t),
			"--snapshot-store", "s3://" + bucket + "/moments"}, extra...)...))
	}
	f.ready(n)
	return f
}

// count reads a sandbox's counter.
func (f *fleetOf) count(id carrel.ID) int {
	f.t.Helper()
	n := 0
	testenv.EventuallyNil(f.t, "the counter is read whole", func() (err error) {
		n, err = strconv.Atoi(f.sh(f.Client, id, "cat /tmp/count"))
		return err
	})
	return n
}

// goesOn fails the test unless the sandbox's counter counts on from least, and its seed is there.
func (f *fleetOf) goesOn(id carrel.ID, least int, seed string) int {
	f.t.Helper()
	at := 0
	testenv.EventuallyNil(f.t, "the counter counts on", func() error {
		if at = f.count(id); at <= least {
			return fmt.Errorf("%d, it was %d", at, least)
		}
		return nil
	})
	if at > least+2000 {
		f.t.Errorf("the counter is at %d, it was at %d: it did not stand still", at, least)
	}
	if got := f.sh(f.Client, id, "cat /dev/shm/seed"); got != seed {
		f.t.Errorf("the file in memory has %q, want %q", got, seed)
	}
	return at
}

// TestMemory moves running programs between machines with everything in their memory: by a drain, and
// by the death of the node on which they were paused.
func TestMemory(t *testing.T) {
	f := onWalls(t, 2)
	ctx := t.Context()
	sb, err := f.Create(ctx, carrel.CreateOptions{Tier: carrel.GVisor, Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	f.sh(f.Client, sb.ID, "set -- "+string(sb.ID)+"; "+counter)
	var at int
	testenv.EventuallyNil(t, "the counter counts", func() error {
		out, err := try(ctx, f.Client, sb.ID, "cat /tmp/count")
		if err == nil {
			at, err = strconv.Atoi(out)
		}
		return err
	})
	first := f.home(sb.ID)
	began := time.Now()
	got, err := f.Nodes().DrainNode(ctx, fmt.Sprintf("node-%d", first))
	if err != nil || len(got.Moved) != 1 || len(got.Failed) > 0 {
		t.Fatalf("%+v %v", got, err)
	}
	t.Logf("drained in %v", time.Since(began).Round(time.Millisecond))
	if now := f.home(sb.ID); now == first {
		t.Fatal("it did not move")
	}
	at = f.goesOn(sb.ID, at, string(sb.ID))

	if err := f.Nodes().UndrainNode(ctx, fmt.Sprintf("node-%d", first)); err != nil {
		t.Fatal(err)
	}
	f.ready(2)
	if _, err := f.Pause(ctx, sb.ID, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	f.published(sb.ID)
	f.nodes[1-first].Kill9()
	testenv.EventuallyNil(t, "it resumes on the first node", func() error {
		_, _, err := f.Resume(ctx, sb.ID, carrel.ResumeOptions{})
		return err
	})
	f.goesOn(sb.ID, at, string(sb.ID))
}

// TestCutOff stops the daemon of a node while a sandbox with automatic snapshots runs on it. Another
// node resumes it from the last one. When the first daemon goes on, its sandbox must not.
func TestCutOff(t *testing.T) {
	testenv.Long(t, "a node is cut off while a sandbox runs")
	f := onWalls(t, 2)
	ctx := t.Context()
	sb, err := f.Create(ctx, carrel.CreateOptions{Tier: carrel.GVisor, Timeout: time.Hour,
		Lifecycle: carrel.Lifecycle{Checkpoints: carrel.Checkpoints{Every: 10 * time.Second}}})
	if err != nil {
		t.Fatal(err)
	}
	f.sh(f.Client, sb.ID, "set -- x; "+counter)
	first := f.home(sb.ID)
	testenv.EventuallyNil(t, "a checkpoint is published", func() error {
		out := f.server.Exec(t, f.database(), "SELECT count(*) FROM carrel.homes WHERE state = 'running' AND passport IS NOT NULL AND sandbox = '"+string(sb.ID)+"'::bytea")
		if strings.TrimSpace(out) != "1" {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	if err := syscall.Kill(f.nodes[first].PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	testenv.EventuallyNil(t, "another node resumes it from the checkpoint", func() error {
		_, err := try(ctx, f.Client, sb.ID, "test -s /dev/shm/seed")
		return err
	})
	if err := syscall.Kill(f.nodes[first].PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	f.ready(2)
	testenv.EventuallyNil(t, "one machine runs it", func() error {
		if n := f.nodes[first].Kernels(); n > spare {
			return fmt.Errorf("the first node has %d kernels", n)
		}
		if now := f.home(sb.ID); now == first {
			return fmt.Errorf("node %d says that it has it", now)
		}
		return nil
	})
	f.goesOn(sb.ID, f.count(sb.ID), "x")
}

// spare is how many kernels a daemon keeps that have no sandbox.
const spare = 2
