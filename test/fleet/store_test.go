package fleet

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// brokenStore asks for a paused sandbox of a dead node while the shared store has lost its objects, and
// while they are cut short. Each answer says so, and the sandbox stays on record: afterwards the store is as
// it was.
func (f *fleetOf) brokenStore(id carrel.ID) {
	t, ctx := f.t, f.t.Context()
	t.Helper()
	testenv.EventuallyNil(t, "the lease of its node has expired", func() error {
		if n := f.stateOf("node-0"); n.State != carrel.NodeLost {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
	store := filepath.Join(f.dir, "store")
	whole := map[string][]byte{}
	err := filepath.WalkDir(store, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		whole[name], err = os.ReadFile(name)
		return err
	})
	if err != nil || len(whole) == 0 {
		t.Fatalf("%d objects in the store: %v", len(whole), err)
	}
	for what, spoil := range map[string]func(name string, raw []byte) error{
		"lost":      func(name string, _ []byte) error { return os.Remove(name) },
		"cut short": func(name string, raw []byte) error { return os.WriteFile(name, raw[:len(raw)/2], 0o600) },
	} {
		for name, raw := range whole {
			if err := spoil(name, raw); err != nil {
				t.Fatal(err)
			}
		}
		_, _, err := f.Resume(ctx, id, carrel.ResumeOptions{})
		if kind := carrel.KindOf(err); err == nil || kind == carrel.NotFound || carrel.HintOf(err) == "" {
			t.Errorf("objects that are %s: %v (%s), want an error with a hint, and not that it is gone", what, err, kind)
		}
		t.Logf("objects that are %s: %v; hint: %s", what, err, carrel.HintOf(err))
		if out := f.server.Exec(t, f.database(), "SELECT passport IS NOT NULL FROM carrel.homes WHERE sandbox = '"+string(id)+"'::bytea"); strings.TrimSpace(out) != "t" {
			t.Errorf("objects that are %s: its record is %q", what, out)
		}
		for name, raw := range whole {
			if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}
