package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/carrel-dev/carrel"
)

// Get implements snapshot.Blobs. A range past the end of the blob reads only to the end. ctx bounds
// the reading, too. If an object is replaced while it is read, the reader returns the old content
// or Conflict, never a mixture.
func (b *Blobs) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	const op = "read blob"
	if err := b.check(ctx, op, name); err != nil {
		return nil, err
	}
	if offset < 0 || length < -1 {
		return nil, invalid(op, "range", "%s: %d bytes from %d on", name, length, offset)
	}
	if length == 0 { // which no range can say
		if _, err := b.core.StatObject(ctx, b.loc.Bucket, b.key(name), minio.StatObjectOptions{}); err != nil {
			return nil, b.failed(ctx, op, name, err)
		}
		return http.NoBody, nil
	}
	r := &reader{ctx: ctx, b: b, name: name, next: offset, end: -1}
	if length > 0 {
		r.end = offset + length
	}
	err := r.open()
	if minio.ToErrorResponse(err).StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return http.NoBody, nil // it begins past the end
	}
	if err != nil {
		return nil, b.failed(ctx, op, name, err)
	}
	return r, nil
}

// reader reads an object. When a connection breaks it continues from the same offset.
type reader struct {
	ctx  context.Context // of the Get: a reader is a part of that call
	b    *Blobs
	name string

	body  io.ReadCloser
	etag  string // of the object, once known
	next  int64  // the offset to be read next
	end   int64  // the offset after the last byte; −1 before the first answer
	tries int    // broken connections since the last byte
	err   error
}

// open requests the rest of the object.
func (r *reader) open() error {
	var opts minio.GetObjectOptions
	ranged := r.next > 0 || r.end >= 0
	if ranged {
		last := int64(0) // 0 means to the end in the client's API
		if r.end >= 0 {
			last = r.end - 1
		}
		if err := opts.SetRange(r.next, last); err != nil {
			return err
		}
	}
	if r.etag != "" {
		if err := opts.SetMatchETag(r.etag); err != nil {
			return err
		}
	}
	body, info, header, err := r.b.core.GetObject(r.ctx, r.b.loc.Bucket, r.b.key(r.name), opts)
	if err != nil {
		return err
	}
	switch {
	case ranged && !strings.HasPrefix(header.Get("Content-Range"), fmt.Sprintf("bytes %d-", r.next)):
		err = &carrel.Error{Kind: carrel.Unsupported, Err: errors.New("the server does not know ranges")}
	case r.etag != "" && info.ETag != r.etag:
		err = &carrel.Error{Kind: carrel.Conflict, Err: errors.New("it was replaced while it was read")}
	case r.etag != "" && r.next+info.Size != r.end:
		err = &carrel.Error{Kind: carrel.Conflict, Err: errors.New("its size changed while it was read")}
	}
	if err != nil {
		return errors.Join(err, body.Close())
	}
	r.body, r.etag, r.end = body, info.ETag, r.next+info.Size
	return nil
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	for {
		n, err := r.body.Read(p)
		r.next += int64(n)
		if n > 0 {
			r.tries = 0
			return n, nil // an error comes again with the next call
		}
		switch {
		case r.next >= r.end:
			r.err = io.EOF
		case err == nil:
			continue
		default: // also an end before its time
			r.err = r.resume(err)
		}
		if r.err != nil {
			return 0, r.err
		}
	}
}

// resume requests the rest after a connection broke.
func (r *reader) resume(cause error) error {
	const op = "read blob"
	if errors.Is(cause, io.EOF) {
		cause = io.ErrUnexpectedEOF
	}
	r.tries++
	if r.tries >= r.b.opts.Retries {
		return r.b.failed(r.ctx, op, r.name, cause)
	}
	_ = r.body.Close() // of a broken connection
	r.body = http.NoBody
	select {
	case <-time.After(time.Duration(r.tries) * 100 * time.Millisecond):
	case <-r.ctx.Done():
		return r.b.failed(r.ctx, op, r.name, r.ctx.Err())
	}
	if err := r.open(); err != nil {
		return r.b.failed(r.ctx, op, r.name, err)
	}
	return nil
}

// Close implements io.Closer.
func (r *reader) Close() error {
	if r.err == nil {
		r.err = errors.New("the reader is closed")
	}
	return r.body.Close()
}
