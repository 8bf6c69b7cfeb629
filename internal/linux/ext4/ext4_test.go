package ext4

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestExt4IsSound checks disks of many sizes with the filesystem's own checker.
func TestExt4IsSound(t *testing.T) {
	fsck, err := exec.LookPath("fsck.ext4")
	testenv.Need(t, "fsck", err)
	for _, mb := range []int64{1, 2, 16, 64, 100, 127, 128, 129, 250, 1024, 10240} {
		f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
		if err != nil {
			t.Fatal(err)
		}
		if err := Make(f, mb<<20); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(fsck, "-fn", f.Name()).CombinedOutput(); err != nil {
			t.Errorf("%d MiB: %v\n%s", mb, err, out)
		} else if mb == 64 {
			t.Logf("%s", out)
		}
		f.Close()
	}
}

// TestGrow grows filesystems, within their last group and by more groups.
func TestGrow(t *testing.T) {
	fsck, err := exec.LookPath("fsck.ext4")
	testenv.Need(t, "fsck", err)
	for _, mib := range [][]int64{{1, 2}, {64, 128}, {64, 1000}, {127, 129}, {130, 131}, {500, 20 << 10}, {64, 64}} {
		f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := Make(f, mib[0]<<20); err != nil {
			t.Fatal(err)
		}
		before := layOut(mib[0] << 20)
		for _, size := range []int64{mib[1], mib[1], mib[1] + 3} { // twice is once
			if err := errors.Join(f.Truncate(Size(size<<20)), Grow(f, Size(size<<20))); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(fsck, "-f", "-n", f.Name()).CombinedOutput(); err != nil {
				t.Errorf("%d to %d MiB: %v: %s", mib[0], size, err, out)
			}
		}
		var blocks [4]byte
		if _, err := f.ReadAt(blocks[:], 1024+4); err != nil {
			t.Fatal(err)
		}
		if got := binary.LittleEndian.Uint32(blocks[:]); mib[1] > mib[0]+2 && got <= before.blocks {
			t.Errorf("%d to %d MiB: %d blocks, had %d", mib[0], mib[1], got, before.blocks)
		}
	}
	if err := Grow(shortDisk{}, 1<<30); err == nil {
		t.Error("what is no filesystem was grown")
	}
}

// shortDisk is a disk of zeros.
type shortDisk struct{}

func (shortDisk) ReadAt(b []byte, _ int64) (int, error)  { clear(b); return len(b), nil }
func (shortDisk) WriteAt(b []byte, _ int64) (int, error) { return len(b), nil }
