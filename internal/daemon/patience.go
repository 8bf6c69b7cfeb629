package daemon

import (
	"net/http"
	"time"
)

// restTime is how long a client may still send a body that nobody reads.
const restTime = 5 * time.Second

// boundRest bounds the time after an HTTP/1 request whose body was not read to its end: one without
// a key, for an unknown path, or too large. Around its answer to such a request, the server reads
// on for a while, so that the client can see the answer. Without a deadline, a client that sends
// nothing more would keep its connection for ever. The server sets its own deadline for the next
// request.
func boundRest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 && r.ContentLength != 0 {
			defer func() { _ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(restTime)) }()
		}
		next.ServeHTTP(w, r)
	})
}
