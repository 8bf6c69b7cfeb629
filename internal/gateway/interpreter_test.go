package gateway

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// TestInterpreterStarts calls the code interpreter before it listens. The call waits. A call to
// another port does not.
func TestInterpreterStarts(t *testing.T) {
	w := newWorld(t)
	id := w.add(t, carrel.Sandbox{}, nil)
	ports := w.ports[id]
	srv := front(t, w, Options{})
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "it runs")
	}))
	t.Cleanup(app.Close)
	status := make(chan string, 1)
	go func() {
		resp, body := ask(t, "POST", srv.URL+"/execute", nil, headerID, string(id), headerPort, "49999")
		status <- fmt.Sprint(resp.StatusCode, body)
	}()
	resp, body := ask(t, "GET", srv.URL, nil, headerID, string(id), headerPort, "8080")
	if resp.StatusCode != http.StatusBadGateway {
		t.Errorf("another port: %d %s", resp.StatusCode, body)
	}
	w.mu.Lock()
	ports[interpreterPort] = app.Listener.Addr().String()
	w.mu.Unlock()
	select {
	case got := <-status:
		if !strings.HasPrefix(got, "200") || !strings.Contains(got, "it runs") {
			t.Errorf("got %s", got)
		}
	case <-time.After(time.Minute):
		t.Error("no answer")
	}
}
