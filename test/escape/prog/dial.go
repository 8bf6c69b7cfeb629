package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/test/escape/plan"
)

const (
	dialTime   = 15 * time.Second
	answerTime = 5 * time.Second
	// A packet is sent packetTries times, each with a wait for an answer.
	packetTries = 6
	packetTime  = time.Second
)

// saw turns an error into one of the plan's words.
func saw(err error) plan.Outcome {
	var timeout net.Error
	switch {
	case err == nil:
		return plan.Outcome{Saw: plan.Answered}
	case errors.Is(err, syscall.ECONNREFUSED):
		return plan.Outcome{Saw: plan.Refused}
	case errors.Is(err, syscall.ECONNRESET):
		return plan.Outcome{Saw: plan.Reset}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.EPIPE):
		return plan.Outcome{Saw: plan.Closed}
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPROTONOSUPPORT),
		errors.Is(err, syscall.EAFNOSUPPORT), errors.Is(err, syscall.ESOCKTNOSUPPORT), errors.Is(err, syscall.ENOPROTOOPT):
		return plan.Outcome{Saw: plan.Unable, Detail: err.Error()}
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, os.ErrDeadlineExceeded):
		return plan.Outcome{Saw: plan.Silent}
	}
	return plan.Outcome{Saw: plan.Failed, Detail: err.Error()}
}

// rank sorts the outcomes from harmless to bad.
var rank = []string{plan.Unable, plan.NoName, plan.Refused, plan.Reset, plan.Closed, plan.Failed, plan.Silent, plan.Answered}

// worst returns the worst of several outcomes.
func worst(all ...plan.Outcome) plan.Outcome {
	place := func(o plan.Outcome) int {
		for i, w := range rank {
			if w == o.Saw {
				return i
			}
		}
		return -1
	}
	var bad plan.Outcome
	var details []string
	for _, o := range all {
		if place(o) > place(bad) {
			bad = o
		}
		if o.Detail != "" {
			details = append(details, o.Detail)
		}
	}
	bad.Detail = strings.Join(details, "; ")
	return bad
}

func at(address string, port int) string { return net.JoinHostPort(address, fmt.Sprint(port)) }

// stream connects, sends the pieces and reads an answer.
func stream(address string, port int, pieces ...[]byte) plan.Outcome {
	return streamWithin(dialTime, address, port, pieces...)
}

func streamWithin(d time.Duration, address string, port int, pieces ...[]byte) plan.Outcome {
	c, err := net.DialTimeout("tcp", at(address, port), d)
	if err != nil {
		return saw(err)
	}
	defer c.Close()
	return say(c, pieces...)
}

// say sends the pieces on a connection, each in its own segment, and reads an answer.
func say(c net.Conn, pieces ...[]byte) plan.Outcome {
	_ = c.SetDeadline(time.Now().Add(dialTime))
	for _, p := range pieces {
		if _, err := c.Write(p); err != nil {
			return saw(err)
		}
	}
	return hear(c)
}

// hear reads an answer.
func hear(c net.Conn) plan.Outcome { return hearFor(c, answerTime) }

func hearFor(c net.Conn, d time.Duration) plan.Outcome {
	_ = c.SetReadDeadline(time.Now().Add(d))
	b := make([]byte, 4096)
	n, err := c.Read(b)
	if n == 0 {
		return saw(err)
	}
	line, _, _ := bytes.Cut(b[:n], []byte("\n"))
	return plan.Outcome{Saw: plan.Answered, Detail: fmt.Sprintf("%.60q", line)}
}

// packet sends a datagram on a connected socket and reads an answer. An ICMP message appears as a
// refusal.
func packet(address string, port int, payload ...[]byte) plan.Outcome {
	c, err := net.Dial("udp", at(address, port))
	if err != nil {
		return saw(err)
	}
	defer c.Close()
	// Try several times: answers and refusals of packets may get lost, and both ends bound their
	// refusals per second.
	var o plan.Outcome
	for range packetTries {
		for _, p := range payload {
			if _, err := c.Write(p); err != nil {
				return saw(err)
			}
		}
		if o = hearFor(c, packetTime); o.Saw != plan.Silent {
			break
		}
	}
	return o
}

// shout sends a datagram to an address of many hosts, which would not answer.
func shout(address string, port int, payload []byte) plan.Outcome {
	c, err := net.Dial("udp", at(address, port))
	if err != nil {
		return saw(err)
	}
	defer c.Close()
	if _, err := c.Write(payload); err != nil {
		return saw(err)
	}
	return hearFor(c, packetTime)
}

// split cuts b into single bytes.
func split(b []byte) [][]byte {
	var out [][]byte
	for i := range b {
		out = append(out, b[i:i+1])
	}
	return out
}

// each tries f for all of list at once and returns the worst outcome.
func each[T any](list []T, f func(T) plan.Outcome) plan.Outcome {
	results := make(chan plan.Outcome, len(list))
	for _, x := range list {
		go func() { results <- f(x) }()
	}
	var all []plan.Outcome
	for range list {
		all = append(all, <-results)
	}
	return worst(all...)
}
