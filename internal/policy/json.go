package policy

import (
	"encoding/json"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readJSON reads valid JSON into the tree that YAML gives. The YAML parser can't read all of JSON:
// it refuses tabs and surrogate pairs.
func readJSON(text string) (*yaml.Node, *syntaxFault) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	r := jsonReader{dec: dec, text: text}
	n, err := r.value(0)
	if err != nil {
		return nil, &syntaxFault{fault: *faultf("", "", "%s", err), line: r.line, column: 1}
	}
	return n, nil
}

// jsonReader makes nodes from tokens, and finds their lines.
type jsonReader struct {
	dec  *json.Decoder
	text string

	read, line, begin int // progress of counting lines, and the start of the last one
}

const maxDepth = 32

// next returns the next token, and an empty node at its place.
func (r *jsonReader) next() (json.Token, *yaml.Node, error) {
	start := int(r.dec.InputOffset())
	for start < len(r.text) && strings.IndexByte(" \t\r\n,:", r.text[start]) >= 0 {
		start++
	}
	for ; r.read < start; r.read++ {
		if r.text[r.read] == '\n' {
			r.line, r.begin = r.line+1, r.read+1
		}
	}
	t, err := r.dec.Token()
	return t, &yaml.Node{Line: r.line + 1, Column: start - r.begin + 1}, err
}

func (r *jsonReader) value(depth int) (*yaml.Node, error) {
	t, n, err := r.next()
	if err != nil {
		return nil, err
	}
	if depth > maxDepth {
		return nil, faultf("", "", "more than %d levels", maxDepth)
	}
	switch t := t.(type) {
	case json.Delim:
		n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		if t == '{' {
			n.Kind, n.Tag = yaml.MappingNode, "!!map"
		}
		for r.dec.More() {
			e, err := r.value(depth + 1) // the keys of a mapping are tokens like any others
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, e)
		}
		_, _, err := r.next()
		return n, err
	case string:
		scalar(n, "!!str", t)
	case json.Number:
		tag := "!!int"
		if strings.ContainsAny(t.String(), ".eE") {
			tag = "!!float"
		}
		scalar(n, tag, t.String())
	case bool:
		value := "false"
		if t {
			value = "true"
		}
		scalar(n, "!!bool", value)
	default:
		scalar(n, "!!null", "null")
	}
	return n, nil
}

func scalar(n *yaml.Node, tag, value string) {
	n.Kind, n.Tag, n.Value = yaml.ScalarNode, tag, value
}
