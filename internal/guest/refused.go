package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/carrel-dev/carrel"
)

// Refused tells the guest about refused traffic of its sandbox, and returns which program caused
// it. The guest answers within some 20 ms. It accepts the call only from the host's end of the
// link.
func (c *Conn) Refused(ctx context.Context, r Refusal) (RefusalReply, error) {
	const op = "explain refusal"
	body, err := json.Marshal(r)
	if err != nil {
		return RefusalReply{}, c.fail(op, err)
	}
	h := http.Header{"Content-Type": {"application/json"}}
	resp, err := c.roundTrip(ctx, op, http.MethodPost, RefusedPath, h, bytes.NewReader(body))
	if err != nil {
		return RefusalReply{}, err
	}
	defer drain(resp.Body)
	var reply RefusalReply
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxJSON)).Decode(&reply); err != nil {
		return RefusalReply{}, c.fail(op, err)
	}
	// The sandbox chose this text, and it goes into logs and onto terminals.
	reply.Process = oneLine(reply.Process, maxProcess)
	return reply, nil
}

// Bounds of a refusal's line, in bytes. Texts that would not fit are cut, the longest first; the
// whole line never exceeds maxRefusal.
const (
	maxRefusal = 400
	maxProcess = 64
	minPart    = 40
)

// RefusalLine explains a refusal to the person who runs the program, in one line of printable text:
//
//	carrel: denied https://api.example.com:443 (curl): no rule allows api.example.com. Ask for: allow api.example.com. See /run/carrel/denied.jsonl
//
// Without a Process or Hint their parts are left out.
func RefusalLine(d carrel.Decision) string {
	const most = 4 << 10 // no part needs more before it is cut
	target := oneLine(refusedTarget(d), most)
	reason := strings.TrimRight(oneLine(d.Reason, most), ". ")
	if reason == "" {
		reason = "the sandbox's policy refuses it"
	}
	hint := strings.TrimRight(oneLine(d.Hint, most), ". ")
	if ask := "ask for: "; len(hint) > len(ask) && strings.EqualFold(hint[:len(ask)], ask) {
		hint = hint[len(ask):] // it is said once
	}
	program, _, _ := strings.Cut(d.Process, " (pid ")
	program = oneLine(program, maxProcess)

	write := func() string {
		var b strings.Builder
		b.WriteString("carrel: denied " + target)
		if program != "" {
			b.WriteString(" (" + program + ")")
		}
		b.WriteString(": " + reason + ".")
		if hint != "" {
			b.WriteString(" Ask for: " + hint + ".")
		}
		b.WriteString(" See " + DeniedFile)
		return b.String()
	}
	line := write()
	for over := len(line) - maxRefusal; over > 0; over = len(line) - maxRefusal {
		longest := &target
		for _, part := range []*string{&reason, &hint} {
			if len(*part) > len(*longest) {
				longest = part
			}
		}
		*longest = shorten(*longest, max(len(*longest)-over, minPart))
		line = write()
	}
	return line
}

// HeldLine tells the person who runs the program that a connection waits for a person's answer:
//
//	carrel: held https://api.example.com:443: rule 2 asks a person, for at most 2m0s. The program waits. Answer: carrel inbox allow q123
func HeldLine(d carrel.Decision, q carrel.Question) string {
	return oneLine(fmt.Sprintf("carrel: held %s: %s asks a person, for at most %v. The program waits. Answer: carrel inbox allow %s",
		shorten(oneLine(refusedTarget(d), 4<<10), maxRefusal/2), oneLine(d.Rule, maxProcess),
		q.Until.Sub(q.Asked).Round(time.Second), q.ID), maxRefusal)
}

// refusedTarget returns the destination that the sandbox wanted to reach.
func refusedTarget(d carrel.Decision) string {
	host := d.Name
	if host == "" {
		host = d.Address
	}
	if host == "" {
		host = "an unnamed host"
	}
	scheme := d.Protocol
	switch {
	case scheme == "dns":
		if d.Method != "" {
			return "dns " + host + " " + d.Method
		}
		return "dns " + host
	case scheme == "tls" && d.Port == 443:
		scheme = "https" // the scheme that the user typed
	case scheme == "":
		scheme = "tcp"
	}
	at := host
	if d.Port != 0 {
		at = net.JoinHostPort(host, strconv.Itoa(int(d.Port)))
	}
	text := scheme + "://" + at + d.Path
	if d.Method != "" {
		text = d.Method + " " + text
	}
	return text
}

// oneLine drops characters that are not printable and cuts the rest. So no text from a sandbox can
// move a terminal's cursor or begin a new line.
func oneLine(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return ' '
		case r == utf8.RuneError, !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s[:min(len(s), 4*most)])
	return shorten(s, most)
}

// shorten cuts a text, between characters, to a length of most bytes.
func shorten(s string, most int) string {
	const mark = "…"
	if len(s) <= most {
		return s
	}
	end := max(most-len(mark), 0)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}
