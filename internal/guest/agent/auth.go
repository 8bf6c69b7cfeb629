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

// checkToken reports whether a request may pass: either it carries the access token in
// X-Access-Token, or no token is set. The comparison takes the same time for every token of every
// length.
func (a *Agent) checkToken(h http.Header) bool {
	want := a.accessToken()
	if want == "" {
		return true
	}
	w, g := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(h.Get("X-Access-Token")))
	return subtle.ConstantTimeCompare(w[:], g[:]) == 1
}

// userName returns the user in a request's Authorization header, in the form that the SDKs send
// (Basic, "name:"). The name may have a group: "name:group:". It returns "" if there is none.
func userName(h http.Header) string {
	scheme, coded, ok := strings.Cut(h.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "basic") {
		return ""
	}
	plain, err := base64.StdEncoding.DecodeString(coded)
	if err != nil {
		return ""
	}
	name, ok := strings.CutSuffix(string(plain), ":")
	if !ok { // it has a password, which nobody looks at
		name, _, _ = strings.Cut(name, ":")
	}
	return name
}

// user finds the account that a Connect request runs as: the one in its headers, or the default.
func (a *Agent) user(h http.Header) (User, *connect.Error) {
	return a.userNamed(userName(h))
}

// userNamed finds an account by name; "" means the default user. Its error has envd's text, because
// clients look at it.
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
