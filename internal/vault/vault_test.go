package vault_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/vault"
)

const canary = "sk-canary-3d1f0b7a"

func open(t *testing.T, dir string, change ...func(*vault.Options)) *vault.Vault {
	t.Helper()
	o := vault.Options{}
	for _, f := range change {
		f(&o)
	}
	v, err := vault.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func create(t *testing.T, v *vault.Vault, name, value string, hosts ...string) carrel.Secret {
	t.Helper()
	s, err := v.Create(t.Context(), "", carrel.NewSecret{Name: name, Value: value, Hosts: hosts})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// reveals demands a value.
func reveals(t *testing.T, v *vault.Vault, ref, host, want string) {
	t.Helper()
	if got, err := v.Reveal(t.Context(), "", ref, host); err != nil || got != want {
		t.Errorf("reveal %s: %v, the right value: %v", ref, err, got == want)
	}
}

func wantKind(t *testing.T, what string, err error, kind carrel.Kind) {
	t.Helper()
	if carrel.KindOf(err) != kind {
		t.Errorf("%s: %v (%s), want %s", what, err, carrel.KindOf(err), kind)
	}
}

// TestLife shows that acknowledged changes are there, also for the next daemon.
func TestLife(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	v := open(t, dir)
	s, err := v.Create(ctx, "", carrel.NewSecret{Name: "OpenAI-Key", Value: canary, Metadata: map[string]string{"team": "größe"}, Hosts: []string{"API.example.com", "*.example.org."}})
	if err != nil || s.Name != "openai-key" || s.Version != 1 || !strings.HasPrefix(s.ID, "sec_") || s.Hosts[0] != "api.example.com" || s.Hosts[1] != "*.example.org" {
		t.Fatal(s, err)
	}
	create(t, v, "another", "x")
	for round := range 2 {
		for _, ref := range []string{s.ID, "openai-key", "OPENAI-KEY"} {
			reveals(t, v, ref, "api.example.com", canary)
			if got, err := v.Get(ctx, "", ref); err != nil || got.ID != s.ID || got.Metadata["team"] != "größe" || !got.Created.Equal(s.Created) {
				t.Error(round, got, err)
			}
		}
		if all, err := v.List(ctx, ""); err != nil || len(all) != 2 || all[0].Name != "another" || all[1].ID != s.ID {
			t.Error(round, all, err)
		}
		v = open(t, dir)
	}
	_, err = v.Create(ctx, "", carrel.NewSecret{Name: "OPENAI-key", Value: "x"})
	wantKind(t, "the same name", err, carrel.AlreadyExists)
	up, err := v.Update(ctx, "", "openai-key", "second", nil)
	if err != nil || up.Version != 2 || up.Metadata["team"] != "größe" || len(up.Hosts) != 2 || !up.Created.Equal(s.Created) {
		t.Error(up, err)
	}
	up, err = v.Update(ctx, "", s.ID, "third", map[string]string{})
	if err != nil || up.Version != 3 || up.Metadata != nil {
		t.Error(up, err)
	}
	v = open(t, dir)
	reveals(t, v, s.ID, "a.example.org", "third")
	if err := v.Delete(ctx, "", "openai-key"); err != nil {
		t.Error(err)
	}
	wantKind(t, "twice", v.Delete(ctx, "", "openai-key"), carrel.NotFound)
	v = open(t, dir)
	_, err = v.Reveal(ctx, "", s.ID, "api.example.com")
	wantKind(t, "reveal", err, carrel.NotFound)
	_, err = v.Update(ctx, "", s.ID, "x", nil)
	wantKind(t, "update", err, carrel.NotFound)
	create(t, v, "openai-key", "a new one of the old name")
}

// TestOwners shows that one owner's references find nothing of another owner.
func TestOwners(t *testing.T) {
	v, ctx := open(t, t.TempDir()), t.Context()
	mine, err := v.For("a").CreateSecret(ctx, carrel.NewSecret{Name: "key", Value: "of a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.For("b").CreateSecret(ctx, carrel.NewSecret{Name: "key", Value: "of b"}); err != nil {
		t.Fatal("the same name of another owner:", err)
	}
	for _, owner := range []string{"b", ""} {
		_, err := v.For(owner).GetSecret(ctx, mine.ID)
		wantKind(t, "get", err, carrel.NotFound)
		_, err = v.For(owner).UpdateSecret(ctx, mine.ID, "x", nil)
		wantKind(t, "update", err, carrel.NotFound)
		wantKind(t, "delete", v.For(owner).DeleteSecret(ctx, mine.ID), carrel.NotFound)
		_, err = v.Reveal(ctx, owner, mine.ID, "h.example.com")
		wantKind(t, "reveal", err, carrel.NotFound)
	}
	if all, err := v.For("b").ListSecrets(ctx); err != nil || len(all) != 1 || all[0].ID == mine.ID {
		t.Error(all, err)
	}
	if got, err := v.Reveal(ctx, "b", "key", "h.example.com"); err != nil || got != "of b" {
		t.Error(got, err)
	}
	_, err = v.Create(ctx, "../x", carrel.NewSecret{Name: "key", Value: "x"})
	wantKind(t, "an owner that is a path", err, carrel.Invalid)
}

// TestHider shows what goes out of a project's texts: whole values, the longer of two first, and none
// of another project's.
func TestHider(t *testing.T) {
	v, ctx := open(t, t.TempDir()), t.Context()
	for _, s := range []struct{ project, name, value string }{
		{"a", "short", "abc12"}, // would be found in ordinary words
		{"a", "inner", "s3cret"},
		{"a", "outer", "my-s3cret-key"},
		{"a", "pattern", "a.c$1%s"},
		{"b", "other", "of-project-b"},
	} {
		_, err := v.For(s.project).CreateSecret(ctx, carrel.NewSecret{Name: s.name, Value: s.value})
		if err != nil {
			t.Fatal(err)
		}
	}
	hide := v.Hider("a")
	for text, want := range map[string]string{
		"":                    "",
		"abc12 stays":         "abc12 stays",
		"x=s3cret;":           "x=[redacted: secret inner];",
		"s3crets3cret":        "[redacted: secret inner][redacted: secret inner]",
		"my-s3cret-key":       "[redacted: secret outer]",
		"my-s3cret-kez":       "my-[redacted: secret inner]-kez",
		"a.c$1%s":             "[redacted: secret pattern]",
		"abc$1%s":             "abc$1%s",
		"of-project-b":        "of-project-b",
		"\x00s3cret\xff\r\nx": "\x00[redacted: secret inner]\xff\r\nx",
	} {
		if got := hide(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	if got := v.Hider("c")("s3cret of-project-b"); got != "s3cret of-project-b" {
		t.Errorf("a project without secrets hides %q", got)
	}
}

// TestHosts shows that a secret goes to its hosts, and to no host that only looks like one of them.
func TestHosts(t *testing.T) {
	v := open(t, t.TempDir())
	create(t, v, "free", "x")
	create(t, v, "bound", "x", "api.example.com", "*.example.org", "192.0.2.7", "2001:db8::1")
	for host, want := range map[string]bool{
		"api.example.com": true, "API.Example.COM": true, "api.example.com.": true,
		"a.example.org": true, "a.b.example.org": true, "192.0.2.7": true, "2001:db8::1": true, "[2001:db8::1]": true, "2001:DB8:0::1": true, "::ffff:192.0.2.7": true,
		"example.org": false, ".example.org": false, "evilexample.org": false, "example.com": false, "x.api.example.com": false,
		"api.example.com.evil.example.net": false, "192.0.2.8": false, "": false, "api.example.com\x00": false, "api.example.com:443": false,
	} {
		_, err := v.Reveal(t.Context(), "", "bound", host)
		if want && err != nil {
			t.Errorf("%q: %v", host, err)
		} else if !want {
			wantKind(t, fmt.Sprintf("%q", host), err, carrel.Forbidden)
		}
		reveals(t, v, "free", host, "x")
	}
}

// TestInvalid shows that an error names the field and never the value.
func TestInvalid(t *testing.T) {
	v, ctx := open(t, t.TempDir()), t.Context()
	many := map[string]string{}
	for i := range 33 {
		many[fmt.Sprint(i)] = ""
	}
	large := map[string]string{}
	for i := range 9 {
		large[fmt.Sprint(i)] = strings.Repeat("x", 1000)
	}
	for _, c := range []struct {
		what, field string
		s           carrel.NewSecret
	}{
		{"no name", "name", carrel.NewSecret{Value: canary}},
		{"a long name", "name", carrel.NewSecret{Name: strings.Repeat("x", 129), Value: canary}},
		{"a reserved name", "name", carrel.NewSecret{Name: "SEC_x", Value: canary}},
		{"a path", "name", carrel.NewSecret{Name: "../key", Value: canary}},
		{"a brace", "name", carrel.NewSecret{Name: "a}b", Value: canary}},
		{"a dot first", "name", carrel.NewSecret{Name: ".a", Value: canary}},
		{"the value as name", "name", carrel.NewSecret{Name: canary + "/+=", Value: canary}},
		{"no value", "value", carrel.NewSecret{Name: "a"}},
		{"a huge value", "value", carrel.NewSecret{Name: "a", Value: canary + strings.Repeat("x", 64<<10)}},
		{"a NUL", "value", carrel.NewSecret{Name: "a", Value: canary + "\x00"}},
		{"not UTF-8", "value", carrel.NewSecret{Name: "a", Value: canary + "\xff"}},
		{"many entries", "metadata", carrel.NewSecret{Name: "a", Value: canary, Metadata: many}},
		{"large metadata", "metadata", carrel.NewSecret{Name: "a", Value: canary, Metadata: large}},
		{"a long key", "metadata", carrel.NewSecret{Name: "a", Value: canary, Metadata: map[string]string{strings.Repeat("k", 129): ""}}},
		{"no key", "metadata", carrel.NewSecret{Name: "a", Value: canary, Metadata: map[string]string{"": "x"}}},
		{"a long entry", "metadata", carrel.NewSecret{Name: "a", Value: canary, Metadata: map[string]string{"k": strings.Repeat("v", 1025)}}},
		{"control characters", "metadata", carrel.NewSecret{Name: "a", Value: canary, Metadata: map[string]string{"k": "\x1b[2J"}}},
		{"an empty host", "hosts", carrel.NewSecret{Name: "a", Value: canary, Hosts: []string{""}}},
		{"every host", "hosts", carrel.NewSecret{Name: "a", Value: canary, Hosts: []string{"*"}}},
		{"a star in the middle", "hosts", carrel.NewSecret{Name: "a", Value: canary, Hosts: []string{"a.*.example.com"}}},
		{"a URL", "hosts", carrel.NewSecret{Name: "a", Value: canary, Hosts: []string{"https://example.com"}}},
		{"a port", "hosts", carrel.NewSecret{Name: "a", Value: canary, Hosts: []string{"example.com:443"}}},
		{"half an address", "hosts", carrel.NewSecret{Name: "a", Value: canary, Hosts: []string{"192.0.2"}}},
	} {
		_, err := v.Create(ctx, "", c.s)
		e, ok := err.(*carrel.Error)
		if !ok || e.Kind != carrel.Invalid || e.Field != c.field || e.Op == "" {
			t.Errorf("%s: %#v", c.what, err)
		}
		if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, e.Err), canary) {
			t.Errorf("%s: the error has the value", c.what)
		}
	}
	if all, _ := v.List(ctx, ""); len(all) != 0 {
		t.Error("something was kept:", all)
	}
	create(t, v, strings.Repeat("n", 128), strings.Repeat("v", 64<<10))
	_, err := v.Update(ctx, "", strings.Repeat("n", 128), "", nil)
	wantKind(t, "an empty update", err, carrel.Invalid)
	_, err = v.Get(ctx, "", canary+"/+=") // the value in place of a reference
	if wantKind(t, "get", err, carrel.NotFound); strings.Contains(err.Error(), canary) {
		t.Error(err)
	}
}

// TestNothingTells shows that the value is not on the disk, and not in printed or logged text.
func TestNothingTells(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	v := open(t, dir, func(o *vault.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	s := create(t, v, "a", canary, "example.com")
	n := carrel.NewSecret{Name: "a", Value: canary}
	owned := v.For("")
	raw, _ := os.ReadFile(filepath.Join(dir, "key"))
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "vault", v, "new", n, "token", carrel.Token{Value: canary}, "ptr", &n)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "new", n, "token", carrel.Token{Value: canary}, "ptr", &n)
	printed := fmt.Sprintf("%v %+v %#v %s %x %v %+v %#v %v %v %+v %#v %s %q %d %x %v %+v", v, v, v, v, v, owned, owned, owned, s, n, n, n, n, n, n, n, &n, []carrel.NewSecret{n}) +
		fmt.Sprintf("%v %+v %#v", carrel.Token{Value: canary}, carrel.Token{Value: canary}, []carrel.Token{{Value: canary}}) + log.String()
	for _, bad := range []string{canary, fmt.Sprintf("%x", canary), fmt.Sprintf("%x", raw), strings.Trim(fmt.Sprint(raw), "[]")} {
		if strings.Contains(printed, bad) {
			t.Errorf("printed: %s", printed)
		}
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil || bytes.Contains(content, []byte(canary)) {
			t.Error(e.Name(), "has the value", err)
		}
		if info, _ := e.Info(); info.Mode().Perm() != 0o600 {
			t.Error(e.Name(), info.Mode())
		}
	}
	if raw, err := json.Marshal(n); err != nil || !strings.Contains(string(raw), canary) {
		t.Error("a client can't send it:", string(raw), err)
	}
}

// TestConcurrent hammers one vault, also with a change of its key.
func TestConcurrent(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	v := open(t, dir)
	create(t, v, "steady", "steady")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			name := fmt.Sprint("own-", i)
			for n := range 10 {
				if _, err := v.Create(ctx, "", carrel.NewSecret{Name: name, Value: "x"}); err != nil {
					t.Error(err)
				}
				value := fmt.Sprint(i, n)
				if _, err := v.Update(ctx, "", name, value, nil); err != nil {
					t.Error(err)
				}
				reveals(t, v, name, "example.com", value)
				if _, err := v.List(ctx, ""); err != nil {
					t.Error(err)
				}
				if err := v.Delete(ctx, "", name); err != nil {
					t.Error(err)
				}
			}
		})
	}
	created := make(chan bool, 4)
	for range 4 { // several want one name, and one gets it
		wg.Go(func() {
			_, err := v.Create(ctx, "", carrel.NewSecret{Name: "wanted", Value: "x"})
			created <- err == nil
		})
	}
	wg.Go(func() {
		for range 5 {
			if err := v.Rekey(nil); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Go(func() {
		for range 200 {
			reveals(t, v, "steady", "example.com", "steady")
		}
	})
	wg.Wait()
	n := 0
	for range 4 {
		if <-created {
			n++
		}
	}
	if n != 1 {
		t.Error(n, "have the one name")
	}
	reveals(t, open(t, dir), "steady", "example.com", "steady")
}

func BenchmarkReveal(b *testing.B) {
	v, err := vault.Open(b.TempDir(), vault.Options{})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := v.Create(b.Context(), "", carrel.NewSecret{Name: "a", Value: canary, Hosts: []string{"api.example.com"}}); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := v.Reveal(b.Context(), "", "a", "api.example.com"); err != nil {
			b.Fatal(err)
		}
	}
}
