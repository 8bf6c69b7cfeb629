// Package hello reads the first message of a TLS connection, and finds the server name that the
// client wants. It reads the client's bytes, stores nothing, answers nothing and does no
// cryptography.
//
// # Threat
//
// The client is hostile. It wants this reader and the server to read two different names in one
// message. So everything that the standard forbids or leaves open is an error here, and never a
// guess: a name that is given twice, a name that is no host name, lengths that don't add up, bytes
// after the message's end. As the standard says, it does not matter how the message is cut into
// records.
package hello

import (
	"encoding/binary"
	"errors"
	"strings"
)

// Hello is the content of a client's first message.
type Hello struct {
	// ServerName is in lower case. It is "" when the message has none.
	ServerName string
	// Protocols are the application protocols that the client speaks (ALPN).
	Protocols []string
	// ECH says that the message holds an encrypted hello, or something that looks like one. Then
	// the client may want another server.
	ECH bool
}

// ErrShort means that the message is not complete yet.
var ErrShort = errors.New("the TLS hello is not whole")

// ErrMalformed is wrapped by every other error.
var ErrMalformed = errors.New("malformed TLS hello")

// MaxSize is the longest message that is read, with its records' headers. MaxRecords is the most
// records. It is bounded because each new piece means that all of them are read again.
const (
	MaxSize    = 64 << 10
	MaxRecords = 1024
)

// Constants of the wire format, from RFC 8446 and the RFCs it cites.
const (
	recordHandshake  = 22
	recordHeader     = 5
	maxRecord        = 1 << 14
	messageHello     = 1
	messageHeader    = 4
	extServerName    = 0
	extALPN          = 16
	nameHost         = 0
	maxServerName    = 253
	maxHelloFragment = MaxSize
)

// Looks reports whether b, the first bytes of a connection, may begin TLS. It also reports true
// when there are too few bytes to tell.
func Looks(b []byte) bool {
	switch len(b) {
	case 0:
		return true
	case 1:
		return b[0] == recordHandshake
	}
	return b[0] == recordHandshake && b[1] == 3
}

// Parse reads the first bytes of a connection. It returns ErrShort when more are
// needed, and never asks for more than MaxSize.
func Parse(b []byte) (Hello, error) {
	body, err := message(b)
	if err != nil {
		return Hello{}, err
	}
	return parseBody(body)
}

// Next returns how many bytes must be there before another Parse is useful, after ErrShort for b.
// It is the end of the record that b ends in.
func Next(b []byte) int {
	at := 0
	for at+recordHeader <= len(b) {
		at += recordHeader + int(binary.BigEndian.Uint16(b[at+3:]))
	}
	if at > len(b) {
		return at
	}
	return at + recordHeader + 1
}

// message joins the pieces of the first message from its records.
func message(b []byte) ([]byte, error) {
	var m []byte
	for n := 1; ; n++ {
		if n > MaxRecords {
			return nil, malformed("in too many records")
		}
		if len(b) < recordHeader {
			// Even a few bytes may show that this is no TLS.
			if len(b) > 0 && b[0] != recordHandshake || len(b) > 1 && b[1] != 3 {
				return nil, malformed("no handshake record")
			}
			return nil, ErrShort
		}
		size := int(binary.BigEndian.Uint16(b[3:]))
		switch {
		case b[0] != recordHandshake || b[1] != 3 || b[2] > 4:
			return nil, malformed("no handshake record")
		case size == 0:
			return nil, malformed("empty record")
		case size > maxRecord:
			return nil, malformed("record too long")
		}
		b = b[recordHeader:]
		whole := len(b) >= size
		piece := b[:min(size, len(b))]
		if m == nil && whole {
			m = piece[:len(piece):len(piece)] // most messages are one record: no copy is needed
		} else {
			m = append(m, piece...)
		}
		if len(m) > 0 && m[0] != messageHello {
			return nil, malformed("the first message is no client hello")
		}
		if len(m) >= messageHeader {
			want := messageHeader + int(m[1])<<16 + int(m[2])<<8 + int(m[3])
			switch {
			case want > maxHelloFragment:
				return nil, malformed("too long")
			case len(m) > want || len(m) == want && !whole:
				return nil, malformed("bytes after the message")
			case len(m) == want:
				return m[messageHeader:], nil
			}
		}
		if !whole {
			return nil, ErrShort
		}
		b = b[size:]
	}
}

func malformed(why string) error { return &malformedError{why} }

type malformedError struct{ why string }

func (e *malformedError) Error() string { return ErrMalformed.Error() + ": " + e.why }
func (e *malformedError) Unwrap() error { return ErrMalformed }

// reader takes a message apart. After the first wrong length, bad stays true.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad = true
		return nil
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

// number reads an unsigned number of n bytes.
func (r *reader) number(n int) int {
	v := 0
	for _, c := range r.take(n) {
		v = v<<8 | int(c)
	}
	return v
}

// vector reads a vector that is preceded by its length in n bytes.
func (r *reader) vector(n int) *reader {
	v := &reader{b: r.take(r.number(n))}
	v.bad = r.bad
	return v
}

func parseBody(body []byte) (Hello, error) {
	r := &reader{b: body}
	r.number(2) // the old version field
	r.take(32)  // random
	session, suites, compression := r.vector(1), r.vector(2), r.vector(1)
	if r.bad || len(session.b) > 32 || len(suites.b) < 2 || len(suites.b)%2 != 0 || len(compression.b) < 1 {
		return Hello{}, malformed("its fixed part")
	}
	if len(r.b) == 0 {
		return Hello{}, nil // as old clients have it
	}
	extensions := r.vector(2)
	if r.bad || len(r.b) != 0 {
		return Hello{}, malformed("the list of extensions")
	}
	var h Hello
	seen := make(map[int]bool)
	for len(extensions.b) > 0 {
		kind := extensions.number(2)
		data := extensions.vector(2)
		if extensions.bad {
			return Hello{}, malformed("an extension's length")
		}
		if seen[kind] {
			return Hello{}, malformed("an extension twice")
		}
		seen[kind] = true
		var err error
		switch kind {
		case extServerName:
			h.ServerName, err = serverName(data)
		case extALPN:
			h.Protocols, err = protocols(data)
		default:
			h.ECH = h.ECH || hidesName(kind)
		}
		if err != nil {
			return Hello{}, err
		}
	}
	return h, nil
}

// hidesName reports whether an extension may hold another name, encrypted. These are ECH as it is
// now (RFC 9849), its drafts, its outer extensions, and its predecessor.
func hidesName(kind int) bool {
	switch kind {
	case 0xfe08, 0xfe09, 0xfe0a, 0xfe0b, 0xfe0c, 0xfe0d, 0xfd00, 0xff02, 0xff03, 0xffce:
		return true
	}
	return false
}

func serverName(r *reader) (string, error) {
	list := r.vector(2)
	kind := list.number(1)
	name := list.vector(2)
	if r.bad || list.bad || len(r.b) != 0 || len(list.b) != 0 || kind != nameHost {
		return "", malformed("the server name's frame")
	}
	if !hostName(name.b) {
		return "", malformed("the server name is no host name")
	}
	return strings.ToLower(string(name.b)), nil
}

// hostName reports whether b is a DNS host name, with underscores allowed, and no address. The
// standard forbids addresses here, and servers treat them differently.
func hostName(b []byte) bool {
	if len(b) == 0 || len(b) > maxServerName {
		return false
	}
	label, letters := 0, false
	for i, c := range b {
		switch {
		case c == '.':
			if label == 0 || b[i-1] == '-' {
				return false
			}
			label, letters = 0, false
			continue
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_':
			letters = true
		case c == '-':
			if label == 0 {
				return false
			}
			letters = true
		case c >= '0' && c <= '9':
		default:
			return false
		}
		if label++; label > 63 {
			return false
		}
	}
	// No top-level domain is a number. A name that ends in a number is an address in some notation.
	return label > 0 && letters && b[len(b)-1] != '-'
}

func protocols(r *reader) ([]string, error) {
	list := r.vector(2)
	var out []string
	for len(list.b) > 0 {
		p := list.vector(1)
		if list.bad || len(p.b) == 0 {
			return nil, malformed("the list of protocols")
		}
		out = append(out, string(p.b))
	}
	if r.bad || list.bad || len(r.b) != 0 || len(out) == 0 {
		return nil, malformed("the list of protocols")
	}
	return out, nil
}
