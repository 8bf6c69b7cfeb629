package audit

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/carrel-dev/carrel"
)

// Bounds of one decision's texts, in bytes.
const (
	maxWord    = 64 // protocol, address, method
	maxProcess = 256
	maxName    = 512
	maxPath    = 2 << 10
	maxText    = 1 << 10 // rule, reason, hint
	maxSecrets = 32

	// fixedCost is the size of a decision without its texts.
	fixedCost = 160
	// maxLine is more than any decision takes, with every byte escaped.
	maxLine = 256 << 10
)

// bound cuts a decision's texts. It returns an upper bound of the length of the decision's line.
func bound(d carrel.Decision, now time.Time) (carrel.Decision, int) {
	if d.Time.IsZero() {
		d.Time = now
	}
	d.Time = d.Time.UTC()
	if y := d.Time.Year(); y < 0 || y > 9999 { // JSON has no such times
		d.Time = now.UTC()
	}
	cost := fixedCost
	cut := func(s *string, most int) {
		*s = clip(*s, most)
		cost += escapedLen(*s)
	}
	id := string(d.ID)
	cut(&id, maxWord)
	d.ID = carrel.ID(id)
	cut(&d.Project, maxWord)
	cut(&d.Process, maxProcess)
	cut(&d.Protocol, maxWord)
	cut(&d.Name, maxName)
	cut(&d.Address, maxWord)
	cut(&d.Method, maxWord)
	cut(&d.Path, maxPath)
	cut(&d.Rule, maxText)
	cut(&d.Reason, maxText)
	cut(&d.Hint, maxText)
	if d.Secrets != nil {
		d.Secrets = slices.Clone(d.Secrets[:min(len(d.Secrets), maxSecrets)])
		for i := range d.Secrets {
			cut(&d.Secrets[i], maxProcess)
		}
	}
	return d, cost
}

// clip cuts a text to at most this many bytes, between characters.
func clip(s string, most int) string {
	const mark = "…"
	if len(s) <= most {
		return s
	}
	end := most - len(mark)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}

// escapedLen is the greatest length of a text in JSON.
func escapedLen(s string) int {
	n := len(s)
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '<' || c == '>' || c == '&' {
			n += 5
		} else if c == '"' || c == '\\' {
			n++
		}
	}
	return n
}

// appendLine appends a decision's line. Beyond JSON's own rules, it escapes characters that a
// terminal does not show.
func appendLine(buf []byte, d carrel.Decision) ([]byte, error) {
	raw, err := json.Marshal(d)
	if err != nil {
		return buf, err
	}
	for len(raw) > 0 {
		plain := bytes.IndexFunc(raw, func(r rune) bool { return r >= 0x7f && !unicode.IsPrint(r) })
		if plain < 0 {
			break
		}
		buf = append(buf, raw[:plain]...)
		r, size := utf8.DecodeRune(raw[plain:])
		buf = appendEscaped(buf, r)
		raw = raw[plain+size:]
	}
	return append(append(buf, raw...), '\n'), nil
}

// appendEscaped appends a character as JSON escapes it.
func appendEscaped(buf []byte, r rune) []byte {
	units := []rune{r}
	if r > 0xffff {
		const base = 0x10000
		units = []rune{0xd800 + (r-base)>>10, 0xdc00 + (r-base)&0x3ff}
	}
	for _, u := range units {
		hex := strconv.FormatInt(int64(u), 16)
		buf = append(append(append(buf, '\\', 'u'), "0000"[len(hex):]...), hex...)
	}
	return buf
}

// parseLine reads a line back.
func parseLine(line []byte) (carrel.Decision, bool) {
	var d carrel.Decision
	err := json.Unmarshal(line, &d)
	return d, err == nil && d.Seq > 0
}

// lineHead reads only the beginning of a line, which is much faster than the whole line.
func lineHead(line []byte) (seq int64, at time.Time, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"seq":`))
	if !ok || line[len(line)-1] != '}' {
		return 0, at, false
	}
	number, rest, ok := bytes.Cut(rest, []byte(`,"time":"`))
	if !ok {
		return 0, at, false
	}
	stamp, _, ok := bytes.Cut(rest, []byte(`"`))
	if !ok {
		return 0, at, false
	}
	seq, err := strconv.ParseInt(string(number), 10, 64)
	if err != nil || seq <= 0 {
		return 0, at, false
	}
	at, err = time.Parse(time.RFC3339Nano, string(stamp))
	return seq, at, err == nil
}
