package sshdoor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/carrel-dev/carrel"
)

func testKey(t *testing.T) string {
	t.Helper()
	s, err := NewHostKey()
	if err != nil {
		t.Fatal(err)
	}
	return string(ssh.MarshalAuthorizedKey(s.PublicKey()))
}

func TestKeys(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ssh")
	k, err := OpenKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	one := testKey(t)
	id := carrel.NewID()
	got, err := k.Add("", "laptop", strings.TrimSpace(one)+" me@example.com", []carrel.ID{id})
	if err != nil || !strings.HasPrefix(got.Fingerprint, "SHA256:") || strings.Contains(got.PublicKey, "@") {
		t.Fatalf("%+v, %v", got, err)
	}
	for name, c := range map[string]struct {
		name, key string
		kind      carrel.Kind
	}{
		"the same name":   {"laptop", testKey(t), carrel.AlreadyExists},
		"the same key":    {"other", one, carrel.AlreadyExists},
		"no key":          {"x", "ssh-ed25519 AAAA", carrel.Invalid},
		"a private key":   {"x", "-----BEGIN OPENSSH PRIVATE KEY-----", carrel.Invalid},
		"options":         {"x", `command="x" ` + testKey(t), carrel.Invalid},
		"two keys":        {"x", testKey(t) + testKey(t), carrel.Invalid},
		"DSA":             {"x", "ssh-dss AAAAB3NzaC1kc3MAAAABAQ==", carrel.Invalid},
		"an empty name":   {"", testKey(t), carrel.Invalid},
		"a bad name":      {"a\nb", testKey(t), carrel.Invalid},
		"a name too long": {strings.Repeat("a", 65), testKey(t), carrel.Invalid},
	} {
		if _, err := k.Add("", c.name, c.key, nil); carrel.KindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := k.Add("", "second", testKey(t), nil); err != nil {
		t.Fatal(err)
	}
	again, err := OpenKeys(dir)
	if err != nil || len(again.List()) != 2 || again.List()[0].Sandboxes[0] != id {
		t.Fatalf("read again: %+v, %v", again.List(), err)
	}
	if err := again.Remove("", "laptop"); err != nil {
		t.Fatal(err)
	}
	if err := again.Remove("", "laptop"); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("removed twice: %v", err)
	}
	if info, err := os.Stat(filepath.Join(dir, "keys.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "keys.json"), []byte("[{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenKeys(dir); carrel.KindOf(err) != carrel.Invalid {
		t.Errorf("a broken file: %v", err)
	}
}

func TestHostKeyStays(t *testing.T) {
	dir := t.TempDir()
	a, err := HostKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := HostKey(dir)
	if err != nil || string(a.PublicKey().Marshal()) != string(b.PublicKey().Marshal()) {
		t.Errorf("it is another: %v", err)
	}
	if info, err := os.Stat(filepath.Join(dir, "host-key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// FuzzTarget shows that a user name leads to a valid sandbox ID and a valid user, or nowhere.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{"i00000000000000000000", "root%i00000000000000000000", "%i00000000000000000000", "a%b%i00000000000000000000", "-x%i00000000000000000000", "root", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got, ok := parseTarget(name)
		if !ok {
			return
		}
		if _, err := carrel.ParseID(string(got.id)); err != nil || (got.user != "" && !validUser(got.user)) || !strings.HasSuffix(name, string(got.id)) {
			t.Errorf("%q leads to %+v", name, got)
		}
	})
}
