package reserve

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestReserve gives up the pieces one after the other, and makes them again.
func TestReserve(t *testing.T) {
	dir := t.TempDir()
	r := Open(dir, nil)
	if r.Give() {
		t.Error("a reserve without files gave some")
	}
	if err := r.Keep(); err != nil {
		t.Fatal(err)
	}
	whole := blocks(t, dir)
	if whole < pieceBytes {
		testenv.Inapplicable(t, "the disk of "+dir+" is too full or too small for a reserve")
	}
	if !r.Give() || blocks(t, dir) != whole-pieceBytes {
		t.Errorf("after one piece: %d bytes of %d", blocks(t, dir), whole)
	}
	if err := r.Keep(); err != nil || blocks(t, dir) != whole {
		t.Errorf("made again: %d bytes of %d, %v", blocks(t, dir), whole, err)
	}
	given := 0
	for r.Give() {
		given++
	}
	if names, err := os.ReadDir(filepath.Join(dir, "reserve")); given != maxPieces || err != nil ||
		len(names) != 0 {
		t.Errorf("%d pieces given, %d files left, %v", given, len(names), err)
	}
}

// blocks returns the bytes that the reserve takes on the disk.
func blocks(t *testing.T, dir string) (sum int64) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "reserve", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		var st syscall.Stat_t
		if err := syscall.Stat(name, &st); err != nil {
			t.Fatal(err)
		}
		sum += st.Blocks * 512
	}
	return sum
}

// TestSmallDisk: a disk with few inodes has a reserve of some of them.
func TestSmallDisk(t *testing.T) {
	dir, take := testenv.FewInodes(t)
	testenv.Need(t, "mount", syscall.Mount("", dir, "", syscall.MS_REMOUNT, "nr_inodes=640"))
	r := Open(dir, nil)
	if err := r.Keep(); err != nil {
		t.Fatal(err)
	}
	take()
	if !r.Short() || !r.Give() {
		t.Fatal("nothing is held back")
	}
	if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o600); err != nil {
		t.Error(err)
	}
}

// TestDo tries again as long as there is a piece and no room.
func TestDo(t *testing.T) {
	r := Open(t.TempDir(), nil)
	if err := r.Keep(); err != nil {
		t.Fatal(err)
	}
	tries := 0
	err := r.Do(func() error {
		if tries++; tries < 4 {
			return fmt.Errorf("write: %w", syscall.ENOSPC)
		}
		return nil
	})
	if err != nil || tries != 4 {
		t.Errorf("%d tries, %v", tries, err)
	}
	broken := errors.New("broken")
	tries = 0
	if err := r.Do(func() error { tries++; return broken }); !errors.Is(err, broken) || tries != 1 {
		t.Errorf("another error: %d tries, %v", tries, err)
	}
	tries = 0
	err = r.Do(func() error { tries++; return syscall.ENOSPC })
	if !errors.Is(err, syscall.ENOSPC) || tries != 1+maxPieces-3 {
		t.Errorf("without end: %d tries, %v", tries, err)
	}
	var none *Reserve
	if err := none.Do(func() error { return syscall.ENOSPC }); !errors.Is(err, syscall.ENOSPC) ||
		none.Keep() != nil {
		t.Errorf("no reserve: %v", err)
	}
}
