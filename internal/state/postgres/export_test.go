package postgres

import (
	"testing"
	"time"
)

// Setting reads a setting of the session that writes.
func Setting(t testing.TB, s *Store, name string) (value string) {
	t.Helper()
	if err := s.write.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// SetClock gives leases another clock of this process.
func (l *Leases) SetClock(now func() time.Time) { l.now = now }

// Exec changes a fleet's tables.
func Exec(t testing.TB, f Fleet, q string, args ...any) {
	t.Helper()
	if _, err := f.s.read.Exec(t.Context(), q, args...); err != nil {
		t.Fatal(err)
	}
}
