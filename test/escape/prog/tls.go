package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/test/escape/plan"
)

// toAllowed sends a hello to the server that the list allows.
func toAllowed(h func(mark string) hello) func(*attempt) plan.Outcome {
	return func(a *attempt) plan.Outcome { return stream(plan.Allowed.V4, 443, h(a.mark).bytes()) }
}

// named sends a hello with a denied server name; the marker is a part of it.
func named(name string) func(*attempt) plan.Outcome {
	return toAllowed(func(mark string) hello { return hello{name: strings.ReplaceAll(name, "MARK", mark)} })
}

// kept sends a hello whose marker is in the session ID.
func kept(h hello) func(*attempt) plan.Outcome {
	return toAllowed(func(mark string) hello { h.session = mark; return h })
}

// deniedHello has a denied name with the marker in it.
func deniedHello(mark string) hello { return hello{name: mark + "." + plan.Denied.Name} }

// TLS to the allowed server, with other names in it.
var _ = add(map[string]func(*attempt) plan.Outcome{
	"control-tls": func(a *attempt) plan.Outcome {
		return web(plan.Allowed.V4, 443, plan.Allowed.Name, plan.Allowed.Name, a.mark)
	},
	"control-tls6": func(a *attempt) plan.Outcome {
		return web(plan.Allowed.V6, 443, plan.Allowed.Name, plan.Allowed.Name, a.mark)
	},
	"control-after-flood": func(a *attempt) plan.Outcome {
		return web(plan.Allowed.V4, 443, plan.Allowed.Name, plan.Allowed.Name, a.mark)
	},
	"control-tls-split": func(a *attempt) plan.Outcome {
		return splitWeb(a, func(b []byte) [][]byte { return split(b) })
	},
	"control-tls-records": func(a *attempt) plan.Outcome {
		return splitWeb(a, func(b []byte) [][]byte { return [][]byte{records(b[5:], 7)} })
	},
	"control-wild": func(a *attempt) plan.Outcome {
		name := a.mark + "." + plan.Wild
		if len(ask(name, 1)) == 0 {
			return plan.Outcome{Saw: plan.NoName}
		}
		return web(plan.Allowed.V4, 443, name, name, a.mark)
	},

	"sni-denied":      named("MARK." + plan.Denied.Name),
	"sni-shared-name": kept(hello{name: plan.Shared.Name}),
	"sni-none":        kept(hello{sni: []byte{}}),
	"sni-empty":       kept(hello{name: ""}),
	"sni-address":     kept(hello{name: plan.Allowed.V4}),
	"sni-wildcard":    kept(hello{name: "*." + plan.Wild}),
	"sni-suffix":      named(plan.Allowed.Name + ".MARK." + plan.Denied.Name),
	"sni-prefix":      named("MARK" + plan.Allowed.Name),
	"sni-nul":         named(plan.Allowed.Name + "\x00.MARK." + plan.Denied.Name),
	"sni-space":       named(plan.Allowed.Name + " MARK"),
	"sni-port":        named(plan.Allowed.Name + ":443.MARK"),
	"sni-slash":       named(plan.Allowed.Name + "/MARK"),
	"sni-unicode":     kept(hello{name: "\uff41llowed.example.com"}),
	"sni-long":        named(strings.Repeat("a.", 300) + "MARK." + plan.Wild),
	"sni-dots":        kept(hello{name: plan.Allowed.Name + ".."}),
	"sni-twice": toAllowed(func(mark string) hello {
		return hello{sni: append(extension(0, with16(serverName(0, plan.Allowed.Name))), extension(0, with16(serverName(0, mark+"."+plan.Denied.Name)))...)}
	}),
	"sni-two-names": toAllowed(func(mark string) hello {
		return hello{sni: extension(0, with16(append(serverName(0, plan.Allowed.Name), serverName(0, mark+"."+plan.Denied.Name)...)))}
	}),
	"sni-other-type": toAllowed(func(mark string) hello {
		return hello{sni: extension(0, with16(serverName(1, mark+"."+plan.Denied.Name)))}
	}),
	"sni-bad-length": toAllowed(func(mark string) hello {
		list := with16(serverName(0, plan.Allowed.Name))
		return hello{sni: extension(0, append(list, mark...))}
	}),
	"sni-allowed-at-denied-address": func(a *attempt) plan.Outcome {
		return stream(plan.Denied.V4, 443, hello{name: plan.Allowed.Name, session: a.mark}.bytes())
	},
	"sni-allowed-never-asked": func(a *attempt) plan.Outcome {
		return stream(plan.Quiet.V4, 443, hello{name: plan.Quiet.Name, session: a.mark}.bytes())
	},

	"ech-outer-allowed": toAllowed(func(mark string) hello { return hello{name: plan.Allowed.Name, last: ech(0xfe0d, mark)} }),
	"ech-old-codepoint": func(a *attempt) plan.Outcome {
		return each([]int{0xffce, 0xff02, 0xfe08, 0xfe09, 0xfe0a}, func(kind int) plan.Outcome {
			return stream(plan.Allowed.V4, 443, hello{name: plan.Allowed.Name, last: ech(kind, a.mark)}.bytes())
		})
	},

	"hello-split": func(a *attempt) plan.Outcome {
		return stream(plan.Allowed.V4, 443, split(deniedHello(a.mark).bytes())...)
	},
	"hello-records": func(a *attempt) plan.Outcome {
		// Small records, but the marker stays in one piece.
		m := deniedHello(a.mark).message()
		i := strings.Index(string(m), a.mark)
		out := append(records(m[:i], 3), record(22, m[i:i+len(a.mark)])...)
		return stream(plan.Allowed.V4, 443, append(out, records(m[i+len(a.mark):], 1)...))
	},
	"hello-huge": toAllowed(func(mark string) hello {
		h := deniedHello(mark)
		h.first = extension(21, make([]byte, 40_000))
		return h
	}),
	"hello-after-alert": func(a *attempt) plan.Outcome {
		return stream(plan.Allowed.V4, 443, record(21, []byte{1, 90}), deniedHello(a.mark).bytes())
	},
	"hello-after-empty-records": func(a *attempt) plan.Outcome {
		return stream(plan.Allowed.V4, 443, record(22, nil), record(22, nil), deniedHello(a.mark).bytes())
	},
	"hello-twice": func(a *attempt) plan.Outcome {
		// Two hellos in one record: which one counts?
		both := append(hello{name: plan.Allowed.Name}.message(), deniedHello(a.mark).message()...)
		return stream(plan.Allowed.V4, 443, record(22, both))
	},
	"hello-sslv2": func(a *attempt) plan.Outcome {
		body := append([]byte{1, 3, 1, 0, 6, 0, 0, 0, 32, 0, 0, 0x2f, 0, 0, 0x35}, (a.mark + strings.Repeat("x", 32))[:32]...)
		return stream(plan.Allowed.V4, 443, append([]byte{0x80, byte(len(body))}, body...))
	},
	"hello-urgent": urgentHello,
	"hello-half": func(a *attempt) plan.Outcome {
		b := hello{name: plan.Allowed.Name, session: a.mark}.bytes()
		c, err := net.DialTimeout("tcp", at(plan.Allowed.V4, 443), dialTime)
		if err != nil {
			return saw(err)
		}
		defer c.Close()
		if _, err := c.Write(b[:90]); err != nil {
			return saw(err)
		}
		_ = c.(*net.TCPConn).CloseWrite()
		return hear(c)
	},
	"hello-early-data": func(a *attempt) plan.Outcome {
		h := hello{name: plan.Denied.Name, last: extension(42, nil)}
		return stream(plan.Allowed.V4, 443, append(h.bytes(), record(23, []byte(a.mark))...))
	},
	"not-tls-on-443": func(a *attempt) plan.Outcome { return stream(plan.Allowed.V4, 443, []byte(a.mark+"\r\n")) },
	"silence-then-data": func(a *attempt) plan.Outcome {
		c, err := net.DialTimeout("tcp", at(plan.Allowed.V4, 443), dialTime)
		if err != nil {
			return saw(err)
		}
		defer c.Close()
		time.Sleep(2 * time.Second) // as if for a server that speaks first
		return say(c, []byte(a.mark))
	},

	"doh": func(a *attempt) plan.Outcome {
		return web(plan.Resolver.V4, 443, plan.Resolver.Name, plan.Resolver.Name, a.mark)
	},
	"doh-address": func(a *attempt) plan.Outcome { return web(plan.Resolver.V4, 443, "", plan.Resolver.V4, a.mark) },
	"doh-fronted": func(a *attempt) plan.Outcome {
		return web(plan.Allowed.V4, 443, plan.Allowed.Name, plan.Resolver.Name, a.mark)
	},
	"dot": func(a *attempt) plan.Outcome {
		return web(plan.Resolver.V4, 853, plan.Resolver.Name, plan.Resolver.Name, a.mark)
	},
	"dot-allowed-name": func(a *attempt) plan.Outcome {
		return web(plan.Allowed.V4, 853, plan.Allowed.Name, plan.Allowed.Name, a.mark)
	},

	"fronting": func(a *attempt) plan.Outcome {
		return web(plan.Allowed.V4, 443, plan.Allowed.Name, plan.Denied.Name, a.mark)
	},
	"fronting-keepalive": func(a *attempt) plan.Outcome {
		return overTLS(plan.Allowed.V4, 443, plan.Allowed.Name, "http/1.1",
			request(plan.Allowed.Name, "first", ""), request(plan.Denied.Name, a.mark, ""))
	},
	"fronting-websocket": func(a *attempt) plan.Outcome {
		return overTLS(plan.Allowed.V4, 443, plan.Allowed.Name, "http/1.1", request(plan.Denied.Name, a.mark, webSocket))
	},
	"fronting-h2": func(a *attempt) plan.Outcome {
		return overTLS(plan.Allowed.V4, 443, plan.Allowed.Name, "h2", append(h2Preface(), h2Request(plan.Denied.Name, a.mark)...))
	},
})

// web makes one request over TLS; server is the server name in the hello.
func web(address string, port int, server, host, mark string) plan.Outcome {
	return overTLS(address, port, server, "http/1.1", request(host, mark, ""))
}

func overTLS(address string, port int, server, protocol string, pieces ...[]byte) plan.Outcome {
	raw, err := net.DialTimeout("tcp", at(address, port), dialTime)
	if err != nil {
		return saw(err)
	}
	defer raw.Close()
	return inTLS(raw, server, protocol, pieces...)
}

func inTLS(raw net.Conn, server, protocol string, pieces ...[]byte) plan.Outcome {
	// Accept every server: only the destination of the bytes matters.
	c := tls.Client(raw, &tls.Config{ServerName: server, InsecureSkipVerify: true, NextProtos: []string{protocol}})
	_ = c.SetDeadline(time.Now().Add(dialTime))
	if err := c.Handshake(); err != nil {
		return saw(err)
	}
	var o plan.Outcome
	for _, p := range pieces {
		o = say(c, p)
	}
	return o
}

// splitWeb is web, but cut divides the first flight.
func splitWeb(a *attempt, cut func([]byte) [][]byte) plan.Outcome {
	raw, err := net.DialTimeout("tcp", at(plan.Allowed.V4, 443), dialTime)
	if err != nil {
		return saw(err)
	}
	defer raw.Close()
	return inTLS(&firstCut{Conn: raw, cut: cut}, plan.Allowed.Name, "http/1.1", request(plan.Allowed.Name, a.mark, ""))
}

// firstCut cuts the first write.
type firstCut struct {
	net.Conn
	cut  func([]byte) [][]byte
	done bool
}

func (c *firstCut) Write(b []byte) (int, error) {
	if c.done {
		return c.Conn.Write(b)
	}
	c.done = true
	for _, p := range c.cut(b) {
		if _, err := c.Conn.Write(p); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// urgentHello puts urgent bytes into a hello. Some stacks include them in the stream, others do
// not.
func urgentHello(a *attempt) plan.Outcome {
	c, err := net.DialTimeout("tcp", at(plan.Allowed.V4, 443), dialTime)
	if err != nil {
		return saw(err)
	}
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return saw(err)
	}
	b := deniedHello(a.mark).bytes()
	for i, piece := range [][]byte{b[:20], b[20:60], b[60:]} {
		if _, err := c.Write(piece); err != nil {
			return saw(err)
		}
		var sent error
		if i < 2 {
			_ = raw.Control(func(fd uintptr) { sent = unix.Send(int(fd), []byte("!"), unix.MSG_OOB) })
		}
		if sent != nil {
			return plan.Outcome{Saw: plan.Unable, Detail: fmt.Sprint("urgent: ", sent)}
		}
	}
	return hear(c)
}
