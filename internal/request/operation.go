package request

import (
	"net"
	"net/http"

	"github.com/carrel-dev/carrel"
)

// Operation is what a caller did, or was refused, for the audit trail.
type Operation struct {
	Kind    string // carrel.TrailRead, TrailChange, TrailEnter or TrailRefuse
	Caller  carrel.Caller
	From    string // the caller's network address
	Request string // the request's ID
	// Op is the route, or what was done inside the sandbox.
	Op      string
	Targets []string // the things that it was about
	Status  int      // of the answer; 0 where there is none
}

// Journal takes operations. A door gives it each one before it sends the answer. Note must be fast.
type Journal interface {
	Note(op Operation)
}

// Wrap makes the Info of each request.
func Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			from = r.RemoteAddr
		}
		next.ServeHTTP(w, r.WithContext(With(r.Context(), New(from))))
	})
}

// Refused returns the kind of an operation whose answer has this status.
func Refused(kind string, status int) string {
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		return carrel.TrailRefuse
	}
	return kind
}
