//go:build linux

package stagebin

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"testing/fstest"

	"github.com/carrel-dev/carrel"
)

func TestFileIsSealedAndRuns(t *testing.T) {
	program, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	f, err := file(fstest.MapFS{"carrel-box": {Data: program}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30)); err != nil || string(got) != string(program) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		t.Error("it can be written to")
	}
	if err := f.Truncate(0); err == nil {
		t.Error("it can be cut")
	}
	if _, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), os.O_WRONLY, 0); err == nil {
		g, _ := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), os.O_WRONLY, 0)
		if _, err := g.Write([]byte("x")); err == nil {
			t.Error("it can be opened again and written to")
		}
		g.Close()
	}
	if err := exec.Command("/proc/self/fd/" + strconv.Itoa(int(f.Fd()))).Run(); err != nil {
		t.Logf("exec by name: %v", err) // on some kernels the child has closed it by then
	}
}

func TestNotBuilt(t *testing.T) {
	_, err := file(fstest.MapFS{"assets/README.md": {}})
	if !errors.Is(err, carrel.Unsupported) || carrel.HintOf(err) == "" {
		t.Errorf("%v, hint %q", err, carrel.HintOf(err))
	}
}
