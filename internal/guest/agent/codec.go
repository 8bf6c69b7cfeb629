package agent

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/carrel-dev/carrel/internal/guest/process"
)

// jsonCodec is protobuf's JSON with a fast path for pieces of output, which are nearly all bytes.
// The general encoder searches each byte for characters to escape, but base64 has none.
type jsonCodec struct{}

// Name returns the name under which the protocol knows the codec.
func (jsonCodec) Name() string { return "json" }

// IsBinary says that messages are text.
func (jsonCodec) IsBinary() bool { return false }

// Marshal encodes a message.
func (c jsonCodec) Marshal(msg any) ([]byte, error) { return c.MarshalAppend(nil, msg) }

// MarshalStable encodes equal messages as equal bytes.
func (c jsonCodec) MarshalStable(msg any) ([]byte, error) { return c.Marshal(msg) }

// MarshalAppend appends an encoded message to dst.
func (jsonCodec) MarshalAppend(dst []byte, msg any) ([]byte, error) {
	var event *process.ProcessEvent
	switch m := msg.(type) {
	case *process.StartResponse:
		event = m.GetEvent()
	case *process.ConnectResponse:
		event = m.GetEvent()
	}
	if name, data, ok := outputOf(event); ok {
		dst = append(dst, `{"event":{"data":{"`...)
		dst = append(dst, name...)
		dst = append(dst, `":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, data)
		dst = append(dst, '"')
		if at := event.GetData().Offset; at != nil {
			dst = append(dst, `,"offset":"`...)
			dst = strconv.AppendUint(dst, *at, 10)
			dst = append(dst, '"')
		}
		return append(dst, `}}}`...), nil
	}
	m, ok := msg.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no protobuf message", msg)
	}
	return protojson.MarshalOptions{}.MarshalAppend(dst, m)
}

// outputOf returns the bytes of a data event, and their name in JSON.
func outputOf(event *process.ProcessEvent) (name string, data []byte, ok bool) {
	switch d := event.GetData().GetOutput().(type) {
	case *process.ProcessEvent_DataEvent_Stdout:
		return "stdout", d.Stdout, true
	case *process.ProcessEvent_DataEvent_Stderr:
		return "stderr", d.Stderr, true
	case *process.ProcessEvent_DataEvent_Pty:
		return "pty", d.Pty, true
	}
	return "", nil, false
}

// Unmarshal decodes a message. It ignores unknown fields: a newer client may send them.
func (jsonCodec) Unmarshal(data []byte, msg any) error {
	m, ok := msg.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no protobuf message", msg)
	}
	if len(data) == 0 {
		return errors.New("zero-length payload is not a valid JSON object")
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, m)
}
