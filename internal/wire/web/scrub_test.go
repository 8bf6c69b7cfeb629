package web

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/url"
	"strings"
	"testing"
)

func needlesOf(texts ...string) *needles {
	m := map[string]struct{}{}
	for _, t := range texts {
		m[t] = struct{}{}
	}
	return newNeedles(m)
}

// struckAtOnce is the definition of scrubbing, without a stream.
func struckAtOnce(data []byte, texts ...string) []byte {
	out := bytes.Clone(data)
	for _, t := range texts {
		for i := 0; i+len(t) <= len(data); i++ {
			if string(data[i:i+len(t)]) == t {
				copy(out[i:], strings.Repeat("*", len(t)))
			}
		}
	}
	return out
}

func scrubInPieces(data []byte, n *needles, size int) []byte {
	s := scrubber{set: n}
	var out []byte
	for len(data) > 0 {
		k := min(size, len(data))
		out = s.next(out, data[:k])
		data = data[k:]
	}
	return s.rest(out)
}

func TestScrubber(t *testing.T) {
	for _, c := range []struct {
		data  string
		texts []string
	}{
		{"", []string{"secret"}},
		{"secret", []string{"secret"}},
		{"a secret in the middle", []string{"secret"}},
		{"sesecretsecretsecre", []string{"secret"}},
		{"abababab abab", []string{"abab"}},
		{"xabcdx xabcd", []string{"xabcdx", "abcd"}},
		{"aaaaaaaaaaab", []string{"aaaab", "aaaa"}},
		{"one two", []string{"none of it"}},
	} {
		want := string(struckAtOnce([]byte(c.data), c.texts...))
		for size := 1; size <= len(c.data)+1; size++ {
			if got := string(scrubInPieces([]byte(c.data), needlesOf(c.texts...), size)); got != want {
				t.Errorf("%q in steps of %d: %q, not %q", c.data, size, got, want)
			}
		}
	}
}

// TestScrubberHoldsLittle shows that bytes which can't begin a secret are sent at once.
func TestScrubberHoldsLittle(t *testing.T) {
	s := scrubber{set: needlesOf("secret", "sesame-open")}
	for _, c := range []struct{ in, out string }{
		{"data: hello\n\n", "data: hello\n\n"}, {"ends in s", "ends in "}, {"es", ""}, {"ame", ""}, {"!", "sesame!"}, {"secre", ""}, {"t", "******"},
	} {
		if got := string(s.next(nil, []byte(c.in))); got != c.out {
			t.Errorf("after %q: %q, not %q", c.in, got, c.out)
		}
	}
}

func TestSpellings(t *testing.T) {
	const value = `p@ss/w+rd&"q"\<é>-0123456789`
	m := map[string]struct{}{}
	spellings(m, value)
	n := newNeedles(m)
	quoted, _ := json.Marshal(value)
	var plainJSON bytes.Buffer
	enc := json.NewEncoder(&plainJSON)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(value)
	for _, echo := range []string{
		value, url.QueryEscape(value), url.PathEscape(value), strings.ToLower(url.QueryEscape("/+&")) + value, string(quoted), plainJSON.String(),
		strings.ReplaceAll(plainJSON.String(), "/", `\/`),
		base64.StdEncoding.EncodeToString([]byte(value)), base64.URLEncoding.EncodeToString([]byte(value)),
		base64.StdEncoding.EncodeToString([]byte("u:" + value + " and more")), base64.StdEncoding.EncodeToString([]byte("x" + value)),
		base64.RawURLEncoding.EncodeToString([]byte(`{"a":"` + value + `"}`)),
	} {
		got := string(scrubInPieces([]byte("<"+echo+">"), n, 5))
		if strings.Count(got, "*") < len(echo)/2 || len(got) != len(echo)+2 {
			t.Errorf("%q comes out as %q", echo, got)
		}
	}
}

func FuzzScrub(f *testing.F) {
	f.Add([]byte("a secret in the middle secre"), "secret", "middle", 3)
	f.Add([]byte("abababababab"), "abab", "babab", 1)
	f.Add([]byte("aaaaaaaaaaab"), "aaaab", "aaaa", 2)
	f.Fuzz(func(t *testing.T, data []byte, one, two string, size int) {
		if len(one) < minScrub || len(two) < minScrub || size < 1 || len(one)+len(two) > 1<<12 {
			return
		}
		want := struckAtOnce(data, one, two)
		if got := scrubInPieces(data, needlesOf(one, two), size); !bytes.Equal(got, want) {
			t.Fatalf("%q without %q and %q in steps of %d is %q, not %q", data, one, two, size, got, want)
		}
		overlaps := false
		for k := 1; k < len(one); k++ {
			overlaps = overlaps || strings.HasPrefix(one, one[k:])
		}
		if !overlaps {
			replaced := bytes.ReplaceAll(data, []byte(one), bytes.Repeat([]byte{'*'}, len(one)))
			if got := scrubInPieces(data, needlesOf(one), size); !bytes.Equal(got, replaced) {
				t.Fatalf("%q, not %q", got, replaced)
			}
		}
	})
}

// FuzzFrames shows that no bytes of a WebSocket server crash the proxy, and that complete frames
// keep their text, except for secrets.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x81\x06secret"))
	f.Add([]byte("\x01\x03sec\x89\x01p\x80\x03ret\x88\x00"))
	f.Add([]byte("\x82\x7e\x00\x80" + strings.Repeat("secret!!", 16)))
	f.Fuzz(func(t *testing.T, data []byte) {
		var out bytes.Buffer
		_ = scrubFrames(&out, bytes.NewReader(data), needlesOf("secret"))
		if bytes.Contains(out.Bytes(), []byte("secret")) {
			// It may only appear across the border of two messages or of frames' heads.
			in, after := messages(data), messages(out.Bytes())
			for i := range after {
				if i < len(in) && strings.Contains(after[i], "secret") {
					t.Fatalf("%q becomes %q", in[i], after[i])
				}
			}
		}
	})
}

// messages returns the complete data messages in a server's frames.
func messages(data []byte) (out []string) {
	r := bytes.NewReader(data)
	var text []byte
	for {
		var head [10]byte
		if _, err := io.ReadFull(r, head[:2]); err != nil {
			return out
		}
		n, err := frameLength(r, head[1], head[2:])
		if err != nil || n > int64(r.Len()) {
			return out
		}
		b := make([]byte, n)
		_, _ = io.ReadFull(r, b)
		if head[0]&frameControl != 0 {
			continue
		}
		if text = append(text, b...); head[0]&frameFinal != 0 {
			out, text = append(out, string(text)), nil
		}
	}
}
