package agent

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"
)

// checkToken reports whether a request may pass: it carries the access token in
// X-Access-Token, or none is set. The comparison takes the same time whatever
// the token, its length included.
func (a *Agent) checkToken(h http.Header) bool {
	want := a.accessToken()
	if want == "" {
		return true
	}
	w, g := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(h.Get("X-Access-Token")))
	return subtle.ConstantTimeCompare(w[:], g[:]) == 1
}

// userName returns the user that a request's Authorization header names, as
// the SDKs send it (Basic, "name:"), and "" when it names none.
func userName(h http.Header) string {
	scheme, coded, ok := strings.Cut(h.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "basic") {
		return ""
	}
	plain, err := base64.StdEncoding.DecodeString(coded)
	if err != nil {
		return ""
	}
	name, _, _ := strings.Cut(string(plain), ":")
	return name
}

// user finds the account that a Connect request runs as: the one that its
// headers name, or the default.
func (a *Agent) user(h http.Header) (User, *connect.Error) {
	return a.userNamed(userName(h))
}

// userNamed finds an account by name; "" means the default user. The text of
// its error is envd's, which clients look at.
func (a *Agent) userNamed(name string) (User, *connect.Error) {
	text := "invalid username: '%s'"
	if name == "" {
		name, text = a.defaultUser(), "invalid default user: '%s'"
	}
	u, err := a.sys.User(name)
	if err != nil {
		return User{}, connect.NewError(connect.CodeUnauthenticated, fmt.Errorf(text, name))
	}
	return u, nil
}
