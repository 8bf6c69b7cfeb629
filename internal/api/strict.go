package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// decodeStrict is decode for our own API, which has only our own clients. An unknown field is an
// error, because its sender meant something by it.
func decodeStrict(w http.ResponseWriter, r *http.Request, v any, optional bool) error {
	raw, err := document(w, r, optional)
	if err != nil || raw == nil {
		return err
	}
	return unmarshalStrict(raw, v)
}

func unmarshalStrict(raw []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		// The standard library has no type for this error.
		if quoted, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			name, uerr := strconv.Unquote(quoted)
			if uerr != nil {
				name = quoted
			}
			return invalid(clip(name), "there is no such field")
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return tell(carrel.Invalid, "Error when parsing request: not JSON: unexpected end of JSON input")
		}
		return describe(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return tell(carrel.Invalid, "Error when parsing request: not JSON: something follows the document")
	}
	return nil
}

// span is a time span of our own API, as it was sent: nanoseconds, as Go writes it, or a text such
// as "90s". It is parsed later, when the name of its field is known for errors. Nil means none.
type span []byte

// UnmarshalJSON implements json.Unmarshaler.
func (d *span) UnmarshalJSON(raw []byte) error {
	if string(raw) != "null" {
		*d = bytes.Clone(raw)
	}
	return nil
}

// duration parses the span. It must not be negative. Unless most is 0, it must not be more than
// most.
func (d span) duration(field string, most time.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	var (
		v    time.Duration
		text string
		n    int64
	)
	switch {
	case json.Unmarshal(d, &text) == nil:
		var err error
		if v, err = time.ParseDuration(text); err != nil {
			return 0, invalid(field, "%q is not a duration such as 90s or 2h", clip(text))
		}
	case json.Unmarshal(d, &n) == nil:
		v = time.Duration(n)
	default:
		return 0, invalid(field, "neither nanoseconds nor a duration such as \"90s\"")
	}
	switch {
	case v < 0:
		return 0, invalid(field, "%v is negative", v)
	case most > 0 && v > most:
		return 0, invalid(field, "%v is more than %v", v, most)
	}
	return v, nil
}

// instant is a time in a body of our own API, as it was sent. It is parsed later, when the name of
// its field is known for errors. Nil means none.
type instant []byte

// UnmarshalJSON implements json.Unmarshaler.
func (i *instant) UnmarshalJSON(raw []byte) error {
	if string(raw) != "null" {
		*i = bytes.Clone(raw)
	}
	return nil
}

// time parses the time.
func (i instant) time(field string) (at time.Time, err error) {
	if i == nil {
		return at, nil
	}
	if json.Unmarshal(i, &at) != nil {
		return at, invalid(field, "%s is not a time such as \"2027-01-31T12:00:00Z\"", clip(string(i)))
	}
	return at, nil
}
