package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/test/escape/plan"
)

// hold opens one connection of each kind, prints "held", and waits for a line on standard input.
// Then it writes the markers. A policy that now forbids them must not let them out. hold waits for
// each connection's end.
func hold(p plan.Plan, tell func(plan.Outcome)) {
	askForAllowed()
	type held struct {
		name string
		conn net.Conn
		last []byte // bytes to write after the change
	}
	var all []held
	open := func(name, network, to string, port int, first []byte, last func(a *attempt) []byte) {
		a := &attempt{Attempt: plan.Attempt{Name: name}, plan: p, mark: p.Marker(name)}
		c, err := net.DialTimeout(network, at(to, port), dialTime)
		if err != nil {
			o := saw(err)
			o.Name, o.Detail = name, "open: "+o.Detail
			tell(o)
			return
		}
		if name == "hold-tls" {
			t := tls.Client(c, &tls.Config{ServerName: plan.Allowed.Name, InsecureSkipVerify: true})
			_ = t.SetDeadline(time.Now().Add(dialTime))
			if err := t.Handshake(); err != nil {
				tell(plan.Outcome{Name: name, Saw: plan.Failed, Detail: "handshake: " + err.Error()})
				return
			}
			c = t
		}
		if first != nil {
			if _, err := c.Write(first); err != nil {
				tell(plan.Outcome{Name: name, Saw: plan.Failed, Detail: "first: " + err.Error()})
				return
			}
		}
		if name != "hold-half-hello" {
			if o := hear(c); o.Saw != plan.Answered {
				tell(plan.Outcome{Name: name, Saw: plan.Failed, Detail: "first answer: " + o.Saw + o.Detail})
				return
			}
		}
		all = append(all, held{name, c, last(a)})
	}
	mark := func(a *attempt) []byte { return []byte(a.mark) }
	get := func(a *attempt) []byte { return request(plan.Allowed.Name, a.mark, "") }
	open("hold-tcp", "tcp", plan.Echo.V4, 7000, []byte("hello"), mark)
	open("hold-udp", "udp", plan.Echo.V4, 7001, []byte("hello"), mark)
	open("hold-tls", "tcp", plan.Allowed.V4, 443, request(plan.Allowed.Name, "first", ""), get)
	open("hold-http", "tcp", plan.Allowed.V4, 80, request(plan.Allowed.Name, "first", ""), get)
	half := hello{name: plan.Allowed.Name, session: p.Marker("hold-half-hello")}.bytes()
	open("hold-half-hello", "tcp", plan.Allowed.V4, 443, half[:50], func(*attempt) []byte { return half[50:] })
	fmt.Println(`{"Name":"held"}`)
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	var wg sync.WaitGroup
	for _, h := range all {
		wg.Go(func() {
			o := afterChange(h.conn, h.last)
			o.Name = h.name
			tell(o)
		})
	}
	wg.Wait()
	tell(plan.Outcome{Name: "end"})
}

// afterChange writes at once, because a policy change that was acknowledged must hold at once.
func afterChange(c net.Conn, last []byte) plan.Outcome {
	var seen []string
	for range 3 {
		if _, err := c.Write(last); err != nil {
			o := saw(err)
			o.Detail = strings.Join(append(seen, o.Saw), " ")
			return o
		}
		o := hear(c)
		if o.Saw != plan.Silent {
			return o
		}
		seen = append(seen, o.Saw)
	}
	return plan.Outcome{Saw: plan.Silent, Detail: strings.Join(seen, " ")}
}
