package net

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// oldFriend looks a name up once. From then on it connects to that address for each line that is
// added to a file, like a program that keeps its lookups.
const oldFriend = `
import os, socket, ssl, time
address = socket.getaddrinfo("api.example.com", 443, socket.AF_INET)[0][4]
context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
answered = 0
open("ready", "w").close()
while True:
    if not os.path.exists("go%d" % answered):
        time.sleep(0.02)
        continue
    try:
        s = context.wrap_socket(socket.create_connection(address, 20), server_hostname="api.example.com")
        s.sendall(b"GET /old HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n")
        text = b"".join(iter(lambda: s.recv(4096), b"")).decode()
    except Exception as e:
        text = repr(e)
    with open("answer.tmp", "w") as f:
        f.write(text)
    os.rename("answer.tmp", "answer%d" % answered)
    answered += 1
`

// TestThroughLife shows that the policy, the credentials, the trust and programs' lookups stay
// valid through pauses, forks, rollbacks and deaths of the daemon.
func TestThroughLife(t *testing.T) { throughLife(t, open) }

// TestMachineThroughLife shows the same of virtual machines.
func TestMachineThroughLife(t *testing.T) { throughLife(t, openMachines) }

func throughLife(t *testing.T, open func(*testing.T, *outside) *house) {
	o := newOutside(t)
	o.serve(t, "api.example.com", "203.0.113.9", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer the real key" {
			http.Error(w, "wrong key", http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, "welcome to %s\n", r.URL.Path)
	}))
	h := open(t, o)
	if _, err := h.svc.(carrel.Secrets).CreateSecret(t.Context(), carrel.NewSecret{Name: "api-key", Value: "the real key", Hosts: []string{"api.example.com"}}); err != nil {
		t.Fatal(err)
	}
	d := h.desk(t, &carrel.Policy{
		Rules:  []carrel.Rule{{Name: "api", Allow: []string{"api.example.com"}}},
		Inject: []carrel.Injection{{Host: "api.example.com", Bearer: "api-key"}},
	})
	d.write("friend.py", oldFriend)
	d.must(t, "(python3 friend.py >friend.log 2>&1 &); for i in $(seq 600); do [ -e ready ] && exit; sleep 0.05; done; cat friend.log; exit 1", "")
	asked := 0
	check := func(d *desk, when string) {
		t.Helper()
		d.must(t, "curl -sS --max-time 30 https://api.example.com/"+when, "welcome to /"+when)
		for _, url := range []string{"https://denied.example.net/", "http://198.51.100.20/"} {
			if code, out := d.try(t, "curl -sS --max-time 30 "+url); code == 0 {
				t.Errorf("%s: %s answered: %s", when, url, out)
			}
		}
		out := d.must(t, fmt.Sprintf("touch go%d; for i in $(seq 600); do [ -e answer%d ] && cat answer%d && exit; sleep 0.05; done; exit 1", asked, asked, asked), "")
		if !strings.Contains(out, "welcome to /old") {
			t.Errorf("%s: a program that kept the address got %s", when, out)
		}
	}
	check(d, "new")
	asked++

	if _, err := h.svc.Pause(t.Context(), d.id, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	h.Kill9()
	h.Restart()
	if _, _, err := h.svc.Resume(t.Context(), d.id, carrel.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	check(d, "resumed-by-another-daemon")
	asked++

	snap, err := h.svc.Snapshot(t.Context(), d.id, carrel.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	forks, err := h.svc.Fork(t.Context(), d.id, carrel.ForkOptions{Count: 1, Timeout: time.Hour})
	if err != nil || forks[0].Err != nil {
		t.Fatal(err, forks)
	}
	c, err := h.svc.Computer(t.Context(), forks[0].Sandbox.ID)
	if err != nil {
		t.Fatal(err)
	}
	check(&desk{Computer: c, t: t, id: forks[0].Sandbox.ID}, "forked")
	if _, err := h.svc.Rollback(t.Context(), d.id, snap.ID, carrel.RollbackOptions{}); err != nil {
		t.Fatal(err)
	}
	check(d, "rolled-back")
	asked++

	h.Kill9()
	h.Restart()
	check(d, "adopted")
	asked++

	// A change of the rules must be just as durable.
	if _, err := h.svc.SetNetwork(t.Context(), d.id, carrel.Network{}); err != nil {
		t.Fatal(err)
	}
	h.Kill9()
	h.Restart()
	if code, out := d.try(t, "curl -sS --max-time 30 https://api.example.com/closed"); code == 0 {
		t.Errorf("after the rules were taken back: %s", out)
	}
	if n := o.strays.Load(); n > 0 {
		t.Errorf("%d requests reached a server that no policy allowed", n)
	}
}
