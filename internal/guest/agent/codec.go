package agent

import (
	"encoding/base64"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/carrel-dev/carrel/internal/guest/process"
)

// jsonCodec is protobuf's JSON, with a short way for what nearly all bytes are:
// pieces of output. The general encoder looks at each byte of them for characters
// to escape, which base64 has none of.
type jsonCodec struct{}

// Name returns the name under which the protocol knows the codec.
func (jsonCodec) Name() string { return "json" }

// IsBinary says that messages are text.
func (jsonCodec) IsBinary() bool { return false }

// Marshal encodes a message.
func (c jsonCodec) Marshal(msg any) ([]byte, error) { return c.MarshalAppend(nil, msg) }

// MarshalStable encodes a message so that equal ones give equal bytes.
func (c jsonCodec) MarshalStable(msg any) ([]byte, error) { return c.Marshal(msg) }

// MarshalAppend encodes a message behind what dst holds.
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
		return append(dst, `"}}}`...), nil
	}
	m, ok := msg.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no protobuf message", msg)
	}
	return protojson.MarshalOptions{}.MarshalAppend(dst, m)
}

// outputOf returns what a data event carries, under its name in JSON.
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

// Unmarshal decodes a message. Fields that we do not know are a newer client's.
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
