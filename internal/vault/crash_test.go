package vault_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/vault"
)

// With these variables, the test binary is a daemon that is killed at a step.
const (
	crashDir   = "VAULT_CRASH_DIR"
	crashPoint = "VAULT_CRASH_POINT"
	crashHit   = "VAULT_CRASH_HIT"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		changeAll(dir)
		return
	}
	os.Exit(m.Run())
}

// changeAll makes every kind of change. It is killed in the middle.
func changeAll(dir string) {
	left := 0
	_, _ = fmt.Sscan(os.Getenv(crashHit), &left)
	failpoint.Enable(os.Getenv(crashPoint), func() error {
		if left--; left <= 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	})
	ctx := context.Background()
	v, err := vault.Open(dir, vault.Options{})
	if err == nil {
		_, err = v.Update(ctx, "", "updated", "new", nil)
	}
	if err == nil {
		fmt.Println("updated")
		_, err = v.Create(ctx, "", carrel.NewSecret{Name: "created", Value: "new"})
	}
	if err == nil {
		fmt.Println("created")
		err = v.Delete(ctx, "", "deleted")
	}
	if err == nil {
		fmt.Println("deleted")
		err = v.Rekey(nil)
	}
	if err == nil {
		fmt.Println("rekeyed")
	} else {
		fmt.Println(err)
	}
}

// TestKilled kills a daemon at each step of each change. An acknowledged change must be there. Any
// other change is made or not made, with nothing in between.
func TestKilled(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	for _, point := range []string{"vault.write", "vault.written", "vault.delete", "vault.rekey", "vault.resealed"} {
		for hit := 1; ; hit++ {
			dir, ctx := t.TempDir(), t.Context()
			v := open(t, dir)
			create(t, v, "updated", "old")
			create(t, v, "deleted", "old")
			create(t, v, "untouched", "old")
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), crashDir+"="+dir, crashPoint+"="+point, fmt.Sprint(crashHit, "=", hit))
			out, err := cmd.Output()
			done := string(out)
			where := fmt.Sprintf("%s %d after %q", point, hit, strings.Fields(done))
			v, oerr := vault.Open(dir, vault.Options{})
			if oerr != nil {
				t.Fatal(where, oerr)
			}
			// A crashed change of the key has been finished, and there is only one key file.
			if _, err := os.Stat(filepath.Join(dir, "key.next")); err == nil {
				t.Error(where, "key.next is still there")
			}
			for name, values := range map[string][2]string{"updated": {"old", "new"}, "created": {"", "new"}, "deleted": {"old", ""}, "untouched": {"old", "old"}} {
				got, err := v.Reveal(ctx, "", name, "example.com")
				if err != nil && carrel.KindOf(err) != carrel.NotFound {
					t.Errorf("%s: %s: %v", where, name, err)
				}
				if want := strings.Contains(done, name); (want && got != values[1]) || (got != values[0] && got != values[1]) {
					t.Errorf("%s: %s is %q", where, name, got)
				}
			}
			if list, err := v.List(ctx, ""); err != nil || len(list) < 2 || len(list) > 4 {
				t.Error(where, list, err)
			}
			if err := v.Rekey(nil); err != nil {
				t.Error(where, "the key can't be changed any more:", err)
			}
			if err == nil { // it was not killed: there are no more steps
				if !strings.Contains(done, "rekeyed") {
					t.Fatal(where)
				}
				break
			}
			steps++
		}
	}
	if steps < 9 {
		t.Error("killed only at", steps, "steps")
	}
}

// TestFullDisk shows that a change that can't be written is not made, and that the next one can be.
func TestFullDisk(t *testing.T) {
	defer failpoint.Reset()
	dir, ctx := t.TempDir(), t.Context()
	v := open(t, dir)
	create(t, v, "a", "old")
	full := func(point string) { failpoint.Enable(point, func() error { return syscall.ENOSPC }) }
	full("vault.write")
	_, err := v.Update(ctx, "", "a", "new", nil)
	wantKind(t, "update", err, carrel.Internal)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	_, err = v.Create(ctx, "", carrel.NewSecret{Name: "b", Value: "new"})
	wantKind(t, "create", err, carrel.Internal)
	wantKind(t, "change the key", v.Rekey(nil), carrel.Internal)
	reveals(t, v, "a", "example.com", "old")
	failpoint.Reset()
	reveals(t, v, "a", "example.com", "old")
	if err := v.Rekey(nil); err != nil { // goes on
		t.Error(err)
	}
	create(t, v, "b", "new")
	if _, err := v.Update(ctx, "", "a", "new", nil); err != nil {
		t.Error(err)
	}
	full("vault.written") // the write was made, but the vault can't be sure
	_, err = v.Create(ctx, "", carrel.NewSecret{Name: "c", Value: "new"})
	wantKind(t, "create", err, carrel.Internal)
	failpoint.Reset()
	create(t, v, "c", "newer")
	v = open(t, dir)
	reveals(t, v, "a", "example.com", "new")
	reveals(t, v, "b", "example.com", "new")
	reveals(t, v, "c", "example.com", "newer")
}

// TestRekey shows that the old key opens nothing after a change of the key.
func TestRekey(t *testing.T) {
	dir := t.TempDir()
	v := open(t, dir)
	s := create(t, v, "a", canary, "example.com")
	old := read(t, filepath.Join(dir, "key"))
	if err := v.Rekey(nil); err != nil {
		t.Fatal(err)
	}
	now := read(t, filepath.Join(dir, "key"))
	if string(now) == string(old) {
		t.Error("the key is the same")
	}
	reveals(t, v, "a", "example.com", canary)
	again := open(t, dir)
	reveals(t, again, "a", "example.com", canary)
	if got, err := again.Get(t.Context(), "", "a"); err != nil || got.Version != s.Version || !got.Updated.Equal(s.Updated) {
		t.Error(got, err)
	}
	write(t, filepath.Join(dir, "key"), old)
	if _, err := vault.Open(dir, vault.Options{}); carrel.KindOf(err) != carrel.Invalid {
		t.Error(err)
	}

	// A key that lies elsewhere is replaced by its owner, at any time.
	elsewhere := filepath.Join(t.TempDir(), "credential")
	named := func(o *vault.Options) { o.KeyFile = elsewhere }
	write(t, elsewhere, old)
	dir = t.TempDir()
	v = open(t, dir, named)
	create(t, v, "a", canary)
	wantKind(t, "no key", v.Rekey(nil), carrel.Invalid)
	wantKind(t, "a bad key", v.Rekey([]byte("x")), carrel.Invalid)
	wantKind(t, "the same key", v.Rekey(old), carrel.Invalid)
	if err := v.Rekey(now); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the old one is still in place
		reveals(t, v, "a", "example.com", canary)
		create(t, v, "b", "b")
		if err := v.Delete(t.Context(), "", "b"); err != nil {
			t.Error(err)
		}
		wantKind(t, "a third key", v.Rekey([]byte(strings.Repeat("k", 32))), carrel.Conflict)
		v = open(t, dir, named)
	}
	write(t, elsewhere, now)
	reveals(t, open(t, dir, named), "a", "example.com", canary)
	if _, err := os.Stat(filepath.Join(dir, "key.next")); err == nil {
		t.Error("the new key still lies beside the secrets")
	}
	write(t, elsewhere, old)
	if _, err := vault.Open(dir, vault.Options{KeyFile: elsewhere}); carrel.KindOf(err) != carrel.Invalid {
		t.Error(err)
	}
}
