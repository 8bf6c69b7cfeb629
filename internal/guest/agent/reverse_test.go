package agent_test

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/guest/agent"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestReverseBounds shows that the number of listeners is bounded, and that a place is free again
// when its listener ends.
func TestReverseBounds(t *testing.T) {
	g := newGuest(t, func(c *agent.Config) { c.Trusted = func(net.Addr) bool { return true } })
	addr := g.Listener.Addr().String()
	c := guest.NewConn(func(ctx context.Context, _ uint16) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}, guest.ConnOptions{})
	defer c.Close()
	var all []net.Listener
	for range 16 {
		l, err := c.Listen(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	if _, err := c.Listen(t.Context(), 0); carrel.KindOf(err) != carrel.Exhausted {
		t.Errorf("one too many gave %v", err)
	}
	for _, l := range all {
		_ = l.Close()
	}
	testenv.EventuallyNil(t, "there is room again", func() error {
		l, err := c.Listen(t.Context(), 0)
		if err == nil {
			err = l.Close()
		}
		return err
	})
}

// TestReverseRefuses shows that a request gets no stream if it does not come from the host, has no
// token, or names nothing that exists.
func TestReverseRefuses(t *testing.T) {
	host := true
	g := newGuest(t, func(c *agent.Config) { c.Trusted = func(net.Addr) bool { return host } })
	for _, c := range []struct {
		path     string
		host, up bool
		want     int
	}{
		{guest.ListenPath + "0", false, true, http.StatusForbidden},
		{guest.AcceptedPath + "00", false, true, http.StatusForbidden},
		{guest.ListenPath + "0", true, false, http.StatusUpgradeRequired},
		{guest.ListenPath + "70000", true, true, http.StatusBadRequest},
		{guest.AcceptedPath + "00", true, true, http.StatusGone},
	} {
		host = c.host
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.URL+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.up {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", guest.TunnelProtocol)
		}
		resp, err := g.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", c.path, resp.StatusCode, c.want)
		}
	}
}
