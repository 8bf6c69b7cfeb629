package web

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

const (
	// minScrub is the shortest text that is removed from answers. Shorter ones would be found
	// everywhere.
	minScrub = 4
	// pairs is the size of the table of pairs of bytes.
	pairs = 1 << 12
)

// needles are the texts to remove from a server's answers. A search finds all of them at once. It
// looks at the last two bytes of a window that is as long as the shortest needle (the algorithm of
// Wu and Manber). If no needle contains this pair, which is usual, the search skips the whole
// window.
type needles struct {
	list  [][]byte
	short int           // length of the shortest
	long  int           // of the longest
	first [256]bool     // the first bytes of all needles
	skip  [pairs]uint16 // how far the window moves for a pair
}

// pair is the index of two bytes in the table.
func pair(a, b byte) uint16 { return (uint16(a)<<4 ^ uint16(b)) & (pairs - 1) }

// newNeedles returns nil if there are no texts.
func newNeedles(texts map[string]struct{}) *needles {
	n := &needles{}
	for t := range texts {
		if len(t) < minScrub {
			continue
		}
		n.list = append(n.list, []byte(t))
		n.long = max(n.long, len(t))
		n.first[t[0]] = true
	}
	if len(n.list) == 0 {
		return nil
	}
	slices.SortFunc(n.list, bytes.Compare)
	n.short = len(n.list[0])
	for _, t := range n.list {
		n.short = min(n.short, len(t))
	}
	n.short = min(n.short, 1<<15)
	for i := range n.skip {
		n.skip[i] = uint16(n.short - 1)
	}
	for _, t := range n.list {
		for i := 1; i < n.short; i++ {
			p := pair(t[i-1], t[i])
			n.skip[p] = min(n.skip[p], uint16(n.short-1-i))
		}
	}
	return n
}

// spellings adds a value, and the forms in which servers are known to repeat one.
func spellings(texts map[string]struct{}, value string) {
	if len(value) < minScrub {
		return
	}
	add := func(s string) {
		texts[s] = struct{}{}
	}
	add(value)
	add(url.QueryEscape(value))
	add(url.PathEscape(value))
	add(lowerEscapes(url.QueryEscape(value)))
	add(lowerEscapes(url.PathEscape(value)))
	if b, err := json.Marshal(value); err == nil { // with <, > and & escaped
		s := string(b[1 : len(b)-1])
		add(s)
		add(strings.ReplaceAll(s, "/", `\/`))
	}
	var plain bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	if enc.Encode(value) == nil {
		s := strings.TrimSuffix(plain.String(), "\n")
		s = s[1 : len(s)-1]
		add(s)
		add(strings.ReplaceAll(s, "/", `\/`))
	}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		add(enc.EncodeToString([]byte(value)))
		// The value may stand in the middle of another text that was encoded as a whole. Then its
		// first or last character also encodes neighbouring bytes.
		for shift := 1; shift <= 2; shift++ {
			s := enc.EncodeToString(append(make([]byte, shift), value...))
			s = s[shift+1:]
			if (shift+len(value))%3 != 0 {
				s = s[:len(s)-1]
			}
			if len(s) >= 2*minScrub {
				add(s)
			}
		}
		if s := enc.EncodeToString([]byte(value)); len(value)%3 != 0 && len(s) > 2*minScrub {
			add(s[:len(s)-1])
		}
	}
}

// lowerEscapes writes %2F as %2f.
func lowerEscapes(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i:], bytes.ToLower(b[i:i+3]))
		}
	}
	return string(b)
}

// find calls found for every place of a needle in b, in order, with its start and its end. The
// search ends when found returns false.
func (n *needles) find(b []byte, found func(from, to int) bool) {
	for end := n.short - 1; end < len(b); {
		if step := int(n.skip[pair(b[end-1], b[end])]); step > 0 {
			end += step
			continue
		}
		from := end - n.short + 1
		for _, t := range n.list {
			if b[from] == t[0] && bytes.HasPrefix(b[from:], t) && !found(from, from+len(t)) {
				return
			}
		}
		end++
	}
}

// in reports whether b contains a needle.
func (n *needles) in(b []byte) bool {
	if n == nil || len(b) < n.short {
		return false
	}
	is := false
	n.find(b, func(int, int) bool { is = true; return false })
	return is
}

// strike returns b with all needles replaced. It does not change b.
func (n *needles) strike(b []byte) []byte {
	if len(b) < minScrub || !n.in(b) {
		return b
	}
	out := bytes.Clone(b)
	n.mask(out, b)
	return out
}

// strikeText is strike for a string.
func (n *needles) strikeText(s string) string {
	if n == nil || len(s) < minScrub {
		return s
	}
	return string(n.strike([]byte(s)))
}

// mask replaces in dst the needles found in src. dst is a copy of the beginning of src. A match may
// begin in dst and end behind it. beyond is how far behind.
func (n *needles) mask(dst, src []byte) (beyond int) {
	done := 0
	n.find(src, func(from, to int) bool {
		if from >= len(dst) {
			return false
		}
		beyond = max(beyond, to-len(dst))
		for i := max(from, done); i < min(to, len(dst)); i++ {
			dst[i] = '*'
		}
		done = max(done, to)
		return true
	})
	return beyond
}

// scrubber removes needles from a stream. It holds back only bytes that may be the beginning of a
// needle.
type scrubber struct {
	set    *needles
	held   []byte // as it came
	struck int    // bytes of held that an earlier match covers
}

// next takes the bytes in, and appends to dst all bytes that are now safe to send.
func (s *scrubber) next(dst, in []byte) []byte {
	if s.set == nil {
		return append(dst, in...)
	}
	src := in
	if len(s.held) > 0 {
		s.held = append(s.held, in...)
		src = s.held
	}
	keep := s.set.pending(src)
	at := len(dst)
	dst = append(dst, src[:keep]...)
	out := dst[at:]
	for i := range min(s.struck, keep) {
		out[i] = '*'
	}
	s.struck = max(0, s.struck-keep, s.set.mask(out, src))
	s.held = append(s.held[:0], src[keep:]...)
	return dst
}

// rest appends the bytes that were held back, at the end of the stream.
func (s *scrubber) rest(dst []byte) []byte {
	if len(s.held) == 0 {
		return dst
	}
	at := len(dst)
	dst = append(dst, s.held...)
	out := dst[at:]
	for i := range s.struck {
		out[i] = '*'
	}
	s.set.mask(out, s.held)
	s.held, s.struck = s.held[:0], 0
	return dst
}

// pending returns the start of the longest end of b that is a proper beginning of a needle. It
// returns len(b) if there is none.
func (n *needles) pending(b []byte) int {
	for i := max(0, len(b)-n.long+1); i < len(b); i++ {
		if !n.first[b[i]] {
			continue
		}
		for _, t := range n.list {
			if len(t) > len(b)-i && bytes.HasPrefix(t, b[i:]) {
				return i
			}
		}
	}
	return len(b)
}
