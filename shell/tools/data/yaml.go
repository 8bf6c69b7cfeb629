package data

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/data/jq"
)

const (
	maxYAML      = 32 << 20 // bytes of a document
	maxNodes     = 4 << 20  // of a document after alias expansion
	maxNodeDepth = 2000
)

// yamlReader converts nodes to values.
type yamlReader struct {
	c     *tool.Call
	nodes int
}

// readYAML reads all documents of a text.
func readYAML(c *tool.Call, text []byte) (vals []any, nodes []*yaml.Node, err error) {
	if len(text) > maxYAML {
		return nil, nil, errors.New("document too large")
	}
	if err := c.Pay(int64(len(text)) * 20); err != nil {
		return nil, nil, err
	}
	defer func() { _ = c.Pay(-int64(len(text)) * 20) }()
	if !c.Step(1 + len(text)>>1) {
		return nil, nil, tool.ErrStop
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	for {
		n := new(yaml.Node)
		if err := d.Decode(n); err == io.EOF {
			break
		} else if err != nil {
			return nil, nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
		}
		v, err := (&yamlReader{c: c}).value(n, 0)
		if err != nil {
			return nil, nil, err
		}
		vals, nodes = append(vals, v), append(nodes, n)
	}
	if len(vals) == 0 {
		vals, nodes = []any{nil}, []*yaml.Node{nil}
	}
	return vals, nodes, nil
}

// value converts a node. It counts nodes, because aliases are expanded.
func (y *yamlReader) value(n *yaml.Node, depth int) (any, error) {
	if y.nodes++; y.nodes > maxNodes || depth > maxNodeDepth {
		return nil, errors.New("document is too deep, or has too many aliases")
	}
	if y.nodes&255 == 0 {
		if !y.c.Step(256) {
			return nil, tool.ErrStop
		}
		if err := y.c.Pay(256 * 64); err != nil {
			return nil, err
		}
	}
	switch n.Kind {
	case yaml.DocumentNode:
		if len(n.Content) == 0 {
			return nil, nil
		}
		return y.value(n.Content[0], depth)
	case yaml.AliasNode:
		return y.value(n.Alias, depth+1)
	case yaml.SequenceNode:
		out := make([]any, 0, len(n.Content))
		for _, c := range n.Content {
			v, err := y.value(c, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case yaml.MappingNode:
		return y.mapping(n, depth)
	}
	return scalar(n), nil
}

func (y *yamlReader) mapping(n *yaml.Node, depth int) (any, error) {
	o := jq.NewObject(len(n.Content) / 2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		x, err := y.value(v, depth+1)
		if err != nil {
			return nil, err
		}
		if k.Tag == "!!merge" {
			list, ok := x.([]any)
			if !ok {
				list = []any{x}
			}
			for _, m := range list {
				from, _ := m.(*jq.Object)
				for i := 0; from != nil && i < from.Len(); i++ {
					if name, v := from.At(i); !has(o, name) {
						o.Set(name, v)
					}
				}
			}
			continue
		}
		name := k.Value
		if k.Kind != yaml.ScalarNode {
			kv, err := y.value(k, depth+1)
			if err != nil {
				return nil, err
			}
			name = jq.Text(kv)
		}
		o.Set(name, x)
	}
	return o, nil
}

func has(o *jq.Object, k string) bool {
	_, ok := o.Get(k)
	return ok
}

func scalar(n *yaml.Node) any {
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		var b bool
		if n.Decode(&b) == nil {
			return b
		}
	case "!!int":
		var i int64
		if n.Decode(&i) == nil {
			if i > -1<<53 && i < 1<<53 {
				return float64(i)
			}
			return jq.Number(strconv.FormatInt(i, 10))
		}
		var f float64
		if n.Decode(&f) == nil {
			return f
		}
	case "!!float":
		var f float64
		if n.Decode(&f) == nil {
			return f
		}
	}
	return n.Value
}

// node converts a value to a node. old is the node from which the value was read. Unchanged parts
// keep its style and comments.
func (y *yamlReader) node(v any, old *yaml.Node, depth int) *yaml.Node {
	if old != nil && old.Kind == yaml.AliasNode {
		if was, err := y.value(old, 0); err == nil && jq.Compare(was, v) == 0 {
			return old
		}
		old = nil
	}
	n := &yaml.Node{}
	if old != nil {
		n.HeadComment, n.LineComment, n.FootComment, n.Anchor = old.HeadComment, old.LineComment, old.FootComment, old.Anchor
	}
	if y.nodes++; depth > maxNodeDepth || y.nodes > maxNodes || y.nodes&255 == 0 && (!y.c.Step(256) || y.c.Pay(256*200) != nil) {
		n.Kind, n.Tag, n.Value = yaml.ScalarNode, "!!str", "<skipped: too deep>"
		return n
	}
	switch v := v.(type) {
	case []any:
		n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		same := old != nil && old.Kind == yaml.SequenceNode
		if same {
			n.Style = old.Style
		}
		for i, x := range v {
			var o *yaml.Node
			if same && i < len(old.Content) {
				o = old.Content[i]
			}
			n.Content = append(n.Content, y.node(x, o, depth+1))
		}
	case *jq.Object:
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
		was := map[string][2]*yaml.Node{}
		if old != nil && old.Kind == yaml.MappingNode {
			n.Style = old.Style
			for i := 0; i+1 < len(old.Content); i += 2 {
				was[old.Content[i].Value] = [2]*yaml.Node{old.Content[i], old.Content[i+1]}
			}
		}
		for i := range v.Len() {
			name, x := v.At(i)
			pair := was[name]
			key := y.node(name, pair[0], depth+1)
			n.Content = append(n.Content, key, y.node(x, pair[1], depth+1))
		}
	default:
		n.Kind = yaml.ScalarNode
		if old != nil && old.Kind == yaml.ScalarNode && jq.Compare(scalar(old), v) == 0 {
			n.Tag, n.Value, n.Style = old.Tag, old.Value, old.Style
			return n
		}
		scalarNode(n, v)
		if old != nil && old.Kind == yaml.ScalarNode && n.Tag == "!!str" && old.ShortTag() == "!!str" {
			n.Style = old.Style
		}
	}
	return n
}

func scalarNode(n *yaml.Node, v any) {
	switch v := v.(type) {
	case nil:
		n.Tag, n.Value = "!!null", "null"
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(v)
	case jq.Number:
		n.Tag, n.Value = "!!int", string(v)
	case float64:
		n.Tag, n.Value = "!!float", jq.Text(v)
		switch {
		case math.IsNaN(v):
			n.Value = ".nan"
		case math.IsInf(v, 1):
			n.Value = ".inf"
		case math.IsInf(v, -1):
			n.Value = "-.inf"
		case v == math.Trunc(v) && math.Abs(v) < 1e15:
			n.Tag = "!!int"
		}
	case string:
		n.Tag, n.Value = "!!str", v
		if strings.Contains(v, "\n") {
			n.Style = yaml.LiteralStyle
		}
	}
}

// writeYAML writes one document.
func writeYAML(call *tool.Call, v any, old *yaml.Node, indent int) ([]byte, error) {
	y := &yamlReader{c: call}
	var n *yaml.Node
	if old != nil && old.Kind == yaml.DocumentNode && len(old.Content) > 0 {
		doc := *old
		doc.Content = []*yaml.Node{y.node(v, old.Content[0], 0)}
		n = &doc
	} else {
		n = y.node(v, nil, 0)
	}
	if y.nodes > maxNodes {
		return nil, errors.New("result is too large")
	}
	return encodeYAML(n, indent)
}

func encodeYAML(n *yaml.Node, indent int) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(max(indent, 1))
	if err := e.Encode(n); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}
