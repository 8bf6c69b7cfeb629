package kernel

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// EventType is the type of an Event.
type EventType int

// The types of events.
const (
	Stdout EventType = iota + 1
	Stderr
	Result // a value: of the cell (Main) or displayed by it
	Error  // the cell's failure
	Count  // the number of the cell
)

// Event is one thing that a cell did.
type Event struct {
	Type EventType
	Text string // of Stdout and Stderr
	Main bool   // of Result: the value of the cell's last expression
	// Data is the value of Result in every form that it has, by MIME type. The values are JSON:
	// a string, with binary forms in base64, or an object.
	Data map[string]json.RawMessage
	// Name, Value and Traceback are of Error.
	Name, Value, Traceback string
	N                      int // of Count
}

// Size is about how many bytes of memory the event takes.
func (e Event) Size() int {
	n := 64 + len(e.Text) + len(e.Name) + len(e.Value) + len(e.Traceback)
	for k, v := range e.Data {
		n += len(k) + len(v)
	}
	return n
}

// Sink takes the events of a cell in their order. It may block until the context of Run ends.
// An error ends the cell's Run.
type Sink func(Event) error

// MaxForms bounds the forms that one value may have. The rest is dropped.
const MaxForms = 64

// joined makes one string of a form that is a list of lines, as some kernels send text.
func joined(raw json.RawMessage) json.RawMessage {
	if t := bytes.TrimLeft(raw, " \n\t"); len(t) == 0 || t[0] != '[' {
		return raw
	}
	var lines []string
	if json.Unmarshal(raw, &lines) != nil {
		return raw // a list of something else is a value of its own
	}
	out, err := json.Marshal(strings.Join(lines, ""))
	if err != nil {
		return raw
	}
	return out
}

// isCommon reports whether clients know a form, so that it is kept before others.
func isCommon(mime string) bool {
	return strings.HasPrefix(mime, "text/") || strings.HasPrefix(mime, "image/") ||
		strings.HasPrefix(mime, "e2b/") || !strings.Contains(mime, "+") && !strings.Contains(mime, "x-")
}

// forms bounds and cleans the forms of a value.
func forms(data map[string]json.RawMessage) map[string]json.RawMessage {
	names := slices.SortedFunc(maps.Keys(data), func(a, b string) int {
		if isCommon(a) != isCommon(b) {
			if isCommon(a) {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	out := make(map[string]json.RawMessage, min(len(names), MaxForms))
	if text, ok := data["text/plain"]; ok {
		out["text/plain"] = joined(text)
	}
	for _, mime := range names {
		if len(out) == MaxForms {
			break
		}
		if raw := data[mime]; strings.HasSuffix(mime, "json") {
			out[mime] = raw
		} else {
			out[mime] = joined(raw)
		}
	}
	return out
}
