package gateway

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// TestCutOff shows that an answer that breaks off ends in a reset, after all bytes that were sent.
func TestCutOff(t *testing.T) {
	const size = 4 << 20 // more than the sockets' buffers hold
	w := newWorld(t)
	id := string(w.add(t, carrel.Sandbox{}, map[uint16]http.Handler{3000: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, strings.Repeat("x", size))
		_ = http.NewResponseController(rw).Flush()
		panic(http.ErrAbortHandler)
	})}))
	srv := front(t, w, Options{})
	resp := begin(t, "GET", srv.URL, nil, headerID, id, headerPort, "3000")
	time.Sleep(50 * time.Millisecond) // a late reader must lose nothing
	if n, err := io.Copy(io.Discard, resp.Body); n != size || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read %d bytes of %d, then %v", n, size, err)
	}
}
