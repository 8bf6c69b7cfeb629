package password

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestHash makes hashes and checks them, and ones that can't be read.
func TestHash(t *testing.T) {
	h := New()
	one, err := h.Hash(t.Context(), "correct horse")
	if err != nil || !strings.HasPrefix(one, "$argon2id$v=19$m=32768,t=2,p=1$") {
		t.Fatalf("%q %v", one, err)
	}
	if other, _ := h.Hash(t.Context(), "correct horse"); other == one {
		t.Error("two hashes have one salt")
	}
	check := func(hash, password string, want bool) {
		t.Helper()
		if got, err := h.Check(t.Context(), hash, password); got != want || err != nil {
			t.Errorf("%q %q: %v %v", hash, password, got, err)
		}
	}
	check(one, "correct horse", true)
	check(one, "correct horsf", false)
	check(one, "", false)
	for _, bad := range []string{"", "x", "$argon2id$v=19$m=4294967295,t=1,p=1$AAAAAAAAAAA$AAAA",
		strings.Replace(one, "m=32768", "m=99999999", 1), strings.Replace(one, "t=2", "t=0", 1),
		strings.Replace(one, "argon2id", "argon2i", 1), one[:len(one)-4]} {
		check(bad, "correct horse", false)
		check(bad, "", false)
	}
}

// TestCrowd lets more ask than may wait.
func TestCrowd(t *testing.T) {
	h := New()
	for range cap(h.turns) {
		h.turns <- struct{}{}
	}
	for range cap(h.places) - 1 {
		h.places <- struct{}{}
	}
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() { _, err := h.Check(ctx, "", "x"); left <- err }()
	testenv.Eventually(t, "the last place is taken", func() bool { return len(h.places) == cap(h.places) })
	if _, err := h.Check(t.Context(), "", "x"); !errors.Is(err, ErrBusy) {
		t.Errorf("one too many: %v", err)
	}
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if len(h.places) != cap(h.places)-1 {
		t.Error("who leaves keeps the place")
	}
}

// TestMake looks at made passwords.
func TestMake(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		p := Make()
		if seen[p] || len(p) != 23 || strings.Count(p, "-") != 3 {
			t.Fatalf("%q", p)
		}
		seen[p] = true
	}
}
