package agent

import (
	"crypto/subtle"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

// FuzzMultipartPath checks that the path of a part is found whatever surrounds it. The file must be
// stored at the path of resolvePath and nowhere else.
func FuzzMultipartPath(f *testing.F) {
	for _, s := range []string{
		`form-data; name="file"; filename="a.txt"`,
		`form-data; name="file"; filename="/a/b/../c d.txt"`,
		`form-data; name="file"; filename=plain`,
		`form-data; name="file"; filename*=utf-8''%e6%96%87%00`,
		`form-data; name="file"; filename="a\"b\\c"`,
		`form-data; name="file"`,
		`form-data; name="other"; filename="x"`,
		`attachment; filename="x"`,
		`form-data; name="file"; filename="a"; filename="b"`,
		`form-data; name=file; filename="../../etc/passwd"`,
		"form-data; name=\"file\"; filename=\"a\x00b\"",
		"", ";", "form-data; name",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, disposition string) {
		name, isFile, err := partPath(disposition)
		if !isFile {
			if name != "" || err != nil {
				t.Fatalf("%q is no file but %q, %v", disposition, name, err)
			}
			return
		}
		if err != nil {
			return
		}
		_, params, merr := mime.ParseMediaType(disposition)
		if merr != nil || params["filename"] != name {
			t.Fatalf("%q gave %q, want %q (%v)", disposition, name, params["filename"], merr)
		}
		// Pass a complete form through: the result must equal the input.
		if strings.ContainsAny(disposition, "\r\n") {
			return
		}
		body := "--b\r\nContent-Disposition: " + disposition + "\r\n\r\nx\r\n--b--\r\n"
		part, perr := multipart.NewReader(strings.NewReader(body), "b").NextRawPart()
		if perr != nil {
			return
		}
		again, isFile, err := partPath(part.Header.Get("Content-Disposition"))
		if !isFile || err != nil || again != name {
			t.Fatalf("%q in a form gave %q, %v, %v, want %q", disposition, again, isFile, err, name)
		}
		if p, err := resolvePath("path", again, User{Home: "/h"}); err == nil && (p[0] != '/' || strings.Contains(p, "/../")) {
			t.Fatalf("%q resolves to %q", again, p)
		}
	})
}

// FuzzSignature checks that a signature passes only for its own request.
func FuzzSignature(f *testing.F) {
	token := "secret"
	future := time.Now().Add(time.Hour).Unix()
	f.Add("path=a&signature=" + url.QueryEscape(signature("a", signRead, "", token, nil)))
	f.Add("path=a&username=u&signature=" + url.QueryEscape(signature("a", signRead, "u", token, &future)) + "&signature_expiration=" + strconv.FormatInt(future, 10))
	f.Add("path=a:read&signature=" + url.QueryEscape(signature("a", "read:read", "", token, nil)))
	for _, s := range []string{"", "signature=", "path=a&signature=v1_", "signature_expiration=x", "signature=%zz", "path=%00&signature=v1_AAAA", "signature_expiration=9999999999999999999", "path=a&path=b;c"} {
		f.Add(s)
	}
	a := New(Config{})
	f.Cleanup(a.Close)
	a.identity.token = token
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := parseFileQuery(raw)
		if err != nil {
			return
		}
		r := &http.Request{Header: http.Header{}}
		err = a.mayTransfer(r, q, signRead)
		right := q.signed && subtle.ConstantTimeCompare([]byte(q.signature), []byte(signature(q.path, signRead, q.username, token, q.expires))) == 1
		if right {
			right = q.expires == nil || *q.expires >= time.Now().Unix()
		}
		if right != (err == nil) {
			t.Fatalf("%q: %v", raw, err)
		}
		if err == nil && a.mayTransfer(r, q, signWrite) == nil {
			t.Fatalf("%q is good for reading and for writing", raw)
		}
		r.Header.Set("X-Access-Token", raw)
		if raw != "" && raw != token && a.mayTransfer(r, q, signRead) == nil {
			t.Fatalf("passes with the token %q", raw)
		}
	})
}

// FuzzAcceptEncoding checks that the chosen encoding was not refused.
func FuzzAcceptEncoding(f *testing.F) {
	for _, s := range []string{"", "gzip", "gzip;q=0", "identity;q=0", "*;q=0", "*", "gzip, deflate, br", "GZIP ; Q=0.5 , identity;q=1", "gzip;q=NaN", "gzip;q=-1, *", "identity;q=0,*;q=0.1", ",,;;,q=0", "gzip;q=0,gzip"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		got, err := negotiate(header)
		compact := strings.ToLower(strings.Join(strings.Fields(header), ""))
		switch {
		case errors.Is(err, errNotAcceptable):
			if !strings.Contains(compact, "q=") {
				t.Fatalf("%q refuses nothing but got %v", header, err)
			}
		case err != nil:
			t.Fatalf("%q: %v", header, err)
		case got.coding == gzipCoding:
			if !strings.Contains(compact, "gzip") && !strings.Contains(compact, "*") {
				t.Fatalf("%q got gzip", header)
			}
		case got.coding != identityCoding || !got.identity:
			t.Fatalf("%q got %+v", header, got)
		}
	})
}

func TestCopyChunksTellsWhoFailed(t *testing.T) {
	broken := errors.New("broken")
	src := io.MultiReader(strings.NewReader("abc"), errReader{broken})
	var dst strings.Builder
	n, err := copyChunks(&dst, src, make([]byte, 2))
	var rerr *readError
	if n != 3 || dst.String() != "abc" || !errors.As(err, &rerr) || !errors.Is(err, broken) {
		t.Errorf("copied %d %q, %v", n, dst.String(), err)
	}
	n, err = copyChunks(&dst, errReader{io.ErrUnexpectedEOF}, make([]byte, 2))
	if n != 0 || !errors.As(err, &rerr) {
		t.Errorf("an end too early passed: %d, %v", n, err)
	}
	n, err = copyChunks(errWriter{broken}, strings.NewReader("abc"), make([]byte, 8))
	if n != 0 || errors.As(err, &rerr) || !errors.Is(err, broken) {
		t.Errorf("the target's error: %d, %v", n, err)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

type errWriter struct{ err error }

func (w errWriter) Write([]byte) (int, error) { return 0, w.err }
