package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// unchanged runs a Put that must fail, once on a new name and once on an existing one. The new name
// must stay absent, and the existing blob must keep its content.
func unchanged(t *testing.T, b snapshot.Blobs, size int64, put func(name string) error) {
	t.Helper()
	old := Content(9, 3000)
	if err := b.Put(t.Context(), "d/old", bytes.NewReader(old), int64(len(old))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"d/new", "d/old"} {
		if err := put(name); err == nil {
			t.Errorf("Put(%q) of %d bytes worked", name, size)
		}
	}
	wantNames(t, b, "", "d/old")
	wantContent(t, "the old content", read(t, b, "d/old", 0, -1), old)
}

// sizes are the size of a blob that is sent at once, and of one that is sent in parts.
var sizes = []int64{10_000, Big}

// ends are the offsets at which a blob's reader ends too early. For the big blob there is only one,
// because some stores are slow.
func ends(size int64) []int64 {
	if size == Big {
		return []int64{size - 1}
	}
	return []int64{0, size / 2, size - 1}
}

// failing returns a reader of n bytes that then fails with err.
func failing(n int64, err error) io.Reader {
	return io.MultiReader(bytes.NewReader(Content(4, int(n))), errReader{err})
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

func failingReader(t *testing.T, b snapshot.Blobs) {
	broken := errors.New("the source broke")
	full := &carrel.Error{Op: "pack", Kind: carrel.Exhausted, Err: errors.New("the source is full")}
	for _, size := range sizes {
		for _, at := range ends(size) {
			unchanged(t, b, size, func(name string) error {
				err := b.Put(t.Context(), name, failing(at, broken), size)
				if !errors.Is(err, broken) {
					t.Errorf("Put of a reader that breaks at %d: %v", at, err)
				}
				return err
			})
		}
		unchanged(t, b, size, func(name string) error {
			err := b.Put(t.Context(), name, failing(size/2, full), size)
			wantKind(t, "Put of a reader that is exhausted", err, carrel.Exhausted)
			return err
		})
	}
}

func shortReader(t *testing.T, b snapshot.Blobs) {
	for _, size := range sizes {
		for _, has := range ends(size) {
			unchanged(t, b, size, func(name string) error {
				err := b.Put(t.Context(), name, bytes.NewReader(Content(5, int(has))), size)
				wantKind(t, fmt.Sprintf("Put of %d bytes with %d", size, has), err, carrel.Invalid)
				return err
			})
		}
	}
}

// longReader puts a blob from a reader with more bytes than announced. Only the announced size may
// be stored.
func longReader(t *testing.T, b snapshot.Blobs) {
	for _, size := range sizes {
		content := Content(6, int(size)+100)
		if err := b.Put(t.Context(), "long", bytes.NewReader(content), size); err != nil {
			t.Fatal(err)
		}
		wantContent(t, "long", read(t, b, "long", 0, -1), content[:size])
	}
}

func endedContext(t *testing.T, b snapshot.Blobs) {
	put(t, b, "x", []byte("content"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, getErr := b.Get(ctx, "x", 0, -1)
	for what, err := range map[string]error{
		"Put":    b.Put(ctx, "y", bytes.NewReader([]byte("z")), 1),
		"Get":    getErr,
		"Delete": b.Delete(ctx, "x"),
		"List":   b.List(ctx, "", func(snapshot.BlobInfo) error { return nil }),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with an ended context: %v", what, err)
		}
	}
	wantNames(t, b, "", "x")
}

// cancelling is a reader that cancels a context after n bytes.
type cancelling struct {
	r      io.Reader
	left   int
	cancel context.CancelFunc
}

func (c *cancelling) Read(p []byte) (int, error) {
	if c.left <= 0 {
		c.cancel()
	}
	n, err := c.r.Read(p[:min(len(p), 32<<10)])
	c.left -= n
	return n, err
}

func contextEndsMeanwhile(t *testing.T, b snapshot.Blobs) {
	for _, size := range sizes {
		unchanged(t, b, size, func(name string) error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			// For the small blob the context ends with the first byte.
			err := b.Put(ctx, name, &cancelling{bytes.NewReader(Content(7, int(size))), min(int(size)/2, int(size)-10_000), cancel}, size)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Put of %d bytes whose context ended: %v", size, err)
			}
			return err
		})
	}
}

// concurrentPuts writes one name from many goroutines. In the end the blob must be one of theirs.
func concurrentPuts(t *testing.T, b snapshot.Blobs) {
	for _, n := range []int{3000, Big / 2} {
		writers := 8
		if n > 1<<20 {
			writers = 3
		}
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				content := Content(uint64(w), n+w)
				for range 3 {
					if err := b.Put(t.Context(), "same", bytes.NewReader(content), int64(len(content))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		got := read(t, b, "same", 0, -1)
		if w := len(got) - n; w < 0 || w >= writers || !bytes.Equal(got, Content(uint64(w), n+w)) {
			t.Errorf("%d bytes that nobody wrote", len(got))
		}
		wantNames(t, b, "", "same")
	}
}

func deleteWhileReading(t *testing.T, b snapshot.Blobs) {
	content := Content(8, Big)
	put(t, b, "x", content)
	wholeOrError(t, b, content, func() error { return b.Delete(t.Context(), "x") })
}

func replacedWhileRead(t *testing.T, b snapshot.Blobs) {
	content := Content(10, Big)
	put(t, b, "x", content)
	wholeOrError(t, b, content, func() error {
		other := Content(11, Big)
		return b.Put(t.Context(), "x", bytes.NewReader(other), int64(len(other)))
	})
}

// wholeOrError reads half of x, calls disturb, and reads the rest. The result must be the old
// content or an error.
func wholeOrError(t *testing.T, b snapshot.Blobs, content []byte, disturb func() error) {
	t.Helper()
	r, err := b.Get(t.Context(), "x", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got := make([]byte, len(content)/2)
	if _, err := io.ReadFull(r, got); err != nil {
		t.Fatal(err)
	}
	if err := disturb(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r)
	if err == nil {
		wantContent(t, "read on", append(got, rest...), content)
	} else if k := carrel.KindOf(err); k == carrel.Internal {
		t.Errorf("reading on: %v, want an error of another kind than Internal", err)
	}
}

// hammer puts, reads, lists and deletes a few names from many goroutines. Each content holds its
// own size, so every read can be checked.
func hammer(t *testing.T, b snapshot.Blobs) {
	const workers, rounds, names = 8, 30, 4
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for range rounds {
				name := fmt.Sprintf("h/%d", rng.IntN(names))
				var err error
				switch rng.IntN(5) {
				case 0, 1:
					n := 1 + rng.IntN(40_000)
					err = b.Put(t.Context(), name, bytes.NewReader(Content(uint64(n), n)), int64(n))
				case 2:
					var got []byte
					got, err = tryRead(t.Context(), b, name, 0, -1)
					if err == nil && !bytes.Equal(got, Content(uint64(len(got)), len(got))) {
						t.Errorf("%d bytes that nobody wrote", len(got))
					}
				case 3:
					err = b.List(t.Context(), "h/", func(i snapshot.BlobInfo) error {
						if i.Size < 1 || i.Size > 40_000 {
							t.Errorf("%q is listed with %d bytes", i.Name, i.Size)
						}
						return nil
					})
				case 4:
					err = b.Delete(t.Context(), name)
				}
				if err != nil && !errors.Is(err, carrel.NotFound) && !errors.Is(err, carrel.Conflict) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
