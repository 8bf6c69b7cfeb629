package main

import (
	"fmt"
	"strings"

	"github.com/carrel-dev/carrel/test/escape/plan"
)

// webSocket are header lines that ask for a WebSocket.
const webSocket = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

// request returns a plain request whose path is the marker.
func request(host, mark, more string) []byte {
	return fmt.Appendf(nil, "GET /%s HTTP/1.1\r\nHost: %s\r\n%s\r\n", mark, host, more)
}

// clear sends text to port 80 of the allowed server. In text, MARK becomes the marker, HOST the
// allowed name, EVIL the denied one, and each line end \r\n. A line end with "~" before it stays
// \n.
func clear(text string) func(*attempt) plan.Outcome {
	return func(a *attempt) plan.Outcome { return stream(plan.Allowed.V4, 80, a.http(text)) }
}

func (a *attempt) http(text string) []byte {
	text = strings.ReplaceAll(text, "\n", "\r\n")
	return []byte(strings.NewReplacer("~\r\n", "\n", "MARK", a.mark, "HOST", plan.Allowed.Name, "EVIL", plan.Denied.Name).Replace(text))
}

// smuggled is a request that is hidden in others.
const smuggled = "GET /MARK HTTP/1.1\nHost: EVIL\n\n"

// Cleartext HTTP to the server that the list allows.
var _ = add(map[string]func(*attempt) plan.Outcome{
	"control-http":          clear("GET /MARK HTTP/1.1\nHost: HOST\n\n"),
	"http-host-denied":      clear(smuggled),
	"http-host-shared":      clear("GET /MARK HTTP/1.1\nHost: " + plan.Shared.Name + "\n\n"),
	"http-host-none":        clear("GET /MARK HTTP/1.1\nAccept: */*\n\n"),
	"http-host-two":         clear("GET /MARK HTTP/1.1\nHost: HOST\nHost: EVIL\n\n"),
	"http-host-list":        clear("GET /MARK HTTP/1.1\nHost: HOST, EVIL\n\n"),
	"http-host-userinfo":    clear("GET /MARK HTTP/1.1\nHost: HOST@EVIL\n\n"),
	"http-host-folded":      clear("GET /MARK HTTP/1.1\nHost: HOST\n\tEVIL\n\n"),
	"http-host-space-colon": clear("GET /MARK HTTP/1.1\nHost : EVIL\nHost: HOST\n\n"),
	"http-host-bare-lf":     clear("GET /MARK HTTP/1.1~\nHost: HOST~\nX: y~\nHost: EVIL~\n\n"),
	"http-host-nul":         clear("GET /MARK HTTP/1.1\nHost: HOST\x00EVIL\n\n"),
	"http-absolute":         clear("GET http://EVIL/MARK HTTP/1.1\nHost: EVIL\n\n"),
	"http-absolute-allowed": clear("GET http://EVIL/MARK HTTP/1.1\nHost: HOST\n\n"),
	"http-one-zero":         clear("GET /MARK HTTP/1.0\n\n"),
	"http-zero-nine":        clear("GET /MARK\n\n"),
	"http-keepalive-second": func(a *attempt) plan.Outcome {
		return inTurn(a, "GET /first HTTP/1.1\nHost: HOST\n\n", smuggled)
	},
	"http-pipelined": clear("GET /first HTTP/1.1\nHost: HOST\n\n" + smuggled),
	"http-cl-te":     clear("POST /x HTTP/1.1\nHost: HOST\nContent-Length: 6\nTransfer-Encoding: chunked\n\n0\n\n" + smuggled),
	"http-te-cl": func(a *attempt) plan.Outcome {
		inner := a.http(smuggled)
		text := a.http("POST /x HTTP/1.1\nHost: HOST\nTransfer-Encoding: chunked\nContent-Length: 4\n\n")
		text = fmt.Appendf(text, "%x\r\n%s\r\n0\r\n\r\n", len(inner), inner)
		return stream(plan.Allowed.V4, 80, text)
	},
	"http-te-te":           clear("POST /x HTTP/1.1\nHost: HOST\nTransfer-Encoding: identity, chunked\nTransfer-Encoding: x\n\n0\n\n" + smuggled),
	"http-cl-cl":           clear("POST /x HTTP/1.1\nHost: HOST\nContent-Length: 0\nContent-Length: 5\n\n" + smuggled),
	"http-chunk-extension": clear("POST /x HTTP/1.1\nHost: HOST\nTransfer-Encoding: chunked\n\n0;~\n\n\n" + smuggled),
	"http-connect":         clear("CONNECT EVIL:443 HTTP/1.1\nHost: EVIL:443\n\nMARK"),
	"http-websocket-denied": clear("GET /MARK HTTP/1.1\nHost: EVIL\nConnection: Upgrade\nUpgrade: websocket\n" +
		"Sec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n\n"),
	"http-h2c-prior": func(a *attempt) plan.Outcome {
		return stream(plan.Allowed.V4, 80, append(h2Preface(), h2Request(plan.Denied.Name, a.mark)...))
	},
	"http-h2c-upgrade": func(a *attempt) plan.Outcome {
		text := a.http("GET /first HTTP/1.1\nHost: HOST\nConnection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAMAAABkAAQAAP__\n\n")
		return stream(plan.Allowed.V4, 80, append(text, append(h2Preface(), h2Request(plan.Denied.Name, a.mark)...)...))
	},
	"http-other-upgrade": clear("GET /first HTTP/1.1\nHost: HOST\nConnection: Upgrade\nUpgrade: tunnel\n\n" + smuggled),
	"http-endless-header": func(a *attempt) plan.Outcome {
		text := a.http("GET /MARK HTTP/1.1\nHost: HOST\n")
		return stream(plan.Allowed.V4, 80, append(text, []byte("X: "+strings.Repeat("y", 4<<20))...))
	},
	"http-byte-by-byte":     func(a *attempt) plan.Outcome { return stream(plan.Allowed.V4, 80, split(a.http(smuggled))...) },
	"http-method-injection": clear("GET /MARK HTTP/1.1\rHost: EVIL\nHost: HOST\n\n"),
	"http-on-443":           func(a *attempt) plan.Outcome { return stream(plan.Allowed.V4, 443, a.http(smuggled)) },
	"ssh-on-80":             clear("SSH-2.0-MARK\n"),
	"smtp-on-80":            clear("EHLO MARK\nMAIL FROM:<MARK@EVIL>\n"),
	"proxy-variables":       useProxies,
})

// inTurn makes consecutive requests on one connection.
func inTurn(a *attempt, texts ...string) plan.Outcome {
	c, err := dialAllowed(80)
	if err != nil {
		return saw(err)
	}
	defer c.Close()
	var o plan.Outcome
	for _, text := range texts {
		o = say(c, a.http(text))
	}
	return o
}

// h2Preface returns the beginning of an HTTP/2 connection.
func h2Preface() []byte {
	return append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), h2Frame(4, 0, 0, nil)...)
}

func h2Frame(kind, flags byte, stream uint32, body []byte) []byte {
	n := len(body)
	return append([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, byte(stream >> 24), byte(stream >> 16), byte(stream >> 8), byte(stream)}, body...)
}

// h2Request returns a request in HTTP/2, with its fields uncompressed.
func h2Request(authority, mark string) []byte {
	var block []byte
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", authority}, {":path", "/" + mark}} {
		block = append(block, 0, byte(len(f[0])))
		block = append(block, f[0]...)
		block = append(block, byte(len(f[1])))
		block = append(block, f[1]...)
	}
	return h2Frame(1, 0x5, 1, block) // END_STREAM, END_HEADERS
}
