package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxNodes bounds the number of values in a file, with its aliases written out.
const maxNodes = 100_000

// decodeFile reads YAML or JSON into a struct, by its json tags. It is strict: no unknown or
// repeated key, and no value of another type. places, if given, receives the place of each value.
func decodeFile(name string, data []byte, into any, places map[string]place) error {
	if len(data) > maxFile {
		return faultf("", "", "the file is larger than %d bytes", maxFile).inFile(name, place{})
	}
	if !utf8.Valid(data) {
		return faultf("", "", "the file is not UTF-8").inFile(name, place{})
	}
	root, err := readTree(data)
	if err != nil {
		return err.inFile(name, err.place())
	}
	d := decoder{places: places, left: maxNodes}
	if err := d.decode(root, "", reflect.ValueOf(into).Elem()); err != nil {
		return err.fault.inFile(name, place{err.node.Line, err.node.Column})
	}
	return nil
}

// syntaxFault is a parser's error, with the line if the parser gave one.
type syntaxFault struct {
	fault
	line, column int
}

func (s *syntaxFault) place() place { return place{s.line, s.column} }

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// readTree parses a file, as JSON if it is valid JSON, otherwise as YAML.
func readTree(data []byte) (*yaml.Node, *syntaxFault) {
	text := strings.TrimPrefix(string(data), "\ufeff")
	if strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") && json.Valid([]byte(text)) {
		return readJSON(text)
	}
	dec := yaml.NewDecoder(strings.NewReader(text))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, &syntaxFault{fault: *faultf("", "a policy that lets nothing out is written {}", "the file is empty"), line: 1, column: 1}
		}
		m := yamlLine.FindStringSubmatch(err.Error())
		line := 1
		if m != nil && m[1] != "" {
			line, _ = strconv.Atoi(m[1])
		}
		return nil, &syntaxFault{fault: *faultf("", "", "%s", yamlLine.ReplaceAllString(err.Error(), "")), line: line, column: 1}
	}
	var second yaml.Node
	if err := dec.Decode(&second); err == nil {
		return nil, &syntaxFault{fault: *faultf("", "", "a second document begins here"), line: second.Line, column: second.Column}
	} else if !errors.Is(err, io.EOF) {
		return nil, &syntaxFault{fault: *faultf("", "", "%s", yamlLine.ReplaceAllString(err.Error(), "")), line: doc.Line, column: 1}
	}
	if len(doc.Content) != 1 {
		return nil, &syntaxFault{fault: *faultf("", "", "the file is empty"), line: 1, column: 1}
	}
	return doc.Content[0], nil
}

// nodeFault is an error at a node.
type nodeFault struct {
	*fault
	node *yaml.Node
}

// decoder fills values from nodes.
type decoder struct {
	places map[string]place
	left   int
}

func (d *decoder) decode(n *yaml.Node, at string, v reflect.Value) *nodeFault {
	if d.left--; d.left < 0 {
		return wrong(n, at, "", "the file comes to more than %d values", maxNodes)
	}
	if d.places != nil {
		if _, there := d.places[at]; !there {
			d.places[at] = place{n.Line, n.Column}
		}
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return d.decode(n, at, v.Elem())
	case reflect.Struct:
		return d.decodeStruct(n, at, v)
	case reflect.Map:
		return d.decodeMap(n, at, v)
	case reflect.Slice:
		return d.decodeList(n, at, v)
	}
	return decodeScalar(n, at, v)
}

func wrong(n *yaml.Node, at, hint, format string, args ...any) *nodeFault {
	return &nodeFault{faultf(at, hint, format, args...), n}
}

// join is the path of a key.
func join(at, key string) string {
	if at == "" {
		return key
	}
	return at + "." + key
}

// pairs calls fn for the entries of a mapping. Keys must be texts, and none may occur twice.
func (d *decoder) pairs(n *yaml.Node, at string, fn func(key string, k, v *yaml.Node) *nodeFault) *nodeFault {
	if n.Kind != yaml.MappingNode {
		return wrong(n, at, "", "%s given, a mapping needed", kindOf(n))
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode || k.ShortTag() != "!!str" {
			return wrong(k, at, "", "a key that is no text")
		}
		if line, there := seen[k.Value]; there {
			return wrong(k, join(at, k.Value), "", "the key %s comes twice, first in line %d", clip(k.Value), line)
		}
		seen[k.Value] = k.Line
		if err := fn(k.Value, k, v); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) decodeStruct(n *yaml.Node, at string, v reflect.Value) *nodeFault {
	return d.pairs(n, at, func(key string, k, value *yaml.Node) *nodeFault {
		i := slices.Index(keysOf(v.Type()), key)
		if i < 0 {
			known := keysOf(v.Type())
			return wrong(k, join(at, key[:min(len(key), 64)]), "the keys here are "+strings.Join(known, ", "), "there is no key %s here", clip(key))
		}
		return d.decode(value, join(at, key), v.Field(i))
	})
}

func (d *decoder) decodeMap(n *yaml.Node, at string, v reflect.Value) *nodeFault {
	v.Set(reflect.MakeMap(v.Type()))
	return d.pairs(n, at, func(key string, _, value *yaml.Node) *nodeFault {
		e := reflect.New(v.Type().Elem()).Elem()
		if err := d.decode(value, join(at, key), e); err != nil {
			return err
		}
		v.SetMapIndex(reflect.ValueOf(key), e)
		return nil
	})
}

func (d *decoder) decodeList(n *yaml.Node, at string, v reflect.Value) *nodeFault {
	if n.Kind != yaml.SequenceNode {
		hint := ""
		if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
			hint = "write [" + n.Value + "]"
		}
		return wrong(n, at, hint, "%s given, a list needed", kindOf(n))
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, e := range n.Content {
		if err := d.decode(e, fmt.Sprintf("%s[%d]", at, i), v.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

// portItem matches an entry of a list of ports, which may be a number or a text.
var portItem = regexp.MustCompile(`\.ports\[\d+\]$`)

func decodeScalar(n *yaml.Node, at string, v reflect.Value) *nodeFault {
	tag := n.ShortTag()
	if n.Kind != yaml.ScalarNode {
		return wrong(n, at, "", "%s given, %s needed", kindOf(n), needed(v.Kind()))
	}
	switch v.Kind() {
	case reflect.String:
		if tag == "!!str" || tag == "!!int" && portItem.MatchString(at) {
			v.SetString(n.Value)
			return nil
		}
		if tag != "!!null" {
			return wrong(n, at, fmt.Sprintf("write %q", n.Value), "%s given, %s needed", kindOf(n), needed(v.Kind()))
		}
	case reflect.Bool:
		if tag == "!!bool" && (n.Value == "true" || n.Value == "false") {
			v.SetBool(n.Value == "true")
			return nil
		}
	case reflect.Int, reflect.Int64:
		if i, err := strconv.ParseInt(n.Value, 10, v.Type().Bits()); tag == "!!int" && err == nil {
			v.SetInt(i)
			return nil
		}
	case reflect.Float64:
		if f, err := strconv.ParseFloat(n.Value, 64); (tag == "!!int" || tag == "!!float") && err == nil {
			v.SetFloat(f)
			return nil
		}
	}
	return wrong(n, at, "", "%s given, %s needed", kindOf(n), needed(v.Kind()))
}

func needed(k reflect.Kind) string {
	switch k {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	}
	return "a whole number"
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!bool", "!!int", "!!float":
		return n.Value
	case "!!str":
		return "the text " + clip(n.Value)
	}
	return "something else"
}

// keysOf lists the keys of a struct, by its fields.
func keysOf(t reflect.Type) []string {
	out := make([]string, t.NumField())
	for i := range out {
		out[i], _, _ = strings.Cut(t.Field(i).Tag.Get("json"), ",")
	}
	return out
}
