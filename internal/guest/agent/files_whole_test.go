package agent_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel/internal/guest/filesystem"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// cutUpload uploads a part of a file, and then breaks the connection off.
func cutUpload(t *testing.T, d *disk, name string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, "POST", d.url+query("path", name), r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	if _, err := w.Write(bytes.Repeat([]byte("new"), 1<<20)); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the guest writes", func() bool {
		names, err := filepath.Glob(d.path(".carrel-upload-*"))
		return err == nil && len(names) == 1
	})
	cancel()
	_ = w.CloseWithError(io.ErrUnexpectedEOF)
	<-done
	testenv.Eventually(t, "the guest gives up", func() bool {
		names, err := filepath.Glob(d.path(".carrel-upload-*"))
		return err == nil && len(names) == 0
	})
}

// TestUploadIsWhole breaks uploads off. The old file stays, or there is none.
func TestUploadIsWhole(t *testing.T) {
	d := newDisk(t)
	cutUpload(t, d, "absent")
	if _, err := os.Lstat(d.path("absent")); !os.IsNotExist(err) {
		t.Errorf("a broken upload left a file: %v", err)
	}
	d.put("old", "old content")
	if err := os.Chmod(d.path("old"), 0o751); err != nil {
		t.Fatal(err)
	}
	cutUpload(t, d, "old")
	d.has("old", "old content")
	if a := d.call("POST", query("path", "old"), raw(),
		strings.NewReader("new content")); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	d.has("old", "new content")
	if info, err := os.Stat(d.path("old")); err != nil || info.Mode().Perm() != 0o751 {
		t.Errorf("the mode has changed: %v, %v", info.Mode(), err)
	}
}

// raw are the headers of an upload of one file.
func raw() http.Header { return http.Header{"Content-Type": {"application/octet-stream"}} }

// TestUploadKeepsLinks uploads to links. A symbolic link stays one, also if it points to nothing,
// and all names of a file show the same content.
func TestUploadKeepsLinks(t *testing.T) {
	d := newDisk(t)
	d.put("dir/real", "1")
	d.put("twin", "1")
	for _, err := range []error{
		os.Symlink("dir/real", d.path("link")), os.Symlink("dir/later", d.path("dangling")),
		os.Link(d.path("twin"), d.path("other")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, shows := range map[string]string{"link": "dir/real", "dangling": "dir/later",
		"twin": "other"} {
		if a := d.call("POST", query("path", name), raw(), strings.NewReader("new")); a.status != 200 {
			t.Fatalf("%s: %d %s", name, a.status, a.body)
		}
		d.has(shows, "new")
		d.has(name, "new")
	}
	for _, name := range []string{"link", "dangling"} {
		if info, err := os.Lstat(d.path(name)); err != nil || info.Mode().Type() != os.ModeSymlink {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

// TestUploadInPlace uploads to a file that can't be replaced: it is a mount point.
func TestUploadInPlace(t *testing.T) {
	d := newDisk(t)
	d.put("from", "1")
	d.put("at", "")
	if err := syscall.Mount(d.path("from"), d.path("at"), "", syscall.MS_BIND, ""); err != nil {
		testenv.Need(t, "mount", err)
	}
	defer func() {
		if err := syscall.Unmount(d.path("at"), 0); err != nil {
			t.Error(err)
		}
	}()
	if a := d.call("POST", query("path", "at"), raw(), strings.NewReader("new")); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	d.has("from", "new")
	if names, err := filepath.Glob(d.path(".carrel-upload-*")); err != nil || len(names) != 0 {
		t.Errorf("left: %v, %v", names, err)
	}
}

// TestUploadIsWatched watches a directory while files are uploaded. The client sees the files that
// it knows: created and written, or written.
func TestUploadIsWatched(t *testing.T) {
	d := newDisk(t)
	d.put("old", "1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := d.fs.WatchDir(ctx, connect.NewRequest(&filesystem.WatchDirRequest{Path: d.home}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	var seen []string
	for _, name := range []string{"old", "new"} {
		if a := d.call("POST", query("path", name), raw(),
			strings.NewReader("content")); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	for stream.Receive() {
		e := stream.Msg().GetFilesystem()
		if e == nil {
			continue
		}
		if saw := e.GetName() + " " + e.GetType().String(); len(seen) == 0 || seen[len(seen)-1] != saw {
			seen = append(seen, saw)
		}
		if e.GetName() == "new" && e.GetType() == filesystem.EventType_EVENT_TYPE_WRITE {
			break
		}
	}
	want := "old EVENT_TYPE_WRITE, new EVENT_TYPE_CREATE, new EVENT_TYPE_CHMOD, new EVENT_TYPE_WRITE"
	if got := strings.Join(seen, ", "); got != want {
		t.Errorf("saw %s, want %s", got, want)
	}
}
