package jupyter

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// version is the version of the messaging protocol.
const version = "5.3"

// delimiter stands between the routing IDs and the message.
var delimiter = []byte("<IDS|MSG>")

// errUnsigned means that a message does not have the connection's signature.
var errUnsigned = errors.New("a message without a good signature")

// Header is the header of a message.
type Header struct {
	ID       string `json:"msg_id"`
	Session  string `json:"session"`
	Username string `json:"username"`
	Date     string `json:"date"`
	Type     string `json:"msg_type"`
	Version  string `json:"version"`
}

// Message is a message from a kernel.
type Message struct {
	Header Header
	// Parent is the header of the request that caused this message. Only its ID is sure to be there.
	Parent  Header
	Content json.RawMessage
	// Lost counts the bytes of the content that were too many to keep. Content is empty then.
	Lost int64
}

// NewID returns a random ID for messages, sessions and contexts.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	s := hex.EncodeToString(b[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// signature signs the four parts of a message.
func signature(key string, parts ...[]byte) string {
	if key == "" {
		return ""
	}
	mac := hmac.New(sha256.New, []byte(key))
	for _, p := range parts {
		mac.Write(p)
	}
	return hex.EncodeToString(mac.Sum(nil))
}

// encode makes the frames of a request.
func encode(key string, h Header, metadata, content any) ([][]byte, error) {
	parts := make([][]byte, 4)
	for i, v := range []any{h, struct{}{}, metadata, content} {
		raw, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.Type, err)
		}
		parts[i] = raw
	}
	return append([][]byte{delimiter, []byte(signature(key, parts...))}, parts...), nil
}

// decode reads a message. A message that lost bytes can't be checked, so its content is empty.
func decode(key string, frames [][]byte, lost int64) (Message, error) {
	i := 0
	for i < len(frames) && !bytes.Equal(frames[i], delimiter) {
		i++
	}
	if len(frames) < i+6 {
		return Message{}, errors.New("a message of too few frames")
	}
	sig, parts := frames[i+1], frames[i+2:i+6]
	if lost == 0 && !hmac.Equal(sig, []byte(signature(key, parts...))) {
		return Message{}, errUnsigned
	}
	var m Message
	if err := json.Unmarshal(parts[0], &m.Header); err != nil {
		return Message{}, fmt.Errorf("a message's header: %w", err)
	}
	if err := json.Unmarshal(parts[1], &m.Parent); err != nil {
		return Message{}, fmt.Errorf("a message's parent: %w", err)
	}
	if m.Lost = lost; lost == 0 {
		m.Content = parts[3]
	}
	return m, nil
}

// header makes the header of a request.
func (c *Client) header(typ string) Header {
	return Header{ID: NewID(), Session: c.session, Username: "carrel", Type: typ, Version: version,
		Date: time.Now().UTC().Format(time.RFC3339Nano)}
}
