package gateway

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
)

// message builds one message of a Connect stream.
func message(flags byte, text string) string {
	return string(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(text)))) + text
}

// TestEnding freezes a guest before it wrote its stream's end. The stream ends with a reason if its
// sandbox goes on. It breaks off if the sandbox does not, or if a part of a message is missing.
func TestEnding(t *testing.T) {
	const stream = "application/connect+proto"
	whole := message(0, "start") + message(0, "") + message(1, strings.Repeat("x", 300_000))
	last := message(endStream, `{"error":{"code":"unavailable","message":"in the guest's words"}}`)
	pause := func(sb *carrel.Sandbox) { sb.State = carrel.Paused }
	for _, c := range []struct {
		name, kind, sent string
		port             uint16
		change           func(*carrel.Sandbox)
		says             string // "" is broken off
	}{
		{"paused", stream, whole, carrel.GuestPort, pause, leftBehind},
		{"being paused", stream, whole, carrel.GuestPort, func(sb *carrel.Sandbox) { sb.State = carrel.Pausing }, leftBehind},
		{"paused, JSON", "application/connect+json", whole, carrel.GuestPort, pause, leftBehind},
		{"paused before the first message", stream, "", carrel.GuestPort, pause, leftBehind},
		{"rolled back", stream, whole, carrel.GuestPort, func(sb *carrel.Sandbox) { sb.Generation++ }, leftBehind},
		{"all but the connection's end", stream, whole + last, carrel.GuestPort, func(*carrel.Sandbox) {}, "in the guest's words"},
		{"paused in a head", stream, whole + "\x00\x00", carrel.GuestPort, pause, ""},
		{"paused in a message", stream, whole + last[:20], carrel.GuestPort, pause, ""},
		{"its guest crashed", stream, whole, carrel.GuestPort, func(*carrel.Sandbox) {}, ""},
		{"it ended", stream, whole, carrel.GuestPort, func(sb *carrel.Sandbox) { sb.State = carrel.Stopping }, ""},
		{"a file", "application/octet-stream", whole, carrel.GuestPort, pause, ""},
		{"another port", stream, whole, 3000, pause, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			var id carrel.ID
			id = w.add(t, carrel.Sandbox{}, map[uint16]http.Handler{c.port: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", c.kind)
				_, _ = io.WriteString(rw, c.sent)
				_ = http.NewResponseController(rw).Flush()
				w.set(id, c.change)
				panic(http.ErrAbortHandler)
			})})
			srv := front(t, w, Options{})
			resp := begin(t, "POST", srv.URL+"/process.Process/Start", strings.NewReader("{}"), headerID, string(id), headerPort, strconv.Itoa(int(c.port)))
			raw, err := io.ReadAll(resp.Body)
			if c.says == "" {
				if err == nil || string(raw) != c.sent {
					t.Errorf("%d bytes of %d, then %v: want a stream that breaks off", len(raw), len(c.sent), err)
				}
				return
			}
			end, ok := strings.CutPrefix(string(raw), strings.TrimSuffix(c.sent, last))
			if err != nil || !ok {
				t.Fatalf("%d bytes, %v", len(raw), err)
			}
			var said struct {
				Error struct{ Code, Message string }
			}
			if len(end) < 5 || end[0] != endStream || end[1:5] != message(0, end[5:])[1:5] || json.Unmarshal([]byte(end[5:]), &said) != nil {
				t.Fatalf("the stream ends with %q", end)
			}
			if said.Error.Code != "unavailable" || said.Error.Message != c.says {
				t.Errorf("its reason: %+v, want %q", said.Error, c.says)
			}
		})
	}
}

// TestEndingPieces shows that message boundaries are found however the stream is cut into reads.
func TestEndingPieces(t *testing.T) {
	all := message(0, "one") + message(0, "") + message(1, "three") + message(endStream, "{}")
	for size := 1; size <= len(all); size++ {
		var e ending
		for i := 0; i < len(all); i += size {
			if e.done {
				t.Fatalf("reads of %d: done before byte %d", size, i)
			}
			e.follow([]byte(all[i:min(i+size, len(all))]))
		}
		if !e.done || e.have != 0 {
			t.Errorf("reads of %d: %+v", size, e)
		}
	}
}
