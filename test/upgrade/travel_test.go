package upgrade

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot/s3/s3test"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// TestBuildsTravel takes a snapshot under one build, and goes on from it on another machine under
// another build. The two machines share only a bucket. Without the build in it, the error says
// which build is missing and what to do.
func TestBuildsTravel(t *testing.T) {
	a := ours(t)
	needGVisor(t, a)
	server := s3test.Start(t)
	b := another(t, "b")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	bucket := server.Bucket(t)
	env := []string{"AWS_ENDPOINT_URL_S3=" + server.Endpoint, "AWS_ACCESS_KEY_ID=" + server.AccessKey,
		"AWS_SECRET_ACCESS_KEY=" + server.SecretKey,
		"CARREL_SNAPSHOT_STORE=s3://" + bucket + "/moments"}
	here := daemontest.StartBin(t, a.carrel, env, "--default-tier", "gvisor")
	svc := connect(t, here)
	d := begin(ctx, t, svc, "11")
	sn, err := svc.Snapshot(ctx, d.id, carrel.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	builds := filepath.Join(server.Dir, bucket, "moments", "builds", "*")
	var copies []string
	testenv.EventuallyNil(t, "the snapshot and its build are in the bucket", func() error {
		now, err := svc.GetSnapshot(ctx, string(sn.ID))
		if err != nil || now.New < 0 {
			return errors.Join(err, errors.New("it is not packed"))
		}
		if copies, _ = filepath.Glob(builds); len(copies) != 1 {
			return errors.New("its build is not there")
		}
		return nil
	})

	there := daemontest.StartBin(t, b.carrel, env, "--default-tier", "gvisor")
	far := connect(t, there)
	hidden := filepath.Join(t.TempDir(), "build")
	if err := os.Rename(copies[0], hidden); err != nil {
		t.Fatal(err)
	}
	_, err = far.Create(ctx, carrel.CreateOptions{Template: string(sn.ID), Timeout: time.Hour})
	if carrel.KindOf(err) != carrel.Unsupported ||
		!strings.Contains(err.Error(), "whose kernel is not kept here") ||
		!strings.Contains(carrel.HintOf(err), "start the build that took it") {
		t.Errorf("without its build: %v (%s)", err, carrel.HintOf(err))
	}
	if err := os.Rename(hidden, copies[0]); err != nil {
		t.Fatal(err)
	}
	moved, err := far.Create(ctx, carrel.CreateOptions{Template: string(sn.ID), Timeout: time.Hour})
	if err != nil {
		t.Fatalf("with its build: %v (%s)", err, carrel.HintOf(err))
	}
	d.same(ctx, t, far, moved.ID, "on another machine and build")
	a.on(t, moved.ID, "on another machine and build")
	if _, err := far.Pause(ctx, moved.ID, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := far.Resume(ctx, moved.ID, carrel.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	d.same(ctx, t, far, moved.ID, "after a pause there")
}
