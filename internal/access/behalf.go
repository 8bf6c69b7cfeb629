package access

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/ceiling"
)

// HeaderCaller says for whom the front of a fleet asks a node. Only with the daemon's own key it means
// something: who has that may do everything anyhow.
const HeaderCaller = "Carrel-Caller"

// maxBehalf bounds the header, in bytes.
const maxBehalf = 32 << 10

// Behalf is for whom a front asks: the caller's key at the front, for the records, and the ceilings that
// hold for the call.
type Behalf struct {
	Key    string          `json:"key"`
	KeyID  string          `json:"keyID,omitempty"`
	Bounds []ceiling.Bound `json:"bounds,omitempty"`
}

// Text is the header's value. Error: Unsupported, when it would be too long.
func (b Behalf) Text() (string, error) {
	raw, err := json.Marshal(b)
	if err != nil {
		return "", err
	}
	if text := base64.StdEncoding.EncodeToString(raw); len(text) <= maxBehalf {
		return text, nil
	}
	return "", &carrel.Error{Op: "ask node", Kind: carrel.Unsupported, Field: "ceiling",
		Err: fmt.Errorf("the ceilings of the caller are too long to be sent to a node: %d bytes of JSON", len(raw)), Hint: "give the project and the key shorter lists"}
}

// onBehalf returns the caller for whom a front asks, and its ceilings.
func onBehalf(c carrel.Caller, h http.Header) (carrel.Caller, []ceiling.Bound, error) {
	texts := h.Values(HeaderCaller)
	if len(texts) == 0 {
		return c, nil, nil
	}
	var b Behalf
	err := errors.New("given more than once, or too long")
	if len(texts) == 1 && len(texts[0]) <= maxBehalf {
		var raw []byte
		if raw, err = base64.StdEncoding.DecodeString(texts[0]); err == nil {
			err = json.Unmarshal(raw, &b)
		}
	}
	if err == nil && (b.Key == "" || len(b.Key) > 256 || len(b.KeyID) > 256) {
		err = errors.New("the key's name is missing or too long")
	}
	if err != nil {
		return c, nil, &carrel.Error{Kind: carrel.Invalid, Field: HeaderCaller, Err: err}
	}
	c.Key, c.KeyID = b.Key, b.KeyID
	return c, b.Bounds, nil
}
