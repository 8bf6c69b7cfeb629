package sqlite

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// SmallLedgers makes ledgers be written anew often.
func SmallLedgers(t *testing.T) {
	old := slack.Swap(8 << 10)
	t.Cleanup(func() { slack.Store(old) })
}

// BreakLedger makes every write to the ledger fail until it is made anew, which happens with the
// next write but one.
func BreakLedger(t *testing.T, s *Store) {
	t.Helper()
	old := retry.Swap(0)
	t.Cleanup(func() { retry.Store(old) })
	null, err := os.Open(os.DevNull) // read-only
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if err := unix.Dup3(int(null.Fd()), int(s.ledger.file.Fd()), unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
}
