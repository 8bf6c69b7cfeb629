package shortage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"github.com/carrel-dev/carrel"
)

func TestOf(t *testing.T) {
	for _, c := range []struct {
		err   error
		field string
	}{
		{nil, ""},
		{errors.New("broken"), ""},
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.ENOSPC}, Disk},
		{fmt.Errorf("write: %w", syscall.EDQUOT), Disk},
		{&carrel.Error{Op: "x", Err: os.NewSyscallError("socket", syscall.EMFILE)}, Files},
		{syscall.ENFILE, Files},
	} {
		if field, hint := Now(c.err); field != c.field || (hint == "") != (field == "") {
			t.Errorf("%v: %q, %q", c.err, field, hint)
		}
	}
}

// TestExplain changes only internal errors, and those only if something is missing.
func TestExplain(t *testing.T) {
	broken := errors.New("broken")
	if got := Explain("work", "", broken); got != broken {
		t.Errorf("%v", got)
	}
	conflict := &carrel.Error{Op: "work", Kind: carrel.Conflict, Err: syscall.ENOSPC}
	if got := Explain("work", "", conflict); got != error(conflict) {
		t.Errorf("%v", got)
	}
	got := Explain("work", "i", &carrel.Error{Op: "work", Err: syscall.EMFILE})
	if !errors.Is(got, carrel.Exhausted) || !errors.Is(got, syscall.EMFILE) || !Named(got) ||
		carrel.HintOf(got) == "" {
		t.Errorf("%v", got)
	}
	if want := "work: i: files: too many open files"; got.Error() != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestNow leaves the process no descriptors, or a few. An error that lost its cause is recognised
// then.
func TestNow(t *testing.T) {
	broken := errors.New("unable to open database file")
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []uint64{3, 30} {
		low := was
		low.Cur = limit
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
			t.Fatal(err)
		}
		field, _ := Now(broken)
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
		if field != Files {
			t.Errorf("with a limit of %d: field %q", limit, field)
		}
	}
	if field, _ := Now(broken); field != "" {
		t.Errorf("with descriptors: field %q", field)
	}
}
