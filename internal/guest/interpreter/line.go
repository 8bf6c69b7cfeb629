package interpreter

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/internal/guest/interpreter/kernel"
)

// fields are the forms of a value that have a field of their own in a result.
var fields = map[string]string{
	"text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg",
	"image/png": "png", "image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex",
	"application/json": "json", "application/javascript": "javascript", "e2b/data": "data",
	"e2b/chart": "chart",
}

// objects are the fields whose value may be an object. The others are texts.
var objects = map[string]bool{"json": true, "data": true, "chart": true}

// onlyObjects are the fields whose value may be nothing else: clients look into it.
var onlyObjects = map[string]bool{"data": true, "chart": true}

// encode writes an event as a line of the protocol.
func encode(e kernel.Event) ([]byte, error) {
	var line map[string]any
	switch e.Type {
	case kernel.Stdout, kernel.Stderr:
		line = map[string]any{"type": "stdout", "text": e.Text, "timestamp": time.Now().UnixNano()}
		if e.Type == kernel.Stderr {
			line["type"] = "stderr"
		}
	case kernel.Result:
		line = result(e)
	case kernel.Error:
		line = map[string]any{"type": "error", "name": e.Name, "value": e.Value,
			"traceback": e.Traceback}
	case kernel.Count:
		line = map[string]any{"type": "number_of_executions", "execution_count": e.N}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // tables are HTML, and no browser reads this as such
	err := enc.Encode(line)
	return b.Bytes(), err
}

// result makes the line of a value. A form that has no field, or a value of the wrong kind for its
// field, is among the extra ones.
func result(e kernel.Event) map[string]any {
	line := map[string]any{"type": "result", "is_main_result": e.Main}
	extra := map[string]any{}
	for mime, raw := range e.Data {
		field, known := fields[mime]
		if !known {
			extra[mime] = raw
			continue
		}
		var text string
		switch isText := json.Unmarshal(raw, &text) == nil; {
		case field == "text" && isText:
			line[field] = unquoted(text)
		case onlyObjects[field]:
			if len(raw) > 0 && raw[0] == '{' {
				line[field] = raw
			} else {
				extra[mime] = raw
			}
		case isText && len(raw) > 0 && raw[0] == '"':
			line[field] = text
		case objects[field] && len(raw) > 0 && raw[0] != 'n':
			line[field] = raw
		}
	}
	if len(extra) > 0 {
		line["extra"] = extra
	}
	return line
}

// unquoted takes off the quotes around the text of a string value: clients compare the value itself.
func unquoted(s string) string {
	for _, q := range []string{"'", `"`} {
		if len(s) >= 2 && strings.HasPrefix(s, q) && strings.HasSuffix(s, q) {
			return s[1 : len(s)-1]
		}
	}
	return s
}
