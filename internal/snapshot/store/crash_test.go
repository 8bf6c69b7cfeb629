package store_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/snapshot/disk"
	"github.com/carrel-dev/carrel/internal/snapshot/store"
)

// childEnv makes this test binary the process that dies. Its value is the directory, the fail
// point, and the number of passes before it dies.
const childEnv = "CARREL_SNAPSHOT_CRASH"

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		child(strings.Split(spec, "|"))
		return
	}
	os.Exit(m.Run())
}

// child runs a life of a store until the fail point kills it. It prints every acknowledged step to
// stdout.
func child(spec []string) {
	after, _ := strconv.Atoi(spec[2])
	dieAt(spec[1], after)
	s, blobs, err := openDisk(spec[0], spec[3] == "shared")
	if err != nil {
		fmt.Println("open", err)
		os.Exit(1)
	}
	err = life(s, func(event string, i int) { fmt.Println(event, i) })
	fmt.Println("end", err)
	_ = errors.Join(s.Close(), blobs.Close())
}

// dieAt kills this process at a fail point, after that many passes.
func dieAt(name string, after int) {
	failpoint.Enable(name, func() error {
		if after--; after < 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	})
}

func openDisk(dir string, shared bool) (*store.Store, *disk.Blobs, error) {
	blobs, err := disk.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		return nil, nil, err
	}
	s, err := store.Open(context.Background(), store.Options{Dir: filepath.Join(dir, "store"), Blobs: blobs, Manual: true, Shared: shared, HotBytes: -1, Reserve: -1})
	if err != nil {
		return nil, nil, errors.Join(err, blobs.Close())
	}
	return s, blobs, nil
}

// lifeID is the ID of a life's i-th snapshot; lifeContent is its content.
func lifeID(i int) carrel.SnapshotID { return carrel.SnapshotID(fmt.Sprintf("s%020d", i)) }

const lifeLength = 8

var lifeContents = func() (list []content) {
	r := rand.New(rand.NewPCG(7, 7))
	memory := guestMemory(r, 1<<20)
	for i := range lifeLength {
		memory = changes["scattered"](r, bytes.Clone(memory), 120)
		list = append(list, content{"pages.img": memory, "state": random(uint64(i), 10_000)})
	}
	return list
}()

// life does everything that a store can do. It goes on after errors and returns them.
func life(s *store.Store, tell func(event string, i int)) error {
	ctx := context.Background()
	var errs []error
	do := func(begin, end string, i int, fn func() error) {
		tell(begin, i)
		if err := fn(); err != nil {
			errs = append(errs, fmt.Errorf("%s %d: %w", begin, i, err))
			return
		}
		tell(end, i)
	}
	take := func(i int) {
		do("taking", "taken", i, func() error { return take(s, lifeID(i), lifeContents[i]) })
	}
	remove := func(i int) {
		do("deleting", "deleted", i, func() error { return s.Delete(ctx, lifeID(i)) })
	}
	flush := func() { do("flushing", "flushed", 0, func() error { return s.Flush(ctx) }) }
	gc := func() { do("collecting", "collected", 0, func() error { _, err := s.GC(ctx); return err }) }
	look := func(i int) {
		do("reading", "read", i, func() error { _, err := read(s, lifeID(i)); return err })
	}
	for i := range 6 {
		take(i)
	}
	flush()
	look(5)
	for i := range 4 {
		remove(i)
	}
	gc()
	look(4)
	take(6)
	remove(6) // never packed
	take(7)
	flush()
	remove(4)
	gc()
	return errors.Join(errs...)
}

// fate says whether a snapshot may, or must, exist after a life that was cut off.
type fate struct{ may, must bool } // be there

// fates reads the output of a life.
func fates(told []string) map[int]fate {
	all := map[int]fate{}
	for _, line := range told {
		var event string
		var i int
		if _, err := fmt.Sscan(line, &event, &i); err != nil {
			continue
		}
		switch event {
		case "taking", "deleting":
			all[i] = fate{may: true}
		case "taken":
			all[i] = fate{may: true, must: true}
		case "deleted":
			all[i] = fate{}
		}
	}
	return all
}

// settle checks that each snapshot is wholly there or wholly gone, as told demands. It checks again
// after everything is packed and collected, and checks that nothing is left over.
func settle(t *testing.T, s *store.Store, dir string, told []string) {
	t.Helper()
	ctx := t.Context()
	for round := range 2 {
		list, err := s.List(ctx)
		ok(t, err)
		all := fates(told)
		for i := range lifeLength {
			got, err := read(s, lifeID(i))
			there := err == nil
			if there && (!bytes.Equal(got["pages.img"], lifeContents[i]["pages.img"]) || !bytes.Equal(got["state"], lifeContents[i]["state"])) {
				t.Fatalf("round %d: snapshot %d has other content", round, i)
			}
			if !there && carrel.KindOf(err) != carrel.NotFound {
				t.Fatalf("round %d: snapshot %d is neither there nor gone: %v", round, i, err)
			}
			if f := all[i]; there && !f.may || !there && f.must {
				t.Fatalf("round %d: snapshot %d: there is %v, told: %v", round, i, there, told)
			}
			if slices.Contains(list, lifeID(i)) != there {
				t.Fatalf("round %d: snapshot %d: there is %v, listed: %v", round, i, there, list)
			}
		}
		ok(t, s.Flush(ctx))
		_, err = s.GC(ctx)
		ok(t, err)
		s.Evict()
	}
	// Another machine must find the same snapshots in the blobs.
	m, err := disk.Open(filepath.Join(dir, "blobs"))
	ok(t, err)
	other := open(t, store.Options{Dir: memoryDir(t), Blobs: m, Shared: true, Manual: true, Reserve: -1})
	list, err := s.List(ctx)
	ok(t, err)
	for i := range lifeLength {
		if slices.Contains(list, lifeID(i)) {
			mustRead(t, other, lifeID(i), lifeContents[i])
		}
	}
	for _, sub := range []string{"drafts", "trash", "deleted", "hot"} {
		if left := filesIn(t, filepath.Join(dir, "store", sub)); len(left) != 0 {
			t.Fatalf("left in %s: %v", sub, left)
		}
	}
	for i := range lifeLength {
		ok(t, s.Delete(ctx, lifeID(i)))
	}
	_, err = s.GC(ctx)
	ok(t, err)
	for _, sub := range []string{"store/index", "store/packed", "store/deleted", "blobs"} {
		if left := filesIn(t, filepath.Join(dir, sub)); len(left) != 0 {
			t.Fatalf("left in %s: %v", sub, left)
		}
	}
}

// filesIn lists the files below a directory.
func filesIn(t *testing.T, dir string) (list []string) {
	t.Helper()
	ok(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err == nil && fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, fi.Mode())
		}
		if !d.IsDir() {
			list = append(list, path)
		}
		return err
	}))
	return list
}

// TestKilledAtEachStep kills a process at each fail point, early and late. Each snapshot must be
// wholly there or wholly gone.
func TestKilledAtEachStep(t *testing.T) {
	for _, mode := range []string{"alone", "shared"} {
		for _, name := range store.FailPoints() {
			for _, after := range []int{0, 2} {
				if mode == "alone" && after > 0 || mode == "shared" && after == 0 && testing.Short() {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s+%d", mode, name, after), func(t *testing.T) {
					t.Parallel()
					dir := memoryDir(t)
					cmd := exec.CommandContext(t.Context(), os.Args[0])
					cmd.Env = append(os.Environ(), childEnv+"="+strings.Join([]string{dir, name, strconv.Itoa(after), mode}, "|"))
					out, _ := cmd.Output()
					var told []string
					for sc := bufio.NewScanner(bytes.NewReader(out)); sc.Scan(); {
						told = append(told, sc.Text())
					}
					end := told[len(told)-1]
					if !strings.HasPrefix(end, "end") {
						// Killed, as it should be.
					} else if onlyShared := name == "snapshot.gc.marked" && mode == "alone"; after == 0 && !onlyShared || end != "end <nil>" {
						t.Fatalf("the process was not killed: %s", end)
					}
					s, blobs, err := openDisk(dir, mode == "shared")
					ok(t, err)
					settle(t, s, dir, told)
					ok(t, errors.Join(s.Close(), blobs.Close()))
				})
			}
		}
	}
}

// TestFullDiskAtEachStep makes each step fail once with ENOSPC. The caller must be told that the
// disk is full, and nothing may be lost.
func TestFullDiskAtEachStep(t *testing.T) {
	defer failpoint.Reset()
	for _, name := range store.FailPoints() {
		t.Run(name, func(t *testing.T) {
			dir := memoryDir(t)
			s, blobs, err := openDisk(dir, true)
			ok(t, err)
			var failed atomic.Int32
			failpoint.Enable(name, func() error {
				if failed.Add(1) == 1 {
					return fmt.Errorf("%s: %w", name, syscall.ENOSPC)
				}
				return nil
			})
			var told []string
			err = life(s, func(event string, i int) { told = append(told, fmt.Sprint(event, " ", i)) })
			failpoint.Reset()
			if failed.Load() == 0 {
				t.Fatal("the fail point was not passed")
			}
			if err != nil && !errors.Is(err, carrel.Exhausted) {
				t.Fatalf("not told as Exhausted: %v", err)
			}
			settle(t, s, dir, told)
			ok(t, errors.Join(s.Close(), blobs.Close()))
		})
	}
}
