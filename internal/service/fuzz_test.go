package service_test

import (
	"encoding/base64"
	"errors"
	"testing"

	"github.com/carrel-dev/carrel"
)

// FuzzListCursor gives List page tokens that it did not make. List must refuse each of them with a
// clear error, or take it as a position in the order.
func FuzzListCursor(f *testing.F) {
	h := newHouse(f, nil)
	for range 3 {
		if _, err := h.Create(f.Context(), carrel.CreateOptions{}); err != nil {
			f.Fatal(err)
		}
	}
	page, err := h.List(f.Context(), carrel.ListOptions{Limit: 1})
	if err != nil {
		f.Fatal(err)
	}
	enc := base64.RawURLEncoding.EncodeToString
	for _, seed := range []string{page.Next, "", "!", "AAAA", enc([]byte("1:")), enc([]byte("-9223372036854775808:iaaaaaaaaaaaaaaaaaaaa")),
		enc([]byte("99999999999999999999:iaaaaaaaaaaaaaaaaaaaa")), enc([]byte("1:../../etc/passwd"))} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, cursor string, oldest bool) {
		page, err := h.List(t.Context(), carrel.ListOptions{Cursor: cursor, OldestFirst: oldest})
		var ce *carrel.Error
		switch {
		case err == nil && len(page.Sandboxes) > 3:
			t.Errorf("%d sandboxes", len(page.Sandboxes))
		case err != nil && (!errors.As(err, &ce) || ce.Kind != carrel.Invalid || ce.Field != "nextToken"):
			t.Errorf("%v", err)
		}
	})
}
