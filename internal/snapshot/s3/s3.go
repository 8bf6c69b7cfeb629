// Package s3 keeps blobs in a bucket of S3-compatible object storage.
//
// # What it promises
//
// A blob is one object. Small blobs are sent at once. Big ones are sent in parts, which are removed
// after a failure. Either way the object appears whole or not at all. A checksum covers every byte
// that is sent, and the server compares it. A broken read continues from its offset, and only in
// the same version of the object. Requests are repeated, with longer and longer pauses, when a
// server answers "later" (a 5xx, slow down) and when a connection breaks or stays silent. In the
// end the error is Unavailable.
//
// A crash can leave unfinished uploads. They are invisible, but cost money. The first writer that
// opens the place more than a day later removes them.
//
// # Threat
//
// Everybody who can read the bucket has the memory of all sandboxes in it. Traffic is encrypted
// unless the URL says otherwise. Credentials come as Options, never from the environment or from a
// file that this package reads. They appear in no error and no log.
package s3

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// The values of zero Options.
const (
	defaultTimeout  = 30 * time.Second
	defaultRetries  = 6
	defaultPartSize = 16 << 20
)

// staleUpload is the age from which an unfinished upload counts as left by a crash. No upload takes
// that long on any machine.
const staleUpload = 24 * time.Hour

// Options complete a Location. The zero value lacks only the credentials.
type Options struct {
	AccessKey    string
	SecretKey    string
	SessionToken string // of temporary credentials; "" for none
	// Proxy chooses a proxy for a request; nil is none.
	Proxy func(*http.Request) (*url.URL, error)
	// RootCAs are the roots for the endpoint's certificate; nil means the system's.
	RootCAs *x509.CertPool
	// Timeout is the longest silence on a connection; 0 is 30 s.
	Timeout time.Duration
	// Retries is the number of tries of a request; 0 is 6.
	Retries int
	// PartSize is the size of parts. Only bigger blobs are sent in parts. 0 is 16 MiB; servers want
	// at least 5 MiB.
	PartSize int64
}

// String keeps the credentials out of printed text.
func (o Options) String() string { return "[s3 options]" }

// GoString is String, for %#v.
func (o Options) GoString() string { return o.String() }

// MarshalJSON returns String, for structured logs.
func (o Options) MarshalJSON() ([]byte, error) { return []byte(`"` + o.String() + `"`), nil }

// Blobs is a [snapshot.Blobs] in a bucket.
type Blobs struct {
	loc       Location
	opts      Options
	core      minio.Core
	transport *http.Transport
}

var _ snapshot.Blobs = (*Blobs)(nil)

// Open opens the blobs at a location and asks the server whether the bucket exists. Errors:
// Unauthenticated, Forbidden, NotFound (the bucket), Invalid, Unavailable.
func Open(ctx context.Context, loc Location, opts Options) (*Blobs, error) {
	const op = "open object store"
	if opts.AccessKey == "" || opts.SecretKey == "" {
		return nil, &carrel.Error{Op: op, Kind: carrel.Unauthenticated, Err: fmt.Errorf("no credentials for bucket %s", loc.Bucket),
			Hint: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the daemon's environment"}
	}
	b := &Blobs{loc: loc, opts: opts.withDefaults()}
	u, err := url.Parse(loc.Endpoint)
	if err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "endpoint", Err: err}
	}
	b.transport = newTransport(b.opts)
	lookup := minio.BucketLookupDNS
	if loc.PathStyle {
		lookup = minio.BucketLookupPath
	}
	client, err := minio.New(u.Host, &minio.Options{
		Creds:  credentials.NewStaticV4(opts.AccessKey, opts.SecretKey, opts.SessionToken),
		Secure: u.Scheme == "https", Transport: b.transport, Region: loc.Region, BucketLookup: lookup, MaxRetries: b.opts.Retries,
	})
	if err != nil {
		return nil, b.failed(ctx, op, loc.Bucket, err)
	}
	b.core = minio.Core{Client: client}
	if err := b.probe(ctx); err != nil {
		b.transport.CloseIdleConnections()
		return nil, err
	}
	b.abortStale(ctx)
	return b, nil
}

// probe lists one name. That needs the server, the credentials and the bucket.
func (b *Blobs) probe(ctx context.Context) error {
	const op = "open object store"
	for o := range b.core.ListObjectsIter(ctx, b.loc.Bucket, minio.ListObjectsOptions{Prefix: b.key(""), Recursive: true, MaxKeys: 1}) {
		if o.Err == nil {
			return nil
		}
		err := b.failed(ctx, op, "bucket "+b.loc.Bucket, o.Err)
		if minio.ToErrorResponse(o.Err).Code == minio.NoSuchBucket {
			return &carrel.Error{Op: op, Kind: carrel.NotFound, Field: "bucket", Err: err, Hint: carrel.HintOf(err)}
		}
		return err
	}
	if err := ctx.Err(); err != nil { // then the iteration ends without an error
		return b.failed(ctx, op, "bucket "+b.loc.Bucket, err)
	}
	return nil
}

// abortStale removes the unfinished uploads of crashed writers. It is optional: many keys may not
// list uploads, and an error changes nothing.
func (b *Blobs) abortStale(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	for u := range b.core.ListIncompleteUploads(ctx, b.loc.Bucket, b.key(""), true) {
		if u.Err == nil && time.Since(u.Initiated) > staleUpload {
			_ = b.core.AbortMultipartUpload(ctx, b.loc.Bucket, u.Key, u.UploadID) // see above
		}
	}
}

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Retries <= 0 {
		o.Retries = defaultRetries
	}
	if o.PartSize <= 0 {
		o.PartSize = defaultPartSize
	}
	return o
}

// newTransport makes connections that end when they stay silent. So a server that hangs does not
// make a pause of a sandbox hang.
func newTransport(o Options) *http.Transport {
	d := &net.Dialer{Timeout: o.Timeout}
	return &http.Transport{
		Proxy: o.Proxy,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &impatient{c, o.Timeout}, nil
		},
		TLSClientConfig:     &tls.Config{RootCAs: o.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: o.Timeout,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     o.Timeout,
		DisableCompression:  true, // content and ranges as they are
	}
}

// impatient is a connection that fails when nothing happens on it within a time limit.
type impatient struct {
	net.Conn
	timeout time.Duration
}

func (c *impatient) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write also moves the deadline of a Read that is waiting for the answer.
func (c *impatient) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// key is the name of a blob's object.
func (b *Blobs) key(name string) string {
	if b.loc.Prefix == "" {
		return name
	}
	return b.loc.Prefix + "/" + name
}

// List implements snapshot.Blobs. fn may call the methods of b.
func (b *Blobs) List(ctx context.Context, prefix string, fn func(snapshot.BlobInfo) error) error {
	const op = "list blobs"
	if err := snapshot.CheckBlobPrefix(prefix); err != nil {
		return &carrel.Error{Op: op, Kind: carrel.KindOf(err), Err: err}
	}
	if begin := strings.TrimSuffix(prefix, "/"); prefix != "" && strings.Contains(prefix, "/") && snapshot.CheckBlobName(begin) != nil {
		return nil // ".." and the like: no name begins so, and servers treat it differently
	}
	for o := range b.core.ListObjectsIter(ctx, b.loc.Bucket, minio.ListObjectsOptions{Prefix: b.key(prefix), Recursive: true}) {
		if o.Err != nil {
			return b.failed(ctx, op, prefix, o.Err)
		}
		name := strings.TrimPrefix(o.Key, b.key(""))
		if snapshot.CheckBlobName(name) != nil {
			continue // a stranger's
		}
		if err := fn(snapshot.BlobInfo{Name: name, Size: o.Size, Modified: o.LastModified}); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil { // then the iteration ends without an error
		return b.failed(ctx, op, prefix, err)
	}
	return nil
}

// Delete implements snapshot.Blobs.
func (b *Blobs) Delete(ctx context.Context, name string) error {
	const op = "delete blob"
	if err := b.check(ctx, op, name); err != nil {
		return err
	}
	err := b.core.RemoveObject(ctx, b.loc.Bucket, b.key(name), minio.RemoveObjectOptions{})
	if err == nil || minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return nil
	}
	return b.failed(ctx, op, name, err)
}

// Close implements snapshot.Blobs.
func (b *Blobs) Close() error {
	b.transport.CloseIdleConnections()
	return nil
}

// check makes the checks at the start of each call on one blob.
func (b *Blobs) check(ctx context.Context, op, name string) error {
	if err := snapshot.CheckBlobName(name); err != nil {
		return &carrel.Error{Op: op, Kind: carrel.KindOf(err), Err: err}
	}
	if err := ctx.Err(); err != nil {
		return b.failed(ctx, op, name, err)
	}
	return nil
}
