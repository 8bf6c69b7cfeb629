package wire

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/time/rate"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

const (
	// dnsIdle ends an idle resolver session. A program asks for A and AAAA at once and then leaves.
	dnsIdle       = 2 * time.Second
	dnsStreamIdle = 10 * time.Second
	// dnsTimeout bounds one question.
	dnsTimeout = 5 * time.Second
	// dnsWriting is how long a sandbox may leave an answer unread.
	dnsWriting = 30 * time.Second
	dnsMaxUDP  = 1232
	// maxQuestions bounds how many questions of one session are under way at once.
	maxQuestions = 16
	// dnsRate and dnsBurst bound one sandbox's questions: dnsRate per second, dnsBurst at once.
	dnsRate, dnsBurst = 200, 1000
)

// nameService is the resolver of one sandbox. A question is itself a message to the outside. So a
// question for a name that is not allowed is answered here and goes no further.
type nameService struct {
	out  *egress
	pace *rate.Limiter
}

func newNameService(e *egress) *nameService {
	return &nameService{out: e, pace: rate.NewLimiter(dnsRate, dnsBurst)}
}

// servePackets answers one UDP socket's questions.
func (s *nameService) servePackets(f *flow, in net.Conn) {
	s.serve(f, in, &dns.Conn{Conn: packets{in}, UDPSize: dns.MaxMsgSize}, dnsIdle, true)
}

// serveStream answers one TCP connection's questions.
func (s *nameService) serveStream(f *flow, in net.Conn) {
	s.serve(f, in, &dns.Conn{Conn: in}, dnsStreamIdle, false)
}

// packets makes dns.Conn treat a connection as datagrams. dns.Conn checks for this method.
type packets struct{ net.Conn }

func (p packets) ReadFrom(b []byte) (int, net.Addr, error) {
	n, err := p.Conn.Read(b)
	return n, p.Conn.RemoteAddr(), err
}

func (p packets) WriteTo(b []byte, _ net.Addr) (int, error) { return p.Conn.Write(b) }

// serve answers questions as they come, several at a time, because programs ask for A and AAAA
// together and wait for both. It returns when the session was idle for a while and every answer is
// sent.
func (s *nameService) serve(f *flow, in net.Conn, c *dns.Conn, idle time.Duration, udp bool) {
	defer context.AfterFunc(f.ctx, func() { _ = in.SetDeadline(time.Unix(1, 0)) })()
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex // one answer at a time on a stream
		slots = make(chan struct{}, maxQuestions)

		broken atomic.Bool
	)
	defer wg.Wait()
	send := func(q, a *dns.Msg) {
		if a == nil {
			return
		}
		if udp {
			size := dns.MinMsgSize
			if o := q.IsEdns0(); o != nil {
				size = min(max(int(o.UDPSize()), dns.MinMsgSize), dnsMaxUDP)
			}
			a.Truncate(size)
		}
		mu.Lock()
		defer mu.Unlock()
		_ = c.SetWriteDeadline(time.Now().Add(dnsWriting))
		if c.WriteMsg(a) != nil && !udp {
			broken.Store(true) // a part of an answer may be lost
			_ = in.SetDeadline(time.Unix(1, 0))
		}
	}
	for f.ctx.Err() == nil && !broken.Load() {
		_ = c.SetReadDeadline(time.Now().Add(idle))
		q, err := c.ReadMsg()
		if err != nil {
			if q == nil {
				return
			}
			if !q.Response {
				send(q, &dns.Msg{MsgHdr: dns.MsgHdr{Id: q.Id, Response: true, Rcode: dns.RcodeFormatError}})
			}
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			send(q, s.answer(f, q))
		})
	}
}

// answer answers one question. Nil means no answer.
func (s *nameService) answer(f *flow, q *dns.Msg) *dns.Msg {
	if q.Response {
		return nil // answering answers could go on for ever
	}
	a := new(dns.Msg).SetReply(q)
	a.RecursionAvailable = true
	if o := q.IsEdns0(); o != nil {
		a.SetEdns0(dnsMaxUDP, false)
	}
	switch {
	case q.Opcode != dns.OpcodeQuery:
		a.Rcode = dns.RcodeNotImplemented
		return a
	case len(q.Question) != 1:
		a.Rcode = dns.RcodeFormatError
		return a
	}
	asked := q.Question[0]
	known := policy.Flow{UDP: true, Port: dnsPort, Name: plainName(asked.Name)}
	refuse := func(code int, v policy.Verdict) *dns.Msg {
		d := s.decision(f, asked, known, v)
		s.out.refusals.explain(f.ctx, &d, f.from, true)
		s.out.refusals.record(d)
		a.Rcode = code
		explainIn(a, v.Reason)
		return a
	}
	if known.Name == "" || asked.Qclass != dns.ClassINET {
		return refuse(dns.RcodeRefused, denied("question", "the name or class of the question is none that is answered here"))
	}
	r := s.out.link.rules.Load()
	v := r.JudgeName(known.Name)
	switch {
	case !v.Allow:
		return refuse(dns.RcodeNameError, v)
	case v.Host:
		if no := s.out.hostForbidden(0); no != nil {
			return refuse(dns.RcodeNameError, *no)
		}
		s.out.refusals.record(s.decision(f, asked, known, v))
		return s.hostAnswer(a, asked)
	case asked.Qtype == dns.TypeHTTPS || asked.Qtype == dns.TypeSVCB:
		// These records lead past the name: to other addresses and ports, and to encrypted hellos.
		return a
	case !passing[asked.Qtype]:
		return refuse(dns.RcodeRefused, denied("question", "questions of type "+dns.TypeToString[asked.Qtype]+" are not answered"))
	case !s.pace.Allow():
		return refuse(dns.RcodeRefused, denied("questions per second", "the sandbox asks for too many names"))
	}
	started := time.Now()
	ctx, cancel := context.WithTimeout(f.ctx, dnsTimeout)
	defer cancel()
	got, err := s.ask(ctx, r, known.Name, asked.Qtype)
	d := s.decision(f, asked, known, v)
	d.Duration = time.Since(started)
	if err != nil {
		a.Rcode = dns.RcodeServerFailure
		d.Reason = err.Error()
		s.out.refusals.record(d)
		return a
	}
	if got.removed != nil && got.addresses == nil {
		d = s.decision(f, asked, known, *got.removed)
	}
	s.out.refusals.record(d)
	a.Rcode, a.Answer = got.code, got.records
	for _, rr := range a.Answer {
		if h := rr.Header(); strings.EqualFold(h.Name, asked.Name) {
			h.Name = asked.Name // in the question's spelling, which some clients check
		}
	}
	return a
}

// hostTTL is how long a sandbox may keep the address of this host's services, in seconds.
const hostTTL = 60

// hostAnswer answers a question for this host's services. Nobody outside is asked.
func (s *nameService) hostAnswer(a *dns.Msg, asked dns.Question) *dns.Msg {
	if asked.Qtype != dns.TypeA {
		return a // the name is there, and has no such record
	}
	a.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: asked.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: hostTTL},
		A: policy.HostAddr.AsSlice()}}
	s.out.answers.learn(policy.HostName, policy.HostAddr, hostTTL*time.Second)
	return a
}

// passing lists the types of records that are answered.
var passing = map[uint16]bool{
	dns.TypeA: true, dns.TypeAAAA: true, dns.TypeCNAME: true, dns.TypeTXT: true, dns.TypeMX: true,
	dns.TypeSRV: true, dns.TypeNS: true, dns.TypeSOA: true, dns.TypeCAA: true, dns.TypePTR: true,
}

// plainName returns a name in the form that policies use: in lower case and without the last dot.
// It returns "" for names that are not judged: the root, and names with bytes that no host name
// has.
func plainName(s string) string {
	s = strings.TrimSuffix(s, ".")
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f || c == '\\' {
			return ""
		}
	}
	return strings.ToLower(s)
}

// explainIn puts the reason into an answer, for clients that read it.
func explainIn(a *dns.Msg, reason string) {
	if o := a.IsEdns0(); o != nil {
		o.Option = append(o.Option, &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeBlocked, ExtraText: clipped("blocked by policy: " + reason)})
	}
}

// clipped shortens a text so that it fits a datagram.
func clipped(s string) string {
	const most = 300
	if len(s) > most {
		return s[:most]
	}
	return s
}

func (s *nameService) decision(f *flow, q dns.Question, known policy.Flow, v policy.Verdict) carrel.Decision {
	d := s.out.decision(time.Now(), known, v)
	d.Protocol, d.Method = "dns", dns.TypeToString[q.Qtype]
	return d
}
