package sim_test

import (
	"archive/tar"
	"io"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/sim"
)

// moment matches a fork's report about its files. Between the truncation and the writing of a file,
// the file is empty.
var moment = regexp.MustCompile(`^a=(\d*) b=(\d*) 4000000$`)

// TestSnapshotOfRunning takes snapshots while a command writes two files in turn. No snapshot may
// stop the command. Each must show one moment: the second file is never ahead of the first.
func TestSnapshotOfRunning(t *testing.T) {
	in, c := box(t, small)
	sh(t, c, "cd /tmp; echo 0 > a; echo 0 > b; mkfifo pipe; head -c 4000000 /dev/zero > large")
	done := make(chan error, 1)
	go func() {
		_, err := c.Run(t.Context(), carrel.Command{Shell: "cd /tmp; for ((i = 1; i < 3000; i++)); do echo $i > a; echo $i > b; done", User: "root"})
		done <- err
	}()
	var longest time.Duration
	for i := range 10 {
		dir := t.TempDir()
		begin := time.Now()
		info := snapshot(t, in, dir)
		longest = max(longest, time.Since(begin))
		fork, fc := fork(t, dir, info, small)
		out := sh(t, fc, "cd /tmp; [ -p pipe ]; echo a=$(cat a) b=$(cat b) $(stat -c %s large)")
		m := moment.FindStringSubmatch(out)
		if m == nil {
			t.Errorf("snapshot %d: %q", i, out)
		} else if a, _ := strconv.Atoi(m[1]); m[1] != "" && m[2] != "" {
			if b, _ := strconv.Atoi(m[2]); b > a {
				t.Errorf("snapshot %d has b at %d before a at %d", i, b, a)
			}
		}
		_ = fc.Close()
		_ = fork.Destroy(t.Context())
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := sh(t, c, "cat /tmp/b"); got != "2999" {
		t.Errorf("the command ended at %q", got)
	}
	t.Logf("the longest snapshot took %v", longest)
	dir := t.TempDir()
	info := snapshot(t, in, dir)
	rc, err := sim.New(sim.Options{}).SnapshotFiles(t.Context(), dir, info, driver.Spec{Limits: small})
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	for tr := tar.NewReader(rc); ; {
		h, err := tr.Next()
		if err == io.EOF {
			t.Error("the pipe is not in the stream")
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == "tmp/pipe" {
			if h.Typeflag != tar.TypeFifo {
				t.Errorf("the pipe is %+v", h)
			}
			break
		}
	}
}
