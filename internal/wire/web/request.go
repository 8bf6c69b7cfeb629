package web

import (
	"bytes"
	"net/netip"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/internal/policy"
)

// request is the parsed head of a request.
type request struct {
	method string
	// path is the forwarded target up to the query. It is "*" for OPTIONS of a server.
	path string
	// query is the text after the first "?". hasQuery says that there is one.
	query    string
	hasQuery bool
	host     string // lower case, without a port and a dot at its end
	port     string // as in the request, with its colon; or ""
	// alsoMethod and alsoPath are another method and path that the request tells a server to use.
	alsoMethod, alsoPath string
	json                 bool // the client prefers a refusal as JSON
}

// authority is the host with its port, as requests contain it.
func (q *request) authority() string {
	if strings.IndexByte(q.host, ':') >= 0 {
		return "[" + q.host + "]" + q.port
	}
	return q.host + q.port
}

// http1Request is a request of HTTP/1.
type http1Request struct {
	request
	how       framing
	length    int64
	old       bool // HTTP/1.0
	close     bool // the sandbox wants to end the connection
	continues bool // the client sends the body only when the server asks
	websocket bool
	nominated []string // names in Connection
}

// read parses a head. An error is a refusal.
func (q *http1Request) read(h *head, tls bool) *refusal {
	*q = http1Request{nominated: q.nominated[:0]}
	q.method = method(h.method)
	q.old = h.minor == 0
	q.close = q.old
	var host []byte
	var hosts, lengths, encodings int
	upgrade, upgradeNamed := false, false
	for _, f := range h.fields {
		switch known(f.name) {
		case "host":
			host = f.value
			hosts++
		case "content-length":
			lengths++
			n, ok := contentLength(f.value)
			if !ok {
				return malformed("the content length is not one number")
			}
			q.length, q.how = n, byLength
		case "transfer-encoding":
			encodings++
			if !strings.EqualFold(string(f.value), "chunked") || h.minor == 0 {
				return malformed("the transfer encoding is another than chunked")
			}
			q.how = byChunks
		case "connection":
			for name := range strings.SplitSeq(string(f.value), ",") {
				name = strings.ToLower(strings.TrimSpace(name))
				switch name {
				case "close":
					q.close = true
				case "keep-alive":
				case "upgrade":
					upgradeNamed = true
				case "":
				default:
					q.nominated = append(q.nominated, name)
				}
			}
		case "upgrade":
			upgrade = upgrade || strings.EqualFold(string(f.value), "websocket")
		case "expect":
			if !strings.EqualFold(string(f.value), "100-continue") {
				return &refusal{status: 417, rule: ruleHTTP, reason: "the request expects something unknown", close: true}
			}
			q.continues = h.minor == 1
		case "accept":
			q.json = q.json || wantsJSON(string(f.value))
		default:
			if r := q.override(f.name, string(f.value)); r != nil {
				return r
			}
		}
	}
	switch {
	case hosts != 1:
		return malformed("a request needs exactly one Host")
	case lengths > 1 || encodings > 1 || (lengths > 0 && encodings > 0):
		return malformed("the length of the body is said more than once")
	}
	if q.how == byLength && q.length == 0 {
		q.continues = false
	}
	q.websocket = upgrade && upgradeNamed && q.method == "GET" && h.minor == 1 && q.how == noBody
	return q.readTarget(h.target, host, tls)
}

// override notes a method or path that a server may use instead.
func (q *request) override(name []byte, value string) *refusal {
	switch known(name) {
	case "x-http-method-override", "x-http-method", "x-method-override":
		value = strings.ToUpper(value)
		if !isToken(value) || (q.alsoMethod != "" && q.alsoMethod != value) {
			return malformed("the overriding method is malformed")
		}
		q.alsoMethod = value
	case "x-original-url", "x-rewrite-url", "x-original-uri":
		path, _, _ := strings.Cut(value, "?")
		if !strings.HasPrefix(path, "/") || (q.alsoPath != "" && q.alsoPath != path) {
			return malformed("the overriding path is malformed")
		}
		q.alsoPath = path
	}
	return nil
}

// readTarget reads the target and the host, which must agree.
func (q *request) readTarget(target, host []byte, tls bool) *refusal {
	if q.method == "CONNECT" || q.method == "TRACE" {
		return &refusal{status: 405, rule: ruleHTTP, reason: "the method " + q.method + " leads past the wire", close: true}
	}
	if r := q.readHost(host); r != nil {
		return r
	}
	t := string(target)
	if t == "*" {
		if q.method != "OPTIONS" {
			return malformed("the target \"*\" is for OPTIONS alone")
		}
		q.path = t
		return nil
	}
	if !strings.HasPrefix(t, "/") {
		scheme, rest, ok := strings.Cut(t, "://")
		if want := map[bool]string{false: "http", true: "https"}[tls]; !ok || !strings.EqualFold(scheme, want) {
			return malformed("the target is neither a path nor an address of this server")
		}
		i := strings.IndexAny(rest, "/?")
		if i < 0 {
			i = len(rest)
		}
		said := request{}
		if r := said.readHost([]byte(rest[:i])); r != nil {
			return r
		}
		if said.host != q.host || said.port != q.port {
			return malformed("the target and the Host are different")
		}
		if t = rest[i:]; !strings.HasPrefix(t, "/") {
			t = "/" + t
		}
	}
	q.path, q.query, q.hasQuery = strings.Cut(t, "?")
	return nil
}

// readHost reads "name", "name:port", "[address]" or "[address]:port".
func (q *request) readHost(b []byte) *refusal {
	bad := malformed("the Host is not a name or an address with or without a port")
	host := b
	if len(b) > 0 && b[0] == '[' {
		i := bytes.IndexByte(b, ']')
		if i < 0 {
			return bad
		}
		a, err := netip.ParseAddr(string(b[1:i]))
		if err != nil || !a.Is6() || a.Zone() != "" {
			return bad
		}
		q.host, host = a.String(), b[i+1:]
		if len(host) > 0 && host[0] != ':' {
			return bad
		}
		b = host
	} else {
		if i := bytes.IndexByte(b, ':'); i >= 0 {
			host, b = b[:i], b[i:]
		} else {
			b = nil
		}
		if !isHost(host) {
			return bad
		}
		q.host = strings.TrimSuffix(strings.ToLower(string(host)), ".")
	}
	if len(b) == 1 {
		b = nil // "name:" means the same as no port
	}
	if len(b) > 0 {
		if n, err := strconv.ParseUint(string(b[1:]), 10, 16); err != nil || n == 0 || b[1] == '0' || b[1] == '+' {
			return bad
		}
	}
	q.port = string(b)
	return nil
}

func isHost(b []byte) bool {
	if len(b) == 0 || len(b) > 254 || b[0] == '.' || b[0] == '-' {
		return false
	}
	for i, c := range b {
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '-', c == '_':
		case c == '.' && b[i-1] != '.':
		default:
			return false
		}
	}
	return true
}

// belongs checks that a request is for the server of its connection. It returns the request's flow.
func (q *request) belongs(s *Session) (policy.Flow, *refusal) {
	f := policy.Flow{
		Addr: s.Addr, Port: s.Port, Names: s.Names, App: policy.AppHTTP, Name: q.host,
		Opened: s.TLS, ServerName: s.ServerName, Method: q.method, Path: q.path,
	}
	wrong := func(reason string) *refusal {
		return &refusal{status: 421, rule: ruleHTTP, reason: reason, hint: "ask each host on a connection of its own"}
	}
	if q.port != "" && q.port[1:] != strconv.Itoa(int(s.Port)) {
		return f, wrong("the Host names another port than the connection goes to")
	}
	if a, err := netip.ParseAddr(q.host); err == nil {
		// The address must be the one that the connection goes to.
		if a.Unmap() != s.Addr.Unmap() || (s.TLS && s.ServerName != "") {
			return f, wrong("the Host is another address than the connection goes to")
		}
		return f, nil
	}
	if s.TLS && q.host != plainName(s.ServerName) {
		return f, wrong("the Host is another name than the one that TLS was opened for")
	}
	return f, nil
}

// plainName returns a name in the form for comparisons.
func plainName(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }

func contentLength(v []byte) (int64, bool) {
	if len(v) == 0 || len(v) > 18 {
		return 0, false
	}
	var n int64
	for _, c := range v {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// method returns a method as a string. For common methods it allocates nothing.
func method(b []byte) string {
	for _, m := range [...]string{"GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"} {
		if string(b) == m {
			return m
		}
	}
	return string(b)
}

// knownNames are the fields with a meaning here, by length.
var knownNames = func() map[int][]string {
	m := make(map[int][]string)
	for _, n := range []string{
		"host", "content-length", "transfer-encoding", "connection", "upgrade", "expect", "accept",
		"keep-alive", "proxy-connection", "proxy-authorization", "proxy-authenticate", "te", "trailer",
		"x-http-method-override", "x-http-method", "x-method-override",
		"x-original-url", "x-rewrite-url", "x-original-uri",
		"accept-encoding", "range", "if-range", "grpc-accept-encoding", "sec-websocket-extensions",
		"content-encoding", "grpc-encoding", "alt-svc", "http2-settings", "carrel-denied",
	} {
		m[len(n)] = append(m[len(n)], n)
	}
	return m
}()

// known returns the name in lower case if it has a meaning here, else "".
func known[T string | []byte](name T) string {
	for _, n := range knownNames[len(name)] {
		if same(name, n) {
			return n
		}
	}
	return ""
}

// hop reports whether a field is for one connection only and never forwarded.
func hop(known string) bool {
	switch known {
	case "connection", "keep-alive", "proxy-connection", "proxy-authorization", "proxy-authenticate",
		"te", "trailer", "transfer-encoding", "upgrade", "http2-settings":
		return true
	}
	return false
}

// lists reports whether one of the lists contains a name.
func lists(fields []string, name string) bool {
	for _, f := range fields {
		for n := range strings.SplitSeq(f, ",") {
			if strings.EqualFold(strings.TrimSpace(n), name) {
				return true
			}
		}
	}
	return false
}
