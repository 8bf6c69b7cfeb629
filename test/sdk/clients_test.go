package sdk

import (
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// The files of the installed clients that say what they can send. Each was generated from E2B's own
// description of its API.
const (
	jsTypes  = "js/node_modules/e2b/dist/index.d.ts"
	jsCode   = "js/node_modules/e2b/dist/index.js"
	cliCode  = "cli/node_modules/@e2b/cli/dist/index.js"
	pyClient = "python/.venv/lib/*/site-packages/e2b"
)

// clients installs all three clients, and returns the directory of Python's.
func clients(t *testing.T) (python string) {
	t.Helper()
	_, err := exec.LookPath("node")
	testenv.Need(t, "node", err)
	_, err = exec.LookPath("python3")
	testenv.Need(t, "python", err)
	install(t, "js/node_modules/e2b", "npm", "ci", "--prefix", "js", "--silent")
	installCLI(t)
	installPython(t)
	found, err := filepath.Glob(pyClient)
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	return found[0]
}

func installCLI(t *testing.T) {
	t.Helper()
	install(t, "cli/node_modules/@e2b/cli", "npm", "ci", "--prefix", "cli", "--silent")
}

func readText(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// request is one operation as a client knows it.
type request struct {
	query, headers, fields map[string]bool
	by                     map[string]bool // the clients that have it
}

// requests are by method and path, with "{}" for each parameter: "GET /sandboxes/{}".
type requests map[string]*request

var parameter = regexp.MustCompile(`\{[^}]*\}`)

// of returns the entry of an operation.
func (all requests) of(client, method, path string) *request {
	key := strings.ToUpper(method) + " " + parameter.ReplaceAllString(path, "{}")
	if all[key] == nil {
		all[key] = &request{map[string]bool{}, map[string]bool{}, map[string]bool{},
			map[string]bool{}}
	}
	all[key].by[client] = true
	return all[key]
}

// member is a line of a generated type: its indentation, its name and what follows.
var member = regexp.MustCompile(`^( *)"?([^"\s:?\[\]*]+)"?\??: (.*)$`)

// members calls f for each member of the interfaces in TypeScript's generated types. at are the
// names around the member, from the interface down, and its own.
func members(text string, f func(at []string, value string)) {
	type level struct {
		indent int
		name   string
	}
	var stack []level
	opens := regexp.MustCompile(`^(?:export )?interface (\S+) \{`)
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if m := opens.FindStringSubmatch(line); m != nil {
			stack = []level{{-1, m[1]}}
			continue
		}
		m := member.FindStringSubmatch(line)
		if m == nil || len(stack) == 0 {
			continue
		}
		for stack[len(stack)-1].indent >= len(m[1]) {
			stack = stack[:len(stack)-1]
		}
		stack = append(stack, level{len(m[1]), m[2]})
		at := make([]string, len(stack))
		for i, l := range stack {
			at[i] = l.name
		}
		f(at, m[3])
	}
}

// schemaOf finds the schema of a body.
var schemaOf = regexp.MustCompile(`components\["schemas"\]\["(\w+)"\]`)

// javaScript adds the operations of the JavaScript SDK's types. prefix is "paths" for the control
// plane and "paths$1" for the guest.
func (all requests) javaScript(text, prefix string) {
	fields := map[string][]string{}
	members(text, func(at []string, _ string) {
		if len(at) == 4 && at[0] == "components"+strings.TrimPrefix(prefix, "paths") &&
			at[1] == "schemas" {
			fields[at[2]] = append(fields[at[2]], at[3])
		}
	})
	members(text, func(at []string, value string) {
		if at[0] != prefix || len(at) < 3 || at[2] == "parameters" || value == "never;" {
			return
		}
		r := all.of("JavaScript", at[2], at[1])
		switch rest := strings.Join(at[3:], " "); {
		case len(at) == 6 && strings.HasPrefix(rest, "parameters query"):
			r.query[at[5]] = true
		case len(at) == 6 && strings.HasPrefix(rest, "parameters header"):
			r.headers[at[5]] = true
		case rest == "requestBody content application/json":
			if m := schemaOf.FindStringSubmatch(value); m != nil {
				for _, name := range fields[m[1]] {
					r.fields[name] = true
				}
			}
		}
	})
}

var (
	pyMethod = regexp.MustCompile(`"method": "(\w+)",\s+"url": f?"([^"]+)"`)
	pyQuery  = regexp.MustCompile(`params\["(\w+)"\] = `)
	pyHeader = regexp.MustCompile(`headers\["([\w-]+)"\] = `)
	pyBody   = regexp.MustCompile(`\n    body: (?:Union\[Unset, )?(\w+)`)
	pyField  = regexp.MustCompile(`field_dict\["(\w+)"\] = |\n                "(\w+)": \w+,`)
	capital  = regexp.MustCompile(`([a-z0-9])([A-Z])`)
)

// python adds the operations of a generated client of the Python SDK.
func (all requests) python(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(dir + "/api/*/*.py")
	if err != nil || len(files) == 0 {
		t.Fatal("no generated operations in ", dir, err)
	}
	for _, file := range files {
		text := readText(t, file)
		m := pyMethod.FindStringSubmatch(text)
		if m == nil {
			continue
		}
		r := all.of("Python", m[1], m[2])
		for _, q := range pyQuery.FindAllStringSubmatch(text, -1) {
			r.query[q[1]] = true
		}
		for _, h := range pyHeader.FindAllStringSubmatch(text, -1) {
			if h[1] != "Content-Type" {
				r.headers[h[1]] = true
			}
		}
		if b := pyBody.FindStringSubmatch(text); b != nil {
			model := strings.ToLower(capital.ReplaceAllString(b[1], "${1}_$2"))
			raw, err := os.ReadFile(dir + "/models/" + model + ".py")
			if err != nil {
				continue // a body that is no object of its own, such as a file
			}
			for _, f := range pyField.FindAllStringSubmatch(string(raw), -1) {
				r.fields[f[1]+f[2]] = true
			}
		}
	}
}

var cliCall = regexp.MustCompile("\\.(GET|POST|PUT|PATCH|DELETE)\\([`\"](/[^`\"]*)[`\"]")

// commandLine adds the operations that the bundled CLI calls.
func (all requests) commandLine(text string) {
	for _, m := range cliCall.FindAllStringSubmatch(text, -1) {
		all.of("CLI", m[1], m[2])
	}
}

var embedded = regexp.MustCompile(`fileDesc\)?\(\s*["` + "`" + `]([A-Za-z0-9+/=]+)["` + "`" + `]`)

// descriptors reads the descriptions of Connect's messages that a JavaScript client carries.
func descriptors(t *testing.T, code string) []*descriptorpb.FileDescriptorProto {
	t.Helper()
	var out []*descriptorpb.FileDescriptorProto
	for _, m := range embedded.FindAllStringSubmatch(readText(t, code), -1) {
		raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(m[1], "="))
		if err != nil {
			t.Fatal(err)
		}
		file := &descriptorpb.FileDescriptorProto{}
		if err := proto.Unmarshal(raw, file); err != nil {
			t.Fatal(err)
		}
		out = append(out, file)
	}
	if len(out) < 2 {
		t.Fatalf("%s has %d descriptions of messages", code, len(out))
	}
	return out
}
