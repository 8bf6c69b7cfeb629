package sim

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/shell/interp"
)

// TestOutputDeadline: a deadline ends a read that waits, and no byte is lost by it.
func TestOutputDeadline(t *testing.T) {
	pipe := interp.NewPipe()
	o := newOutput(pipe)
	defer o.close()
	b := make([]byte, 10)
	waits := make(chan error, 1)
	go func() {
		_, err := o.Read(b)
		waits <- err
	}()
	far := time.Now().Add(time.Hour)
	set := func(at time.Time) {
		time.Sleep(time.Millisecond) // so that the read waits with the deadline before
		if err := o.SetReadDeadline(at); err != nil {
			t.Fatal(err)
		}
	}
	set(far)
	set(time.Time{})
	set(far)
	set(time.Now())
	if err := <-waits; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the waiting read ends with %v", err)
	}
	if _, err := pipe.Write([]byte("late")); err != nil {
		t.Fatal(err)
	}
	if n, err := o.Pending(); n != 4 || err != nil {
		t.Errorf("%d bytes wait, %v", n, err)
	}
	if n, err := o.Read(b); err != nil || string(b[:n]) != "late" {
		t.Errorf("after the deadline: %q %v", b[:n], err)
	}
	if n, err := o.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("with nothing to read: %d %v", n, err)
	}
	pipe.CloseWrite()
	if _, err := o.Read(b); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}
