package main

import (
	"crypto/rand"
	"encoding/binary"
)

// hello builds ClientHellos byte by byte, well-formed or not.
type hello struct {
	name    string // for the server_name extension, if sni is nil
	sni     []byte // body of the server_name extension; empty means no extension
	session string // goes into the session ID, up to 32 bytes
	first   []byte // extensions before all others
	last    []byte // extensions after them
}

func u16(n int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(n)) }

func with16(b []byte) []byte { return append(u16(len(b)), b...) }

func extension(kind int, body []byte) []byte { return append(u16(kind), with16(body)...) }

// serverName returns one entry of a server_name list.
func serverName(kind byte, name string) []byte { return append([]byte{kind}, with16([]byte(name))...) }

// message returns the handshake message.
func (h hello) message() []byte {
	random, key := make([]byte, 32), make([]byte, 32)
	_, _ = rand.Read(random)
	_, _ = rand.Read(key)
	session := make([]byte, 32)
	copy(session, h.session)
	body := append([]byte{3, 3}, random...)
	body = append(append(body, 32), session...)
	body = append(body, with16([]byte{0x13, 1, 0x13, 2, 0x13, 3, 0xc0, 0x2b, 0xc0, 0x2f})...)
	body = append(body, 1, 0)
	ext := append([]byte{}, h.first...)
	switch {
	case h.sni != nil:
		ext = append(ext, h.sni...)
	default:
		ext = append(ext, extension(0, with16(serverName(0, h.name)))...)
	}
	ext = append(ext, extension(10, with16([]byte{0, 0x1d, 0, 0x17}))...)
	ext = append(ext, extension(13, with16([]byte{4, 3, 8, 4, 4, 1}))...)
	ext = append(ext, extension(43, []byte{2, 3, 4})...)
	ext = append(ext, extension(51, with16(append([]byte{0, 0x1d}, with16(key)...)))...)
	ext = append(ext, h.last...)
	body = append(body, with16(ext)...)
	n := len(body)
	return append([]byte{1, byte(n >> 16), byte(n >> 8), byte(n)}, body...)
}

// record is one TLS record.
func record(kind byte, body []byte) []byte {
	return append([]byte{kind, 3, 1, byte(len(body) >> 8), byte(len(body))}, body...)
}

// records cuts a handshake message into records of at most size bytes.
func records(message []byte, size int) []byte {
	var out []byte
	for len(message) > 0 {
		n := min(size, len(message))
		out = append(out, record(22, message[:n])...)
		message = message[n:]
	}
	return out
}

// bytes returns the hello in as few records as possible.
func (h hello) bytes() []byte { return records(h.message(), 1<<14) }

// ech returns an encrypted_client_hello extension with a marker as payload.
func ech(kind int, mark string) []byte {
	payload := make([]byte, 200)
	_, _ = rand.Read(payload)
	copy(payload[20:], mark)
	body := append([]byte{0, 0, 1, 0, 1, 7}, with16(make([]byte, 32))...)
	return extension(kind, append(body, with16(payload)...))
}
