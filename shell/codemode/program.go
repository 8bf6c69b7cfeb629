package codemode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
)

// maxInput is the most JSON that a program reads from its standard input.
const maxInput = 16 << 20

// maxPrograms is the most tools that one machine accepts as programs.
const maxPrograms = 256

// maxHelp is the most text that --help prints. A server wrote that text.
const maxHelp = 16 << 10

// Programs makes a program of simulated machines from each tool. The program has the tool's name,
// with dashes for slashes. Its flags are the properties of the tool's schema: --name value,
// --name=value, and --flag and --no-flag for booleans. The flag of an array is given once per
// element. A value that is not a scalar is JSON. A required property may be given without its flag,
// in the schema's order. A single argument "-" reads the whole object as JSON from standard input.
// The program prints the tool's result as JSON, or a string as plain text. guard judges each call.
// A nil guard allows every call: use it for tools that a whole machine was given.
func Programs(tools []Tool, guard *Guard) (map[string]tool.Command, error) {
	if len(tools) > maxPrograms {
		return nil, fmt.Errorf("%d tools, and at most %d may be programs", len(tools), maxPrograms)
	}
	out := map[string]tool.Command{}
	for _, t := range tools {
		s, err := parseSchema(t.Schema)
		if err != nil {
			return nil, fmt.Errorf("%s: its schema: %w", t.Name, err)
		}
		name := programName(t.Name)
		if err := tool.CheckName(name); err != nil {
			return nil, err
		}
		if out[name] != nil {
			return nil, fmt.Errorf("the program %s is there twice: two tools have its name", name)
		}
		out[name] = toolCommand(t, s, guard, s.help(name, t.Description))
	}
	return out, nil
}

// toolCommand makes a program from one tool.
func toolCommand(t Tool, s *schema, guard *Guard, help string) tool.Command {
	return func(c *tool.Call) (status int) {
		defer func() { // the tool is its owner's code: its panic must end only this call
			if r := recover(); r != nil {
				status = c.Errorf(70, "the tool failed inside: %v", r)
			}
		}()
		if len(c.Args) == 1 && c.Args[0] == "--help" {
			_, _ = io.WriteString(c.Out, help) // an error means that nobody reads it
			return 0
		}
		return runTool(t, s, guard, c)
	}
}

// programName returns the program's name for a tool.
func programName(tool string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._+-", r) {
			return r
		}
		return '-'
	}, tool)
}

// runTool runs a tool as a program.
func runTool(t Tool, s *schema, guard *Guard, c *tool.Call) int {
	fail := func(status int, err error) int {
		fmt.Fprintf(c.Err, "%s: %v\n", c.Base(), err)
		return status
	}
	args, err := s.args(c)
	if err != nil {
		fmt.Fprintf(c.Err, "%[1]s: %[2]v\nTry '%[1]s --help' for more information.\n", c.Base(), err)
		return 2
	}
	if guard != nil {
		if err := guard.Check(t.Name, args); err != nil {
			return fail(126, err)
		}
	}
	r, err := t.Call(c.Ctx, args)
	if err != nil {
		return fail(1, err)
	}
	var text string
	if json.Unmarshal(r, &text) == nil {
		r = json.RawMessage(text)
	}
	if n := len(r); n > 0 && r[n-1] != '\n' {
		r = append(slices.Clone(r), '\n')
	}
	if _, err := c.Out.Write(r); err != nil {
		return 1
	}
	return 0
}

// schema is the part of a tool's JSON schema that Programs uses.
type schema struct {
	Type        string             `json:"-"`
	Types       json.RawMessage    `json:"type"`
	Description string             `json:"description"`
	Properties  map[string]*schema `json:"properties"`
	Required    []string           `json:"required"`
	Items       json.RawMessage    `json:"items"`
	Enum        []any              `json:"enum"`
	Default     any                `json:"default"`
	item        string
}

func parseSchema(data json.RawMessage) (*schema, error) {
	s := &schema{}
	if len(data) == 0 || string(data) == "null" {
		return s, nil
	}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, err
	}
	for name, p := range s.Properties {
		if p == nil {
			p = &schema{}
			s.Properties[name] = p
		}
		p.Type = firstType(p.Types)
		var item struct {
			Type json.RawMessage `json:"type"`
		}
		if json.Unmarshal(p.Items, &item) == nil {
			p.item = firstType(item.Type)
		}
	}
	return s, nil
}

// firstType returns the type, or the first of several types that is not null.
func firstType(raw json.RawMessage) string {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return one
	}
	var many []string
	_ = json.Unmarshal(raw, &many) // anything else is any type
	for _, t := range many {
		if t != "null" {
			return t
		}
	}
	return ""
}

// names returns the properties: the required ones in their order, then the others.
func (s *schema) names() []string {
	out := slices.DeleteFunc(slices.Clone(s.Required), func(n string) bool { return s.Properties[n] == nil })
	var rest []string
	for n := range s.Properties {
		if !slices.Contains(out, n) {
			rest = append(rest, n)
		}
	}
	slices.Sort(rest)
	return append(out, rest...)
}

// help is what --help prints.
func (s *schema) help(name, description string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "usage: %s [--NAME VALUE]... [%s]\n       %s -    the arguments as a JSON object on standard input\n", name, strings.Join(s.Required, " "), name)
	if description != "" {
		fmt.Fprintf(&b, "\n%s\n", description)
	}
	for i, n := range s.names() {
		if i == 0 {
			b.WriteString("\n")
		}
		p := s.Properties[n]
		kind := p.Type
		if kind == "" {
			kind = "any"
		}
		fmt.Fprintf(&b, "  --%s %s", n, kind)
		if slices.Contains(s.Required, n) {
			b.WriteString(" (required)")
		}
		if p.Enum != nil {
			fmt.Fprintf(&b, " %s", show(p.Enum))
		}
		if p.Description != "" {
			fmt.Fprintf(&b, ": %s", p.Description)
		}
		b.WriteString("\n")
	}
	text := b.String()
	return text[:min(len(text), maxHelp)]
}

// args makes the tool's JSON from a command line.
func (s *schema) args(c *tool.Call) (json.RawMessage, error) {
	if len(c.Args) == 1 && c.Args[0] == "-" {
		b, err := io.ReadAll(io.LimitReader(c.In, maxInput+1))
		if err != nil {
			return nil, err
		}
		if len(b) > maxInput {
			return nil, fmt.Errorf("more than %d bytes on standard input", maxInput)
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(b, &object); err != nil || object == nil {
			return nil, errors.New("standard input is no JSON object")
		}
		return json.Marshal(object) // written from the parsed object: each key occurs once
	}
	values := map[string]any{}
	var plain []string
	for i := 0; i < len(c.Args); i++ {
		a := c.Args[i]
		name, ok := strings.CutPrefix(a, "--")
		if !ok || a == "--" {
			if a == "--" {
				plain = append(plain, c.Args[i+1:]...)
				break
			}
			plain = append(plain, a)
			continue
		}
		name, text, given := strings.Cut(name, "=")
		p := s.Properties[name]
		if p == nil {
			if no, is := strings.CutPrefix(name, "no-"); is && s.Properties[no] != nil && s.Properties[no].Type == "boolean" && !given {
				values[no] = false
				continue
			}
			return nil, fmt.Errorf("unrecognized option '--%s'", name)
		}
		if p.Type == "boolean" && !given {
			values[name] = true
			continue
		}
		if !given {
			if i++; i == len(c.Args) {
				return nil, fmt.Errorf("option '--%s' requires an argument", name)
			}
			text = c.Args[i]
		}
		if err := p.put(values, name, text); err != nil {
			return nil, err
		}
	}
	for _, n := range s.Required {
		p := s.Properties[n]
		if _, have := values[n]; have || p == nil || len(plain) == 0 {
			continue
		}
		if err := p.put(values, n, plain[0]); err != nil {
			return nil, err
		}
		plain = plain[1:]
	}
	if len(plain) > 0 {
		return nil, fmt.Errorf("extra operand '%s'", plain[0])
	}
	for _, n := range s.Required {
		if _, have := values[n]; !have {
			return nil, fmt.Errorf("--%s is required", n)
		}
	}
	return json.Marshal(values)
}

// put sets a property from its text.
func (p *schema) put(values map[string]any, name, text string) error {
	if p.Type == "array" {
		if strings.HasPrefix(strings.TrimSpace(text), "[") && values[name] == nil {
			var list []any
			if json.Unmarshal([]byte(text), &list) == nil {
				values[name] = list
				return nil
			}
		}
		v, err := scalar(p.item, name, text)
		if err != nil {
			return err
		}
		list, _ := values[name].([]any)
		values[name] = append(list, v)
		return nil
	}
	v, err := scalar(p.Type, name, text)
	if err != nil {
		return err
	}
	values[name] = v
	return nil
}

// scalar converts a text to a value of a type.
func scalar(kind, name, text string) (any, error) {
	bad := func() error {
		return fmt.Errorf("invalid argument %s for '--%s': not of type %s", show(text), name, kind)
	}
	switch kind {
	case "string":
		return text, nil
	case "integer":
		if _, err := strconv.ParseInt(text, 10, 64); err != nil {
			return nil, bad()
		}
		return json.Number(text), nil
	case "number":
		if f, err := strconv.ParseFloat(text, 64); err != nil || f-f != 0 {
			return nil, bad()
		}
		if !json.Valid([]byte(text)) {
			return nil, bad()
		}
		return json.Number(text), nil
	case "boolean":
		b, err := strconv.ParseBool(text)
		if err != nil {
			return nil, bad()
		}
		return b, nil
	}
	var v any
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil || d.More() {
		if kind == "object" || kind == "array" {
			return nil, bad()
		}
		return text, nil
	}
	return v, nil
}
