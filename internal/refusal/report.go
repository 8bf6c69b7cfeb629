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

// JSON is the document, indented, with a newline at its end. Version is set, and lists that
// must not be null are not. What is not printable is escaped: people look at reports with cat.
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
	e.SetEscapeHTML(false) // "allow with --read 'a & b'" is for people too
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return nil, err
	}
	return ascii(b.Bytes()), nil
}

// ascii writes the characters of a JSON text that are not printable, which stand in its strings alone, as \uXXXX.
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
