package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"hash"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// Bounds on the parts of a signature. They are needed because its digest is begun before the caller
// is known.
const (
	maxSignedPath = 4095 // bytes, as the guest's own bound on a path
	maxSignedUser = 256
	maxSignedTime = 20 // digits of an int64, with its sign
)

// Signed reports whether a request is for a signed file URL, which names no sandbox.
func Signed(r *http.Request) bool { return signed(r) }

// signed reports whether a request is for a signed file URL.
func signed(r *http.Request) bool {
	return r.URL.Path == "/files" && (r.Method == http.MethodGet || r.Method == http.MethodPost || r.Method == http.MethodHead || r.Method == http.MethodOptions) &&
		r.URL.Query().Get("signature") != ""
}

// signature is a request's signature, without the token it was made with.
type signature struct {
	head  hash.Cloner // has the parts before the token
	tail  []byte
	given []byte // the digest; empty matches nothing
}

// signatureOf reads the signature of a signed request. The error is of kind Invalid and names the
// field that is too long.
func signatureOf(r *http.Request) (signature, error) {
	q := r.URL.Query()
	for _, f := range [...]struct {
		name string
		most int
	}{{"path", maxSignedPath}, {"username", maxSignedUser}, {"signature_expiration", maxSignedTime}} {
		if n := len(q.Get(f.name)); n > f.most {
			return signature{}, invalid("", fmt.Sprintf("%s is %d bytes long, more than %d", f.name, n, f.most))
		}
	}
	op := "read"
	if r.Method == http.MethodPost || (r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") == http.MethodPost) {
		op = "write"
	}
	var s signature
	if text, ok := strings.CutPrefix(q.Get("signature"), "v1_"); ok && len(text) == base64.RawStdEncoding.EncodedLen(sha256.Size) {
		if given, err := base64.RawStdEncoding.DecodeString(text); err == nil {
			s.given = given
		}
	}
	if s.given == nil {
		return s, nil
	}
	head := sha256.New()
	_, _ = io.WriteString(head, q.Get("path")+":"+op+":"+q.Get("username")+":")
	s.head = head.(hash.Cloner)
	if exp := q.Get("signature_expiration"); exp != "" {
		s.tail = []byte(":" + exp)
	}
	return s, nil
}

// madeWith reports whether the signature was made with this token.
func (s signature) madeWith(token string) bool {
	if token == "" || s.given == nil {
		return false
	}
	h, err := s.head.Clone()
	if err != nil {
		return false
	}
	_, _ = io.WriteString(h, token)
	_, _ = h.Write(s.tail)
	return subtle.ConstantTimeCompare(s.given, h.Sum(nil)) == 1
}

// expired reports whether a signature's time is over. If the time can't be read, the guest refuses
// it.
func expired(r *http.Request, now time.Time) bool {
	exp, err := strconv.ParseInt(r.URL.Query().Get("signature_expiration"), 10, 64)
	return err == nil && exp < now.Unix()
}

// bySignature finds the sandbox whose token made the signature. It prefers one that runs to one
// that is paused or changing its state. The guest checks the signature again, with its expiry.
func (g *Gateway) bySignature(r *http.Request) (Target, error) {
	sig, err := signatureOf(r)
	if err != nil {
		return Target{}, err
	}
	if sig.given == nil {
		return Target{}, badSignature
	}
	for _, states := range [][]carrel.State{{carrel.Running}, {carrel.Pausing, carrel.Paused, carrel.Resuming}} {
		opts := carrel.ListOptions{States: states, Limit: 100}
		for {
			page, err := g.opts.Sandboxes.List(r.Context(), opts)
			if err != nil {
				return Target{}, err
			}
			for _, sb := range page.Sandboxes {
				if sig.madeWith(sb.AccessToken) {
					return Target{ID: sb.ID, Port: carrel.GuestPort}, nil
				}
			}
			if opts.Cursor = page.Next; opts.Cursor == "" {
				break
			}
		}
	}
	return Target{}, badSignature
}

// badSignature answers a signature that fits no sandbox's token.
var badSignature = &carrel.Error{Op: "check signature", Kind: carrel.Unauthenticated, Err: &routeError{Message: "invalid signature"}}

// mayWake reports whether a request to a paused sandbox's guest shows that it may use the guest. It
// must carry the access token, or a signature made with it. The awake guest checks again. This
// check only decides who may cause a resumption.
func mayWake(r *http.Request, sb carrel.Sandbox) bool {
	if sb.AccessToken == "" || subtle.ConstantTimeCompare([]byte(r.Header.Get("X-Access-Token")), []byte(sb.AccessToken)) == 1 {
		return true
	}
	if !signed(r) {
		return false
	}
	sig, err := signatureOf(r)
	return err == nil && sig.madeWith(sb.AccessToken) && !expired(r, time.Now())
}
