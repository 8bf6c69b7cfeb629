package agent

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
)

const (
	gzipCoding     = "gzip"
	identityCoding = "identity"
)

// errNotAcceptable answers an Accept-Encoding that allows no encoding of ours.
var errNotAcceptable = errors.New("error parsing Accept-Encoding: no acceptable encoding found, supported: [gzip]")

// coding is one entry of an Accept-Encoding header.
type coding struct {
	name    string
	quality float64
}

// parseCoding reads an entry. It ignores a quality that is not a number.
func parseCoding(s string) coding {
	name, params, _ := strings.Cut(s, ";")
	c := coding{strings.ToLower(strings.TrimSpace(name)), 1}
	for p := range strings.SplitSeq(params, ";") {
		key, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		if !strings.EqualFold(strings.TrimSpace(key), "q") {
			continue
		}
		// Both comparisons are false for NaN, so it is refused too.
		if q, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && q >= 0 && q <= 1 {
			c.quality = q
		}
	}
	return c
}

// accepted are the encodings that a client takes.
type accepted struct {
	coding   string // the one to use
	identity bool   // whether plain contents are acceptable
}

// negotiate chooses between gzip and identity, as RFC 9110, section 12.5.3, and envd do. Among
// equal qualities the client's order decides. "*" means plain contents unless they are refused.
func negotiate(header string) (accepted, error) {
	if strings.TrimSpace(header) == "" {
		return accepted{identityCoding, true}, nil
	}
	var all []coding
	for part := range strings.SplitSeq(header, ",") {
		if c := parseCoding(part); c.name != "" {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b coding) int {
		switch {
		case a.quality > b.quality:
			return -1
		case a.quality < b.quality:
			return 1
		}
		return 0
	})
	identity := allows(all, identityCoding)
	for _, c := range all {
		switch {
		case c.quality == 0:
		case c.name == gzipCoding, c.name == "*" && !identity && allows(all, gzipCoding):
			return accepted{gzipCoding, identity}, nil
		case identity && (c.name == identityCoding || c.name == "*"):
			return accepted{identityCoding, identity}, nil
		}
	}
	if !identity {
		return accepted{}, errNotAcceptable
	}
	return accepted{identityCoding, true}, nil
}

// allows reports whether a coding is not refused. Its own entry decides, or else "*"; the first
// entry in the header wins.
func allows(all []coding, name string) bool {
	for _, n := range []string{name, "*"} {
		if i := slices.IndexFunc(all, func(c coding) bool { return c.name == n }); i >= 0 {
			return all[i].quality > 0
		}
	}
	return true
}

// decoded returns the plain contents of a request's body. Errors in the compressed data appear
// while it is read.
func decoded(r *http.Request, body io.Reader) (io.Reader, error) {
	header := r.Header.Get("Content-Encoding")
	switch c := parseCoding(header); c.name {
	case "", identityCoding:
		return body, nil
	case gzipCoding:
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, fmt.Errorf("error decompressing request body: failed to create gzip reader: %w", err)
		}
		return z, nil
	}
	return nil, fmt.Errorf("error decompressing request body: unsupported Content-Encoding: %s, supported: [gzip]", header)
}
