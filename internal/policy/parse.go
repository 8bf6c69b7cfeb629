package policy

import (
	"errors"
	"fmt"

	"github.com/carrel-dev/carrel"
)

// maxFile bounds a policy file, in bytes.
const maxFile = 1 << 20

// Parse reads a policy file, YAML or JSON, and checks it. Error: Invalid, with the field
// ("policy.rules[2].ports"). File, line and column stand before the reason.
func Parse(name string, data []byte) (carrel.Policy, error) {
	var p carrel.Policy
	places := map[string]place{}
	if err := decodeFile(name, data, &p, places); err != nil {
		return carrel.Policy{}, err
	}
	if _, err := compile(p); err != nil {
		return carrel.Policy{}, err.inFile(name, nearest(places, err.at))
	}
	return p, nil
}

// place is a place in a file.
type place struct{ line, column int }

// nearest finds the place of a value, or of the nearest value around it.
func nearest(places map[string]place, at string) place {
	for {
		if p, ok := places[at]; ok {
			return p
		}
		end := len(at) - 1
		for end > 0 && at[end] != '.' && at[end] != '[' {
			end--
		}
		if end <= 0 {
			return places[""]
		}
		at = at[:end]
	}
}

// inFile makes the error for a fault in a file.
func (f *fault) inFile(name string, p place) error {
	where := fmt.Sprintf("%s:%d:%d", name, p.line, p.column)
	if p.line == 0 {
		where = name
	}
	return &carrel.Error{Op: "read policy", Kind: carrel.Invalid, Field: f.field("policy"), Err: errors.New(where + ": " + f.reason), Hint: f.hint}
}
