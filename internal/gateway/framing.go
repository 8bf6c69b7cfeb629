package gateway

import (
	"bytes"
	"net/url"
	"strconv"
	"strings"
)

// framing finds where requests begin and end in an HTTP/1 stream. It is strict: a request that it
// lets pass means the same to every server that follows RFC 9112.
type framing struct {
	state framingState
	left  int64 // bytes left of a body of known length, or of a chunk
	later bool  // a request was seen, so HTTP/2 can't begin any more
}

type framingState int

const (
	inHead framingState = iota
	inBody
	inChunkSize
	inChunk
	inChunkEnd
	inTrailer
	opaque // not HTTP/1 any more
)

// free is how many of the next n bytes can pass without inspection, as a part of a body.
func (f *framing) free(n int) int {
	switch f.state {
	case opaque:
		return n
	case inBody, inChunk:
		return int(min(int64(n), f.left))
	}
	return 0
}

// pass notes that n free bytes have passed.
func (f *framing) pass(n int) {
	if f.state == opaque {
		return
	}
	if f.left -= int64(n); f.left > 0 {
		return
	}
	switch f.state {
	case inBody:
		f.state = inHead
	case inChunk:
		f.state = inChunkEnd
	}
}

// next judges the beginning of b. Its first n bytes may be handed on. If n is 0, more must be read
// first. A reason refuses a request. An error breaks its body off.
func (f *framing) next(b []byte) (n int, reason string, err error) {
	switch f.state {
	case inHead:
		return f.head(b)
	case inChunkEnd:
		if len(b) < 2 && b[0] == '\r' {
			return 0, "", nil
		}
		if !bytes.HasPrefix(b, crlf) {
			return 0, "", errMalformed
		}
		f.state = inChunkSize
		return 2, "", nil
	case inChunkSize, inTrailer:
		line, ok, bad := cutLine(b)
		if bad || (!ok && len(b) > maxLine) {
			return 0, "", errMalformed
		}
		if !ok {
			return 0, "", nil
		}
		if !f.chunkLine(line) {
			return 0, "", errMalformed
		}
		return len(line) + 2, "", nil
	}
	n = f.free(len(b))
	f.pass(n)
	return n, "", nil
}

// maxLine bounds a chunk's line and a trailer's line. net/http's bound is 4096.
const maxLine = 4096

var crlf = []byte("\r\n")

// cutLine returns the first line of b, without its CRLF. bad says that the line ends in only half
// of a CRLF.
func cutLine(b []byte) (line []byte, ok, bad bool) {
	i := bytes.IndexAny(b, "\r\n")
	switch {
	case i < 0:
		return nil, false, false
	case b[i] == '\n':
		return nil, false, true
	case i+1 == len(b):
		return nil, false, false
	case b[i+1] != '\n':
		return nil, false, true
	}
	return b[:i], true, false
}

// chunkLine reads a chunk's size or a line of the trailer.
func (f *framing) chunkLine(line []byte) bool {
	if f.state == inTrailer {
		if len(line) == 0 {
			f.state = inHead
			return true
		}
		name, _, ok := headerLine(line)
		switch strings.ToLower(name) {
		case "content-length", "transfer-encoding", "host", "trailer":
			return false
		}
		return ok
	}
	size, extension, _ := bytes.Cut(line, []byte(";"))
	size = bytes.TrimRight(size, " \t")
	if len(size) == 0 || len(size) > 15 || bytes.ContainsFunc(extension, control) {
		return false
	}
	for _, d := range size {
		if !strings.ContainsRune("0123456789abcdefABCDEF", rune(d)) {
			return false
		}
	}
	n, err := strconv.ParseInt(string(size), 16, 64)
	if err != nil {
		return false
	}
	if f.left = n; n == 0 {
		f.state = inTrailer
	} else {
		f.state = inChunk
	}
	return true
}

// head judges a request's head when it is complete.
func (f *framing) head(b []byte) (n int, reason string, err error) {
	if !f.later {
		yes, more := isPreface(b)
		if more {
			return 0, "", nil
		}
		if yes {
			f.state = opaque
			return len(b), "", nil
		}
	}
	var lines [][]byte
	for rest := b; ; {
		line, ok, bad := cutLine(rest)
		switch {
		case bad:
			return 0, "a line does not end in CRLF", nil
		case !ok && len(b) > maxHead:
			f.state = opaque // the server refuses it: its bound is lower
			return len(b), "", nil
		case !ok:
			return 0, "", nil
		}
		rest = rest[len(line)+2:]
		if len(line) == 0 {
			n = len(b) - len(rest)
			break
		}
		lines = append(lines, line)
	}
	f.later = true
	if len(lines) == 0 {
		return 0, "an empty line where a request should begin", nil
	}
	if reason = f.request(lines); reason != "" {
		return 0, reason, nil
	}
	return n, "", nil
}

// request judges the lines of a head and sets the state for the bytes after it.
func (f *framing) request(lines [][]byte) (reason string) {
	method, target, version, reason := requestLine(string(lines[0]))
	if reason != "" {
		return reason
	}
	var length, coding, hosts, upgrade []string
	connection := ""
	for _, line := range lines[1:] {
		if line[0] == ' ' || line[0] == '\t' {
			return "a folded header"
		}
		name, value, ok := headerLine(line)
		if !ok {
			return "a header line that is none"
		}
		switch strings.ToLower(name) {
		case "content-length":
			length = append(length, value)
		case "transfer-encoding":
			coding = append(coding, value)
		case "host":
			hosts = append(hosts, value)
		case "upgrade":
			upgrade = append(upgrade, value)
		case "connection":
			connection += "," + value
		}
	}
	switch {
	case len(hosts) > 1:
		return "more than one Host"
	case len(hosts) == 0 && version == "1.1":
		return "no Host"
	case !sameAuthority(target, hosts):
		return "the target's host is not the Host"
	case method == "CONNECT":
		return "CONNECT is not served here"
	case len(length) > 0 && len(coding) > 0:
		return "both Content-Length and Transfer-Encoding"
	case len(length) > 1:
		return "more than one Content-Length"
	case len(coding) > 1 || (len(coding) == 1 && !strings.EqualFold(coding[0], "chunked")):
		return "a Transfer-Encoding other than chunked"
	case len(coding) == 1 && version == "1.0":
		return "Transfer-Encoding in HTTP/1.0"
	}
	f.state, f.left = inHead, 0
	switch {
	case len(coding) == 1:
		f.state = inChunkSize
	case len(length) == 1:
		n, ok := decimal(length[0])
		if !ok {
			return "a Content-Length that is no number"
		}
		if n > 0 {
			f.state, f.left = inBody, n
		}
	}
	if !upgrades(connection, upgrade) {
		return ""
	}
	if f.state != inHead {
		return "an upgrade with a body"
	}
	f.state = opaque
	return ""
}

// requestLine splits the first line into its parts.
func requestLine(line string) (method, target, version, reason string) {
	const bad = "a first line that is none"
	parts := strings.Split(line, " ")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", "", "", bad
	}
	for i := range len(parts[0]) {
		if !isToken(parts[0][i]) {
			return "", "", "", bad
		}
	}
	version, ok := strings.CutPrefix(parts[2], "HTTP/")
	if !ok || (version != "1.1" && version != "1.0") {
		return "", "", "", "a version of HTTP that is not served here"
	}
	return parts[0], parts[1], version, ""
}

// sameAuthority reports whether a target with a host of its own has the same host as the Host
// header. net/http would use the target's host.
func sameAuthority(target string, hosts []string) bool {
	if target[0] == '/' || target == "*" {
		return true
	}
	u, err := url.Parse(target)
	if err != nil || u.User != nil {
		return false
	}
	if u.Host == "" { // CONNECT, refused elsewhere, or a target not served
		return true
	}
	return len(hosts) == 1 && strings.EqualFold(u.Host, hosts[0])
}

// upgrades reports whether a request asks for another protocol. HTTP/2 does not count: the gateway
// removes such an upgrade, so the request passes as usual, with its body.
func upgrades(connection string, protocols []string) bool {
	for token := range strings.SplitSeq(connection, ",") {
		if strings.EqualFold(strings.TrimSpace(token), "upgrade") {
			return len(protocols) > 0 && !onlyH2C(protocols)
		}
	}
	return false
}

// onlyH2C reports whether HTTP/2 is the only protocol asked for.
func onlyH2C(protocols []string) bool {
	return len(protocols) == 1 && strings.EqualFold(strings.TrimSpace(protocols[0]), "h2c")
}

// headerLine splits a header line into its parts.
func headerLine(line []byte) (name, value string, ok bool) {
	n, v, found := bytes.Cut(line, []byte(":"))
	if !found || len(n) == 0 || bytes.ContainsFunc(v, control) {
		return "", "", false
	}
	for _, c := range n {
		if !isToken(c) {
			return "", "", false
		}
	}
	return string(n), string(bytes.Trim(v, " \t")), true
}

// control reports whether a character may not stand in a value.
func control(r rune) bool { return (r < ' ' && r != '\t') || r == 0x7f }

func isToken(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// decimal reads a length. It accepts only digits, while ParseInt accepts more.
func decimal(s string) (int64, bool) {
	if s == "" || len(s) > 18 || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
