package time

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// TestDiff compares real snapshots, of memory and of files. Files were added, removed, changed and
// renamed, among the template's own files and among those on top.
func TestDiff(t *testing.T) {
	d := daemontest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	svc := connect(t, d)
	sb, err := svc.Create(ctx, carrel.CreateOptions{Tier: carrel.GVisor, Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	c, err := svc.Computer(ctx, sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	run(t, c, "mkdir work; echo one > work/kept; echo two > work/changed; echo three > work/removed; echo four > work/moved; chmod 600 work/kept")
	snap := func(filesOnly bool) carrel.SnapshotID {
		t.Helper()
		sn, err := svc.Snapshot(ctx, sb.ID, carrel.SnapshotOptions{FilesOnly: filesOnly})
		if err != nil {
			t.Fatal(err)
		}
		return sn.ID
	}
	for _, filesOnly := range []bool{false, true} {
		before := snap(filesOnly)
		run(t, c, `sudo sh -c 'rm /etc/nsswitch.conf /etc/services; mv /etc/group /etc/group-renamed; chmod 700 /usr/bin/env; touch /usr/bin/sed; cat /usr/bin/awk > /tmp/a; cp /tmp/a /usr/bin/awk; rm /tmp/a'
			echo 2 >> work/changed; rm work/removed; mv work/moved work/'odd name'; ln work/kept work/linked; ln -s nowhere work/dangling; touch work/kept`)
		after := snap(filesOnly)
		changes, err := svc.Diff(ctx, before, after)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, ch := range changes {
			got = append(got, fmt.Sprintf("%s %s", ch.Kind, strings.TrimPrefix(ch.Path, "/home/user/")))
		}
		want := []string{
			"removed /etc/group", "added /etc/group-renamed", "removed /etc/nsswitch.conf", "removed /etc/services",
			"modified work/changed", "added work/dangling", "added work/linked", "removed work/moved", "added work/odd name", "removed work/removed",
			"mode /usr/bin/env",
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("files only %v: the difference is\n%s\nwant\n%s", filesOnly, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if back, err := svc.Diff(ctx, after, before); err != nil || len(back) != len(changes) {
			t.Errorf("the other way round there are %d changes, %v", len(back), err)
		}
		if none, err := svc.Diff(ctx, after, after); err != nil || len(none) != 0 {
			t.Errorf("with itself: %v, %v", none, err)
		}
		if _, err := svc.Rollback(ctx, sb.ID, before, carrel.RollbackOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
