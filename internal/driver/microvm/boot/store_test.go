package boot

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// load returns the modules that a name loads, in their order.
func load(store []byte, name string) (got []string, err error) {
	err = Load(bytes.NewReader(store), int64(len(store)), name, func(module string, data []byte) error {
		if string(data) != "code of "+module {
			panic("wrong bytes")
		}
		got = append(got, module)
		return nil
	})
	return got, err
}

// TestStore asks for modules in the ways of a kernel.
func TestStore(t *testing.T) {
	var modules []Module
	for _, m := range []Module{
		{Name: "bridge", Needs: []string{"stp", "virtio"}, Aliases: []string{"rtnl-link-bridge"}},
		{Name: "stp", Needs: []string{"llc"}},
		{Name: "llc"},
		{Name: "fuse", Aliases: []string{"fs-fuse", "char-major-10-229", "pci:v00001AF4d*"}},
		{Name: "sha_fast", Aliases: []string{"crypto-sha"}},
		{Name: "sha_slow", Aliases: []string{"crypto-sha"}},
		{Name: "one", Needs: []string{"other"}},
		{Name: "other", Needs: []string{"one"}},
	} {
		m.Data = []byte("code of " + m.Name)
		modules = append(modules, m)
	}
	store, err := Pack(modules)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"rtnl-link-bridge": "llc stp bridge", "bridge": "llc stp bridge", "char-major-10-229": "fuse",
		"fs_fuse": "fuse", "crypto-sha": "sha_fast sha_slow", "sha-fast": "sha_fast", "one": "other one",
	} {
		if got, err := load(store, name); err != nil || !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: %v, %v, want %s", name, got, err, want)
		}
	}
	for _, name := range []string{"", "unknown", "index.json", "../init", "pci:v00001AF4d1"} {
		if got, err := load(store, name); err == nil {
			t.Errorf("%q: %v", name, got)
		}
	}
	again, err := Pack(modules)
	if err != nil || !bytes.Equal(store, again) {
		t.Errorf("the same modules give another store: %v", err)
	}
}

// FuzzLoad reads stores that nobody packed.
func FuzzLoad(f *testing.F) {
	store, _ := Pack([]Module{{Name: "llc", Data: []byte("x"), Needs: []string{"llc"}, Aliases: []string{"a"}}})
	f.Add(store, "a")
	f.Add([]byte{}, "")
	f.Fuzz(func(_ *testing.T, store []byte, name string) {
		_ = Load(bytes.NewReader(store), int64(len(store)), name, func(string, []byte) error { return nil })
	})
}
