package vault

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// FuzzFile shows that a file which was not sealed with the key gives no value, and that one which
// was gives the same header and value again.
func FuzzFile(f *testing.F) {
	k := makeKey([]byte("0123456789abcdef0123456789abcdef"))
	h := header{ID: "sec_abcdefghij0123456789", Owner: "o", Name: "name", Version: 3, Metadata: map[string]string{"a": "<ö>\u2028"}, Hosts: []string{"*.example.com", "2001:db8::1"},
		Created: time.Unix(1e9, 5).UTC(), Updated: time.Unix(2e9, 0).UTC()}
	r, err := seal(k, h, []byte("the value"))
	if err != nil {
		f.Fatal(err)
	}
	good, err := r.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(bytes.Replace(good, []byte("example"), []byte("evil"), 1))
	f.Add(bytes.Replace(good, []byte(`"name"`), []byte(`"NAME"`), 1))
	f.Add([]byte("{}"))
	f.Add([]byte(nil))
	f.Add(good[:len(good)/2])
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := parse(raw)
		if err != nil {
			return
		}
		if !isID(got.ID) || checkName(got.Name) != nil || checkHosts(got.Hosts) != nil || len(raw) > maxFile {
			t.Fatalf("%+v", got.header)
		}
		if got.unlock(k) != nil {
			return
		}
		value, err := got.open()
		if err != nil {
			t.Fatal(err)
		}
		// Other bytes may mean the same (white space, the order of fields), but not more.
		want, _ := r.header.bytes()
		if have, _ := got.header.bytes(); string(value) != "the value" || !bytes.Equal(have, want) {
			t.Fatalf("a forged file is opened: %s", raw)
		}
	})
}

// FuzzKey shows that every accepted key is a valid one, and that no verb prints its bytes.
func FuzzKey(f *testing.F) {
	f.Add([]byte(strings.Repeat("ab", 32)))
	f.Add([]byte(strings.Repeat("k", 32)))
	f.Add([]byte(" " + strings.Repeat("AB", 32) + "\n"))
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		k, err := parseKey(raw)
		if (k == nil) == (err == nil) {
			t.Fatal(k, err)
		}
		if err == nil && len(raw) != keyLen && len(bytes.TrimSpace(raw)) != 2*keyLen {
			t.Fatalf("%q is a key", raw)
		}
		if err != nil && len(raw) > 8 && strings.Contains(err.Error(), string(raw)) {
			t.Fatal("the error tells the key")
		}
	})
}
