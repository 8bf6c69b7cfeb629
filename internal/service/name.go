package service

import (
	"fmt"

	"github.com/carrel-dev/carrel"
)

// name is a sandbox's name. Each project has its own names.
type name struct{ project, text string }

// nameOf is a sandbox's name. It never changes while the sandbox lives.
func nameOf(sb carrel.Sandbox) name { return name{sb.Project, sb.Name} }

// errNamed is the error when another sandbox of the project has the name.
func errNamed(text string, other carrel.ID) error {
	return &carrel.Error{Op: opCreate, Kind: carrel.AlreadyExists, Field: "name", Err: fmt.Errorf("%s is called %s", other, text),
		Hint: "take another name, or end that one: carrel kill " + text}
}

// drop removes a sandbox and its name from the table. The caller holds mu.
func (t *table) drop(id carrel.ID) {
	if b, ok := t.boxes[id]; ok && t.names[b.name] == id {
		delete(t.names, b.name)
	}
	delete(t.boxes, id)
}
