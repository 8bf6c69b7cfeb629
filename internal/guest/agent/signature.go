package agent

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// The operations that a signature allows.
const (
	signRead  = "read"
	signWrite = "write"
)

// signature returns the text in a URL that allows one operation on one path without the access
// token. It is a digest keyed with that token. expires is in Unix seconds, nil for none.
func signature(path, op, user, token string, expires *int64) string {
	signed := path + ":" + op + ":" + user + ":" + token
	if expires != nil {
		signed += ":" + strconv.FormatInt(*expires, 10)
	}
	sum := sha256.Sum256([]byte(signed))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// mayTransfer returns the reason why a request for /files may not pass. It returns nil if no token
// is set, if the request carries the token, or if its URL is signed for the operation.
func (a *Agent) mayTransfer(r *http.Request, q *fileQuery, op string) error {
	token := a.accessToken()
	if token == "" {
		return nil
	}
	if r.Header.Get("X-Access-Token") != "" {
		if !a.checkToken(r.Header) {
			return errors.New("access token present in header but does not match")
		}
		return nil
	}
	if !q.signed {
		return errors.New("missing signature query parameter")
	}
	want := signature(q.path, op, q.username, token, q.expires)
	if subtle.ConstantTimeCompare([]byte(want), []byte(q.signature)) != 1 {
		return errors.New("invalid signature")
	}
	if q.expires != nil && *q.expires < time.Now().Unix() {
		return errors.New("signature is already expired")
	}
	return nil
}
