package ext4

import (
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
