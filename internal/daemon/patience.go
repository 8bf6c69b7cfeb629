package daemon

import (
	"net/http"
	"time"
)

// restTime is how long a client may still send of a body that nobody wants.
const restTime = 5 * time.Second

// boundRest bounds the end of HTTP/1 requests whose body was not read to its end:
// one without a key, to a path there is not, too big. Before it answers these, the
// server reads on for a while, so that the client gets to see the answer; without
// a deadline, a client that sends nothing more would keep its connection for ever.
// The server sets its own deadline for the next request.
func boundRest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 && r.ContentLength != 0 {
			defer func() { _ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(restTime)) }()
		}
		next.ServeHTTP(w, r)
	})
}
