package denyfs

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestNobodyHangsWithoutServer touches a mask after the server has ended. The caller must not hang.
func TestNobodyHangsWithoutServer(t *testing.T) {
	b := start(t, os.Geteuid(), "-")
	// Its binds need the server.
	testenv.EventuallyNil(t, "it binds", func() error {
		if said := b.text(); !strings.Contains(said, "binds") {
			return fmt.Errorf("it said %q", said)
		}
		return nil
	})
	ok(t, b.server.Close())
	ok(t, b.server.Close())
	_ = b.stdin.Close()
	_ = b.Wait()
	if out := b.text(); !strings.Contains(out, "read: ") || strings.Contains(out, "private") || strings.Contains(out, "<nil>") {
		t.Errorf("after the server's end: %s", out)
	}
}

// TestServerEndsWithMount ends a box. Its server must end, too.
func TestServerEndsWithMount(t *testing.T) {
	b := start(t, os.Geteuid(), "true")
	_ = b.Wait()
	select {
	case <-b.server.done:
	case <-time.After(30 * time.Second):
		t.Error("it serves a mount that is gone")
	}
}

// TestFlood sends requests from many processes at once, with the longest and strangest names and
// values.
func TestFlood(t *testing.T) {
	b := start(t, os.Geteuid(), `for i in 1 2 3 4 5 6 7 8; do (for j in 1 2 3 4 5 6 7 8 9; do
		cat secrets/$(printf '%0255d' $j) secrets/"$(printf 'a\nb\377\033[31m')" secrets/.. secrets/../key key/below 2>/dev/null
		true > secrets/x; done) 2>/dev/null & done; wait; echo done`)
	_ = b.Wait()
	if out := b.text(); !strings.HasSuffix(out, "done\n") {
		t.Errorf("%s", out)
	}
	paths := map[string]int{}
	for _, touch := range b.list() {
		paths[touch.Path]++
	}
	for _, want := range []string{"SECRETS/a\nb\xff\x1b[31m", fmt.Sprintf("SECRETS/%0255d", 9), "KEY", "SECRETS/x"} {
		if paths[want] != 72 && (paths[want] != 8 || !strings.HasSuffix(want, "9")) {
			t.Errorf("%q was touched %d times", want, paths[want])
		}
	}
}

// FuzzAnswer shows that no request makes the server fail. It may say yes only to the masks
// themselves.
func FuzzAnswer(f *testing.F) {
	add := func(op uint32, node uint64, body string) {
		b := make([]byte, headerSize, headerSize+len(body))
		binary.LittleEndian.PutUint32(b, uint32(headerSize+len(body)))
		binary.LittleEndian.PutUint32(b[4:], op)
		binary.LittleEndian.PutUint64(b[16:], node)
		f.Add(append(b, body...))
	}
	for op := range uint32(54) {
		for _, node := range []uint64{0, 1, 2, 3, 4, 1 << 63, ^uint64(0)} {
			add(op, node, "")
			add(op, node, "0\x00")
		}
	}
	add(opLookup, 1, "00\x00")
	add(opLookup, 1, "-1\x00")
	add(opLookup, 1, "18446744073709551616")
	yes := map[uint32]bool{opInit: true, opDestroy: true, opStatfs: true, opGetattr: true}
	ofRoot := map[uint32]bool{opLookup: true, opOpendir: true, opReaddirplus: true, opReleasedir: true}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, body, ok := parse(b)
		if !ok {
			return
		}
		s := &Server{masks: []Mask{{Path: "a"}, {Path: "b", Dir: true}}, touched: func(touch Touch) {
			if touch.Mask < 0 || touch.Mask > 1 {
				t.Errorf("touch of mask %d", touch.Mask)
			}
		}}
		out := s.answer(make([]byte, 256), h, body)
		if out == nil {
			return
		}
		if int(binary.LittleEndian.Uint32(out)) != len(out) || binary.LittleEndian.Uint64(out[8:]) != h.unique {
			t.Errorf("answer % x", out)
		}
		errno := int32(binary.LittleEndian.Uint32(out[4:]))
		if errno == 0 && !yes[h.op] && !(ofRoot[h.op] && h.node == rootNode) || errno > 0 || errno < -int32(unix.ENOSYS) {
			t.Errorf("operation %d on node %d: %d", h.op, h.node, errno)
		}
	})
}

// BenchmarkMount measures a stage's cost without its bind mounts.
func BenchmarkMount(b *testing.B) {
	for b.Loop() {
		box := start(b, os.Geteuid(), "true")
		_ = box.Wait()
		b.Log(strings.TrimSpace(box.text()))
	}
}

// BenchmarkTouch measures how long a program waits for a refusal. A shell's redirection is one
// open.
func BenchmarkTouch(b *testing.B) {
	box := start(b, os.Geteuid(), `i=0; while [ $i -lt 20000 ]; do [ -r key ]; i=$((i+1)); done`)
	begin := time.Now()
	_ = box.Wait()
	b.Logf("%d touches in %v", len(box.list()), time.Since(begin))
}
