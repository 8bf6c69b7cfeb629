package blobtest

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// names are odd, but legal.
func names(t *testing.T, b snapshot.Blobs) {
	all := []string{
		"a", "A", "0", "-", "_", ".a", "a.", "...", "a..b", "-rf", "a-b_c.d", "tmp", "con", "x/.y/z", "x/-/_", "x/Y", "x/y",
		"put-123", ".sync", strings.Repeat("n", 200), "p/" + strings.Repeat("n", 200), strings.Repeat("d/", 100) + "deep",
		strings.Repeat("long", 49) + "/" + strings.Repeat("long", 49) + "/end",
	}
	for i, name := range all {
		put(t, b, name, Content(uint64(i), 10+i))
	}
	for i, name := range all {
		wantContent(t, name, read(t, b, name, 0, -1), Content(uint64(i), 10+i))
	}
	wantNames(t, b, "", all...)
	for _, name := range all {
		if err := b.Delete(t.Context(), name); err != nil {
			t.Errorf("Delete(%q): %v", name, err)
		}
	}
	wantNames(t, b, "")
}

func badNames(t *testing.T, b snapshot.Blobs) {
	for _, name := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b", "./a", "a/.", "/etc/passwd", "../../../../tmp/x",
		"a b", "a\x00b", "a\nb", "ä", "a%2e", "tmp~", "tmp~/x", "a\\b", "a:b", "a*", "a?b=c", "a#b", "a+b", "\xff",
		strings.Repeat("n", 201), strings.Repeat("d/", 300) + "x",
	} {
		wantKind(t, fmt.Sprintf("Put(%.20q)", name), b.Put(t.Context(), name, strings.NewReader("x"), 1), carrel.Invalid)
		_, err := b.Get(t.Context(), name, 0, -1)
		wantKind(t, fmt.Sprintf("Get(%.20q)", name), err, carrel.Invalid)
		wantKind(t, fmt.Sprintf("Delete(%.20q)", name), b.Delete(t.Context(), name), carrel.Invalid)
	}
	for _, prefix := range []string{"tmp~", "a b", "*", "a\x00"} {
		err := b.List(t.Context(), prefix, func(snapshot.BlobInfo) error { return nil })
		wantKind(t, fmt.Sprintf("List(%q)", prefix), err, carrel.Invalid)
	}
	for _, prefix := range []string{"/", "..", "../", "./", "a//"} {
		wantNames(t, b, prefix) // a legal beginning of no name
	}
	wantNames(t, b, "")
}

func list(t *testing.T, b snapshot.Blobs) {
	wantNames(t, b, "")
	for _, name := range []string{"manifests/a", "manifests/ab", "packs/00/x", "packs/01/y", "packs/01/z", "packs-old", "p"} {
		put(t, b, name, []byte(name))
	}
	wantNames(t, b, "", "manifests/a", "manifests/ab", "packs/00/x", "packs/01/y", "packs/01/z", "packs-old", "p")
	wantNames(t, b, "packs/", "packs/00/x", "packs/01/y", "packs/01/z")
	wantNames(t, b, "packs", "packs/00/x", "packs/01/y", "packs/01/z", "packs-old")
	wantNames(t, b, "packs/0", "packs/00/x", "packs/01/y", "packs/01/z")
	wantNames(t, b, "packs/01", "packs/01/y", "packs/01/z")
	wantNames(t, b, "packs/01/z", "packs/01/z")
	wantNames(t, b, "packs/01/zz")
	wantNames(t, b, "manifests/a", "manifests/a", "manifests/ab")
	wantNames(t, b, "manifests/a/")
	wantNames(t, b, "P")
	for name, size := range listed(t, b, "") {
		if size != int64(len(name)) {
			t.Errorf("%q is listed with %d bytes", name, size)
		}
	}
}

// listMany lists more blobs than fit into one page of any object store.
func listMany(t *testing.T, b snapshot.Blobs) {
	const many, others = 1500, 20
	var wg sync.WaitGroup
	for w := range 10 {
		wg.Go(func() {
			for i := w; i < many; i += 10 {
				name := fmt.Sprintf("many/%02x/%04d", i%7, i)
				if err := b.Put(t.Context(), name, strings.NewReader(name), int64(len(name))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for i := range others {
		put(t, b, fmt.Sprintf("other/%d", i), nil)
	}
	if got := len(listed(t, b, "many/")); got != many {
		t.Errorf("%d blobs are listed, want %d", got, many)
	}
	if got := len(listed(t, b, "")); got != many+others {
		t.Errorf("%d blobs are listed, want %d", got, many+others)
	}
	if got, want := len(listed(t, b, "many/03/")), many/7+1; got != want-1 && got != want {
		t.Errorf("%d blobs are listed in one directory, want %d", got, want)
	}
}

func listEndsEarly(t *testing.T, b snapshot.Blobs) {
	for i := range 10 {
		put(t, b, fmt.Sprint("n", i), nil)
	}
	enough, calls := errors.New("enough"), 0
	err := b.List(t.Context(), "", func(snapshot.BlobInfo) error {
		if calls++; calls == 3 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || calls != 3 {
		t.Errorf("List = %v after %d calls, want the function's own error after 3", err, calls)
	}
}

// listAndDelete deletes from within List, as a collector does.
func listAndDelete(t *testing.T, b snapshot.Blobs) {
	for i := range 50 {
		put(t, b, fmt.Sprintf("x/%d/%d", i%3, i), []byte("content"))
	}
	put(t, b, "y", nil)
	seen := 0
	err := b.List(t.Context(), "x/", func(i snapshot.BlobInfo) error {
		seen++
		r, err := b.Get(t.Context(), i.Name, 0, -1)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			return err
		}
		if err := r.Close(); err != nil {
			return err
		}
		return b.Delete(t.Context(), i.Name)
	})
	if err != nil || seen != 50 {
		t.Errorf("%d blobs of 50, %v", seen, err)
	}
	wantNames(t, b, "", "y")
}
