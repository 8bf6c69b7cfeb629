package net

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestAsk lets real programs wait for a person, in the tiers that have a kernel of their own and in
// namespaces.
func TestAsk(t *testing.T) {
	tiers := []carrel.Tier{carrel.GVisor, carrel.NS}
	if testing.Short() {
		tiers = tiers[:1]
	}
	askIn(t, open, tiers...)
}

// TestMachineAsk lets programs in a virtual machine wait.
func TestMachineAsk(t *testing.T) {
	testenv.Long(t, "the other tiers ask in the same way")
	askIn(t, openMachines, carrel.MicroVM)
}

func askIn(t *testing.T, open func(*testing.T, *outside) *house, tiers ...carrel.Tier) {
	o := newOutside(t)
	o.serve(t, "api.example.com", "198.51.100.21", webSite())
	h := open(t, o)
	for _, tier := range tiers {
		t.Run(string(tier), func(t *testing.T) { testAsk(t, h, tier) })
	}
	if n := o.strays.Load(); n != 0 {
		t.Errorf("%d connections went elsewhere", n)
	}
}

// asking is a sandbox whose policy asks.
type asking struct {
	*desk
	h     *house
	inbox carrel.Inbox
}

func testAsk(t *testing.T, h *house, tier carrel.Tier) {
	p := &carrel.Policy{AskSeconds: 600, Rules: []carrel.Rule{{Ask: []string{"api.example.com"}}}}
	sb, err := h.svc.Create(t.Context(), carrel.CreateOptions{Tier: tier, Network: carrel.Network{Policy: p}, Timeout: 30 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	c, err := h.svc.Computer(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	a := &asking{desk: &desk{Computer: c, t: t, id: sb.ID}, h: h, inbox: h.svc.(*client.Client).Inbox()}
	a.answers(t)
	a.pauses(t)
	a.restarts(t)
	if err := h.svc.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
}

const curlAsk = "curl -skS --max-time 200 -o /dev/null -w '%{http_code}' https://api.example.com/v1/items/1"

// start runs curl, and returns what it prints.
func (a *asking) start(t *testing.T) chan string {
	out := make(chan string, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() {
		r, err := a.Run(ctx, carrel.Command{Shell: curlAsk, Timeout: 5 * time.Minute})
		if err != nil {
			out <- err.Error()
			return
		}
		out <- string(r.Stdout) + string(r.Stderr)
	})
	return out
}

// one waits for the sandbox's question.
func (a *asking) one(t *testing.T) (q carrel.Question) {
	t.Helper()
	testenv.Eventually(t, "a question", func() bool {
		list, err := a.inbox.Questions(t.Context(), carrel.InboxOptions{Sandbox: a.id})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Questions) != 1 {
			return false
		}
		q = list.Questions[0]
		return true
	})
	return q
}

// answers goes through the answers, given with the command line.
func (a *asking) answers(t *testing.T) {
	first := a.start(t)
	q := a.one(t)
	if q.Host != "api.example.com" || q.Port != 443 {
		t.Errorf("%+v", q)
	}
	var shown carrel.InboxList
	out, err := a.h.CLI("inbox", "--json").Output()
	if err != nil || json.Unmarshal(out, &shown) != nil || len(shown.Questions) != 1 || shown.Questions[0].ID != q.ID {
		t.Errorf("%v: %s", err, out)
	}
	cli := func(args ...string) {
		t.Helper()
		if out, err := a.h.CLI(append([]string{"inbox"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	cli("allow", q.ID)
	if got := <-first; !strings.Contains(got, "200") || !strings.Contains(got, "carrel: held https://api.example.com:443") {
		t.Errorf("after a yes: %s", got)
	}
	if _, err := a.inbox.Answer(t.Context(), q.ID, carrel.Answer{Answer: "deny"}); carrel.KindOf(err) != carrel.Conflict {
		t.Errorf("a second answer: %v", err)
	}
	denied := a.start(t)
	cli("deny", a.one(t).ID)
	if got := <-denied; strings.Contains(got, "200") || !strings.Contains(got, "said no, once") {
		t.Errorf("after a no: %s", got)
	}
	hour := a.start(t)
	cli("allow", a.one(t).ID, "--for", "hour")
	if got := <-hour; !strings.Contains(got, "200") {
		t.Errorf("for an hour: %s", got)
	}
	a.must(t, curlAsk, "200")
}

// pauses pauses a sandbox whose program waits, forks it, and rules for ever.
func (a *asking) pauses(t *testing.T) {
	// Another rule: the hour's answer is not for it.
	p := &carrel.Policy{AskSeconds: 600, Rules: []carrel.Rule{{Ask: []string{"api.example.com"}, Ports: []string{"443"}}}}
	if _, err := a.h.svc.SetNetwork(t.Context(), a.id, carrel.Network{Policy: p}); err != nil {
		t.Fatal(err)
	}
	a.start(t)
	q := a.one(t)
	if _, err := a.h.svc.Pause(t.Context(), a.id, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the question ends", func() bool {
		list, err := a.inbox.Questions(t.Context(), carrel.InboxOptions{})
		return err == nil && len(list.Questions) == 0
	})
	if _, err := a.inbox.Answer(t.Context(), q.ID, carrel.Answer{Answer: "allow"}); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("an answer to a paused sandbox: %v", err)
	}
	if _, _, err := a.h.svc.Resume(t.Context(), a.id, carrel.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	c, err := a.h.svc.Computer(t.Context(), a.id)
	if err != nil {
		t.Fatal(err)
	}
	a.desk.Computer = c
	a.must(t, "pkill curl; while pgrep curl; do sleep 0.1; done >/dev/null", "")
	always := a.start(t)
	if _, err := a.inbox.Answer(t.Context(), a.one(t).ID, carrel.Answer{Answer: "allow", For: "always"}); err != nil {
		t.Fatal(err)
	}
	if got := <-always; !strings.Contains(got, "200") {
		t.Errorf("for ever: %s", got)
	}
	sb, err := a.h.svc.Get(t.Context(), a.id)
	if err != nil || sb.Network.Policy == nil || sb.Network.Policy.Rules[0].Name != "answered" {
		t.Errorf("%+v, %v", sb.Network.Policy, err)
	}
	a.must(t, curlAsk, "200")
}

// restarts forks a sandbox whose program waits, and restarts the daemon. Only the original still
// waits after the fork, and nobody after the restart. The answer to an old question opens nothing.
func (a *asking) restarts(t *testing.T) {
	p := &carrel.Policy{AskSeconds: 600, Rules: []carrel.Rule{{Ask: []string{"api.example.com"}, Ports: []string{"443", "80"}}}}
	if _, err := a.h.svc.SetNetwork(t.Context(), a.id, carrel.Network{Policy: p}); err != nil {
		t.Fatal(err)
	}
	a.start(t)
	a.one(t)
	forks, err := a.h.svc.Fork(t.Context(), a.id, carrel.ForkOptions{})
	if err != nil || len(forks) != 1 || forks[0].Err != nil {
		t.Fatalf("%+v, %v", forks, err)
	}
	old := a.one(t)
	list, err := a.inbox.Questions(t.Context(), carrel.InboxOptions{})
	if err != nil || len(list.Questions) != 1 {
		t.Errorf("after the fork: %+v, %v", list.Questions, err)
	}
	if err := a.h.svc.Kill(t.Context(), forks[0].Sandbox.ID); err != nil {
		t.Fatal(err)
	}
	a.h.Kill9()
	a.h.Restart()
	if list, err = a.inbox.Questions(t.Context(), carrel.InboxOptions{}); err != nil || len(list.Questions) != 0 {
		t.Errorf("after the restart: %+v, %v", list.Questions, err)
	}
	if _, err := a.inbox.Answer(t.Context(), old.ID, carrel.Answer{Answer: "allow", For: "hour"}); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("an answer from before the restart: %v", err)
	}
	a.must(t, "pkill curl; while pgrep curl; do sleep 0.1; done >/dev/null", "")
	again := a.start(t)
	if q := a.one(t); q.ID == old.ID {
		t.Error("an old question is back")
	} else if _, err := a.inbox.Answer(t.Context(), q.ID, carrel.Answer{Answer: "deny"}); err != nil {
		t.Fatal(err)
	}
	if got := <-again; strings.Contains(got, "200") {
		t.Errorf("after a no: %s", got)
	}
}
