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

// TestCutOff: an answer that breaks off ends in a reset, after all that was sent.
func TestCutOff(t *testing.T) {
	const size = 4 << 20 // more than the sockets' buffers hold
	w := newWorld(t)
	id := string(w.add(t, carrel.Sandbox{}, map[uint16]http.Handler{3000: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, strings.Repeat("x", size))
		_ = http.NewResponseController(rw).Flush()
		panic(http.ErrAbortHandler)
	})}))
	srv := front(t, w, Options{})
	req, err := http.NewRequest("GET", srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(headerID, id)
	req.Header.Set(headerPort, "3000")
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	time.Sleep(50 * time.Millisecond) // a reader that is late loses nothing
	if n, err := io.Copy(io.Discard, resp.Body); n != size || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read %d bytes of %d, then %v", n, size, err)
	}
}
