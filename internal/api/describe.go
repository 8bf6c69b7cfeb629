package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/admission"
	"github.com/carrel-dev/carrel/internal/openapi"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// DocumentPath is the path of the API's description. It needs no key.
const DocumentPath = "/openapi.json"

// The groups of operations.
const (
	tagBoxes     = "sandboxes"
	tagMoments   = "snapshots"
	tagTemplates = "templates"
	tagSecrets   = "secrets"
	tagPeople    = "people"
	tagDaemon    = "daemon"
	tagIdentity  = "identity"
	tagE2B       = "e2b"
)

// introduction is the text of the document before its first operation.
const introduction = "Carrel's control plane. The routes below /carrel/v1 are Carrel's own: a field that is not known is " +
	"refused, and durations are nanoseconds or texts such as \"90s\". The other routes are E2B's, so that its SDKs and its " +
	"CLI work: fields that are not known are ignored. Send the API key as X-API-KEY or as a bearer token. " +
	"The same port also carries every sandbox's own traffic: a request with the header E2b-Sandbox-Id, or for the host " +
	"PORT-ID.DOMAIN, goes to that sandbox and is not described here."

// Document describes, as an OpenAPI document, everything that the API and the daemon around it
// serve. version is the daemon's.
func Document(version string) ([]byte, error) {
	doc, err := openapi.Document(openapi.API{
		Title: "Carrel", Version: version, Description: introduction, Tags: tags, Operations: operations(),
		Failure: errorBody{},
		Types: openapi.Types{
			Name: schemaName, Values: wordLists,
			Known: map[reflect.Type]openapi.Schema{
				reflect.TypeFor[instant](): {"type": "string", "format": "date-time"},
				reflect.TypeFor[span](): {
					"anyOf":       []any{openapi.Schema{"type": "integer", "minimum": 0}, openapi.Schema{"type": "string"}},
					"description": "nanoseconds, or a text such as \"90s\" or \"2h\"",
				},
				reflect.TypeFor[carrel.Milli](): {"type": "number", "description": "a decimal with at most three digits after the point"},
				reflect.TypeFor[carrel.Micro](): {"type": "number", "description": "a decimal with at most six digits after the point"},
			},
			// E2B's clients cannot read null in place of a list, so the types that are written for
			// them never have one.
			Filled: func(t reflect.Type) bool { return t.PkgPath() == reflect.TypeFor[sandboxBody]().PkgPath() },
		},
	})
	if err != nil {
		return nil, err
	}
	return json.MarshalIndent(doc, "", " ")
}

// tags are the groups of operations, in the order of the document.
var tags = []openapi.Tag{
	{Name: tagBoxes, Description: "Make, list, change and end sandboxes."},
	{Name: tagMoments, Description: "Pause, resume, fork and roll back sandboxes; keep moments of them."},
	{Name: tagTemplates, Description: "What sandboxes are made from."},
	{Name: tagSecrets, Description: "Values that leave a sandbox only in requests to their hosts. No answer contains one."},
	{Name: tagPeople, Description: "Projects, the API keys that open them, and what both may use."},
	{Name: tagDaemon, Description: "The daemon, its log of decisions and its keys."},
	{Name: tagIdentity, Description: "What relying parties read to verify a sandbox's identity tokens."},
	{Name: tagE2B, Description: "E2B's API."},
}

// wordLists has the types with a fixed set of values, and these values.
var wordLists = map[reflect.Type][]string{
	reflect.TypeFor[carrel.State]():        words(carrel.Starting, carrel.Running, carrel.Pausing, carrel.Paused, carrel.Resuming, carrel.Stopping),
	reflect.TypeFor[carrel.KeyScope]():     words(carrel.ScopeRead, carrel.ScopeRun, carrel.ScopeAdmin),
	reflect.TypeFor[carrel.BudgetUnit]():   words(carrel.BudgetMoney, carrel.BudgetSeconds),
	reflect.TypeFor[carrel.BudgetPeriod](): words(carrel.BudgetDay, carrel.BudgetMonth, carrel.BudgetTotal),
	reflect.TypeFor[carrel.ChangeKind]():   words(carrel.ChangeAdded, carrel.ChangeRemoved, carrel.ChangeModified, carrel.ChangeMode),
}

// words turns named texts into plain ones.
func words[T ~string](values ...T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

// schemaName names a type in the document. Carrel's own types keep their Go names. A type of this
// package is named after its purpose, and a type for E2B begins with E2B's name.
func schemaName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[errorBody]():
		return "Failure"
	case reflect.TypeFor[snapshot.Usage]():
		return "SnapshotUsage"
	case reflect.TypeFor[snapshot.Collected]():
		return "SnapshotCollected"
	case reflect.TypeFor[admission.State]():
		return "AdmissionState"
	case reflect.TypeFor[admission.Machine]():
		return "AdmissionMachine"
	}
	name := t.Name()
	switch {
	case name == "":
		return ""
	case t.PkgPath() == reflect.TypeFor[carrel.Sandbox]().PkgPath(), strings.ToUpper(name[:1]) == name[:1]:
		return name
	case strings.HasSuffix(name, "Body"):
		return "E2B" + strings.ToUpper(name[:1]) + strings.TrimSuffix(name[1:], "Body")
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

// operations describes every route.
func operations() map[string]openapi.Operation {
	all := map[string]openapi.Operation{}
	for _, part := range []map[string]openapi.Operation{
		e2bOperations, e2bOtherOperations, sandboxOperations, momentOperations, templateOperations,
		buildOperations, catalogOperations, secretOperations, webhookOperations, inboxOperations, nodeOperations,
		movementOperations,
		peopleOperations, personOperations, allowanceOperations, e2bKeyOperations,
		daemonOperations, openOperations,
	} {
		for pattern, op := range part {
			all[pattern] = op
		}
	}
	for pattern, what := range laterPatterns() {
		all[pattern] = openapi.Operation{Tag: tagE2B, Summary: "Answers 501: " + what + " is not supported yet.",
			Answers: map[int]any{http.StatusNotImplemented: errorBody{}}}
	}
	return all
}

// document serves the description. It makes the text at the first request, since the text never
// changes.
func (s *Server) document() func(w http.ResponseWriter) error {
	made := sync.OnceValues(func() ([]byte, error) { return Document(s.opts.Version) })
	return func(w http.ResponseWriter) error {
		raw, err := made()
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_, _ = w.Write(raw) // a client that hung up needs no answer
		return nil
	}
}

// The shapes that many operations share.

func answers(status int, of any) map[int]any { return map[int]any{status: of} }

func nothing() map[int]any { return map[int]any{http.StatusNoContent: nil} }

// strict is the body of a request of our own API.
func strict(of any, needed ...string) *openapi.Body {
	return &openapi.Body{Of: of, Needed: needed, Strict: true, Optional: false}
}

// perhaps is the body of a request of our own API that may be left out.
func perhaps(of any) *openapi.Body { return &openapi.Body{Of: of, Strict: true, Optional: true} }

// loose is the body of a request of E2B's.
func loose(of any, needed ...string) *openapi.Body { return &openapi.Body{Of: of, Needed: needed} }

// looseOptional is the body of a request of E2B's that may be left out.
func looseOptional(of any) *openapi.Body { return &openapi.Body{Of: of, Optional: true} }
