package fulldisk

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
	"github.com/carrel-dev/carrel/test/miniroot"
)

// TestUploadIsWhole kills the daemon and the client in the middle of uploads. The sandbox has the
// old file then, or none, and no rest of an upload.
func TestUploadIsWhole(t *testing.T) {
	t.Parallel()
	d := daemontest.StartOn(t, t.TempDir(), miniroot.Archive(t))
	for _, tier := range tiers {
		t.Run(string(tier), func(t *testing.T) { cutUploads(t, d, tier) })
	}
}

func cutUploads(t *testing.T, d *daemontest.Daemon, tier carrel.Tier) {
	svc := connect(t, d)
	sb, err := svc.Create(t.Context(), options(tier))
	if err != nil {
		t.Fatal(err)
	}
	c, err := svc.Computer(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Files("").Write(t.Context(), "old", strings.NewReader("old content")); err != nil {
		t.Fatal(err)
	}
	list := func() string {
		res, err := c.Run(t.Context(), carrel.Command{Shell: "ls -A | grep -v '^\\.[bp]' ; cat old"})
		if err != nil {
			t.Fatal(err)
		}
		return string(res.Stdout)
	}
	for _, name := range []string{"old", "absent"} {
		ctx, cancel := context.WithCancel(t.Context())
		r, w := io.Pipe()
		done := make(chan error, 1)
		go func() {
			_, err := c.Files("").Write(ctx, name, r)
			done <- err
		}()
		if _, err := w.Write(bytes.Repeat([]byte("new"), 1<<20)); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "the guest writes", func() bool {
			return strings.Contains(list(),
				".carrel-upload-")
		})
		cancel()
		_ = w.CloseWithError(errors.New("the client is gone"))
		if err := <-done; err == nil {
			t.Error("a broken upload succeeded")
		}
		testenv.EventuallyNil(t, "the upload is undone", func() error {
			if got := list(); got != "old\nold content" {
				return errors.New(got)
			}
			return nil
		})
	}
}
