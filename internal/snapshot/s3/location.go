package s3

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// defaultRegion is the region that servers without regions expect.
const defaultRegion = "us-east-1"

// Location is a place in an object store.
type Location struct {
	Bucket string
	Prefix string // start of all names, without the slash after it; "" for none
	// Endpoint is the server's URL, such as https://s3.example.com:9000.
	Endpoint string
	Region   string
	// PathStyle puts the bucket into the path instead of the host's name.
	PathStyle bool
}

var (
	bucketForm = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	regionForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`) // it becomes part of a host's name
)

// ParseLocation reads a URL of the form
//
//	s3://bucket/prefix?endpoint=https://s3.example.com&region=eu-1&path-style=true
//
// Without an endpoint it is Amazon's endpoint of that region. With an endpoint the path style is
// the default. An endpoint without TLS must be on this machine, or the URL must say insecure=true,
// because blobs hold the memory of sandboxes. Credentials are not allowed in the URL. Error:
// Invalid, with the field that is wrong.
func ParseLocation(text string) (Location, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "s3" || u.Opaque != "" || u.Fragment != "" {
		return Location{}, badLocation("url", "it is not of the form s3://bucket/prefix", "for instance s3://bucket/carrel?region=eu-central-1")
	}
	if u.User != nil {
		return Location{}, badLocation("url", "it holds credentials",
			"give them in the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN")
	}
	l := Location{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/"), Region: defaultRegion}
	if !bucketForm.MatchString(l.Bucket) {
		return Location{}, badLocation("bucket", "what follows s3:// is not the name of a bucket", "a bucket's name has 3–63 lower-case letters, digits, - and .")
	}
	if l.Prefix != "" {
		if err := snapshot.CheckBlobName(l.Prefix); err != nil {
			return Location{}, badLocation("prefix", err.Error(), carrel.HintOf(err))
		}
	}
	if err := l.parseQuery(u.RawQuery); err != nil {
		return Location{}, err
	}
	return l, nil
}

// parseQuery reads the part after the question mark.
func (l *Location) parseQuery(raw string) error {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return badLocation("url", "what follows the question mark can't be read", "escape what is special in a URL")
	}
	insecure := false
	flags := map[string]*bool{"path-style": &l.PathStyle, "insecure": &insecure}
	if q.Get("endpoint") != "" {
		l.PathStyle = true
	}
	for key, values := range q {
		switch flag := flags[key]; {
		case key != "endpoint" && key != "region" && flag == nil:
			return badLocation(key, "there is no such option", "the options are endpoint, region, path-style and insecure")
		case len(values) != 1:
			return badLocation(key, "it is given twice", "")
		case flag != nil:
			if *flag, err = strconv.ParseBool(values[0]); err != nil {
				return badLocation(key, fmt.Sprintf("%q is neither true nor false", values[0]), "write "+key+"=true, or leave it out")
			}
		}
	}
	if r := q.Get("region"); r != "" {
		if !regionForm.MatchString(r) {
			return badLocation("region", "it is not the name of a region", "for instance eu-central-1")
		}
		l.Region = r
	}
	l.Endpoint = q.Get("endpoint")
	if l.Endpoint == "" {
		l.Endpoint = "https://s3." + l.Region + ".amazonaws.com"
	}
	return l.checkEndpoint(insecure)
}

// checkEndpoint refuses an endpoint that is not a bare address of a server, or is not safe.
func (l *Location) checkEndpoint(insecure bool) error {
	u, err := url.Parse(l.Endpoint)
	if err != nil || u.User != nil || u.Host == "" || u.Hostname() == "" || (u.Path != "" && u.Path != "/") ||
		u.RawQuery != "" || u.Fragment != "" || (u.Scheme != "https" && u.Scheme != "http") {
		return badLocation("endpoint", "it is not the address of a server", "for instance https://s3.example.com:9000, without a path or credentials")
	}
	if u.Scheme == "http" && !insecure && !isLoopback(u.Hostname()) {
		return badLocation("endpoint", l.Endpoint+" is not encrypted, and snapshots hold secrets",
			"use https://, or add ?insecure=true to the store's URL, where nobody can listen in or change what passes")
	}
	l.Endpoint = u.Scheme + "://" + u.Host
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// String returns the location as a URL. It holds no secret.
func (l Location) String() string {
	q := url.Values{"endpoint": {l.Endpoint}, "region": {l.Region}, "path-style": {strconv.FormatBool(l.PathStyle)}}
	return (&url.URL{Scheme: "s3", Host: l.Bucket, Path: "/" + l.Prefix, RawQuery: q.Encode()}).String()
}

// badLocation is the error about a part of a URL. It does not show the URL, which may hold a secret
// by mistake.
func badLocation(field, what, hint string) error {
	return &carrel.Error{Op: "read snapshot store's URL", Kind: carrel.Invalid, Field: field, Err: fmt.Errorf("%s", what), Hint: hint}
}
