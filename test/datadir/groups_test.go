package datadir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// groupsOf lists the control groups with a sandbox's name.
func groupsOf(id carrel.ID) (dirs []string) {
	for _, deep := range []string{"*/*/*", "*/*/*/*", "*/*", "*/*/*/*/*"} {
		all, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", deep, string(id)))
		dirs = append(dirs, all...)
	}
	return dirs
}

// TestKillLeavesNoGroup kills sandboxes in several states. No control group of theirs is left, not
// even an empty one that an earlier process of the sandbox had.
func TestKillLeavesNoGroup(t *testing.T) {
	t.Parallel()
	for _, tier := range []carrel.Tier{carrel.GVisor, carrel.NS} {
		if testing.Short() && tier != carrel.GVisor {
			continue
		}
		t.Run(string(tier), func(t *testing.T) {
			if os.Geteuid() != 0 {
				testenv.Inapplicable(t, "control groups need root here")
			}
			d := daemontest.Start(t, "--default-tier", string(tier), "--blank-sentries", "0")
			ctx, svc := t.Context(), connect(t, d)
			sb, err := svc.Create(ctx, carrel.CreateOptions{Timeout: time.Hour})
			must(t, "create", err)
			had := groupsOf(sb.ID)
			if len(had) == 0 {
				testenv.Inapplicable(t, "this host gives sandboxes no groups")
			}
			for range 3 {
				_, err = svc.Pause(ctx, sb.ID, carrel.PauseOptions{})
				must(t, "pause", err)
				if left := groupsOf(sb.ID); len(left) > 0 {
					t.Errorf("a paused sandbox has %v", left)
				}
				_, _, err = svc.Resume(ctx, sb.ID, carrel.ResumeOptions{})
				must(t, "resume", err)
			}
			d.Kill9()
			d.Restart()
			svc = connect(t, d)
			must(t, "kill", svc.Kill(ctx, sb.ID))
			if left := groupsOf(sb.ID); len(left) > 0 {
				t.Errorf("a killed sandbox has %v", left)
			}

			// A daemon that dies during a resumption leaves a group that no handle names.
			other, err := svc.Create(ctx, carrel.CreateOptions{Timeout: time.Hour})
			must(t, "create another", err)
			_, err = svc.Pause(ctx, other.ID, carrel.PauseOptions{})
			must(t, "pause it", err)
			var made []string
			for _, dir := range had {
				dir = strings.TrimSuffix(dir, string(sb.ID)) + string(other.ID)
				must(t, "make a group", os.MkdirAll(dir, 0o755))
				made = append(made, dir)
			}
			must(t, "kill the other", svc.Kill(ctx, other.ID))
			if left := groupsOf(other.ID); len(left) > 0 {
				t.Errorf("of %v there are %v", made, left)
			}
		})
	}
}
