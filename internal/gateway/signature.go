package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"strconv"
	"time"

	"github.com/carrel-dev/carrel"
)

// signed reports whether a request is for a signed file URL.
func signed(r *http.Request) bool {
	return r.URL.Path == "/files" && (r.Method == http.MethodGet || r.Method == http.MethodPost || r.Method == http.MethodHead || r.Method == http.MethodOptions) &&
		r.URL.Query().Get("signature") != ""
}

// signature is one that a request brought, without the token it was made with.
type signature struct {
	head, tail string
	given      []byte
}

// signatureOf reads the signature of a request that is signed.
func signatureOf(r *http.Request) signature {
	q := r.URL.Query()
	op := "read"
	if r.Method == http.MethodPost || (r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") == http.MethodPost) {
		op = "write"
	}
	s := signature{head: q.Get("path") + ":" + op + ":" + q.Get("username") + ":", given: []byte(q.Get("signature"))}
	if exp := q.Get("signature_expiration"); exp != "" {
		s.tail = ":" + exp
	}
	return s
}

// madeWith reports whether the signature was made with this token.
func (s signature) madeWith(token string) bool {
	if token == "" {
		return false
	}
	sum := sha256.Sum256([]byte(s.head + token + s.tail))
	want := "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
	return subtle.ConstantTimeCompare(s.given, []byte(want)) == 1
}

// expired reports whether a signature's time is over. What is no time is left to
// the guest to refuse.
func expired(r *http.Request, now time.Time) bool {
	exp, err := strconv.ParseInt(r.URL.Query().Get("signature_expiration"), 10, 64)
	return err == nil && exp < now.Unix()
}

// bySignature finds the sandbox whose token made the signature: one that runs, or
// else one that is paused or on the way there or back. The guest checks it again,
// with its expiry.
func (g *Gateway) bySignature(r *http.Request) (Target, error) {
	sig := signatureOf(r)
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
	return Target{}, &carrel.Error{Op: "check signature", Kind: carrel.Unauthenticated,
		Err: &routeError{Message: "invalid signature"}}
}

// mayWake reports whether a request to a paused sandbox's guest shows that it may
// use the guest: it brings the access token, or a signature made with it. The
// guest judges again when it is awake; here it is about who may cause the work of
// a resumption.
func mayWake(r *http.Request, sb carrel.Sandbox) bool {
	if sb.AccessToken == "" || subtle.ConstantTimeCompare([]byte(r.Header.Get("X-Access-Token")), []byte(sb.AccessToken)) == 1 {
		return true
	}
	return signed(r) && signatureOf(r).madeWith(sb.AccessToken) && !expired(r, time.Now())
}
