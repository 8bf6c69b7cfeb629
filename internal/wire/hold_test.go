package wire_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/carrel-dev/carrel"
	inside "github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/inbox"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/internal/wire"
)

// waiting is a sandbox whose policy asks, and the inbox.
type waiting struct {
	*world
	t     *testing.T
	inbox *inbox.Inbox
	wire  *wire.Wire
	id    carrel.ID
	g     *guest

	rebound atomic.Pointer[wire.Table] // replaces the world's names

	mu   sync.Mutex
	told []inside.Refusal
	log  []carrel.Decision
}

func newWaiting(t *testing.T, rules ...carrel.Rule) *waiting {
	x := &waiting{world: newWorld(t), t: t, inbox: inbox.New(inbox.Options{})}
	n := carrel.Network{Policy: &carrel.Policy{Rules: rules}}
	x.wire, x.id, _, x.g = newLink(t, wire.Options{Resolver: x, Dialer: x.Table, Egress: always(n),
		Ask: x.inbox.Ask,
		Refused: func(_ context.Context, _ carrel.ID, r inside.Refusal) inside.RefusalReply {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.told = append(x.told, r)
			return inside.RefusalReply{Process: "curl (pid 7)"}
		},
		Audit: func(d carrel.Decision) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.log = append(x.log, d)
		},
	})
	return x
}

func all(carrel.Question) bool { return true }

func (x *waiting) list() []carrel.Question {
	return x.inbox.List(context.Background(), 0, 0, all).Questions
}

// one waits for a single question for which this many connections wait.
func (x *waiting) one(connections int) (q carrel.Question) {
	x.t.Helper()
	testenv.Eventually(x.t, fmt.Sprintf("one question with %d connections", connections), func() bool {
		list := x.list()
		if len(list) != 1 || list[0].Waiting != connections {
			return false
		}
		q = list[0]
		return true
	})
	return q
}

func (x *waiting) answer(q carrel.Question, answer, length string) {
	x.t.Helper()
	_, err := x.inbox.Answer(q.ID, "Ann", carrel.Answer{Answer: answer, For: length}, all, func(carrel.Question, string) error { return nil })
	if err != nil {
		x.t.Fatal(err)
	}
}

// get asks for a page over cleartext HTTP and returns what comes.
func (x *waiting) get(name, path string) chan string {
	out := make(chan string, 1)
	at := x.g.lookup(name)
	go func() {
		if len(at) == 0 {
			out <- "no address"
			return
		}
		out <- x.g.send(at[0], 80, []byte("GET "+path+" HTTP/1.1\r\nHost: "+name+"\r\n\r\n"))
	}()
	return out
}

var askAPI = carrel.Rule{Ask: []string{"api.example.com"}}

// TestHeld walks a connection through the inbox: held, once, held again, an hour, no.
func TestHeld(t *testing.T) {
	x := newWaiting(t, askAPI)
	first := x.get("api.example.com", "/first")
	testenv.Eventually(t, "the program's name", func() bool { return x.one(1).Process != "" })
	q := x.one(1)
	if q.Host != "api.example.com" || q.Port != 80 || q.Protocol != "http" || q.Process != "curl (pid 7)" || q.Rule != "rule 1" || q.Method != "" {
		t.Errorf("%+v", q)
	}
	if x.has("/first") {
		t.Error("something left before the answer")
	}
	x.answer(q, "allow", "")
	if got := <-first; !strings.Contains(got, "200 OK") {
		t.Errorf("after a yes: %q", got)
	}
	second := x.get("api.example.com", "/second")
	x.answer(x.one(1), "deny", "once")
	if got := <-second; !strings.Contains(got, "403") || !strings.Contains(got, "Ann said no, once") || x.has("/second") {
		t.Errorf("after a no: %q", got)
	}
	third := x.get("api.example.com", "/third")
	x.answer(x.one(1), "allow", "hour")
	if got := <-third; !strings.Contains(got, "200 OK") {
		t.Errorf("after an hour's yes: %q", got)
	}
	if got := <-x.get("api.example.com", "/fourth"); !strings.Contains(got, "200 OK") {
		t.Errorf("in the hour: %q", got)
	}
	const want = "true Ann, once|false Ann, once|true Ann, for an hour|true Ann, for an hour"
	testenv.EventuallyNil(t, "the audit log", func() error {
		if got := x.answers(); got != want {
			return fmt.Errorf("%s, want %s", got, want)
		}
		return nil
	})
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.told) < 2 || !x.told[0].Held || !strings.Contains(x.told[0].Line, "carrel: held http://api.example.com:80") || !strings.Contains(x.told[0].Line, q.ID) {
		t.Errorf("told %+v", x.told)
	}
}

// answers are the verdicts on requests in the audit log, and who answered.
func (x *waiting) answers() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []string
	for _, d := range x.log {
		if d.Protocol == "http" {
			out = append(out, fmt.Sprint(d.Allowed, " ", d.Answer))
		}
	}
	return strings.Join(out, "|")
}

// TestHeldTogether checks that equal connections are one question.
func TestHeldTogether(t *testing.T) {
	x := newWaiting(t, askAPI)
	var all []chan string
	for range 10 {
		all = append(all, x.get("api.example.com", "/"))
	}
	x.answer(x.one(10), "allow", "once")
	for _, c := range all {
		if got := <-c; !strings.Contains(got, "200 OK") {
			t.Errorf("%q", got)
		}
	}
}

// TestHeldTLS checks a connection that is never opened, and one that nobody answers.
func TestHeldTLS(t *testing.T) {
	x := newWaiting(t, askAPI)
	at := x.g.lookup("api.example.com")[0]
	hello := realHello(&tls.Config{ServerName: "api.example.com"})
	got := make(chan string, 1)
	go func() { got <- x.g.send(at, 443, hello) }()
	q := x.one(1)
	if q.Protocol != "tls" || q.Host != "api.example.com" {
		t.Errorf("%+v", q)
	}
	x.answer(q, "allow", "once")
	if g := <-got; g != "ok" || !x.await("api.example.com") {
		t.Errorf("after a yes: %q", g)
	}
	// Nobody answers.
	short := carrel.Policy{AskSeconds: 1, Rules: []carrel.Rule{askAPI}}
	if err := x.wire.SetNetwork(x.id, ready(carrel.Network{Policy: &short})); err != nil {
		t.Fatal(err)
	}
	if g := x.g.send(at, 443, hello); g != "" {
		t.Errorf("nobody answered: %q", g)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	last := x.log[len(x.log)-1]
	if last.Allowed || !strings.Contains(last.Reason, "nobody answered within 1s") {
		t.Errorf("%+v", last)
	}
}

// TestHeldLies tries to get a yes for another thing than the person was asked about.
func TestHeldLies(t *testing.T) {
	x := newWaiting(t, carrel.Rule{Ask: []string{"*"}})
	bad := x.g.lookup("bad.example.net")[0]
	for name, text := range map[string][]byte{
		"server name": tlsHello(sni("api.example.com")),
		"host":        []byte("GET /secret HTTP/1.1\r\nHost: api.example.com\r\n\r\n"),
	} {
		got := make(chan string, 1)
		port := uint16(443)
		if name == "host" {
			port = 80
		}
		go func() { got <- x.g.send(bad, port, text) }()
		q := x.one(1)
		if q.Host != bad {
			t.Errorf("a forged %s: the person is asked about %s", name, q.Host)
		}
		x.answer(q, "deny", "once")
		if g := <-got; strings.Contains(g, "200 OK") || x.has("/secret") {
			t.Errorf("a forged %s got out: %q", name, g)
		}
	}
	// A yes to one host of a connection is no yes to another one.
	c, err := x.g.dial(within(t, time.Minute), x.g.lookup("api.example.com")[0], 80)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(c, "GET /one HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
	q := x.one(1)
	if q.Host != "api.example.com" {
		t.Errorf("%+v", q)
	}
	x.answer(q, "allow", "once")
	b := make([]byte, 4<<10)
	if n, _ := c.Read(b); !strings.Contains(string(b[:n]), "200 OK") {
		t.Fatalf("%q", b[:n])
	}
	io.WriteString(c, "GET /two HTTP/1.1\r\nHost: bad.example.net\r\n\r\n")
	q = x.one(1)
	if q.Host != goodIPv4 {
		t.Errorf("the person is asked about %s, where the request goes to %s", q.Host, goodIPv4)
	}
	x.answer(q, "deny", "once")
	if n, _ := c.Read(b); !strings.Contains(string(b[:n]), "403") || x.has("/two") {
		t.Errorf("%q", b[:n])
	}
}

// TestHeldRebinding changes the name's addresses between the question and the answer.
func TestHeldRebinding(t *testing.T) {
	x := newWaiting(t, carrel.Rule{Ask: []string{"api.example.com", "rebind.example.com"}})
	if got := x.g.lookup("rebind.example.com"); len(got) != 0 {
		t.Errorf("addresses out of reach are told: %v", got)
	}
	got := x.get("api.example.com", "/rebound")
	q := x.one(1)
	x.names("api.example.com", "127.0.0.1", "10.0.0.5", "169.254.169.254")
	x.answer(q, "allow", "once")
	if g := <-got; strings.Contains(g, "200 OK") || x.has("/rebound") {
		t.Errorf("a yes to a name led to an address out of reach: %q", g)
	}
	if len(x.list()) != 0 {
		t.Error(x.list())
	}
}

// names changes the addresses of a name.
func (x *waiting) names(name string, addresses ...string) {
	x.rebound.Store(&wire.Table{Names: map[string][]string{name: addresses}})
}

// Exchange implements wire.Resolver.
func (x *waiting) Exchange(ctx context.Context, q *dns.Msg) (*dns.Msg, error) {
	if t := x.rebound.Load(); t != nil {
		return t.Exchange(ctx, q)
	}
	return x.world.Exchange(ctx, q)
}

// TestHeldNever checks that nobody is asked about what no rule may open.
func TestHeldNever(t *testing.T) {
	var asked atomic.Int32
	w := newWorld(t)
	_, _, _, g := w.link(t, carrel.Network{Policy: &carrel.Policy{Rules: []carrel.Rule{{Ask: []string{"*"}}}}},
		wire.Options{Ask: func(context.Context, inbox.Ask) inbox.Reply { asked.Add(1); return inbox.Reply{Allow: true} }})
	for _, a := range []string{"10.0.0.5", "169.254.169.254", "fd00::5", "64:ff9b::a00:5"} {
		if got := g.send(a, 80, []byte("GET /never HTTP/1.1\r\nHost: "+a+"\r\n\r\n")); strings.Contains(got, "200") {
			t.Errorf("%s: %q", a, got)
		}
	}
	g.datagram(goodIPv4, 9999, []byte("/never"))
	if n := asked.Load(); n != 0 || w.has("/never") {
		t.Errorf("asked %d times; left: %v", n, w.has("/never"))
	}
}

// TestHeldNobody checks that a wire without an inbox lets nothing out.
func TestHeldNobody(t *testing.T) {
	w := newWorld(t)
	_, _, _, g := w.link(t, carrel.Network{Policy: &carrel.Policy{Rules: []carrel.Rule{askAPI}}}, wire.Options{})
	got := g.send(g.lookup("api.example.com")[0], 80, []byte("GET /nobody HTTP/1.1\r\nHost: api.example.com\r\n\r\n"))
	if !strings.Contains(got, "there is nobody to ask here") || w.has("/nobody") {
		t.Errorf("%q", got)
	}
}

// TestHeldEnds checks that a question ends with its connection, its link or its rule.
func TestHeldEnds(t *testing.T) {
	for name, end := range map[string]func(x *waiting, c net.Conn){
		"the sandbox leaves": func(_ *waiting, c net.Conn) { c.Close() },
		"the link ends":      func(x *waiting, _ net.Conn) { x.wire.Close() },
		"the rule goes": func(x *waiting, _ net.Conn) {
			if err := x.wire.SetNetwork(x.id, ready(carrel.Network{Policy: &carrel.Policy{}})); err != nil {
				x.t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWaiting(t, askAPI)
			c, err := x.g.dial(within(t, time.Minute), x.g.lookup("api.example.com")[0], 80)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, "GET /ended HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
			q := x.one(1)
			end(x, c)
			testenv.Eventually(t, "the question ends", func() bool { return len(x.list()) == 0 })
			_, err = x.inbox.Answer(q.ID, "Ann", carrel.Answer{Answer: "allow"}, all, nil)
			if carrel.KindOf(err) != carrel.NotFound || x.has("/ended") {
				t.Errorf("%v; left: %v", err, x.has("/ended"))
			}
		})
	}
}

// TestHeldRules checks that new rules which allow a held connection let it go on.
func TestHeldRules(t *testing.T) {
	x := newWaiting(t, askAPI)
	got := x.get("api.example.com", "/new")
	x.one(1)
	if err := x.wire.SetNetwork(x.id, ready(carrel.Network{Policy: &carrel.Policy{Rules: []carrel.Rule{{Allow: []string{"api.example.com"}}}}})); err != nil {
		t.Fatal(err)
	}
	if g := <-got; !strings.Contains(g, "200 OK") || len(x.list()) != 0 {
		t.Errorf("%q, %v", g, x.list())
	}
}

// TestHeldOpen checks that a connection with a yes outlives rules that still ask, and no others.
func TestHeldOpen(t *testing.T) {
	x := newWaiting(t, carrel.Rule{Ask: []string{goodIPv4}, Ports: []string{"9000"}, Protocol: "tcp"})
	c, err := x.g.dial(within(t, time.Minute), goodIPv4, 9000)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	x.answer(x.one(1), "allow", "once")
	if !works(c, []byte("one")) {
		t.Fatal("a connection with a yes does not work")
	}
	more := carrel.Policy{Rules: []carrel.Rule{{Allow: []string{"other.example.com"}}, {Ask: []string{goodIPv4}, Ports: []string{"9000"}, Protocol: "tcp"}}}
	if err := x.wire.SetNetwork(x.id, ready(carrel.Network{Policy: &more})); err != nil {
		t.Fatal(err)
	}
	if !works(c, []byte("two")) {
		t.Error("it was cut, although its rule is there")
	}
	if err := x.wire.SetNetwork(x.id, ready(onlyAPI)); err != nil {
		t.Fatal(err)
	}
	if !ends(c) {
		t.Error("it outlives its rule")
	}
}

// TestHeldFlood opens far more connections than may wait.
func TestHeldFlood(t *testing.T) {
	testenv.Long(t, "10,000 connections")
	x := newWaiting(t, carrel.Rule{Ask: []string{"203.0.113.0/24"}, Protocol: "tcp"})
	var refused atomic.Int32
	var wg sync.WaitGroup
	slots := make(chan struct{}, 200)
	for i := range 10_000 {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			c, err := x.g.dial(within(t, time.Minute), goodIPv4, uint16(1000+i%50000))
			if err != nil {
				refused.Add(1)
				return
			}
			defer c.Close()
			_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
			if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
				t.Error("something came")
			}
		})
		if n := len(x.list()); n > 64 {
			t.Fatalf("%d questions", n)
		}
	}
	wg.Wait()
	testenv.Eventually(t, "the inbox is empty", func() bool { return len(x.list()) == 0 })
	if x.text() != "" {
		t.Errorf("left: %q", x.text())
	}
}
