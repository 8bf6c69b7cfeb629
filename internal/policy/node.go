package policy

import (
	"reflect"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/carrel-dev/carrel"
)

// ReadTree reads a YAML or JSON file into a tree: one document, UTF-8, of bounded size. It is for
// files that contain a policy and other things. See [ParseNode].
func ReadTree(name string, data []byte) (*yaml.Node, error) {
	if len(data) > maxFile {
		return nil, faultf("", "", "the file is larger than %d bytes", maxFile).inFile(name, place{})
	}
	if !utf8.Valid(data) {
		return nil, faultf("", "", "the file is not UTF-8").inFile(name, place{})
	}
	root, err := readTree(data)
	if err != nil {
		return nil, err.inFile(name, err.place())
	}
	return root, nil
}

// ParseNode reads and checks the policy in a node of a file, as strictly as [Parse].
func ParseNode(name string, n *yaml.Node) (carrel.Policy, error) {
	var p carrel.Policy
	places := map[string]place{}
	d := decoder{places: places, left: maxNodes}
	if err := d.decode(n, "", reflect.ValueOf(&p).Elem()); err != nil {
		return carrel.Policy{}, err.fault.inFile(name, place{err.node.Line, err.node.Column})
	}
	if _, err := compile(p); err != nil {
		return carrel.Policy{}, err.inFile(name, nearest(places, err.at))
	}
	return p, nil
}
