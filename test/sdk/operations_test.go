package sdk

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/api"
	"github.com/carrel-dev/carrel/internal/guest/filesystem"
	"github.com/carrel-dev/carrel/internal/guest/process"
)

// route is one operation of ours, as the OpenAPI document has it.
type route struct {
	refused string // why it always answers 501; "" for one that works
	query   map[string]bool
	fields  map[string]bool
}

// routes reads our own OpenAPI document.
func routes(t *testing.T) map[string]route {
	t.Helper()
	raw, err := api.Document("test")
	if err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	var doc struct {
		Paths      map[string]map[string]object
		Components struct {
			Schemas map[string]struct{ Properties object }
		}
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	reference := regexp.MustCompile(`"\$ref":"#/components/schemas/(\w+)"`)
	out := map[string]route{}
	for path, item := range doc.Paths {
		for method, op := range item {
			r := route{query: map[string]bool{}, fields: map[string]bool{}}
			answers := op["responses"].(object)
			if answers["501"] != nil && !slices.ContainsFunc(slices.Collect(maps.Keys(answers)),
				func(s string) bool { return strings.HasPrefix(s, "2") }) {
				r.refused = op["summary"].(string)
			}
			parameters, _ := op["parameters"].([]any)
			for _, p := range parameters {
				if p := p.(object); p["in"] == "query" {
					r.query[p["name"].(string)] = true
				}
			}
			var body struct {
				Content map[string]struct{ Schema struct{ Properties object } }
			}
			if raw, err := json.Marshal(op["requestBody"]); err != nil ||
				json.Unmarshal(raw, &body) != nil {
				t.Fatal(path, err)
			} else if m := reference.FindSubmatch(raw); m != nil {
				for name := range doc.Components.Schemas[string(m[1])].Properties {
					r.fields[name] = true
				}
			}
			for name := range body.Content["application/json"].Schema.Properties {
				r.fields[name] = true
			}
			out[strings.ToUpper(method)+" "+parameter.ReplaceAllString(path, "{}")] = r
		}
	}
	return out
}

// passedOver are fields and parameters of E2B's clients that Carrel accepts and does not use, and
// why that is right.
var passedOver = map[string]string{
	"GET /templates/{}/builds/{}/logs source": "there is one log, so both sources are it",
	"POST /v3/templates teamID":               "the key says whose template it is",
}

// headersUsed are the headers of operations that Carrel reads.
var headersUsed = map[string]bool{"Idempotency-Key": true}

// TestOperations compares all operations that E2B's newest clients can send with Carrel's routes.
// Each one works here, with all its parameters and fields, or is refused with a reason. An
// operation that Carrel does not know fails the test: it is new in a client.
func TestOperations(t *testing.T) {
	python := clients(t)
	all := requests{}
	all.javaScript(readText(t, jsTypes), "paths")
	all.python(t, python+"/api/client")
	all.python(t, python+"/volume/client")
	all.commandLine(readText(t, cliCode))
	ours := routes(t)
	done, refused := 0, 0
	for _, key := range slices.Sorted(maps.Keys(all)) {
		r, known := ours[key], false
		if _, known = ours[key]; !known {
			r, known = subtree(ours, key)
		}
		by := strings.Join(slices.Sorted(maps.Keys(all[key].by)), ", ")
		switch {
		case guestOperations[key]:
			continue // of the guest; see TestGuestOperations
		case !known:
			t.Errorf("unknown: %s (%s)", key, by)
		case r.refused != "":
			refused++
			t.Logf("refused: %s: %s", key, r.refused)
		default:
			done++
			all[key].compare(t, key, r)
		}
	}
	t.Logf("%d operations: %d done, %d refused", len(all), done, refused)
	if done < 45 {
		t.Errorf("only %d operations were found", done)
	}
}

// subtree finds the route for everything below a path.
func subtree(ours map[string]route, key string) (route, bool) {
	for known, r := range ours {
		if strings.HasSuffix(known, "/{}") && strings.HasPrefix(key,
			strings.TrimSuffix(known, "{}")) && r.refused != "" {
			return r, true
		}
	}
	return route{}, false
}

// compare checks the parts of an operation.
func (r *request) compare(t *testing.T, key string, ours route) {
	t.Helper()
	for kind, pair := range map[string][2]map[string]bool{
		"parameter": {r.query, ours.query}, "field": {r.fields, ours.fields},
		"header": {r.headers, headersUsed}} {
		for name := range pair[0] {
			if !pair[1][name] && passedOver[key+" "+name] == "" {
				t.Errorf("unknown: the %s %s of %s", kind, name, key)
			}
		}
	}
}

// guestOperations are the guest's plain HTTP operations. The agent's own tests check each.
var guestOperations = map[string]bool{
	"GET /health": true, "GET /envs": true, "GET /metrics": true, "POST /files/compose": true,
	"GET /files": true, "POST /files": true,
}

// TestGuestOperations compares the guest's plain HTTP operations that the SDKs know with the
// guest's own routes.
func TestGuestOperations(t *testing.T) {
	clients(t)
	all := requests{}
	all.javaScript(readText(t, jsTypes), "paths$1")
	served := readText(t, "../../internal/guest/agent/server.go")
	for key := range all {
		_, path, _ := strings.Cut(key, " ")
		if !guestOperations[key] || !strings.Contains(served, fmt.Sprintf("mux.Handle(%q,", path)) {
			t.Errorf("unknown: %s of the guest", key)
		}
	}
	if len(all) != len(guestOperations) {
		t.Errorf("%d operations are found, and %d are listed", len(all), len(guestOperations))
	}
}

// ahead are fields of our messages that no published client has yet. E2B's SDKs after 2.51 use them
// to go on with a command's output.
var ahead = map[string]bool{
	"process.ConnectRequest.resume_from": true, "process.OutputOffsets": true,
	"process.ProcessEvent.StartEvent.offsets": true, "process.ProcessEvent.DataEvent.offset": true,
}

// TestMessages compares the descriptions of Connect's messages that the clients carry with ours:
// each message, field, number, type, enum value and call.
func TestMessages(t *testing.T) {
	clients(t)
	ours := map[string]*descriptorpb.FileDescriptorProto{}
	for _, f := range []protoreflect.FileDescriptor{process.File_process_process_proto,
		filesystem.File_filesystem_filesystem_proto} {
		ours[string(f.Package())] = protodesc.ToFileDescriptorProto(f)
	}
	for _, code := range []string{jsCode, cliCode, "js/node_modules/e2b-2.45/dist/index.js"} {
		n := 0
		for _, file := range descriptors(t, code) {
			mine := ours[file.GetPackage()]
			if strings.HasPrefix(file.GetPackage(), "google.") {
				continue // a part of the library
			}
			if mine == nil {
				t.Errorf("%s: unknown: the messages of %s", code, file.GetPackage())
				continue
			}
			theirs, known := facts(file), facts(mine)
			for what, fact := range theirs {
				if n++; known[what] != fact {
					t.Errorf("%s: unknown: %s is %q, here %q", code, what, fact, known[what])
				}
			}
			for what := range known {
				if theirs[what] == "" && !ahead[what] &&
					!ahead[what[:strings.LastIndex(what, ".")]] {
					t.Errorf("%s has no %s", code, what)
				}
			}
		}
		if n < 100 {
			t.Errorf("%s: only %d facts about messages were found", code, n)
		}
	}
}

// facts lists what matters on the wire, by name.
func facts(file *descriptorpb.FileDescriptorProto) map[string]string {
	out := map[string]string{}
	var message func(at string, m *descriptorpb.DescriptorProto)
	message = func(at string, m *descriptorpb.DescriptorProto) {
		at += "." + m.GetName()
		out[at] = "message"
		for _, f := range m.GetField() {
			fact := fmt.Sprintf("%d %v %v %s", f.GetNumber(), f.GetLabel(), f.GetType(),
				f.GetTypeName())
			if f.OneofIndex != nil {
				fact += " of " + m.GetOneofDecl()[f.GetOneofIndex()].GetName()
			}
			out[at+"."+f.GetName()] = fact
		}
		for _, nested := range m.GetNestedType() {
			message(at, nested)
		}
	}
	for _, m := range file.GetMessageType() {
		message(file.GetPackage(), m)
	}
	for _, e := range file.GetEnumType() {
		for _, v := range e.GetValue() {
			out[file.GetPackage()+"."+e.GetName()+"."+v.GetName()] = fmt.Sprint("value ",
				v.GetNumber())
		}
	}
	for _, s := range file.GetService() {
		for _, m := range s.GetMethod() {
			out[file.GetPackage()+"."+s.GetName()+"."+m.GetName()] = fmt.Sprint(m.GetInputType(),
				" → ", m.GetOutputType(),
				m.GetClientStreaming(), m.GetServerStreaming())
		}
	}
	return out
}

// gates are the versions of the guest from which clients use a feature, and the test that shows the
// feature here.
var gates = map[string]string{
	"0.1.0":    "any sandbox at all: TestPlain",
	"0.1.4":    "recursive watching: files.test.mjs",
	"0.1.5":    "metrics: life.test.mjs",
	"0.2.4":    "disk metrics: life.test.mjs",
	"0.3.0":    "commands without standard input: commands.test.mjs",
	"0.4.0":    "a default user: commands.test.mjs",
	"0.5.2":    "closing standard input: commands.test.mjs",
	"0.5.7":    "uploads without a form: files.test.mjs",
	"0.6.2":    "metadata of files: files.test.mjs",
	"0.6.3":    "entries in events of watching: files.test.mjs",
	"0.6.4":    "watching network mounts: files.test.mjs",
	"99.99.99": "no gate: what a client takes in debug mode",
}

// TestGates lists all versions of the guest with which clients compare the one that a sandbox
// names. Carrel names the newest whose behaviour it has, so every gate must be known, and open.
func TestGates(t *testing.T) {
	python := clients(t)
	number := `[0-9]+\.[0-9]+\.[0-9]+`
	found := map[string]string{}
	add := func(client, text, pattern string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			found[m[1]] = client
		}
	}
	for _, code := range []string{jsCode, cliCode} {
		text := readText(t, code)
		add(code, text, `(?i)compareVersions\)?\([^()]*envd[^()]*,\s*["`+"`"+`](`+number+`)["`+"`"+`]\)`)
		add(code, text, `ENVD_\w+ ?= ?["`+"`"+`](`+number+`)["`+"`"+`]`)
	}
	add("Python", readText(t, python+"/envd/versions.py"), `Version\("(`+number+`)"\)`)
	for version, client := range found {
		if gates[version] == "" {
			t.Errorf("unknown: the gate of version %s in %s", version, client)
		}
		if version != "99.99.99" && newer(version, carrel.EnvdVersion) {
			t.Errorf("%s waits for version %s, and sandboxes name %s", client, version,
				carrel.EnvdVersion)
		}
	}
	if len(found) < 8 {
		t.Errorf("only these gates were found: %v", found)
	}
}

// newer reports whether version a is newer than b.
func newer(a, b string) bool {
	var x, y [3]int
	_, _ = fmt.Sscanf(a, "%d.%d.%d", &x[0], &x[1], &x[2])
	_, _ = fmt.Sscanf(b, "%d.%d.%d", &y[0], &y[1], &y[2])
	return slices.Compare(x[:], y[:]) > 0
}
