package agent_test

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/guest/agent"
)

// fakeMachine is a kernel that remembers what it was asked.
type fakeMachine struct {
	did           []guest.MachineRequest
	local, remote net.Addr
	err           error
}

// Do implements agent.Machine.
func (m *fakeMachine) Do(req guest.MachineRequest, local, remote net.Addr) error {
	m.did, m.local, m.remote = append(m.did, req), local, remote
	return m.err
}

// TestMachine shows that only the host may ask something of the kernel, and only where the sandbox
// has one.
func TestMachine(t *testing.T) {
	var m fakeMachine
	host := true
	g := newGuest(t, func(c *agent.Config) {
		c.Machine, c.Trusted = &m, func(net.Addr) bool { return host }
	})
	code, _, body := g.ask(t, "POST", guest.MachinePath, `{"flush":true,"newBoot":true,"entropy":"AAEC"}`)
	if code != http.StatusNoContent || len(m.did) != 1 {
		t.Fatalf("%d %s, %+v", code, body, m.did)
	}
	if did := m.did[0]; !did.Flush || !did.NewBoot || did.Sever || len(did.Entropy) != 3 {
		t.Errorf("it was asked %+v", did)
	}
	if m.local.String() != g.Listener.Addr().String() || m.remote == nil {
		t.Errorf("the connection is from %v to %v", m.remote, m.local)
	}
	for _, bad := range []string{"", "{", `{"flush":1}`, `{"time":"yesterday"}`, `{"entropy":"` + strings.Repeat("A", 64<<10) + `"}`} {
		if code, _, _ := g.ask(t, "POST", guest.MachinePath, bad); code != http.StatusBadRequest {
			t.Errorf("%.30s gives %d", bad, code)
		}
	}
	if code, _, _ := g.ask(t, "GET", guest.MachinePath, ""); code != http.StatusMethodNotAllowed {
		t.Errorf("a GET gives %d", code)
	}
	m.err = errors.New("the clock is stuck")
	if code, _, body := g.ask(t, "POST", guest.MachinePath, "{}"); code != http.StatusInternalServerError || !strings.Contains(body, "stuck") {
		t.Errorf("an error gives %d %s", code, body)
	}
	host = false
	if code, _, _ := g.ask(t, "POST", guest.MachinePath, "{}"); code != http.StatusForbidden || len(m.did) != 2 {
		t.Errorf("a stranger gets %d", code)
	}
	plain := newGuest(t, trustAll)
	if code, _, _ := plain.ask(t, "POST", guest.MachinePath, "{}"); code != http.StatusNotFound {
		t.Errorf("without a kernel of its own it says %d", code)
	}
}
