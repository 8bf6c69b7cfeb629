package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/carrel-dev/carrel"
)

// Secret is a text that must not be shown: printing, logging and encoding it all give stars.
// string(s) is its value.
type Secret string

// hidden is written in place of a secret.
const hidden = "***"

// String implements fmt.Stringer.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// Format implements fmt.Formatter. Without it, %x and %q would show the secret.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText implements encoding.TextMarshaler, and with it JSON.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// S3 is the access to an object store. It comes from the environment only, under the names that
// every S3 client reads. A flag would be visible in the process list.
type S3 struct {
	Endpoint        string // AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL; "" is Amazon's for the region
	Region          string // AWS_REGION or AWS_DEFAULT_REGION; "" is us-east-1
	AccessKeyID     string // AWS_ACCESS_KEY_ID
	SecretAccessKey Secret // AWS_SECRET_ACCESS_KEY
	SessionToken    Secret // AWS_SESSION_TOKEN; may be ""
}

// applyEnv reads the AWS_* variables of the environment. An empty variable counts as not set.
func (s *S3) applyEnv(getenv func(string) string) {
	set := func(field *string, names ...string) {
		for _, name := range names {
			if v := getenv(name); v != "" {
				*field = v
				return
			}
		}
	}
	set(&s.Endpoint, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
	set(&s.Region, "AWS_REGION", "AWS_DEFAULT_REGION")
	set(&s.AccessKeyID, "AWS_ACCESS_KEY_ID")
	set((*string)(&s.SecretAccessKey), "AWS_SECRET_ACCESS_KEY")
	set((*string)(&s.SessionToken), "AWS_SESSION_TOKEN")
}

// s3Scheme is the prefix of an object store's name.
const s3Scheme = "s3://"

// SnapshotBucket splits a SnapshotStore of the form s3://bucket/prefix?options. ok is false
// for a directory.
func (c Config) SnapshotBucket() (bucket, prefix string, ok bool) {
	rest, ok := strings.CutPrefix(c.SnapshotStore, s3Scheme)
	if !ok {
		return "", "", false
	}
	rest, _, _ = strings.Cut(rest, "?")
	bucket, prefix, _ = strings.Cut(rest, "/")
	return bucket, strings.Trim(prefix, "/"), true
}

func (c Config) checkSnapshots() error {
	switch {
	case c.SnapshotQuota < 0:
		return bad("snapshot-quota", "%d is negative", c.SnapshotQuota)
	case c.SnapshotCache < 0:
		return bad("snapshot-cache", "%d is negative", c.SnapshotCache)
	case c.OnUpgrade != "keep" && c.OnUpgrade != "files" && c.OnUpgrade != "refuse":
		return bad("on-upgrade", "%q is not keep, files or refuse", c.OnUpgrade)
	case c.MaxPaused < 0:
		return bad("max-paused", "%d is negative", c.MaxPaused)
	}
	if strings.HasPrefix(c.SnapshotStore, s3Scheme) {
		return c.checkS3()
	}
	return checkStoreDir(c.SnapshotStore)
}

// checkStoreDir checks a directory for snapshots; "" is one in the data directory.
func checkStoreDir(dir string) error {
	const field = "snapshot-store"
	switch {
	case dir == "":
		return nil
	case strings.Contains(dir, "://"):
		return &carrel.Error{Op: "configure", Kind: carrel.Invalid, Field: field,
			Err: errors.New("neither a directory nor s3://BUCKET/PREFIX"), Hint: "S3 servers other than Amazon's are named by AWS_ENDPOINT_URL_S3"}
	case strings.ContainsRune(dir, 0):
		return bad(field, "contains a NUL byte")
	case filepath.Clean(dir) == "/":
		return bad(field, "must not be the root directory")
	}
	return nil
}

// checkS3 checks what can be checked without package s3, which the clients of other systems don't
// link. The options behind the question mark are checked there, when the daemon opens the store.
func (c Config) checkS3() error {
	const field = "snapshot-store"
	bucket, prefix, _ := c.SnapshotBucket()
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	if len(bucket) < 3 || len(bucket) > 63 || strings.Trim(bucket, letters+".-") != "" || strings.Contains(bucket, "..") ||
		!strings.Contains(letters, bucket[:1]) || !strings.Contains(letters, bucket[len(bucket)-1:]) {
		// Don't quote the text: people write s3://KEY:SECRET@bucket, and errors are logged.
		return &carrel.Error{Op: "configure", Kind: carrel.Invalid, Field: field, Err: errors.New("what follows s3:// is not a bucket's name"),
			Hint: "it looks like s3://bucket/prefix; keys go into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"}
	}
	for part := range strings.SplitSeq(prefix, "/") {
		if part == "." || part == ".." || (part == "" && prefix != "") || strings.Trim(part, letters+strings.ToUpper(letters)+"._-") != "" {
			return bad(field, "the prefix has characters other than letters, digits, and .-_/")
		}
	}
	if c.S3.AccessKeyID == "" || c.S3.SecretAccessKey == "" {
		return &carrel.Error{Op: "configure", Kind: carrel.Invalid, Field: field, Err: errors.New("an object store needs credentials"),
			Hint: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"}
	}
	if c.S3.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(c.S3.Endpoint)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return bad("AWS_ENDPOINT_URL", "not an http or https URL without user and query")
	}
	return nil
}
