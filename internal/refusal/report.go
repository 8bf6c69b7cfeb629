package refusal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// Report is the JSON document of "carrel run --report".
type Report struct {
	Version  int       `json:"version"` // 1
	Command  []string  `json:"command"`
	Dir      string    `json:"dir"`
	Tier     string    `json:"tier"`
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended"`
	ExitCode int       `json:"exitCode"`
	Signal   string    `json:"signal,omitempty"`
	Refused  []Refusal `json:"refused"` // oldest first; never null
	Dropped  int       `json:"dropped,omitempty"`
	Notes    []string  `json:"notes,omitempty"` // what this host could not do
}

// JSON returns the document, indented, with a newline at its end. It sets Version, and replaces
// lists that must not be null. It escapes characters that can't be printed, because people read
// reports with cat.
func (r Report) JSON() ([]byte, error) {
	r.Version = 1
	if r.Command == nil {
		r.Command = []string{}
	}
	if r.Refused == nil {
		r.Refused = []Refusal{}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // people also read "allow with --read 'a & b'"
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return nil, err
	}
	return ascii(b.Bytes()), nil
}

// ascii writes unprintable characters of a JSON text as \uXXXX. Such characters occur only in its
// strings.
func ascii(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for _, r := range string(text) {
		if r == '\n' || strconv.IsPrint(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, u := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, `\u%04x`, u)
		}
	}
	return out
}
