package debian

import (
	"strings"

	"github.com/carrel-dev/carrel/internal/driver"
)

// CodeInterpreter is the template whose sandboxes run cells of code on port 49999. E2B's packages
// for code interpreters ask for it by this name.
const CodeInterpreter = "code-interpreter-v1"

// program is what runs in each sandbox of a template from its start.
type program struct {
	start []string
	ready string // the shell command that succeeds when it is ready
}

// programs are the programs of the templates that have one. It is part of a template's own start,
// so a sandbox finds it at work: with a Python kernel that has the large modules in memory.
var programs = map[string]program{
	CodeInterpreter: {
		// A cell may kill its own interpreter, as both are the same user's. The guest starts another one
		// then, with no state. It recognises the program as a template's own start without a shell.
		start: []string{driver.GuestPath, "interpreter", "--warm", "python", "--preload",
			"numpy,pandas,matplotlib,matplotlib.pyplot"},
		ready: "curl -fsS -o /dev/null http://127.0.0.1:49999/health",
	},
}

// word makes the part of a template's ID that its name gives: letters and digits.
func word(name string) string { return strings.ReplaceAll(name, "-", "") }

// idLength is the length of a template's ID.
const idLength = 20

// templateID is the ID of a built-in template. It never changes.
func templateID(name string) string {
	id := "carrel" + word(name)
	return id[:min(len(id), idLength)] + strings.Repeat("0", max(0, idLength-len(id)))
}
