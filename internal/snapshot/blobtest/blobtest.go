// Package blobtest is the conformance suite of [snapshot.Blobs]: an implementation is done when it
// passes.
//
// Besides the contract, it demands this of every implementation:
//
//   - Only the names that [snapshot.CheckBlobName] allows are valid; all others are Invalid.
//   - A range that begins or ends past the end of a blob reads the bytes that there are.
//   - If a reader fails or has too few bytes, or its context ends, Put changes nothing.
//   - If a blob is replaced or deleted while it is read, the reader gets the old content or an
//     error, never a mixture.
//   - The function given to List may call the other methods.
package blobtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// Big is the size of the suite's big blob. If an implementation sends blobs in parts, open it with
// a smaller part size.
const Big = 20 << 20

// Run runs the suite. open returns an empty set of blobs each time; the suite closes
// it.
func Run(t *testing.T, open func(t *testing.T) snapshot.Blobs) {
	for name, test := range map[string]func(*testing.T, snapshot.Blobs){
		"put and get":            putAndGet,
		"empty":                  emptyBlob,
		"big":                    bigBlob,
		"ranges":                 ranges,
		"bad ranges":             badRanges,
		"replace":                replace,
		"not found":              notFound,
		"delete":                 deleteBlobs,
		"delete while reading":   deleteWhileReading,
		"names":                  names,
		"bad names":              badNames,
		"list":                   list,
		"list many":              listMany,
		"list ends early":        listEndsEarly,
		"list and delete":        listAndDelete,
		"modified":               modified,
		"failing reader":         failingReader,
		"short reader":           shortReader,
		"long reader":            longReader,
		"ended context":          endedContext,
		"context ends meanwhile": contextEndsMeanwhile,
		"concurrent puts":        concurrentPuts,
		"replaced while read":    replacedWhileRead,
		"hammer":                 hammer,
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			defer func() {
				if err := b.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			}()
			test(t, b)
		})
	}
}

// Content returns n bytes that do not compress. Each seed gives other bytes.
func Content(seed uint64, n int) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	out := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(out) // never fails
	return out
}

func put(t *testing.T, b snapshot.Blobs, name string, content []byte) {
	t.Helper()
	if err := b.Put(t.Context(), name, bytes.NewReader(content), int64(len(content))); err != nil {
		t.Fatalf("Put(%q): %v", name, err)
	}
}

// read reads a range; length −1 means all the rest.
func read(t *testing.T, b snapshot.Blobs, name string, offset, length int64) []byte {
	t.Helper()
	out, err := tryRead(t.Context(), b, name, offset, length)
	if err != nil {
		t.Fatalf("Get(%q, %d, %d): %v", name, offset, length, err)
	}
	return out
}

func tryRead(ctx context.Context, b snapshot.Blobs, name string, offset, length int64) ([]byte, error) {
	r, err := b.Get(ctx, name, offset, length)
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(r)
	return out, errors.Join(err, r.Close())
}

// wantContent compares contents without printing megabytes.
func wantContent(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes with sum %x, want %d with %x", what, len(got), sha256.Sum256(got), len(want), sha256.Sum256(want))
	}
}

// listed returns the names and sizes that List reports.
func listed(t *testing.T, b snapshot.Blobs, prefix string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	err := b.List(t.Context(), prefix, func(i snapshot.BlobInfo) error {
		if _, twice := out[i.Name]; twice {
			t.Errorf("List(%q) gave %q twice", prefix, i.Name)
		}
		out[i.Name] = i.Size
		return nil
	})
	if err != nil {
		t.Fatalf("List(%q): %v", prefix, err)
	}
	return out
}

func wantNames(t *testing.T, b snapshot.Blobs, prefix string, want ...string) {
	t.Helper()
	got := slices.Sorted(maps.Keys(listed(t, b, prefix)))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("List(%q) = %q, want %q", prefix, got, want)
	}
}

func wantKind(t *testing.T, what string, err error, want carrel.Kind) {
	t.Helper()
	var ce *carrel.Error
	if !errors.As(err, &ce) || carrel.KindOf(err) != want || ce.Op == "" {
		t.Errorf("%s: %v (%s), want %s", what, err, carrel.KindOf(err), want)
	}
}

func putAndGet(t *testing.T, b snapshot.Blobs) {
	for i, n := range []int{1, 2, 511, 4096, 70_001, 1 << 20} {
		name, content := fmt.Sprintf("packs/%d", i), Content(uint64(i), n)
		put(t, b, name, content)
		wantContent(t, name, read(t, b, name, 0, -1), content)
	}
	if got := len(listed(t, b, "")); got != 6 {
		t.Errorf("%d blobs are listed, want 6", got)
	}
}

func emptyBlob(t *testing.T, b snapshot.Blobs) {
	put(t, b, "empty", nil)
	for _, length := range []int64{-1, 0, 1, 100} {
		if got := read(t, b, "empty", 0, length); len(got) != 0 {
			t.Errorf("%d bytes of nothing", len(got))
		}
	}
	if got := listed(t, b, ""); !maps.Equal(got, map[string]int64{"empty": 0}) {
		t.Errorf("List = %v", got)
	}
}

func bigBlob(t *testing.T, b snapshot.Blobs) {
	content := Content(1, Big+12345)
	// A reader that can't seek and has no known length, like one in a pipeline.
	if err := b.Put(t.Context(), "big", io.MultiReader(bytes.NewReader(content)), int64(len(content))); err != nil {
		t.Fatal(err)
	}
	wantContent(t, "all", read(t, b, "big", 0, -1), content)
	wantContent(t, "the middle", read(t, b, "big", Big/2-77, 1<<20), content[Big/2-77:Big/2-77+1<<20])
	wantContent(t, "the end", read(t, b, "big", Big, -1), content[Big:])
	if got := listed(t, b, "")["big"]; got != int64(len(content)) {
		t.Errorf("its size is listed as %d", got)
	}
	half := Content(2, Big/2)
	put(t, b, "big", half)
	wantContent(t, "replaced", read(t, b, "big", 0, -1), half)
}

func ranges(t *testing.T, b snapshot.Blobs) {
	content := Content(3, 1000)
	put(t, b, "r", content)
	for _, c := range []struct{ offset, length, from, to int64 }{
		{0, -1, 0, 1000}, {0, 1000, 0, 1000}, {0, 1, 0, 1}, {0, 0, 0, 0}, {500, 0, 0, 0},
		{1, -1, 1, 1000}, {1, 1, 1, 2}, {999, 1, 999, 1000}, {999, -1, 999, 1000}, {250, 500, 250, 750},
		{0, 5000, 0, 1000}, {900, 101, 900, 1000}, // past the end
		{1000, -1, 0, 0}, {1000, 1, 0, 0}, {5000, -1, 0, 0}, {5000, 10, 0, 0},
	} {
		wantContent(t, fmt.Sprintf("%d+%d", c.offset, c.length), read(t, b, "r", c.offset, c.length), content[c.from:c.to])
	}
}

func badRanges(t *testing.T, b snapshot.Blobs) {
	put(t, b, "r", []byte("abc"))
	for _, c := range [][2]int64{{-1, -1}, {-1, 1}, {0, -2}} {
		_, err := tryRead(t.Context(), b, "r", c[0], c[1])
		wantKind(t, fmt.Sprintf("Get(%d, %d)", c[0], c[1]), err, carrel.Invalid)
	}
	wantKind(t, "Put of −1 bytes", b.Put(t.Context(), "x", bytes.NewReader(nil), -1), carrel.Invalid)
	wantNames(t, b, "", "r")
}

func replace(t *testing.T, b snapshot.Blobs) {
	for i, n := range []int{5000, 100, 0, 9000} {
		content := Content(uint64(i), n)
		put(t, b, "dir/name", content)
		wantContent(t, fmt.Sprint("version ", i), read(t, b, "dir/name", 0, -1), content)
		if got := listed(t, b, ""); !maps.Equal(got, map[string]int64{"dir/name": int64(n)}) {
			t.Errorf("List = %v after version %d", got, i)
		}
	}
}

func notFound(t *testing.T, b snapshot.Blobs) {
	put(t, b, "dir/there", []byte("x"))
	for _, name := range []string{"nowhere", "dir", "dir/not", "dir/there/below", "no/such/dir"} {
		for _, length := range []int64{-1, 0, 10} {
			_, err := tryRead(t.Context(), b, name, 0, length)
			wantKind(t, fmt.Sprintf("Get(%q, 0, %d)", name, length), err, carrel.NotFound)
		}
	}
	wantNames(t, b, "nowhere")
	wantNames(t, b, "no/such/dir/")
}

func deleteBlobs(t *testing.T, b snapshot.Blobs) {
	put(t, b, "a/b/c", []byte("x"))
	put(t, b, "a/b/d", []byte("y"))
	for _, name := range []string{"a/b/c", "a/b/c", "a/b", "a", "nowhere", "no/where"} {
		if err := b.Delete(t.Context(), name); err != nil {
			t.Errorf("Delete(%q): %v", name, err)
		}
	}
	wantNames(t, b, "", "a/b/d")
	_, err := tryRead(t.Context(), b, "a/b/c", 0, -1)
	wantKind(t, "Get after Delete", err, carrel.NotFound)
	put(t, b, "a/b/c", []byte("again"))
	wantContent(t, "put again", read(t, b, "a/b/c", 0, -1), []byte("again"))
}

func modified(t *testing.T, b snapshot.Blobs) {
	before := time.Now()
	put(t, b, "m", []byte("x"))
	err := b.List(t.Context(), "m", func(i snapshot.BlobInfo) error {
		// Servers round to seconds, and clocks differ. The test finds gross errors such as a wrong
		// year.
		if d := i.Modified.Sub(before); d < -time.Hour || d > time.Hour {
			t.Errorf("it was modified %v, put %v", i.Modified, before)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
