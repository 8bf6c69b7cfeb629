package vault_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/vault"
)

// file is the name of a secret's file.
func file(dir string, s carrel.Secret) string { return filepath.Join(dir, s.ID+".json") }

func read(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func write(t *testing.T, name string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(name, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestEditedFiles edits the files. An attacker who can write them must not be able to have a secret
// sent to another host, or used under another name or by another owner. A refused file is reported,
// the others work, and its secret can be removed and set anew.
func TestEditedFiles(t *testing.T) {
	type fields = map[string]any
	for name, edit := range map[string]func(t *testing.T, dir string, f fields, victim, other carrel.Secret){
		"hosts":    func(_ *testing.T, _ string, f fields, _, _ carrel.Secret) { f["hosts"] = []string{"evil.example.com"} },
		"no hosts": func(_ *testing.T, _ string, f fields, _, _ carrel.Secret) { delete(f, "hosts") },
		"owner":    func(_ *testing.T, _ string, f fields, _, _ carrel.Secret) { f["owner"] = "mallory" },
		"name":     func(_ *testing.T, _ string, f fields, _, _ carrel.Secret) { f["name"] = "free" },
		"version":  func(_ *testing.T, _ string, f fields, _, _ carrel.Secret) { f["version"] = 7 },
		"metadata": func(_ *testing.T, _ string, f fields, _, _ carrel.Secret) {
			f["metadata"] = map[string]string{"a": "b"}
		},
		"times":    func(_ *testing.T, _ string, f fields, _, _ carrel.Secret) { f["updated"] = "2020-01-01T00:00:00Z" },
		"key":      func(_ *testing.T, _ string, f fields, _, _ carrel.Secret) { f["key"] = "0000000000000000" },
		"format":   func(_ *testing.T, _ string, f fields, _, _ carrel.Secret) { f["format"] = 2 },
		"sealed":   func(_ *testing.T, _ string, f fields, _, _ carrel.Secret) { f["sealed"] = "AAAA" },
		"unsealed": func(_ *testing.T, _ string, f fields, _, _ carrel.Secret) { delete(f, "sealed") },
		"addition": func(_ *testing.T, _ string, f fields, _, _ carrel.Secret) { f["value"] = "x" },
		"another's value": func(t *testing.T, dir string, f fields, _, other carrel.Secret) {
			var o fields
			if err := json.Unmarshal(read(t, file(dir, other)), &o); err != nil {
				t.Fatal(err)
			}
			f["sealed"] = o["sealed"]
		},
		"another's file": func(t *testing.T, dir string, f fields, _, other carrel.Secret) {
			clear(f)
			if err := json.Unmarshal(read(t, file(dir, other)), &f); err != nil {
				t.Fatal(err)
			}
		},
		"another's file, its own ID": func(t *testing.T, dir string, f fields, victim, other carrel.Secret) {
			clear(f)
			if err := json.Unmarshal(read(t, file(dir, other)), &f); err != nil {
				t.Fatal(err)
			}
			f["id"] = victim.ID
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, ctx := t.TempDir(), t.Context()
			v := open(t, dir)
			victim, other := create(t, v, "victim", canary, "api.example.com"), create(t, v, "other", "other")
			before := read(t, file(dir, victim))
			var f fields
			if err := json.Unmarshal(before, &f); err != nil {
				t.Fatal(err)
			}
			edit(t, dir, f, victim, other)
			raw, err := json.Marshal(f)
			if err != nil {
				t.Fatal(err)
			}
			write(t, file(dir, victim), raw)
			var log bytes.Buffer
			v = open(t, dir, func(o *vault.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			for _, owner := range []string{"", "mallory"} {
				for _, ref := range []string{"victim", "free", victim.ID} {
					for _, host := range []string{"api.example.com", "evil.example.com"} {
						if got, err := v.Reveal(ctx, owner, ref, host); err == nil {
							t.Errorf("%s of %q is revealed: %q", ref, owner, got)
						}
					}
				}
			}
			if !strings.Contains(log.String(), victim.ID) || strings.Contains(log.String(), canary) {
				t.Error("the log says", log.String())
			}
			reveals(t, v, "other", "example.com", "other")
			if list, err := v.List(ctx, ""); err != nil || len(list) != 1 {
				t.Error(list, err)
			}
			if err := os.WriteFile(file(dir, victim), before, 0o600); err != nil { // from a backup
				t.Fatal(err)
			}
			reveals(t, open(t, dir), "victim", "api.example.com", canary)
		})
	}
}

// TestRefusedFile shows that the error names the secret and a remedy, and that the remedy works.
func TestRefusedFile(t *testing.T) {
	for _, damage := range []func([]byte) []byte{
		func(raw []byte) []byte { return raw[:len(raw)/2] },
		func([]byte) []byte { return nil },
		func(raw []byte) []byte { return append(raw, raw...) },
		func(raw []byte) []byte { return bytes.Replace(raw, []byte("evil"), []byte("live"), 1) },
		func([]byte) []byte { return bytes.Repeat([]byte(" "), 300<<10) },
	} {
		dir, ctx := t.TempDir(), t.Context()
		v := open(t, dir)
		s := create(t, v, "a", canary, "evil.example.com")
		create(t, v, "b", "b")
		write(t, file(dir, s), damage(read(t, file(dir, s))))
		v = open(t, dir)
		_, err := v.Get(ctx, "", s.ID)
		wantKind(t, "get", err, carrel.Internal)
		if !strings.Contains(err.Error(), s.ID) || carrel.HintOf(err) == "" {
			t.Error(err, carrel.HintOf(err))
		}
		_, err = v.Update(ctx, "", s.ID, "x", nil)
		wantKind(t, "update", err, carrel.Internal)
		reveals(t, v, "b", "example.com", "b")
		if err := v.Delete(ctx, "", s.ID); err != nil {
			t.Error(err)
		}
		_, err = v.Get(ctx, "", s.ID)
		wantKind(t, "get", err, carrel.NotFound)
		create(t, v, "a", "anew")
		reveals(t, open(t, dir), "a", "example.com", "anew")
	}
}

// TestRefusedName shows that a new secret can't take the name of a refused file by accident.
func TestRefusedName(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	v := open(t, dir)
	s := create(t, v, "a", canary)
	create(t, v, "b", "b")
	write(t, file(dir, s), bytes.Replace(read(t, file(dir, s)), []byte(`"version":1`), []byte(`"version":2`), 1))
	v = open(t, dir)
	_, err := v.Create(ctx, "", carrel.NewSecret{Name: "a", Value: "x"})
	wantKind(t, "create", err, carrel.AlreadyExists)
	_, err = v.Reveal(ctx, "", "a", "example.com")
	wantKind(t, "reveal", err, carrel.Internal)
	wantKind(t, "change the key", v.Rekey(nil), carrel.Conflict)
	if err := v.Delete(ctx, "", "a"); err != nil {
		t.Error(err)
	}
	create(t, v, "a", "x")
}

// TestTwoFilesOfOneName restores an old file from a backup. It must not take the name of a newer
// secret.
func TestTwoFilesOfOneName(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	v := open(t, dir)
	old := create(t, v, "a", "old")
	backup := read(t, file(dir, old))
	if err := v.Delete(ctx, "", "a"); err != nil {
		t.Fatal(err)
	}
	recent := create(t, v, "a", "new")
	write(t, file(dir, old), backup)
	v = open(t, dir)
	reveals(t, v, "a", "example.com", "new")
	reveals(t, v, recent.ID, "example.com", "new")
	_, err := v.Reveal(ctx, "", old.ID, "example.com")
	wantKind(t, "the old one", err, carrel.Internal)
	if err := v.Delete(ctx, "", old.ID); err != nil {
		t.Error(err)
	}
	reveals(t, open(t, dir), "a", "example.com", "new")
}

// TestKeys shows that no key is ever made when secrets are sealed with another one.
func TestKeys(t *testing.T) {
	refused := func(t *testing.T, dir string, change ...func(*vault.Options)) {
		t.Helper()
		o := vault.Options{}
		for _, f := range change {
			f(&o)
		}
		before, _ := os.ReadDir(dir)
		_, err := vault.Open(dir, o)
		if carrel.KindOf(err) != carrel.Invalid || carrel.HintOf(err) == "" || err.(*carrel.Error).Field != "secret-key-file" {
			t.Errorf("%v (hint %q)", err, carrel.HintOf(err))
		}
		if after, _ := os.ReadDir(dir); len(before) != len(after) {
			t.Error("files were made")
		}
	}
	dir := t.TempDir()
	create(t, open(t, dir), "a", canary)
	key := filepath.Join(dir, "key")
	raw := read(t, key)
	if len(raw) != 32 {
		t.Fatal(len(raw))
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	refused(t, dir)
	for _, bad := range [][]byte{nil, []byte("short"), bytes.Repeat([]byte{7}, 33), bytes.Repeat([]byte{7}, 32)} {
		write(t, key, bad)
		refused(t, dir)
	}
	write(t, key, raw)
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	reveals(t, open(t, dir), "a", "example.com", canary)
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}

	// Now with a key in another place, in both forms.
	elsewhere := filepath.Join(t.TempDir(), "credential")
	named := func(o *vault.Options) { o.KeyFile = elsewhere }
	refused(t, t.TempDir(), named)
	write(t, elsewhere, []byte(strings.Repeat("0123456789abcdef", 4)+"\n"))
	if err := os.Chmod(elsewhere, 0o440); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	create(t, open(t, other, named), "a", canary)
	reveals(t, open(t, other, named), "a", "example.com", canary)
	if _, err := os.Stat(filepath.Join(other, "key")); err == nil {
		t.Error("a key of its own was made")
	}
	if info, err := os.Stat(elsewhere); err != nil || info.Mode().Perm() != 0o440 {
		t.Error("somebody else's file was changed", info.Mode(), err)
	}
	refused(t, other) // without the option
	refused(t, dir, named)
}

// TestLeftovers shows that unfinished writes of a crash are removed, and nothing else.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	s := create(t, open(t, dir), "a", canary)
	write(t, filepath.Join(dir, "."+s.ID+".json.123"), []byte("half"))
	write(t, filepath.Join(dir, ".key.next.1"), []byte("half"))
	write(t, filepath.Join(dir, "notes.txt"), []byte("mine"))
	reveals(t, open(t, dir), "a", "example.com", canary)
	entries, _ := os.ReadDir(dir)
	if len(entries) != 3 { // the key, the secret, the notes
		t.Error(entries)
	}
}
