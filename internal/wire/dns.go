package wire

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	// dnsIdle ends a resolver session: a program asks for A and AAAA at once and
	// then leaves.
	dnsIdle = 2 * time.Second
	// dnsTimeout bounds one question.
	dnsTimeout = 5 * time.Second
	dnsMaxUDP  = 1232
)

// HostResolver forwards questions to the name servers of this host, as
// /etc/resolv.conf has them at that moment.
type HostResolver struct {
	// File is read instead of /etc/resolv.conf, if set.
	File string
	// Port is asked instead of 53, if set.
	Port string
}

// Exchange asks the servers in their order, over UDP and, where the answer does
// not fit, over TCP.
func (h *HostResolver) Exchange(ctx context.Context, q *dns.Msg) (*dns.Msg, error) {
	file := h.File
	if file == "" {
		file = "/etc/resolv.conf"
	}
	cfg, err := dns.ClientConfigFromFile(file)
	if err != nil {
		return nil, err
	}
	err = errors.New("no name server in " + file)
	if h.Port != "" {
		cfg.Port = h.Port
	}
	for _, s := range cfg.Servers {
		at := net.JoinHostPort(s, cfg.Port)
		var a *dns.Msg
		if a, _, err = (&dns.Client{Net: "udp", Timeout: 2 * time.Second}).ExchangeContext(ctx, q, at); err == nil && a.Truncated {
			a, _, err = (&dns.Client{Net: "tcp", Timeout: 3 * time.Second}).ExchangeContext(ctx, q, at)
		}
		if err == nil {
			return a, nil
		}
	}
	return nil, err
}

// resolvePackets answers one UDP socket's questions.
func (e *egress) resolvePackets(f *flow, in net.Conn) {
	stop := context.AfterFunc(f.ctx, func() { _ = in.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	e.resolve(f, &dns.Conn{Conn: packets{in}, UDPSize: dns.MaxMsgSize}, dnsIdle, true)
}

// resolveStream answers one TCP connection's questions.
func (e *egress) resolveStream(f *flow, in net.Conn) {
	stop := context.AfterFunc(f.ctx, func() { _ = in.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	e.resolve(f, &dns.Conn{Conn: in}, 10*time.Second, false)
}

// packets makes dns.Conn treat a connection as datagrams: it asks for this method.
type packets struct{ net.Conn }

func (p packets) ReadFrom(b []byte) (int, net.Addr, error) {
	n, err := p.Conn.Read(b)
	return n, p.Conn.RemoteAddr(), err
}

func (p packets) WriteTo(b []byte, _ net.Addr) (int, error) { return p.Conn.Write(b) }

// maxQuestions bounds the questions of one session that are under way.
const maxQuestions = 16

// resolve answers questions as they come, several at a time: programs ask for A and
// AAAA together and wait for both. It returns when the session was idle for a
// while and every answer is sent.
func (e *egress) resolve(f *flow, c *dns.Conn, idle time.Duration, udp bool) {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex // one answer at a time on a stream
		slots = make(chan struct{}, maxQuestions)
	)
	defer wg.Wait()
	send := func(q, a *dns.Msg) {
		if udp {
			size := dns.MinMsgSize
			if o := q.IsEdns0(); o != nil {
				size = min(max(int(o.UDPSize()), dns.MinMsgSize), dnsMaxUDP)
			}
			a.Truncate(size)
		}
		mu.Lock()
		defer mu.Unlock()
		_ = c.SetWriteDeadline(time.Now().Add(dnsTimeout))
		_ = c.WriteMsg(a)
	}
	for f.ctx.Err() == nil {
		_ = c.SetReadDeadline(time.Now().Add(idle))
		q, err := c.ReadMsg()
		if err != nil {
			if q == nil {
				return
			}
			send(q, new(dns.Msg).SetRcodeFormatError(q))
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			send(q, e.answer(f.ctx, q))
		})
	}
}

// answer never returns nil. A sandbox that may not leave gets NXDOMAIN for every
// name, so that programs give up at once.
func (e *egress) answer(ctx context.Context, q *dns.Msg) *dns.Msg {
	a := new(dns.Msg)
	switch {
	case q.Response || q.Opcode != dns.OpcodeQuery || len(q.Question) != 1:
		return a.SetRcode(q, dns.RcodeFormatError)
	case !e.link.policy.Load().Names():
		return a.SetRcode(q, dns.RcodeNameError)
	}
	ctx, cancel := context.WithTimeout(ctx, dnsTimeout)
	defer cancel()
	got, err := e.link.wire.opts.Resolver.Exchange(ctx, q.Copy())
	if err != nil || got == nil {
		return a.SetRcode(q, dns.RcodeServerFailure)
	}
	got.Id = q.Id
	return got
}
