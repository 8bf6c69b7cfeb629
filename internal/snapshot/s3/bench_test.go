package s3_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/carrel-dev/carrel/internal/snapshot/blobtest"
	"github.com/carrel-dev/carrel/internal/snapshot/s3"
	"github.com/carrel-dev/carrel/internal/snapshot/s3/s3test"
)

// BenchmarkBlobs measures sending one 64 MiB blob to a server on the loopback, and reading it back.
func BenchmarkBlobs(b *testing.B) {
	server := s3test.Start(b)
	loc, err := s3.ParseLocation(server.URL(server.Bucket(b), "p"))
	if err != nil {
		b.Fatal(err)
	}
	blobs, err := s3.Open(b.Context(), loc, s3.Options{AccessKey: server.AccessKey, SecretKey: server.SecretKey})
	if err != nil {
		b.Fatal(err)
	}
	defer blobs.Close()
	content := blobtest.Content(1, 64<<20)
	put := func() {
		if err := blobs.Put(b.Context(), "x", bytes.NewReader(content), int64(len(content))); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("put", func(b *testing.B) {
		b.SetBytes(int64(len(content)))
		for b.Loop() {
			put()
		}
	})
	put()
	b.Run("get", func(b *testing.B) {
		b.SetBytes(int64(len(content)))
		for b.Loop() {
			r, err := blobs.Get(b.Context(), "x", 0, -1)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, r); err != nil {
				b.Fatal(err)
			}
			if err := r.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
