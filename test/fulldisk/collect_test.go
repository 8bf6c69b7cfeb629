package fulldisk

import (
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/test/daemontest"
	"github.com/carrel-dev/carrel/test/miniroot"
)

// TestDeletedSnapshotsAreCollected pauses sandboxes of every tier with content that nothing else
// has, and kills them. The content leaves the disk without being asked.
func TestDeletedSnapshotsAreCollected(t *testing.T) {
	t.Parallel() // it mostly waits, as the others do that say so
	d := daemontest.StartOn(t, t.TempDir(), miniroot.Archive(t))
	svc := connect(t, d)
	ctx := t.Context()
	blobs := filepath.Join(d.Dir, "snapshots", "blobs")
	var all []carrel.Sandbox
	for _, tier := range tiers {
		sb, err := svc.Create(ctx, options(tier))
		if err != nil {
			t.Fatal(err)
		}
		c, err := svc.Computer(ctx, sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := c.Run(ctx,
			carrel.Command{Shell: "head -c 9000000 /dev/urandom > noise"}); err != nil || res.ExitCode != 0 {
			t.Fatalf("%+v, %v", res, err)
		}
		if _, err := svc.Pause(ctx, sb.ID, carrel.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		all = append(all, sb)
	}
	daemontest.Eventually(t, time.Minute, "the snapshots are packed",
		func() bool { return bytesBelow(t, blobs) > 27_000_000 })
	for _, sb := range all {
		if err := svc.Kill(ctx, sb.ID); err != nil {
			t.Fatal(err)
		}
	}
	daemontest.Eventually(t, 3*time.Minute, "the packs are collected",
		func() bool { return bytesBelow(t, blobs) < 1<<20 })
}

// bytesBelow adds up the files of a directory.
func bytesBelow(t *testing.T, dir string) (sum int64) {
	t.Helper()
	_ = filepath.WalkDir(dir, func(_ string, de fs.DirEntry, err error) error {
		if err != nil {
			return nil // it has just been removed
		}
		if info, err := de.Info(); err == nil && de.Type().IsRegular() {
			sum += info.Size()
		}
		return nil
	})
	return sum
}
