package frameworks

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// modelKey is the API key that the fake model's clients must send.
const modelKey = "sk-test-of-frameworks"

// turn is one answer of a model: a call of a tool, or a text.
type turn struct {
	Tool string         // the name of the tool to call; "" means that the model says something
	Args map[string]any // for the tool
	Say  string         // a text, in which RESULT stands for what the model was told last
}

// model is a model's endpoint with OpenAI's chat completions and responses and Anthropic's
// messages, each with and without streaming. It answers by a script: its first answer in a
// conversation is the first turn, and it repeats the last turn for ever.
type model struct {
	URL string

	mu     sync.Mutex
	script []turn
	seen   []modelRequest
	faults []string
}

// modelRequest is a request for an answer that the model has seen.
type modelRequest struct {
	API    string // "chat", "responses" or "messages"
	Stream bool
	Tools  []string
	Turn   int    // the number of the model's earlier answers in the conversation
	Told   string // the last message that is not the model's: a tool's result or a user's words
}

// serveModel starts a model that ends with the test.
func serveModel(t testing.TB, script ...turn) *model {
	t.Helper()
	m := &model{script: script}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", m.answers("chat", readChat, chatAnswer))
	mux.HandleFunc("POST /v1/responses", m.answers("responses", readResponses, responsesAnswer))
	mux.HandleFunc("POST /v1/messages", m.answers("messages", readMessages, messagesAnswer))
	mux.HandleFunc("POST /v1/messages/count_tokens", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"input_tokens":10}`)
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	m.URL = srv.URL
	return m
}

// requests returns the requests for answers so far.
func (m *model) requests() []modelRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen
}

// check fails the test if the script was not followed to its end, or a request was refused.
func (m *model) check(t testing.TB) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, fault := range m.faults {
		t.Errorf("the model refused a request: %s", fault)
	}
	most := -1
	for _, r := range m.seen {
		most = max(most, r.Turn)
	}
	if most < len(m.script)-1 {
		t.Errorf("the model answered %d turns of %d; it was asked %+v", most+1, len(m.script), m.seen)
	}
}

// answers handles one API: read finds the facts of a request, and write gives the turn in its form.
func (m *model) answers(api string, read func(map[string]any) modelRequest, write func(turn) (any, []event)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+modelKey && r.Header.Get("X-Api-Key") != modelKey {
			m.refuse(w, "the key is another one")
			return
		}
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			m.refuse(w, err.Error())
			return
		}
		req := read(body)
		req.API, req.Stream = api, body["stream"] == true
		m.mu.Lock()
		m.seen = append(m.seen, req)
		next := m.script[min(req.Turn, len(m.script)-1)]
		m.mu.Unlock()
		if next.Tool != "" && len(req.Tools) == 0 { // a program asks beside its agent, say for a title
			next = turn{Say: "Nothing"}
		}
		if next.Tool != "" && !has(req.Tools, next.Tool) {
			m.refuse(w, fmt.Sprintf("there is no tool %q among %q", next.Tool, req.Tools))
			return
		}
		next.Say = strings.ReplaceAll(next.Say, "RESULT", req.Told)
		whole, parts := write(next)
		if !req.Stream {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(whole)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range parts {
			if e.name != "" {
				_, _ = fmt.Fprintf(w, "event: %s\n", e.name)
			}
			data, ok := e.data.(string)
			if !ok {
				raw, _ := json.Marshal(e.data)
				data = string(raw)
			}
			_, _ = fmt.Fprintf(w, "data: %s\n\n", data)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// refuse answers 400, which no client tries again, and keeps the reason for check.
func (m *model) refuse(w http.ResponseWriter, why string) {
	m.mu.Lock()
	m.faults = append(m.faults, why)
	m.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(object{"error": object{"message": why, "type": "invalid_request_error"}})
}

// object is a JSON object.
type object = map[string]any

// event is one event of a stream.
type event struct {
	name string // "" has none
	data any    // a string is sent as it is
}

func has(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// plain returns the text of a message's content, which is a text or a list of parts.
func plain(content any) string {
	switch c := content.(type) {
	case string:
		return c
	case []any:
		var all []string
		for _, part := range c {
			p, _ := part.(object)
			for _, field := range []string{"text", "content", "output"} {
				if p[field] != nil {
					all = append(all, plain(p[field]))
				}
			}
		}
		return strings.Join(all, "\n")
	}
	return ""
}

// list returns a field that is a list of objects.
func list(body object, field string) (all []object) {
	items, _ := body[field].([]any)
	for _, item := range items {
		if o, ok := item.(object); ok {
			all = append(all, o)
		}
	}
	return all
}

// toolNames returns the names of the tools that a request offers. Chat completions wrap each tool.
func toolNames(body object) (names []string) {
	for _, tool := range list(body, "tools") {
		if f, ok := tool["function"].(object); ok {
			tool = f
		}
		if name, ok := tool["name"].(string); ok {
			names = append(names, name)
		} else if kind, ok := tool["type"].(string); ok {
			names = append(names, kind)
		}
	}
	return names
}

// readChat reads a conversation of messages. Anthropic's has the same shape, as far as is needed.
func readChat(body object) (req modelRequest) {
	req.Tools = toolNames(body)
	for _, message := range list(body, "messages") {
		if message["role"] == "assistant" {
			req.Turn++
		} else {
			req.Told = plain(message["content"])
		}
	}
	return req
}

// readMessages reads a request of Anthropic's API.
func readMessages(body object) modelRequest { return readChat(body) }

// readResponses reads a request of OpenAI's responses. A turn is a call or a message there.
func readResponses(body object) (req modelRequest) {
	req.Tools = toolNames(body)
	if text, ok := body["input"].(string); ok {
		req.Told = text
	}
	for _, item := range list(body, "input") {
		kind, _ := item["type"].(string)
		switch {
		case strings.HasSuffix(kind, "_call_output"):
			if req.Told = plain(item["output"]); req.Told == "" {
				raw, _ := json.Marshal(item["output"])
				req.Told = string(raw)
			}
		case strings.HasSuffix(kind, "_call"), item["role"] == "assistant":
			req.Turn++
		case item["content"] != nil:
			req.Told = plain(item["content"])
		}
	}
	return req
}

// arguments returns a tool's arguments as text.
func arguments(n turn) string {
	if n.Args == nil {
		return "{}"
	}
	raw, _ := json.Marshal(n.Args)
	return string(raw)
}

// chatAnswer gives a turn as a chat completion. The stream sends the arguments in two pieces.
func chatAnswer(n turn) (any, []event) {
	base := func(kind string, choice object, reason any) object {
		choice["index"], choice["finish_reason"] = 0, reason
		return object{"id": "chatcmpl-1", "object": kind, "created": 1, "model": "test-model", "choices": []any{choice}}
	}
	usage := object{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
	call := func(id, name, args string) []any {
		f := object{"arguments": args}
		c := object{"index": 0, "function": f}
		if id != "" {
			c["id"], c["type"], f["name"] = id, "function", name
		}
		return []any{c}
	}
	reason, message := "stop", object{"role": "assistant", "content": n.Say}
	deltas := []object{{"role": "assistant", "content": n.Say[:len(n.Say)/2]}, {"content": n.Say[len(n.Say)/2:]}}
	if n.Tool != "" {
		args := arguments(n)
		reason, message = "tool_calls", object{"role": "assistant", "content": nil, "tool_calls": call("call_1", n.Tool, args)}
		deltas = []object{{"role": "assistant", "tool_calls": call("call_1", n.Tool, "")},
			{"tool_calls": call("", "", args[:len(args)/2])}, {"tool_calls": call("", "", args[len(args)/2:])}}
	}
	whole := base("chat.completion", object{"message": message, "logprobs": nil}, reason)
	whole["usage"] = usage
	var parts []event
	for _, d := range deltas {
		parts = append(parts, event{data: base("chat.completion.chunk", object{"delta": d}, nil)})
	}
	last := base("chat.completion.chunk", object{"delta": object{}}, reason)
	last["usage"] = usage
	return whole, append(parts, event{data: last}, event{data: "[DONE]"})
}

// responsesAnswer gives a turn as a response.
func responsesAnswer(n turn) (any, []event) {
	item := object{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
		"content": []any{object{"type": "output_text", "text": n.Say, "annotations": []any{}}}}
	if n.Tool != "" {
		item = object{"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": n.Tool,
			"arguments": arguments(n), "status": "completed"}
	}
	response := func(status string, output ...any) object {
		return object{"id": "resp_1", "object": "response", "created_at": 1, "model": "test-model", "status": status,
			"output": append([]any{}, output...), "parallel_tool_calls": false, "tool_choice": "auto", "tools": []any{},
			"error": nil, "incomplete_details": nil, "instructions": nil, "metadata": object{},
			"temperature": 1, "top_p": 1, "usage": object{"input_tokens": 10, "output_tokens": 5, "total_tokens": 15,
				"input_tokens_details":  object{"cached_tokens": 0},
				"output_tokens_details": object{"reasoning_tokens": 0}}}
	}
	var parts []event
	send := func(kind string, fields object) {
		fields["type"], fields["sequence_number"] = kind, len(parts)
		parts = append(parts, event{kind, fields})
	}
	place := func(fields object) object {
		fields["output_index"], fields["item_id"] = 0, item["id"]
		return fields
	}
	begun := object{}
	for k, v := range item {
		begun[k] = v
	}
	begun["status"] = "in_progress"
	send("response.created", object{"response": response("in_progress")})
	if n.Tool != "" {
		begun["arguments"] = ""
		send("response.output_item.added", object{"output_index": 0, "item": begun})
		send("response.function_call_arguments.delta", place(object{"delta": arguments(n)}))
		send("response.function_call_arguments.done", place(object{"arguments": arguments(n), "name": n.Tool}))
	} else {
		begun["content"] = []any{}
		part := func(text string) object {
			return object{"type": "output_text", "text": text, "annotations": []any{}}
		}
		send("response.output_item.added", object{"output_index": 0, "item": begun})
		send("response.content_part.added", place(object{"content_index": 0, "part": part("")}))
		send("response.output_text.delta", place(object{"content_index": 0, "delta": n.Say, "logprobs": []any{}}))
		send("response.output_text.done", place(object{"content_index": 0, "text": n.Say, "logprobs": []any{}}))
		send("response.content_part.done", place(object{"content_index": 0, "part": part(n.Say)}))
	}
	send("response.output_item.done", object{"output_index": 0, "item": item})
	whole := response("completed", item)
	send("response.completed", object{"response": whole})
	return whole, parts
}

// messagesAnswer gives a turn as Anthropic's message.
func messagesAnswer(n turn) (any, []event) {
	reason, block := "end_turn", object{"type": "text", "text": n.Say}
	begun, delta := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": n.Say}
	if n.Tool != "" {
		args := n.Args
		if args == nil {
			args = object{}
		}
		reason, block = "tool_use", object{"type": "tool_use", "id": "toolu_1", "name": n.Tool, "input": args}
		begun = object{"type": "tool_use", "id": "toolu_1", "name": n.Tool, "input": object{}}
		delta = object{"type": "input_json_delta", "partial_json": arguments(n)}
	}
	message := func(content []any, reason any) object {
		return object{"id": "msg_1", "type": "message", "role": "assistant", "model": "test-model", "content": content,
			"stop_reason": reason, "stop_sequence": nil, "usage": object{"input_tokens": 10, "output_tokens": 5}}
	}
	var parts []event
	send := func(kind string, fields object) {
		fields["type"] = kind
		parts = append(parts, event{kind, fields})
	}
	send("message_start", object{"message": message([]any{}, nil)})
	send("content_block_start", object{"index": 0, "content_block": begun})
	send("content_block_delta", object{"index": 0, "delta": delta})
	send("content_block_stop", object{"index": 0})
	send("message_delta", object{"delta": object{"stop_reason": reason, "stop_sequence": nil},
		"usage": object{"output_tokens": 5}})
	send("message_stop", object{})
	return message([]any{block}, reason), parts
}
