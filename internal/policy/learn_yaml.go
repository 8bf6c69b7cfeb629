package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// YAML returns the policy as a file for people: each rule says what it stands for.
func (l Learned) YAML() ([]byte, error) {
	doc := &yaml.Node{Kind: yaml.MappingNode}
	var notes strings.Builder
	for _, n := range l.Notes {
		fmt.Fprintf(&notes, "%s\n", harmless(n))
	}
	rules := &yaml.Node{Kind: yaml.SequenceNode}
	for i, r := range l.Policy.Rules {
		node, err := asYAML(r)
		if err != nil {
			return nil, err
		}
		node.HeadComment = harmless(l.Seen[i].text())
		rules.Content = append(rules.Content, node)
	}
	if len(rules.Content) == 0 {
		rules.Style = yaml.FlowStyle
	}
	doc.Content = append(doc.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "rules", HeadComment: notes.String()}, rules)
	if len(l.Policy.Inject) > 0 {
		node, err := asYAML(l.Policy.Inject)
		if err != nil {
			return nil, err
		}
		doc.Content = append(doc.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "inject"}, node)
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(doc); err != nil {
		return nil, err
	}
	return out.Bytes(), enc.Close()
}

// asYAML turns a part of a policy into YAML, with the names and the order of its JSON. Lists of
// words are written in one line if they are short.
func asYAML(part any) (*yaml.Node, error) {
	raw, err := json.Marshal(part)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	node := doc.Content[0]
	blocks(node)
	return node, nil
}

// blocks gives nodes that were read from JSON the style of YAML files.
func blocks(n *yaml.Node) {
	const short = 60 // characters of a list in one line
	size := 0
	for _, c := range n.Content {
		blocks(c)
		size += len(c.Value) + len(", ")
		if c.Kind != yaml.ScalarNode {
			size += short
		}
	}
	n.Style &^= yaml.DoubleQuotedStyle
	if n.Kind != yaml.SequenceNode || size > short {
		n.Style &^= yaml.FlowStyle
	}
}

// text says what a learned rule stands for.
func (s Seen) text() string {
	out := fmt.Sprintf("seen %d times", s.Times)
	if s.Times == 1 {
		out = "seen once"
	}
	if s.Denied > 0 {
		out += fmt.Sprintf(", refused %d times", s.Denied)
	}
	if len(s.Programs) > 0 {
		const most = 8
		names := s.Programs[:min(len(s.Programs), most)]
		out += ", by " + strings.Join(names, ", ")
		if len(s.Programs) > most {
			out += " and others"
		}
	}
	return out
}

// harmless replaces what could end a comment or move a terminal's cursor. Names of programs come out
// of sandboxes.
func harmless(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
