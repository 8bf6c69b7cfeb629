package identity

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

const fuzzBox = carrel.ID("iabcdefghij0123456789")

// FuzzIntrospect shows that only tokens of ours are active, and that no text causes a crash.
func FuzzIntrospect(f *testing.F) {
	i, err := Open(f.TempDir(), Options{Issuer: func() string { return "https://carrel.example.com" }})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = i.Close() })
	token, err := i.Sign(f.Context(), Claims{Sandbox: fuzzBox, Audience: "a"}, MaxLife)
	if err != nil {
		f.Fatal(err)
	}
	own := i.Introspect(f.Context(), token.Value)
	if !own.Active {
		f.Fatal("our own is not")
	}
	f.Add(token.Value)
	f.Add(token.Value + "x")
	f.Add(strings.ToLower(token.Value))
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add("..")
	f.Add(`{"payload":"e30","signatures":[{"protected":"e30","signature":""}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		got := i.Introspect(t.Context(), text)
		// A signature can be written in more than one way. The signed content can't.
		if got.Active && (got.ID != own.ID || got.Subject != own.Subject || got.Audience != own.Audience || got.Expires != own.Expires) {
			t.Fatalf("%q is active", text)
		}
		if raw, err := json.Marshal(got); err != nil || !got.Active && string(raw) != `{"active":false}` {
			t.Fatalf("%s %v", raw, err)
		}
	})
}

// FuzzRevoked shows that, whatever a crash left in the file, only IDs of sandboxes with unexpired
// tokens are read.
func FuzzRevoked(f *testing.F) {
	now := time.Unix(1e9, 0)
	good, err := json.Marshal(revocation{fuzzBox, now.Add(time.Hour)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(good, '\n'))
	f.Add(append(append([]byte(`{"id":"`), '\n'), good...))
	f.Add([]byte("{}\n[]\nnull\n\n\x00"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got := map[carrel.ID]time.Time{}
		parseRevoked(raw, now, got)
		for id, until := range got {
			if _, err := carrel.ParseID(string(id)); err != nil || !until.After(now) {
				t.Fatal(id, until)
			}
		}
	})
}

// FuzzKeys shows that every accepted key file can sign.
func FuzzKeys(f *testing.F) {
	k, err := newSigningKey(time.Unix(1e9, 0))
	if err != nil {
		f.Fatal(err)
	}
	good, err := json.Marshal(keyFile{Format: keysFormat, Sequence: 1, Keys: []signingKey{k, k}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(strings.Replace(string(good), "P-256", "P-384", 1)))
	f.Add([]byte(`{"format":1,"keys":[{"from":"2026-01-01T00:00:00Z","key":{"kty":"EC","crv":"P-256","x":"AA","y":"AA","d":"AA","kid":"x"}}]}`))
	f.Add([]byte(`{"format":1,"keys":[{}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var file keyFile
		if parseKeys(raw, &file) != nil {
			return
		}
		ring := &keyring{file: file}
		for _, k := range ring.public("sig").Keys {
			if !k.Valid() || !k.IsPublic() || k.KeyID == "" {
				t.Fatalf("%+v", k)
			}
		}
	})
}
