package carrel_test

import (
	"errors"
	"testing"

	"github.com/carrel-dev/carrel"
)

// TestErrorSaysOnce shows that an operation, sandbox or field that several layers know is printed
// once.
func TestErrorSaysOnce(t *testing.T) {
	const id = carrel.ID("iaaaaaaaaaaaaaaaaaaaa")
	cause := errors.New("4 MiB is less than 64")
	inner := &carrel.Error{Op: "create sandbox", ID: id, Field: "memoryMB", Err: cause}
	for _, c := range []struct {
		err  *carrel.Error
		want string
	}{
		{&carrel.Error{Op: "create sandbox", ID: id, Err: inner}, "create sandbox: iaaaaaaaaaaaaaaaaaaaa: memoryMB: 4 MiB is less than 64"},
		{&carrel.Error{Op: "create sandbox", Field: "tier", Err: &carrel.Error{Op: "find driver", Field: "tier", Err: cause}}, "create sandbox: tier: find driver: 4 MiB is less than 64"},
		{&carrel.Error{Op: "fork sandbox", Err: &carrel.Error{Op: "create sandbox", ID: id, Err: inner}}, "fork sandbox: create sandbox: iaaaaaaaaaaaaaaaaaaaa: memoryMB: 4 MiB is less than 64"},
		{&carrel.Error{Op: "get sandbox", ID: id, Err: &carrel.Error{Op: "get sandbox", ID: id, Kind: carrel.NotFound}}, "get sandbox: iaaaaaaaaaaaaaaaaaaaa: not found"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
