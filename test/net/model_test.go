package net

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// model is a vendor's endpoint. It speaks the Messages and the Chat Completions API, streaming
// included, to every client with the key.
type model struct {
	key string

	mu     sync.Mutex
	served map[string]int // by path, with the right key
	wrong  []string       // keys that were not it
	// gate, if it is set, holds a stream back after its first event until the test receives from
	// it.
	gate chan struct{}
}

func newModel(key string) *model { return &model{key: key, served: make(map[string]int)} }

// ServeHTTP implements http.Handler.
func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	given := r.Header.Get("X-Api-Key")
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		given = bearer
	}
	m.mu.Lock()
	if given != m.key {
		m.wrong = append(m.wrong, given)
	} else {
		m.served[r.URL.Path]++
	}
	m.mu.Unlock()
	if given != m.key {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = fmt.Fprint(w, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`)
		return
	}
	var body struct {
		Stream bool `json:"stream"`
	}
	if r.Body != nil && r.Method == http.MethodPost {
		_ = json.NewDecoder(r.Body).Decode(&body)
	}
	switch {
	case r.URL.Path == "/v1/messages" && body.Stream:
		m.stream(w, messageEvents)
	case r.URL.Path == "/v1/messages":
		answer(w, `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"Hello from the model"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":2}}`)
	case r.URL.Path == "/v1/chat/completions" && body.Stream:
		m.stream(w, chatEvents)
	case r.URL.Path == "/v1/chat/completions":
		answer(w, `{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hello from the model"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`)
	case r.URL.Path == "/echo": // a careless server
		w.Header().Set("X-Got", given)
		_, _ = fmt.Fprintf(w, "you sent %s, didn't you\n%s\n", given, strings.Repeat(given+"\n", 1000))
	case r.URL.Path == "/echo-slowly": // in pieces
		for _, c := range "key=" + given + "\n" {
			_, _ = fmt.Fprintf(w, "%c", c)
			w.(http.Flusher).Flush()
			time.Sleep(time.Millisecond)
		}
	default:
		http.NotFound(w, r)
	}
}

func answer(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprint(w, body)
}

// stream sends events; the second waits for the gate.
func (m *model) stream(w http.ResponseWriter, events []string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for i, e := range events {
		if i == 1 && m.gate != nil {
			select {
			case m.gate <- struct{}{}:
			case <-time.After(time.Minute):
			}
		}
		_, _ = fmt.Fprint(w, e, "\n\n")
		w.(http.Flusher).Flush()
	}
}

var messageEvents = []string{
	`event: message_start` + "\n" + `data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}}`,
	`event: content_block_start` + "\n" + `data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
	`event: content_block_delta` + "\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello from "}}`,
	`event: content_block_delta` + "\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"the stream"}}`,
	`event: content_block_stop` + "\n" + `data: {"type":"content_block_stop","index":0}`,
	`event: message_delta` + "\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":4}}`,
	`event: message_stop` + "\n" + `data: {"type":"message_stop"}`,
}

var chatEvents = []string{
	`data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`,
	`data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"Hello from "},"finish_reason":null}]}`,
	`data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"the stream"},"finish_reason":null}]}`,
	`data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
	`data: [DONE]`,
}
