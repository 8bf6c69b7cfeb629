package filler_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/carrel-dev/carrel/internal/image/archive"
	"github.com/carrel-dev/carrel/internal/image/filler"
	"github.com/carrel-dev/carrel/internal/image/stargz"
	"github.com/carrel-dev/carrel/internal/testenv"
)

const (
	pieces    = 20
	pieceSize = 8192
	first     = 4096 // the image's first block
)

// layer is a layer in memory, of chunks that do not compress.
type layer struct {
	packed []byte
	image  []byte // what the whole image has
	plan   *filler.Plan
}

func makeLayer(t *testing.T) *layer {
	t.Helper()
	l := &layer{image: bytes.Repeat([]byte{1}, first)}
	var late archive.Late
	random := rand.NewChaCha8([32]byte{3})
	for i := range pieces {
		content := make([]byte, pieceSize)
		_, _ = random.Read(content)
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		late.Pieces = append(late.Pieces, archive.LatePiece{Place: int64(len(l.image)),
			Chunk: stargz.Chunk{Offset: int64(len(l.packed)), Packed: int64(b.Len()),
				At: int64(i) * pieceSize, Size: pieceSize, Digest: sha256.Sum256(content)}})
		l.packed, l.image = append(l.packed, b.Bytes()...), append(l.image, content...)
	}
	late.Size, late.First = int64(len(l.image)), l.image[:first:first]
	l.plan = &filler.Plan{Layers: []v1.Hash{{Algorithm: "sha256"}}, Late: late}
	return l
}

// Open implements filler.Layers.
func (l *layer) Open(_ context.Context, _ v1.Hash, off, n int64, _ int) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(l.packed[off : off+n])), nil
}

// begin returns a fill of an empty file, whose reads wait for at most a time.
func (l *layer) begin(t *testing.T, most time.Duration,
	chunk func(context.Context, v1.Hash, stargz.Chunk) ([]byte, error)) *filler.Fill {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err == nil {
		err = file.Truncate(int64(len(l.image)))
	}
	if err != nil {
		t.Fatal(err)
	}
	f := filler.New(l.plan, file, filler.Source{Chunk: chunk, Background: l, ReadTime: most}, false)
	t.Cleanup(func() { f.Close(); _ = file.Close() })
	return f
}

// never is a fetch that gets nothing: the registry drips.
func never(ctx context.Context, _ v1.Hash, _ stargz.Chunk) ([]byte, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// TestReadsDoNotStarve reads without a pause, while no fetch for a read ends. Each read ends in
// bounded time, and the background brings the image nevertheless.
func TestReadsDoNotStarve(t *testing.T) {
	l := makeLayer(t)
	const most = 600 * time.Millisecond
	f := l.begin(t, most, never)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var longest atomic.Int64
	for range 4 {
		wg.Go(func() {
			b := make([]byte, pieceSize)
			for ctx.Err() == nil {
				start := time.Now()
				_, err := f.ReadAt(b, int64(len(l.image)-pieceSize)) // the last piece
				if took := int64(time.Since(start)); took > longest.Load() {
					longest.Store(took)
				}
				if err == nil {
					if !bytes.Equal(b, l.image[len(l.image)-pieceSize:]) {
						t.Error("wrong bytes")
					}
					return
				}
			}
		})
	}
	testenv.Eventually(t, "somebody waits", func() bool { return f.Missing() > 0 && !f.Ready(first, pieceSize) })
	if err := f.Run(ctx); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if got := time.Duration(longest.Load()); got > 20*most {
		t.Errorf("a read took %v", got)
	}
}

// TestBackgroundServesReads waits for a piece that only the background gets: the read ends when it
// comes, not when its own fetch fails.
func TestBackgroundServesReads(t *testing.T) {
	l := makeLayer(t)
	asked := make(chan struct{})
	f := l.begin(t, 6*time.Second, func(ctx context.Context, h v1.Hash, c stargz.Chunk) ([]byte, error) {
		close(asked)
		return never(ctx, h, c)
	})
	done := make(chan error, 1)
	b := make([]byte, 100)
	go func() {
		_, err := f.ReadAt(b, first)
		done <- err
	}()
	<-asked
	start := time.Now()
	if err := f.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || !bytes.Equal(b, l.image[first:first+100]) {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}

// TestReadsEnd reads what nobody brings.
func TestReadsEnd(t *testing.T) {
	l := makeLayer(t)
	f := l.begin(t, 100*time.Millisecond, never)
	start := time.Now()
	_, err := f.ReadAt(make([]byte, len(l.image)), 0)
	if err == nil || time.Since(start) > 20*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
	refused := errors.New("no")
	f = l.begin(t, time.Hour, func(context.Context, v1.Hash, stargz.Chunk) ([]byte, error) {
		return nil, refused
	})
	if _, err := f.ReadAt(make([]byte, 10), first+5); !errors.Is(err, refused) {
		t.Error(err)
	}
}
