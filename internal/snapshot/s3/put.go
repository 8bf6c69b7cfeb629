package s3

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"

	"github.com/carrel-dev/carrel"
)

const (
	maxParts = 10_000 // of one upload, by S3's rules
	inFlight = 3      // parts in memory and being sent at a time
)

// Put implements snapshot.Blobs. A reader with fewer than size bytes is Invalid. Put does not read
// more than size bytes. It holds at most three parts in memory.
func (b *Blobs) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	const op = "write blob"
	if err := b.check(ctx, op, name); err != nil {
		return err
	}
	if size < 0 {
		return invalid(op, "size", "%s: %d bytes", name, size)
	}
	put := b.putParts
	if size <= b.opts.PartSize {
		put = b.putWhole
	}
	if err := put(ctx, b.key(name), r, size); err != nil {
		return b.failed(ctx, op, name, err)
	}
	return nil
}

// putWhole sends a blob in one request.
func (b *Blobs) putWhole(ctx context.Context, key string, r io.Reader, size int64) error {
	buf := make([]byte, size)
	if err := fill(ctx, r, buf, 0, size); err != nil {
		return err
	}
	md5Sum, sha256Sum := sums(buf)
	return again(ctx, func() error {
		_, err := b.core.PutObject(ctx, b.loc.Bucket, key, bytes.NewReader(buf), size, md5Sum, sha256Sum, minio.PutObjectOptions{
			ContentType: "application/octet-stream", SendContentMd5: true,
		})
		return err
	})
}

// again repeats a request that the server answered with 409: it lost a race inside the server. S3
// sends a 409 when two requests of the same name meet. versitygw keeps a prefix as a directory. It
// sends a 409 when it deletes that directory, with the prefix's last blob, while a new blob is put
// there.
func again(ctx context.Context, try func() error) error {
	for pause := 2 * time.Millisecond; ; pause *= 2 {
		err := try()
		if minio.ToErrorResponse(err).StatusCode != http.StatusConflict || pause > 256*time.Millisecond {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// sums are the two checksums of a request. Each server compares one of them.
func sums(p []byte) (md5Base64, sha256Hex string) {
	m, s := md5.Sum(p), sha256.Sum256(p)
	return base64.StdEncoding.EncodeToString(m[:]), hex.EncodeToString(s[:])
}

// fill reads the next part of a blob. A reader that ends too early is Invalid.
func fill(ctx context.Context, r io.Reader, buf []byte, before, size int64) error {
	n := 0
	for n < len(buf) {
		if err := ctx.Err(); err != nil {
			return err
		}
		m, err := r.Read(buf[n:])
		n += m
		switch {
		case n == len(buf):
		case errors.Is(err, io.EOF):
			return &carrel.Error{Kind: carrel.Invalid, Field: "size", Err: fmt.Errorf("%d bytes were announced and %d came", size, before+int64(n))}
		case err != nil:
			return err
		}
	}
	return ctx.Err()
}

// putParts sends a blob in parts. When something fails it removes them.
func (b *Blobs) putParts(ctx context.Context, key string, r io.Reader, size int64) error {
	opts := minio.PutObjectOptions{ContentType: "application/octet-stream"}
	id, err := b.core.NewMultipartUpload(ctx, b.loc.Bucket, key, opts)
	if err != nil {
		return err
	}
	parts, err := b.sendParts(ctx, key, id, r, size)
	if err == nil {
		err = b.complete(ctx, key, id, parts, size)
	}
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.opts.Timeout)
		defer cancel()
		b.throwAway(undo, key, id)
	}
	return err
}

// throwAway aborts an upload. Parts whose sending was cancelled may still arrive and bring the
// upload back. So throwAway checks again for a moment, as S3's documentation advises. If that fails
// too, the first Open more than a day later does it: abortStale.
func (b *Blobs) throwAway(ctx context.Context, key, id string) {
	for pause := 10 * time.Millisecond; pause < 200*time.Millisecond; pause *= 2 {
		_ = b.core.AbortMultipartUpload(ctx, b.loc.Bucket, key, id)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if _, err := b.core.ListObjectParts(ctx, b.loc.Bucket, key, id, 0, 1); err != nil {
			return // there is no such upload
		}
	}
}

// sendParts reads and sends all parts of an upload, a few at a time.
func (b *Blobs) sendParts(ctx context.Context, key, id string, r io.Reader, size int64) ([]minio.CompletePart, error) {
	partSize := max(b.opts.PartSize, (size+maxParts-1)/maxParts)
	parts := make([]minio.CompletePart, (size+partSize-1)/partSize)
	free := make(chan []byte, inFlight)
	for range min(inFlight, len(parts)) {
		free <- make([]byte, partSize)
	}
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	g, gctx := errgroup.WithContext(stop)
	var readErr error
	for i := range parts {
		var buf []byte
		select {
		case buf = <-free:
		case <-gctx.Done():
		}
		if buf == nil {
			break
		}
		before := int64(i) * partSize
		part := buf[:min(partSize, size-before)]
		if readErr = fill(gctx, r, part, before, size); readErr != nil {
			break
		}
		g.Go(func() error {
			defer func() { free <- buf }()
			sent, err := b.sendPart(gctx, key, id, i+1, part)
			parts[i] = sent
			return err
		})
	}
	// When the source fails, the parts on their way are useless. Still wait for them: a server may
	// accept a cancelled part after the upload was aborted.
	sourceFailed := readErr != nil && gctx.Err() == nil
	// A failed part ended gctx, and so the reading. Return the part's error.
	if err := g.Wait(); err != nil && !sourceFailed {
		return nil, err
	}
	if readErr == nil {
		readErr = ctx.Err()
	}
	return parts, readErr
}

// sendPart sends one part.
func (b *Blobs) sendPart(ctx context.Context, key, id string, number int, part []byte) (minio.CompletePart, error) {
	md5Sum, sha256Sum := sums(part)
	p, err := b.core.PutObjectPart(ctx, b.loc.Bucket, key, id, number, bytes.NewReader(part), int64(len(part)),
		minio.PutObjectPartOptions{Md5Base64: md5Sum, Sha256Hex: sha256Sum})
	if err != nil {
		return minio.CompletePart{}, err
	}
	return minio.CompletePart{PartNumber: number, ETag: p.ETag}, nil
}

// complete makes the blob appear and checks that all of it is there.
func (b *Blobs) complete(ctx context.Context, key, id string, parts []minio.CompletePart, size int64) error {
	var done minio.UploadInfo
	completeErr := again(ctx, func() (err error) {
		done, err = b.core.CompleteMultipartUpload(ctx, b.loc.Bucket, key, id, parts, minio.PutObjectOptions{})
		return err
	})
	if completeErr != nil && minio.ToErrorResponse(completeErr).Code != "NoSuchUpload" {
		return completeErr
	}
	// A second try gets NoSuchUpload, too, if the first one worked and its answer got lost.
	got, err := b.core.StatObject(ctx, b.loc.Bucket, key, minio.StatObjectOptions{})
	switch {
	case completeErr != nil && (err != nil || got.ETag != partsETag(parts)):
		return completeErr
	case err != nil:
		return err
	case got.ETag == done.ETag && got.Size != size: // another tag means that another Put replaced it
		return fmt.Errorf("%d bytes were sent and the server has %d", size, got.Size)
	}
	return nil
}

// partsETag is the tag that servers give to an object sent in parts: a sum of sums.
func partsETag(parts []minio.CompletePart) string {
	h := md5.New()
	for _, p := range parts {
		sum, err := hex.DecodeString(p.ETag)
		if err != nil {
			return "" // the server's tags have another form
		}
		h.Write(sum)
	}
	return fmt.Sprintf("%x-%d", h.Sum(nil), len(parts))
}
