package audit

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/carrel-dev/carrel"
)

// FuzzScan reads files of any content. Reading must end, and give only whole lines in ascending
// order.
func FuzzScan(f *testing.F) {
	line, _ := appendLine(nil, carrel.Decision{Seq: 1, Time: noon, ID: boxA})
	f.Add(line)
	f.Add(append(bytes.Clone(line), line[:20]...))
	f.Add([]byte("{\"seq\":9223372036854775807,\"time\":\"2026-03-01T12:00:00Z\"}\n\n}\n{\"seq\":"))
	f.Add([]byte("\x00\n}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		seg, err := scan(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if seg.size > int64(len(data)) || seg.size > 0 && data[seg.size-1] != '\n' || seg.last < seg.first || seg.until.Before(seg.since) {
			t.Errorf("%+v", seg)
		}
		lines := newLineReader(bytes.NewReader(data))
		for total := 0; ; {
			line, n, err := lines.next()
			if errors.Is(err, io.EOF) {
				return
			}
			total += n
			if err != nil || n <= len(line) || total > len(data) {
				t.Fatalf("%d bytes for %d, %v", n, len(line), err)
			}
			if d, ok := parseLine(line); ok && d.Seq <= 0 {
				t.Errorf("%+v", d)
			}
		}
	})
}

// FuzzPackHead shows that a damaged packed file gives an error and no crash.
func FuzzPackHead(f *testing.F) {
	var good bytes.Buffer
	if err := writePacked(&good, strings.NewReader("x\n"), segment{first: 1, last: 2, since: noon, until: noon.Add(time.Hour)}); err != nil {
		f.Fatal(err)
	}
	f.Add(good.Bytes())
	f.Add([]byte("\x5c\x2a\x4d\x18\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if seg, err := parsePackHead(bytes.NewReader(data)); err == nil && (seg.first <= 0 || seg.last < seg.first || seg.until.Before(seg.since)) {
			t.Errorf("%+v", seg)
		}
		if dec, err := unpack(bytes.NewReader(data)); err == nil {
			_, _ = io.CopyN(io.Discard, dec, 1<<20)
			dec.Close()
		}
	})
}

// FuzzLine shows that a sandbox's text is read back unchanged, except for its length and invalid
// characters. It stands on one line that is safe for a terminal.
func FuzzLine(f *testing.F) {
	f.Add("api.example.com", "/v1", "rule 1", int64(5))
	f.Add("\x1b[2J\n\u202e\xff\U000e0041", strings.Repeat("\u009b", 3000), "\",\"allowed\":true,\"x\":\"", int64(-1))
	f.Fuzz(func(t *testing.T, name, path, rule string, n int64) {
		d, cost := bound(carrel.Decision{Seq: 1, ID: boxA, Name: name, Path: path, Rule: rule, Sent: n, Secrets: []string{name}}, noon)
		d.Seq = 1
		line, err := appendLine(nil, d)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Count(line, []byte("\n")) != 1 || line[len(line)-1] != '\n' {
			t.Errorf("no one line: %q", line)
		}
		if rest := line[:len(line)-1]; !utf8.Valid(rest) || bytes.IndexFunc(rest, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
			t.Errorf("not printable: %q", rest)
		}
		if len(line) > cost+400 || len(line) > maxLine {
			t.Errorf("%d bytes cost %d", len(line), cost)
		}
		seq, at, ok := lineHead(line[:len(line)-1])
		if !ok || seq != 1 || !at.Equal(noon) {
			t.Errorf("head %d %v %v of %q", seq, at, ok, line)
		}
		got, ok := parseLine(line[:len(line)-1])
		same := func(a, b string) bool { return string([]rune(a)) == b } // no text becomes U+FFFD
		if !ok || !same(d.Name, got.Name) || !same(d.Path, got.Path) || !same(d.Rule, got.Rule) || got.Allowed || got.ID != boxA || got.Sent != n {
			t.Errorf("%+v became %+v", d, got)
		}
		yes := true
		if m, err := newMatcher(carrel.AuditOptions{Allowed: &yes}); err != nil {
			t.Error(err)
		} else if _, ok := m.line(line[:len(line)-1], at); ok {
			t.Error("a text changed the verdict")
		}
	})
}

// FuzzHost shows that a filter is refused or has exactly one meaning.
func FuzzHost(f *testing.F) {
	f.Add("*.example.com", "api.example.com", "203.0.113.9")
	f.Add("[2001:db8::]/32", "", "2001:db8::1%eth0")
	f.Add("::ffff:203.0.113.9", "203.0.113.9", "")
	f.Fuzz(func(t *testing.T, filter, name, address string) {
		h, err := newHostMatcher(filter)
		if err != nil {
			if carrel.KindOf(err) != carrel.Invalid {
				t.Error(err)
			}
			return
		}
		d := carrel.Decision{Name: name, Address: address}
		matched := h.match(d)
		if filter == "" && !matched {
			t.Error("no filter, and it does not match")
		}
		if a, err := netip.ParseAddr(filter); err == nil && a.Zone() == "" && !h.match(carrel.Decision{Address: filter}) {
			t.Errorf("%q does not match itself", filter)
		}
	})
}
