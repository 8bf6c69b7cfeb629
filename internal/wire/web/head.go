package web

import (
	"bytes"
	"errors"
	"strconv"
)

// maxFields bounds the fields of a head.
const maxFields = 256

// field is one header field, unchanged.
type field struct{ name, value []byte }

// head is the head of an HTTP/1 request or response, cut into its parts. The parts point into the
// buffer that it was read into.
type head struct {
	method, target []byte // of a request
	status         int    // of a response
	minor          int    // of the version: HTTP/1.minor
	fields         []field
}

// headEnd looks for the empty line that ends a head. It was called before for the lines before
// b[from]. It returns the end of the head, or 0 and the place to continue from.
func headEnd(b []byte, from int, lenient bool) (end, next int, err error) {
	for {
		i := bytes.IndexByte(b[from:], '\n')
		if i < 0 {
			if len(b) > maxHead {
				return 0, from, errTooLarge
			}
			return 0, from, nil
		}
		line := b[from : from+i]
		if n := len(line); n > 0 && line[n-1] == '\r' {
			line = line[:n-1]
		} else if !lenient {
			return 0, from, errBareLF
		}
		from += i + 1
		if from > maxHead {
			return 0, from, errTooLarge
		}
		if len(line) == 0 {
			return from, from, nil
		}
	}
}

// parseRequest cuts a request's head, as requestHead returns it, into its parts. It is as strict as
// the grammar, so two readers can't understand an accepted head in two ways.
func (h *head) parseRequest(b []byte) error {
	line, rest := cutLine(b)
	i := bytes.IndexByte(line, ' ')
	j := bytes.LastIndexByte(line, ' ')
	if i <= 0 || j <= i+1 {
		return errors.New("the request line is not a method, a target and a version")
	}
	h.method, h.target = line[:i], line[i+1:j]
	if len(h.method) > 32 || !isToken(h.method) {
		return errors.New("the method is not a word")
	}
	for _, c := range h.target {
		if c <= ' ' || c >= 0x7f || c == '#' {
			return errors.New("the target holds a character that must be escaped")
		}
	}
	switch string(line[j+1:]) {
	case "HTTP/1.1":
		h.minor = 1
	case "HTTP/1.0":
		h.minor = 0
	default:
		return errors.New("the version is neither HTTP/1.0 nor HTTP/1.1")
	}
	return h.parseFields(rest, false)
}

// parseResponse does the same for a response's head. It also accepts lines that end with a line
// feed alone, because servers are known to send these.
func (h *head) parseResponse(b []byte) error {
	line, rest := cutLine(b)
	switch {
	case bytes.HasPrefix(line, []byte("HTTP/1.1")):
		h.minor = 1
	case bytes.HasPrefix(line, []byte("HTTP/1.0")):
		h.minor = 0
	default:
		return errors.New("the answer is not HTTP/1")
	}
	line = line[8:]
	if len(line) < 4 || line[0] != ' ' || (len(line) > 4 && line[4] != ' ') {
		return errors.New("the status line is malformed")
	}
	n, err := strconv.Atoi(string(line[1:4]))
	if err != nil || n < 100 {
		return errors.New("the status is not a number of three digits")
	}
	h.status = n
	return h.parseFields(rest, true)
}

// parseFields reads fields up to the empty line.
func (h *head) parseFields(b []byte, lenient bool) error {
	h.fields = h.fields[:0]
	for {
		var line []byte
		line, b = cutLine(b)
		if len(line) == 0 {
			return nil
		}
		if len(h.fields) >= maxFields {
			return errors.New("there are more than 256 header fields")
		}
		if line[0] == ' ' || line[0] == '\t' {
			return errors.New("a header field is folded over two lines")
		}
		i := bytes.IndexByte(line, ':')
		if i <= 0 || !isToken(line[:i]) {
			return errors.New("a header field's name is malformed")
		}
		value := trimSpace(line[i+1:])
		if !isValue(value) {
			return errors.New("a header field holds a control character")
		}
		h.fields = append(h.fields, field{line[:i], value})
	}
}

// cutLine cuts off the first line and its line end.
func cutLine(b []byte) (line, rest []byte) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return nil, nil
	}
	line, rest = b[:i], b[i+1:]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, rest
}

// tokenChars are the characters allowed in names and methods.
var tokenChars = func() (t [256]bool) {
	for c := '0'; c <= 'z'; c++ {
		t[c] = c <= '9' || (c >= 'A' && c <= 'Z') || c >= 'a'
	}
	for _, c := range "!#$%&'*+-.^_`|~" {
		t[c] = true
	}
	return t
}()

func isToken[T string | []byte](s T) bool {
	for i := range len(s) {
		if !tokenChars[s[i]] {
			return false
		}
	}
	return len(s) > 0
}

// isValue reports whether a field's value has no control characters.
func isValue[T string | []byte](s T) bool {
	for i := range len(s) {
		if c := s[i]; (c < ' ' && c != '\t') || c == 0x7f {
			return false
		}
	}
	return true
}

func trimSpace(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// same reports whether a name equals lower, in any case. "_" counts as "-", as in many servers.
func same[T string | []byte](name T, lower string) bool {
	if len(name) != len(lower) {
		return false
	}
	for i := range len(lower) {
		if folded[name[i]] != folded[lower[i]] {
			return false
		}
	}
	return true
}

var folded = func() (t [256]byte) {
	for i := range t {
		t[i] = byte(i)
	}
	for c := 'A'; c <= 'Z'; c++ {
		t[c] = byte(c) + 'a' - 'A'
	}
	t['_'] = '-'
	return t
}()
