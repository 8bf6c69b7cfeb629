package agent_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel/internal/guest/filesystem"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// word returns a short form of an event: "create a/b".
func word(e *filesystem.FilesystemEvent) string {
	return strings.ToLower(strings.TrimPrefix(e.GetType().String(), "EVENT_TYPE_")) + " " + e.GetName()
}

// watching is an open WatchDir stream.
type watching struct {
	*disk
	stream *connect.ServerStreamForClient[filesystem.WatchDirResponse]
	got    []*filesystem.FilesystemEvent
	last   string
}

// watch opens a WatchDir stream and reads its start event.
func (d *disk) watch(req *filesystem.WatchDirRequest) *watching {
	d.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	d.Cleanup(cancel)
	stream, err := d.fs.WatchDir(ctx, connect.NewRequest(req))
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { cancel(); _ = stream.Close() })
	if !stream.Receive() || stream.Msg().GetStart() == nil {
		d.Fatalf("the first event is %v, %v", stream.Msg(), stream.Err())
	}
	return &watching{disk: d, stream: stream}
}

// until reads events up to the wanted one and returns all of them. It returns repeated equal events
// once, because a file that is truncated and written causes two.
func (w *watching) until(want string) []string {
	w.Helper()
	var words []string
	for w.stream.Receive() {
		e := w.stream.Msg().GetFilesystem()
		if e == nil || len(words) == 0 && word(e) == w.last {
			continue
		}
		w.got = append(w.got, e)
		words = append(words, word(e))
		if word(e) == want {
			w.last = want
			return slices.Compact(words)
		}
	}
	w.Fatalf("no %q after %q: %v", want, words, w.stream.Err())
	return nil
}

// expect reads events up to the last wanted one and compares them.
func (w *watching) expect(want ...string) {
	w.Helper()
	if got := w.until(want[len(want)-1]); !slices.Equal(got, want) {
		w.Fatalf("events %q, want %q", got, want)
	}
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWatchDir(t *testing.T) {
	d := newDisk(t)
	d.put("w/old", "x")
	d.put("w/sub/inner", "x")
	w := d.watch(&filesystem.WatchDirRequest{Path: "w"})
	d.put("w/sub/unseen", "x")
	d.put("w/new", "x")
	w.expect("create new", "write new")
	must(t, os.Chmod(d.path("w/new"), 0o600))
	w.expect("chmod new")
	must(t, os.Rename(d.path("w/old"), d.path("w/newer")))
	w.expect("rename old", "create newer")
	must(t, os.Remove(d.path("w/new")))
	w.expect("remove new")
	must(t, os.Mkdir(d.path("w/dir"), 0o755))
	w.expect("create dir")
	must(t, os.Rename(d.path("w/newer"), d.path("away")))
	w.expect("rename newer")
	must(t, os.Rename(d.path("away"), d.path("w/back")))
	w.expect("create back")
	must(t, os.RemoveAll(d.path("w")))
	w.until("remove .")
}

func TestWatchAtomicSave(t *testing.T) {
	d := newDisk(t)
	d.put("w/file", "old")
	w := d.watch(&filesystem.WatchDirRequest{Path: "w", IncludeEntry: true})
	d.put("w/.file.tmp", "new contents")
	must(t, os.Rename(d.path("w/.file.tmp"), d.path("w/file")))
	w.expect("create .file.tmp", "write .file.tmp", "rename .file.tmp", "create file", "write file")
	last := w.got[len(w.got)-1]
	if e := last.GetEntry(); e.GetPath() != d.path("w/file") || e.GetSize() != 12 {
		t.Errorf("the entry is %v", e)
	}
	for _, e := range w.got {
		if e.GetType() == filesystem.EventType_EVENT_TYPE_RENAME && e.GetEntry() != nil {
			t.Errorf("%s has an entry: %v", word(e), e.GetEntry())
		}
	}
}

func TestWatchUploads(t *testing.T) {
	d := newDisk(t)
	must(t, d.mkdir("w"))
	w := d.watch(&filesystem.WatchDirRequest{Path: "w", Recursive: true})
	must(t, d.mkdir("w/nested"))
	w.expect("create nested")
	d.post("w/nested/file", "x", octets())
	w.until("write nested/file")
}

func TestWatchRecursive(t *testing.T) {
	d := newDisk(t)
	d.put("w/a/b/deep", "x")
	w := d.watch(&filesystem.WatchDirRequest{Path: "w", Recursive: true})
	d.put("w/a/b/new", "x")
	w.expect("create a/b/new", "write a/b/new")
	must(t, os.Rename(d.path("w/a"), d.path("w/z")))
	w.expect("rename a", "create z")
	d.put("w/z/b/deep", "y")
	w.expect("write z/b/deep")
	must(t, os.Rename(d.path("w/z/b"), d.path("out")))
	w.expect("rename z/b")
	d.put("out/deep", "z")
	d.put("w/mark", "")
	w.expect("create mark")
	must(t, os.Rename(d.path("out"), d.path("w/in")))
	w.expect("create in", "create in/deep", "write in/deep", "create in/new", "write in/new")
	must(t, os.Remove(d.path("w/in/deep")))
	must(t, os.Remove(d.path("w/in/new")))
	must(t, os.Remove(d.path("w/in")))
	w.expect("remove in/deep", "remove in/new", "remove in")
}

// TestWatchNewTrees makes directories with files faster than they can be watched. Each file must be
// reported once, whether it was there before its directory's watch or after.
func TestWatchNewTrees(t *testing.T) {
	d := newDisk(t)
	must(t, d.mkdir("w"))
	w := d.watch(&filesystem.WatchDirRequest{Path: "w", Recursive: true})
	const trees = 200
	for i := range trees {
		d.put(fmt.Sprintf("w/%d/x/y/file", i), "x")
	}
	n := map[string]int{}
	// Make one more mark while events are missing: the contents of new directories are reported
	// after marks that were made in the root before.
	for mark := 0; len(n) < 5*trees && mark < 1000; mark++ {
		d.put(fmt.Sprintf("w/mark%d", mark), "")
		w.got = nil
		w.until(fmt.Sprintf("create mark%d", mark))
		for _, e := range w.got {
			if !strings.HasPrefix(e.GetName(), "mark") {
				n[word(e)]++
			}
		}
	}
	for i := range trees {
		for _, name := range []string{"", "/x", "/x/y", "/x/y/file"} {
			if w := fmt.Sprintf("create %d%s", i, name); n[w] != 1 {
				t.Errorf("%q was told %d times", w, n[w])
			}
		}
		if w := fmt.Sprintf("write %d/x/y/file", i); n[w] == 0 {
			t.Errorf("%q was not told", w)
		}
	}
}

func TestWatchErrors(t *testing.T) {
	d := newDisk(t)
	d.put("file", "x")
	must(t, d.mkdir("net"))
	d.sys.network = func(name string) bool { return name == d.path("net") }
	tests := []struct {
		path string
		code connect.Code
		want string
	}{
		{"absent", connect.CodeNotFound, "path " + d.path("absent") + " not found"},
		{"file", connect.CodeInvalidArgument, "path " + d.path("file") + " not a directory"},
		{"file/x", connect.CodeInvalidArgument, "error statting path"},
		{"net", connect.CodeInvalidArgument, "cannot watch path on network filesystem: " + d.path("net")},
		{"a\x00", connect.CodeInvalidArgument, "path has a NUL byte"},
	}
	for _, tt := range tests {
		stream, err := d.fs.WatchDir(context.Background(), connect.NewRequest(&filesystem.WatchDirRequest{Path: tt.path}))
		must(t, err)
		if stream.Receive() {
			t.Errorf("%s: %v", tt.path, stream.Msg())
		}
		d.fails(stream.Err(), tt.code, tt.want)
		_ = stream.Close()
		_, err = d.fs.CreateWatcher(context.Background(), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: tt.path}))
		d.fails(err, tt.code, tt.want)
	}
	w := d.watch(&filesystem.WatchDirRequest{Path: "net", AllowNetworkMounts: true})
	d.put("net/x", "")
	w.expect("create x")
}

func TestWatchKeepsAlive(t *testing.T) {
	d := newDisk(t)
	req := connect.NewRequest(&filesystem.WatchDirRequest{Path: "."})
	req.Header().Set("Keepalive-Ping-Interval", "1")
	req.Header().Set("Connect-Timeout-Ms", "0")
	stream, err := d.fs.WatchDir(context.Background(), req)
	must(t, err)
	defer stream.Close()
	if !stream.Receive() || stream.Msg().GetStart() == nil || !stream.Receive() || stream.Msg().GetKeepalive() == nil {
		t.Fatalf("got %v, %v", stream.Msg(), stream.Err())
	}
}

func TestWatchersThatPoll(t *testing.T) {
	d := newDisk(t)
	ctx := context.Background()
	made, err := d.fs.CreateWatcher(ctx, connect.NewRequest(&filesystem.CreateWatcherRequest{Path: ".", Recursive: true, IncludeEntry: true}))
	must(t, err)
	id := made.Msg.GetWatcherId()
	var got []string
	take := func(want string) {
		t.Helper()
		testenv.EventuallyNil(t, "it is told of "+want, func() error {
			if slices.Contains(got, want) {
				return nil
			}
			resp, err := d.fs.GetWatcherEvents(ctx, connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: id}))
			must(t, err)
			for _, e := range resp.Msg.GetEvents() {
				got = append(got, word(e))
				if e.GetEntry() == nil && e.GetType() != filesystem.EventType_EVENT_TYPE_REMOVE {
					t.Errorf("%s has no entry", word(e))
				}
			}
			return fmt.Errorf("so far %q", got)
		})
	}
	d.put("x", "1")
	take("write x")
	must(t, os.Remove(d.path("x")))
	take("remove x")
	if want := []string{"create x", "write x", "remove x"}; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	_, err = d.fs.RemoveWatcher(ctx, connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: id}))
	must(t, err)
	_, err = d.fs.RemoveWatcher(ctx, connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: id}))
	d.fails(err, connect.CodeNotFound, "watcher with id "+id+" not found")
	_, err = d.fs.GetWatcherEvents(ctx, connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: id}))
	d.fails(err, connect.CodeNotFound, "watcher with id "+id+" not found")
}

// TestPollTellsAllBefore checks that a poll tells what was done before it, without another try.
func TestPollTellsAllBefore(t *testing.T) {
	d := newDisk(t)
	ctx := context.Background()
	made, err := d.fs.CreateWatcher(ctx, connect.NewRequest(&filesystem.CreateWatcherRequest{Path: "."}))
	must(t, err)
	for i := range 500 {
		d.put("x", strconv.Itoa(i))
		resp, err := d.fs.GetWatcherEvents(ctx, connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: made.Msg.GetWatcherId()}))
		must(t, err)
		if n := len(resp.Msg.GetEvents()); n == 0 || word(resp.Msg.GetEvents()[n-1]) != "write x" {
			t.Fatalf("poll %d tells %v", i, resp.Msg.GetEvents())
		}
	}
}

// TestWatcherThatIsForgotten checks a client that never asks. It must cost a bounded amount of
// memory, and learn that it missed events.
func TestWatcherThatIsForgotten(t *testing.T) {
	d := newDisk(t)
	ctx := context.Background()
	made, err := d.fs.CreateWatcher(ctx, connect.NewRequest(&filesystem.CreateWatcherRequest{Path: "."}))
	must(t, err)
	d.put("x", "")
	for range 40_000 {
		must(t, os.Rename(d.path("x"), d.path("y")))
		must(t, os.Rename(d.path("y"), d.path("x")))
	}
	testenv.EventuallyNil(t, "the watcher gives up", func() error {
		resp, err := d.fs.GetWatcherEvents(ctx, connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: made.Msg.GetWatcherId()}))
		if err != nil {
			if code := connect.CodeOf(err); code != connect.CodeResourceExhausted && code != connect.CodeInternal {
				t.Fatal(err)
			}
			return nil // too many, here or in the kernel's queue
		}
		if n := len(resp.Msg.GetEvents()); n > 1<<16 {
			t.Fatalf("%d events at once", n)
		}
		return fmt.Errorf("it told of %d events", len(resp.Msg.GetEvents()))
	})
}

func TestCloseEndsWatches(t *testing.T) {
	d := newDisk(t)
	w := d.watch(&filesystem.WatchDirRequest{Path: "."})
	made, err := d.fs.CreateWatcher(context.Background(), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: "."}))
	must(t, err)
	if made.Msg.GetWatcherId() == "" {
		t.Error("no id")
	}
	d.agent.Close() // returns when the watchers have ended
	if w.stream.Receive() {
		t.Errorf("an event after Close: %v", w.stream.Msg())
	}
	d.fails(w.stream.Err(), connect.CodeUnavailable, "shutting down")
}
