package overlay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// rebuild applies edits.
func rebuild(t *testing.T, a, b []string, edits []edit) []string {
	t.Helper()
	var out []string
	i, j := 0, 0
	for _, e := range edits {
		if e.aFrom < i || e.bFrom < j || e.aFrom-i != e.bFrom-j || e.aTo < e.aFrom || e.bTo < e.bFrom {
			t.Fatalf("edit %+v after %d, %d", e, i, j)
		}
		out = append(out, a[i:e.aFrom]...)
		out = append(out, b[e.bFrom:e.bTo]...)
		i, j = e.aTo, e.bTo
	}
	return append(out, a[i:]...)
}

// FuzzCompareLines checks that the edits between any two texts turn one into the other.
func FuzzCompareLines(f *testing.F) {
	f.Add([]byte("a\nb\nc\n"), []byte("a\nc\nd"))
	f.Add([]byte(""), []byte("\n\n"))
	f.Fuzz(func(t *testing.T, x, y []byte) {
		a, b := splitLines(x), splitLines(y)
		if got := rebuild(t, a, b, compareLines(a, b)); !slices.Equal(got, b) {
			t.Errorf("%q", got)
		}
	})
}

func TestCompareLines(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	text := func(n, words int) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = fmt.Sprintf("%d\n", r.IntN(words))
		}
		return out
	}
	for range 300 {
		a := text(r.IntN(400), 1+r.IntN(300))
		b := slices.Clone(a)
		for range r.IntN(200) {
			if at := r.IntN(len(b) + 1); r.IntN(2) == 0 || at == len(b) {
				b = slices.Insert(b, at, text(1, 300)...)
			} else {
				b = slices.Delete(b, at, at+1)
			}
		}
		if got := rebuild(t, a, b, compareLines(a, b)); !slices.Equal(got, b) {
			t.Fatal("edits do not lead there")
		}
	}
	// Scattered changes of a long file must give a small result.
	a := text(20000, 1<<30)
	b := slices.Clone(a)
	for i := 0; i < len(b); i += 50 {
		b[i] = "changed\n"
	}
	if n := len(compareLines(a, b)); n != 400 {
		t.Errorf("%d edits", n)
	}
	// A hostile program's text may take seconds at most: no two lines alike, or all alike.
	start := time.Now()
	for _, words := range []int{1, 2, 1 << 30} {
		x, y := text(100_000, words), text(100_000, words)
		if got := rebuild(t, x, y, compareLines(x, y)); !slices.Equal(got, y) {
			t.Error("edits do not lead there")
		}
	}
	t.Log(time.Since(start))
}

func TestQuotePath(t *testing.T) {
	for in, want := range map[string]string{
		"a/b": "a/b", "ünï": "ünï", "a b": `"a b"`, "a\nb": `"a\nb"`, "\x01": `"\001"`, "\xff": `"\377"`, `"\`: `"\"\\"`, "\u202e": `"\342\200\256"`,
	} {
		if got := quotePath(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestComparePaths(t *testing.T) {
	paths := strings.Fields("a a/b a/b/c a/c a-b a.b ab b")
	got := slices.Clone(paths)
	slices.Reverse(got)
	slices.SortFunc(got, comparePaths)
	if !slices.Equal(got, paths) {
		t.Error(got)
	}
}
