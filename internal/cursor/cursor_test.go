package cursor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/cursor"
)

// TestRead reads texts that Write made, and refuses others.
func TestRead(t *testing.T) {
	want := time.Unix(1_700_000_000, 123)
	at, id, ok := cursor.Read(cursor.Write(want, "i1:2"))
	if !ok || !at.Equal(want) || id != "i1:2" {
		t.Errorf("%v, %q, %v", at, id, ok)
	}
	for _, text := range []string{"", "!!", "MTI", "eDpp", cursor.Write(want, strings.Repeat("x", 200))} {
		if _, _, ok := cursor.Read(text); ok {
			t.Errorf("%q is read", text)
		}
	}
}
