package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"

	"github.com/carrel-dev/carrel"
)

// signed reports whether a request is for a signed file URL.
func signed(r *http.Request) bool {
	return r.URL.Path == "/files" && (r.Method == http.MethodGet || r.Method == http.MethodPost || r.Method == http.MethodHead || r.Method == http.MethodOptions) &&
		r.URL.Query().Get("signature") != ""
}

// bySignature finds the sandbox whose token made the signature. The guest checks
// it again, with its expiry.
func (g *Gateway) bySignature(r *http.Request) (Target, error) {
	q := r.URL.Query()
	op := "read"
	if r.Method == http.MethodPost || (r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") == http.MethodPost) {
		op = "write"
	}
	head := q.Get("path") + ":" + op + ":" + q.Get("username") + ":"
	tail := ""
	if exp := q.Get("signature_expiration"); exp != "" {
		tail = ":" + exp
	}
	given := []byte(q.Get("signature"))
	opts := carrel.ListOptions{States: []carrel.State{carrel.Running}, Limit: 100}
	for {
		page, err := g.opts.Sandboxes.List(r.Context(), opts)
		if err != nil {
			return Target{}, err
		}
		for _, sb := range page.Sandboxes {
			if sb.AccessToken == "" {
				continue
			}
			sum := sha256.Sum256([]byte(head + sb.AccessToken + tail))
			want := "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
			if subtle.ConstantTimeCompare(given, []byte(want)) == 1 {
				return Target{ID: sb.ID, Port: carrel.GuestPort}, nil
			}
		}
		if opts.Cursor = page.Next; opts.Cursor == "" {
			return Target{}, &carrel.Error{Op: "check signature", Kind: carrel.Unauthenticated,
				Err: &routeError{Message: "invalid signature"}}
		}
	}
}
