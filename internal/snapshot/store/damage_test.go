package store_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/snapshot/store"
)

// hotFile is the path of a file in a hot copy.
func hotFile(opts store.Options, id carrel.SnapshotID, parts ...string) string {
	return filepath.Join(append([]string{opts.Dir, "hot", string(id)}, parts...)...)
}

func flip(b []byte, at int) []byte { b[at] ^= 0x40; return b }

func rewriteFile(t *testing.T, name string, fn func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(name)
	ok(t, err)
	ok(t, os.Chmod(name, 0o600))
	ok(t, os.WriteFile(name, fn(b), 0o600))
}

// TestDamagedHotCopy damages hot copies in each possible way. The error must name the file and the
// place. If the snapshot is packed, the store must unpack it again.
func TestDamagedHotCopy(t *testing.T) {
	c := content{"pages.img": random(1, 9<<20), "state": random(2, 5000)}
	for name, tc := range map[string]struct {
		damage func(t *testing.T, opts store.Options, id carrel.SnapshotID)
		want   string
	}{
		"flipped bit": {func(t *testing.T, o store.Options, id carrel.SnapshotID) {
			rewriteFile(t, hotFile(o, id, "files", "pages.img"), func(b []byte) []byte { return flip(b, 5<<20) })
		}, `file "pages.img" is damaged between bytes 4194304 and 8388608`},
		"cut off": {func(t *testing.T, o store.Options, id carrel.SnapshotID) {
			ok(t, os.Truncate(hotFile(o, id, "files", "pages.img"), 100))
		}, `file "pages.img" has 100 bytes instead of 9437184`},
		"missing file": {func(t *testing.T, o store.Options, id carrel.SnapshotID) {
			ok(t, os.Remove(hotFile(o, id, "files", "state")))
		}, `file "state" is missing`},
		"manifest not JSON": {func(t *testing.T, o store.Options, id carrel.SnapshotID) {
			rewriteFile(t, hotFile(o, id, "manifest.json"), func(b []byte) []byte { return b[:len(b)/2] })
		}, "not JSON"},
		"manifest of another": {func(t *testing.T, o store.Options, id carrel.SnapshotID) {
			rewriteFile(t, hotFile(o, id, "manifest.json"), func(b []byte) []byte {
				return bytes.Replace(b, []byte(id), []byte(carrel.NewSnapshotID()), 1)
			})
		}, "another snapshot"},
		"future": {func(t *testing.T, o store.Options, id carrel.SnapshotID) {
			rewriteFile(t, hotFile(o, id, "manifest.json"), func(b []byte) []byte {
				return bytes.Replace(b, []byte(`"version":1`), []byte(`"version":7`), 1)
			})
		}, "version 7, from a newer carrel"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, opts := fresh(t)
			id := mustTake(t, s, c)
			tc.damage(t, opts, id)
			_, err := read(s, id)
			wantKind(t, err, carrel.Invalid)
			if !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), string(id)) {
				t.Fatalf("got %q, want %q and the snapshot", err, tc.want)
			}
			// A damaged copy must not be packed as if it were whole, and Flush must not wait for it
			// for ever.
			ok(t, s.Flush(t.Context()))
			if st, err := s.Stat(t.Context(), id); err != nil || st.Packed {
				t.Fatalf("a damaged snapshot was packed: %+v %v", st, err)
			}
			ok(t, s.Delete(t.Context(), id))
		})
		t.Run(name+", packed", func(t *testing.T) {
			s, _, opts := fresh(t)
			id := mustTake(t, s, c)
			ok(t, s.Flush(t.Context()))
			mustRead(t, s, id, c) // hot again
			tc.damage(t, opts, id)
			held, err := s.Open(t.Context(), id) // another user of the damaged copy
			if err == nil {
				defer held.Close()
			}
			_, err = read(s, id)
			if err != nil {
				wantKind(t, err, carrel.Unavailable)
				if !errors.Is(err, snapshot.ErrReplaced) || strings.Contains(carrel.HintOf(err), "delete") {
					t.Fatalf("%v, hint %q", err, carrel.HintOf(err))
				}
			}
			mustRead(t, s, id, c) // from its packs
			if held != nil {
				ok(t, held.Verify(t.Context()))
			}
		})
	}
}

// TestDamagedBlobs damages packs. Each error must name the snapshot, the file and the chunk.
func TestDamagedBlobs(t *testing.T) {
	c := content{"pages.img": random(1, 1<<20)}
	for name, tc := range map[string]struct {
		change func([]byte) []byte
		want   string
	}{
		"flipped bit": {func(b []byte) []byte { return flip(b, len(b)/2) }, "SHA-256"},
		"cut off":     {func(b []byte) []byte { return b[:len(b)/3] }, "cut off"},
		"missing":     {func([]byte) []byte { return nil }, "content is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			s, m, _ := fresh(t)
			id := mustTake(t, s, c)
			ok(t, s.Flush(t.Context()))
			m.change(m.names("packs/")[0], tc.change)
			_, err := read(s, id)
			wantKind(t, err, carrel.Invalid)
			for _, part := range []string{tc.want, string(id), `file "pages.img"`, "chunk "} {
				if !strings.Contains(err.Error(), part) {
					t.Fatalf("%q does not say %q", err, part)
				}
			}
		})
	}
}

// reseal writes the right checksum under a changed packed manifest. It is then not damaged but
// foreign.
func reseal(b []byte) []byte {
	b = b[:len(b)-sha256.Size]
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// editHead changes a packed manifest's head.
func editHead(t testing.TB, b []byte, fn func(map[string]any)) []byte {
	t.Helper()
	magic := bytes.IndexByte(b, '\n') + 1
	n := int(binary.BigEndian.Uint32(b[magic:]))
	head := map[string]any{}
	ok(t, json.Unmarshal(b[magic+4:magic+4+n], &head))
	fn(head)
	text, err := json.Marshal(head)
	ok(t, err)
	out := append([]byte{}, b[:magic]...)
	out = binary.BigEndian.AppendUint32(out, uint32(len(text)))
	out = append(out, text...)
	return reseal(append(out, b[magic+4+n:]...))
}

// TestForeignManifests checks that the store refuses packed manifests that another program made up.
func TestForeignManifests(t *testing.T) {
	file := func(h map[string]any) map[string]any {
		return h["manifest"].(map[string]any)["files"].([]any)[0].(map[string]any)
	}
	type edit = func(map[string]any)
	cases := map[string]edit{
		"file name with a slash":  func(h map[string]any) { file(h)["name"] = "../../etc/passwd" },
		"file name dot dot":       func(h map[string]any) { file(h)["name"] = ".." },
		"file name empty":         func(h map[string]any) { file(h)["name"] = "" },
		"two files of one name":   func(h map[string]any) { file(h)["name"] = "state" },
		"size does not add up":    func(h map[string]any) { h["manifest"].(map[string]any)["size"] = 7 },
		"huge file":               func(h map[string]any) { file(h)["size"] = 1 << 62 },
		"negative file":           func(h map[string]any) { file(h)["size"] = -4096 },
		"size not a number":       func(h map[string]any) { file(h)["size"] = "big" },
		"checksum of other form":  func(h map[string]any) { file(h)["sum"] = "md5:1234" },
		"checksum too short":      func(h map[string]any) { file(h)["sum"] = "xxh64/4m:AAAA" },
		"another snapshot":        func(h map[string]any) { h["manifest"].(map[string]any)["id"] = "s00000000000000000000" },
		"future":                  func(h map[string]any) { h["version"] = 99 },
		"no version":              func(h map[string]any) { delete(h, "version") },
		"too many chunks":         func(h map[string]any) { h["chunks"] = 1 << 40 },
		"too few chunks":          func(h map[string]any) { h["chunks"] = 1 },
		"negative chunks":         func(h map[string]any) { h["chunks"] = -1 },
		"pack with a slash":       func(h map[string]any) { h["packs"].([]any)[0].(map[string]any)["name"] = "../manifests/x" },
		"pack too small":          func(h map[string]any) { h["packs"].([]any)[0].(map[string]any)["size"] = 5 },
		"pack of impossible size": func(h map[string]any) { h["packs"].([]any)[0].(map[string]any)["size"] = 1 << 50 },
		"no packs":                func(h map[string]any) { h["packs"] = nil },
		"negative added":          func(h map[string]any) { h["added"] = -1 },
	}
	s, m, _ := fresh(t)
	id := mustTake(t, s, content{"pages.img": random(1, 1<<20), "state": random(2, 30_000)})
	ok(t, s.Flush(t.Context()))
	blob := "manifests/" + string(id)
	var whole []byte
	m.change(blob, func(b []byte) []byte { whole = b; return b })
	try := func(t *testing.T, b []byte) {
		t.Helper()
		m.change(blob, func([]byte) []byte { return bytes.Clone(b) })
		other := open(t, store.Options{Dir: t.TempDir(), Blobs: m, Shared: true, Manual: true, Reserve: -1})
		_, err := other.Open(t.Context(), id)
		wantKind(t, err, carrel.Invalid)
		_, err = other.Get(t.Context(), id)
		wantKind(t, err, carrel.Invalid)
		// A GC must not delete packs when it can't read every manifest.
		before := len(m.names("packs/"))
		_, err = other.GC(t.Context())
		wantKind(t, err, carrel.Invalid)
		if len(m.names("packs/")) != before {
			t.Fatal("packs were deleted")
		}
	}
	for name, fn := range cases {
		t.Run(name, func(t *testing.T) { try(t, editHead(t, whole, fn)) })
	}
	t.Run("empty", func(t *testing.T) { try(t, []byte{}) })
	t.Run("cut off", func(t *testing.T) { try(t, whole[:len(whole)-10]) })
	t.Run("flipped bit", func(t *testing.T) { try(t, flip(bytes.Clone(whole), len(whole)-50)) })
	t.Run("body cut off", func(t *testing.T) { try(t, reseal(append(bytes.Clone(whole[:len(whole)-40]), make([]byte, 32)...))) })
	t.Run("rest after body", func(t *testing.T) { try(t, reseal(append(bytes.Clone(whole), 1, 2, 3))) })
	t.Run("head longer than all", func(t *testing.T) {
		b := bytes.Clone(whole)
		binary.BigEndian.PutUint32(b[bytes.IndexByte(b, '\n')+1:], 1<<31)
		try(t, reseal(b))
	})
}

// TestBadIDs checks that the store refuses IDs that could lead out of it.
func TestBadIDs(t *testing.T) {
	s, _, _ := fresh(t)
	for _, id := range []carrel.SnapshotID{"", "..", "../../etc", "s0000", "S00000000000000000000", "s0000000000000000000/", "i00000000000000000000"} {
		_, err := s.Begin(t.Context(), id)
		wantKind(t, err, carrel.Invalid)
		_, err = s.Open(t.Context(), id)
		wantKind(t, err, carrel.Invalid)
		_, err = s.Get(t.Context(), id)
		wantKind(t, err, carrel.Invalid)
		wantKind(t, s.Delete(t.Context(), id), carrel.Invalid)
	}
}

// TestBadDrafts checks that the store refuses drafts with files that a driver must not leave there.
func TestBadDrafts(t *testing.T) {
	s, _, opts := fresh(t)
	for name, spoil := range map[string]func(dir string) error{
		"directory": func(dir string) error { return os.Mkdir(filepath.Join(dir, "sub"), 0o700) },
		"symlink":   func(dir string) error { return os.Symlink("/etc/passwd", filepath.Join(dir, "pages.img")) },
		"hidden":    func(dir string) error { return os.WriteFile(filepath.Join(dir, ".x"), nil, 0o600) },
		"odd name":  func(dir string) error { return os.WriteFile(filepath.Join(dir, "a b"), nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			id := carrel.NewSnapshotID()
			d, err := s.Begin(t.Context(), id)
			ok(t, err)
			ok(t, spoil(d.Dir()))
			_, err = d.Commit(t.Context(), manifestOf(id))
			wantKind(t, err, carrel.Invalid)
			_, err = s.Begin(t.Context(), id)
			wantKind(t, err, carrel.AlreadyExists)
			ok(t, d.Discard())
			ok(t, d.Discard())
			_, err = s.Get(t.Context(), id)
			wantKind(t, err, carrel.NotFound)
		})
	}
	if left, err := os.ReadDir(filepath.Join(opts.Dir, "drafts")); err != nil || len(left) > 0 {
		t.Fatalf("left: %v %v", left, err)
	}
	id := mustTake(t, s, content{"a": nil})
	_, err := s.Begin(t.Context(), id)
	wantKind(t, err, carrel.AlreadyExists)
	_, err = store.Open(t.Context(), opts)
	wantKind(t, err, carrel.Conflict)
	if !strings.Contains(fmt.Sprint(err), opts.Dir) {
		t.Fatalf("%v does not name the directory", err)
	}
}
