package wire

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// FuzzAnswer sends any bytes as a question. The answer must be a DNS message, nothing may break,
// and only the one allowed name may be asked outside.
func FuzzAnswer(f *testing.F) {
	w := New(Options{Resolver: only{f, "api.example.com."}})
	l := &Link{id: carrel.NewID(), wire: w, ctx: context.Background()}
	p, err := policy.Compile(carrel.Network{Policy: &carrel.Policy{Rules: []carrel.Rule{{Allow: []string{"api.example.com"}}}}})
	if err != nil {
		f.Fatal(err)
	}
	l.rules.Store(w.newRules(p))
	l.out = newEgress(l)
	for _, q := range []*dns.Msg{
		new(dns.Msg).SetQuestion("api.example.com.", dns.TypeA), new(dns.Msg).SetQuestion("API.example.com.", dns.TypeTXT),
		new(dns.Msg).SetQuestion("evil.example.net.", dns.TypeA).SetEdns0(1232, true), new(dns.Msg).SetNotify("example.com."), {},
	} {
		b, err := q.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		q := new(dns.Msg)
		if q.Unpack(b) != nil {
			return
		}
		fl := &flow{ctx: t.Context()}
		a := l.out.names.answer(fl, q)
		if a == nil {
			return
		}
		a.Truncate(dns.MinMsgSize)
		packed, err := a.Pack()
		if err != nil {
			return // nor can the question itself
		}
		if err := new(dns.Msg).Unpack(packed); err != nil {
			t.Errorf("the answer can't be read: %v", err)
		}
	})
}

// only is a resolver that must be asked for no other name.
type only struct {
	t    testing.TB
	name string
}

func (o only) Exchange(_ context.Context, q *dns.Msg) (*dns.Msg, error) {
	if q.Question[0].Name != o.name {
		o.t.Errorf("asked for %q", q.Question[0].Name)
	}
	a := new(dns.Msg).SetReply(q)
	a.Answer = append(a.Answer, &dns.A{Hdr: dns.RR_Header{Name: o.name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.IPv4(203, 0, 113, 9)})
	return a, nil
}

func TestAnswers(t *testing.T) {
	now := time.Unix(0, 0)
	a := newAnswers()
	a.now = func() time.Time { return now }
	addr := netip.MustParseAddr("203.0.113.9")
	a.learn("a.example.com", addr, time.Minute)
	a.learn("b.example.com", netip.MustParseAddr("::ffff:203.0.113.9"), time.Hour)
	a.learn("a.example.com", addr, time.Minute)
	if got := a.names(addr); !slices.Equal(got, []string{"a.example.com", "b.example.com"}) {
		t.Errorf("%v", got)
	}
	now = now.Add(time.Minute + answerGrace + 1)
	if got := a.names(addr); !slices.Equal(got, []string{"b.example.com"}) {
		t.Errorf("after the time to live: %v", got)
	}
	release := a.hold(addr)
	now = now.Add(24 * time.Hour)
	if got := a.names(addr); len(got) != 1 {
		t.Errorf("while a connection is open: %v", got)
	}
	release()
	if got := a.names(addr); len(got) != 0 {
		t.Errorf("afterwards: %v", got)
	}
	a.hold(netip.MustParseAddr("203.0.113.10"))()
	// The table is bounded: the oldest addresses go, those with connections stay.
	for i := range 3 * maxAnswerNames {
		a.learn(string(rune('a'+i)), addr, time.Hour)
	}
	if got := a.names(addr); len(got) != maxAnswerNames {
		t.Errorf("%d names of one address", len(got))
	}
	defer a.hold(addr)()
	for i := range maxAnswers + 100 {
		a.learn("x.example.com", netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), time.Hour)
	}
	if len(a.entries) > maxAnswers || a.recent.Len() != len(a.entries) || len(a.names(addr)) == 0 {
		t.Errorf("%d addresses, %d in order, names %v", len(a.entries), a.recent.Len(), a.names(addr))
	}
}

// TestTextual shows that bytes which the most lenient server may take for a request are judged as
// one.
func TestTextual(t *testing.T) {
	for text, want := range map[string]struct {
		app policy.App
		how certainty
	}{
		"GET / HTTP/1.1\r\n":          {policy.AppHTTP, sure},
		"GET ":                        {policy.AppHTTP, sure},
		"get\t/":                      {policy.AppHTTP, sure},
		"G":                           {policy.AppHTTP, begun},
		"\r\n\r\n":                    {policy.AppHTTP, begun},
		"\r\nPOST /":                  {policy.AppHTTP, sure},
		"PRI * HTTP/2.0\r\n":          {policy.AppHTTP, sure},
		"M-SEARCH * HTTP/1.1\n":       {policy.AppHTTP, sure},
		" GET / http/1.1\n":           {policy.AppHTTP, sure},
		"XYZZY /":                     {policy.AppOther, unclear},
		"SSH-2.0-OpenSSH_9.2 x\r\n":   {policy.AppOther, sure},
		"EHLO example.com\r\n":        {policy.AppOther, sure},
		"\x00\x01":                    {policy.AppOther, sure},
		"GETX":                        {policy.AppOther, unclear},
		"A\x7f":                       {policy.AppOther, sure},
		string(make([]byte, 1)) + "A": {policy.AppOther, sure},
	} {
		if app, how := textual([]byte(text)); app != want.app || how != want.how {
			t.Errorf("%q: %v %v, want %v", text, app, how, want)
		}
	}
}

func FuzzTextual(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\n"), 3)
	f.Add([]byte("SSH-2.0-x\r\n"), 1)
	f.Add([]byte("GET 00000\x7f"), 9)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		if cut < 0 || cut > len(b) {
			return
		}
		// A sure result must not change when more bytes come.
		app, how := textual(b[:cut])
		if more, _ := textual(b); how == sure && cut > 0 && more != app {
			t.Errorf("%q is %v, with %q it is %v", b[:cut], app, b[cut:], more)
		}
	})
}
