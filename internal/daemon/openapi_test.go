package daemon

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"
	"golang.org/x/crypto/ssh"

	"github.com/carrel-dev/carrel/internal/api"
	"github.com/carrel-dev/carrel/internal/identity"
	"github.com/carrel-dev/carrel/internal/openapi"
	"github.com/carrel-dev/carrel/internal/signin"
	"github.com/carrel-dev/carrel/internal/sshdoor"
)

// recorded are requests to a real daemon, in an order in which each succeeds, and the status of
// each answer. A word in braces is a name of newNeighbours, or "{new}", the last sandbox that was
// made.
var recorded = []struct {
	pattern, path, body string
	status              int
}{
	{"GET /openapi.json", "/openapi.json", "", 200},
	{"GET /.well-known/openid-configuration", "/.well-known/openid-configuration", "", 200},
	{"GET /carrel/v1/identity/jwks", "/carrel/v1/identity/jwks", "", 200},
	{"GET /carrel/v1/identity/bundle", "/carrel/v1/identity/bundle", "", 200},

	{"POST /sandboxes", "/sandboxes", `{"templateID":"base","timeout":600}`, 201},
	{"POST /v2/sandboxes", "/v2/sandboxes", `{"templateID":"base","timeout":600,"metadata":{"a":"b"},"network":{"denyOut":["8.8.8.8"]}}`, 201},
	{"GET /sandboxes", "/sandboxes", "", 200},
	{"GET /v2/sandboxes", "/v2/sandboxes", "", 200},
	{"GET /sandboxes/metrics", "/sandboxes/metrics?sandbox_ids={box}", "", 200},
	{"GET /sandboxes/{id}", "/sandboxes/{box}", "", 200},
	{"GET /sandboxes/{id}", "/sandboxes/{new}", "", 200},
	{"GET /sandboxes/{id}", "/sandboxes/{gone}", "", 404},
	{"POST /sandboxes/{id}/connect", "/sandboxes/{box}/connect", `{"timeout":600}`, 200},
	{"POST /v2/sandboxes/{id}/connect", "/v2/sandboxes/{asleep}/connect", `{"timeout":600}`, 201},
	{"POST /sandboxes/{id}/timeout", "/sandboxes/{box}/timeout", `{"timeout":600}`, 204},
	{"POST /sandboxes/{id}/refreshes", "/sandboxes/{box}/refreshes", `{"duration":600}`, 204},
	{"POST /sandboxes/{id}/pause", "/sandboxes/{box}/pause", "", 204},
	{"POST /sandboxes/{id}/pause", "/sandboxes/{box}/pause", "", 409},
	{"POST /sandboxes/{id}/resume", "/sandboxes/{box}/resume", `{"timeout":600}`, 201},
	{"POST /sandboxes/{id}/fork", "/sandboxes/{box}/fork", `{"count":1,"timeout":600}`, 201},
	{"POST /v2/sandboxes/{id}/fork", "/v2/sandboxes/{box}/fork", `{"memory":false}`, 201},
	{"POST /sandboxes/{id}/snapshots", "/sandboxes/{box}/snapshots", `{"name":"kept"}`, 201},
	{"GET /snapshots", "/snapshots", "", 200},
	{"PUT /sandboxes/{id}/network", "/sandboxes/{box}/network", `{"allow_internet_access":false}`, 204},
	{"GET /sandboxes/{id}/metrics", "/sandboxes/{box}/metrics", "", 200},
	{"GET /sandboxes/{id}/logs", "/sandboxes/{box}/logs", "", 200},
	{"GET /v2/sandboxes/{id}/logs", "/v2/sandboxes/{box}/logs", "", 200},
	{"GET /templates", "/templates", "", 200},
	{"GET /v2/templates", "/v2/templates", "", 200},
	{"GET /templates/{id}", "/templates/{tpl}", "", 200},
	{"GET /templates/aliases/{alias}", "/templates/aliases/{tplname}", "", 200},
	{"POST /v3/templates", "/v3/templates",
		`{"name":"made","cpuCount":1,"memoryMB":512,"tags":["v1"]}`, 202},
	{"POST /v2/templates", "/v2/templates", `{"name":"made"}`, 202},
	{"GET /templates/{id}/files/{hash}",
		"/templates/{tpl}/files/0000000000000000000000000000000000000000000000000000000000000000", "",
		201},
	{"GET /templates/{id}/tags", "/templates/{tpl}/tags", "", 200},
	{"GET /templates/{id}/tags/count", "/templates/{tpl}/tags/count", "", 200},
	{"GET /templates/{id}/tags/exists", "/templates/{tpl}/tags/exists?tag=v1", "", 200},
	{"GET /templates/{id}/tags/groups", "/templates/{tpl}/tags/groups?sort=name_asc", "", 200},
	{"GET /templates/{id}/tags/{tag}/assignments", "/templates/{tpl}/tags/v1/assignments", "", 200},
	{"GET /default-templates", "/default-templates", "", 200},
	{"PATCH /templates/{id}", "/templates/{tpl}", `{"public":false}`, 200},
	{"PATCH /v2/templates/{id}", "/v2/templates/{tpl}", `{"public":false}`, 200},
	{"GET /carrel/v1/builds", "/carrel/v1/builds?limit=1", "", 200},
	{"GET /carrel/v1/templates/{name}/tags", "/carrel/v1/templates/{tplname}/tags", "", 200},
	{"GET /teams", "/teams", "", 200},
	{"GET /teams/{team}/metrics", "/teams/a/metrics", "", 200},
	{"GET /teams/{team}/metrics/max", "/teams/a/metrics/max?metric=concurrent_sandboxes", "", 200},
	{"GET /events/sandboxes", "/events/sandboxes?limit=2&types=sandbox.lifecycle.created", "", 200},
	{"GET /events/sandboxes/{id}", "/events/sandboxes/{box}", "", 200},
	{"POST /events/webhooks", "/events/webhooks", `{"name":"h","url":"https://example.invalid/","events":["sandbox.lifecycle.paused"]}`, 201},
	{"GET /events/webhooks", "/events/webhooks", "", 200},
	{"GET /events/webhooks/{webhook}", "/events/webhooks/00000000-0000-8000-8000-000000000000", "", 404},
	{"PATCH /events/webhooks/{webhook}", "/events/webhooks/{hook}", `{"enabled":true}`, 200},
	{"DELETE /events/webhooks/{webhook}", "/events/webhooks/00000000-0000-8000-8000-000000000000", "", 404},
	{"GET /carrel/v1/lifecycle-events", "/carrel/v1/lifecycle-events?sandbox={box}", "", 200},
	{"GET /carrel/v1/nodes", "/carrel/v1/nodes", "", 501},
	{"POST /carrel/v1/nodes/{node}/drain", "/carrel/v1/nodes/n/drain", "", 501},
	{"DELETE /carrel/v1/nodes/{node}/drain", "/carrel/v1/nodes/n/drain", "", 501},
	{"DELETE /carrel/v1/nodes/{node}", "/carrel/v1/nodes/n", "", 501},
	{"GET /carrel/v1/inbox", "/carrel/v1/inbox?sandbox={box}", "", 200},
	{"POST /carrel/v1/inbox/{question}", "/carrel/v1/inbox/q0123456789abcdef0123456789abcdef", `{"answer":"allow"}`, 404},
	{"GET /carrel/v1/webhooks", "/carrel/v1/webhooks", "", 200},
	{"POST /carrel/v1/webhooks", "/carrel/v1/webhooks", `{"name":"i","url":"https://example.invalid/","events":["sandbox.lifecycle.paused"]}`, 201},
	{"GET /carrel/v1/webhooks/{webhook}", "/carrel/v1/webhooks/{hook}", "", 200},
	{"PATCH /carrel/v1/webhooks/{webhook}", "/carrel/v1/webhooks/{hook}", `{"name":"j"}`, 200},
	{"GET /carrel/v1/webhooks/{webhook}/deliveries", "/carrel/v1/webhooks/{hook}/deliveries", "", 200},
	{"POST /carrel/v1/webhooks/{webhook}/replay", "/carrel/v1/webhooks/{hook}/replay", `{"since":"2026-01-01T00:00:00Z"}`, 202},
	{"DELETE /carrel/v1/webhooks/{webhook}", "/carrel/v1/webhooks/{hook}", "", 204},
	{"GET /api-keys", "/api-keys", "", 200},
	{"POST /api-keys", "/api-keys", `{"name":"ci"}`, 201},
	{"PATCH /api-keys/{apiKeyID}", "/api-keys/{apikey}", `{"name":"renamed"}`, 200},
	{"DELETE /api-keys/{apiKeyID}", "/api-keys/{apikey}", "", 204},
	{"POST /access-tokens", "/access-tokens", `{"name":"laptop"}`, 201},
	{"DELETE /access-tokens/{accessTokenID}", "/access-tokens/{token}", "", 204},
	{"GET /carrel/v1/projects", "/carrel/v1/projects", "", 200},
	{"POST /carrel/v1/projects", "/carrel/v1/projects", `{"name":"new"}`, 201},
	{"GET /carrel/v1/projects/{name}", "/carrel/v1/projects/new", "", 200},
	{"DELETE /carrel/v1/projects/{name}", "/carrel/v1/projects/new", "", 204},
	{"POST /carrel/v1/keys", "/carrel/v1/keys", `{"name":"k","scope":"read","expires":"2100-01-01T00:00:00Z","quota":{"hard":{"sandboxes":5},"soft":{"vcpus":null}},"ceiling":{"egress":["*.example.com"],"timeout":"1h"}}`, 201},
	{"POST /carrel/v1/keys/{key}/rotate", "/carrel/v1/keys/k/rotate", `{"overlap":"1h"}`, 200},
	{"GET /carrel/v1/keys", "/carrel/v1/keys", "", 200},
	{"GET /carrel/v1/keys/{key}", "/carrel/v1/keys/k", "", 200},
	{"PATCH /carrel/v1/keys/{key}", "/carrel/v1/keys/k", `{"name":"l"}`, 200},
	{"DELETE /carrel/v1/keys/{key}", "/carrel/v1/keys/l", "", 204},
	{"GET /carrel/v1/quota", "/carrel/v1/quota", "", 200},
	{"PUT /carrel/v1/quota", "/carrel/v1/quota", `{"hard":{"sandboxes":1000},"soft":{"vcpus":900.5}}`, 200},
	{"GET /carrel/v1/quotas", "/carrel/v1/quotas", "", 200},
	{"PUT /carrel/v1/ceiling", "/carrel/v1/ceiling", `{"timeout":"720h","limits":{"cpus":64}}`, 200},
	{"GET /carrel/v1/ceilings", "/carrel/v1/ceilings", "", 200},
	{"PUT /carrel/v1/budgets/{name}", "/carrel/v1/budgets/all", `{"amount":1000000,"unit":"seconds"}`, 200},
	{"GET /carrel/v1/budgets", "/carrel/v1/budgets", "", 200},
	{"DELETE /carrel/v1/budgets/{name}", "/carrel/v1/budgets/all", "", 204},
	{"GET /carrel/v1/whoami", "/carrel/v1/whoami", "", 200},
	{"POST /carrel/v1/people", "/carrel/v1/people", `{"name":"zoe","email":"z@example.com"}`, 201},
	{"GET /carrel/v1/people", "/carrel/v1/people", "", 200},
	{"GET /carrel/v1/people/{person}", "/carrel/v1/people/zoe", "", 200},
	{"PATCH /carrel/v1/people/{person}", "/carrel/v1/people/zoe", `{"disabled":true}`, 200},
	{"PUT /carrel/v1/people/{person}/password", "/carrel/v1/people/zoe/password", `{"new":"a long password"}`, 200},
	{"POST /carrel/v1/organisations", "/carrel/v1/organisations", `{"name":"acme"}`, 201},
	{"GET /carrel/v1/organisations", "/carrel/v1/organisations", "", 200},
	{"PUT /carrel/v1/organisations/{name}", "/carrel/v1/organisations/acme", `{"projects":["a"]}`, 200},
	{"PUT /carrel/v1/members/{person}", "/carrel/v1/members/zoe", `{"organisation":"acme","role":"read"}`, 200},
	{"GET /carrel/v1/members", "/carrel/v1/members?project=a", "", 200},
	{"DELETE /carrel/v1/members/{person}", "/carrel/v1/members/zoe?organisation=acme", "", 204},
	{"DELETE /carrel/v1/organisations/{name}", "/carrel/v1/organisations/acme", "", 204},
	{"DELETE /carrel/v1/people/{person}", "/carrel/v1/people/zoe", "", 204},
	{"POST /secrets", "/secrets", `{"name":"mine","value":"v","metadata":{"hosts":"example.com"}}`, 201},
	{"GET /secrets", "/secrets", "", 200},
	{"GET /secrets/{secretID}", "/secrets/mine", "", 200},
	{"POST /secrets/{secretID}", "/secrets/mine", `{"value":"w"}`, 200},
	{"DELETE /secrets/{secretID}", "/secrets/mine", "", 204},

	{"GET /carrel/v1/version", "/carrel/v1/version", "", 200},
	{"GET /carrel/v1/doctor", "/carrel/v1/doctor", "", 200},
	{"GET /carrel/v1/pool", "/carrel/v1/pool", "", 200},
	{"GET /carrel/v1/admission", "/carrel/v1/admission", "", 200},
	{"GET /carrel/v1/metrics", "/carrel/v1/metrics", "", 200},
	{"GET /metrics", "/metrics", "", 200},
	{"GET /carrel/v1/unclaimed", "/carrel/v1/unclaimed", "", 200},
	{"GET /carrel/v1/debug/pprof/{profile}", "/carrel/v1/debug/pprof/heap", "", 200},
	{"POST /carrel/v1/sandboxes", "/carrel/v1/sandboxes", `{"tokens":{"cloud":{"audience":"x"}},"lifecycle":{"idle":{"after":"1h"},"checkpoints":{"before":["^rm"]}},` +
		`"network":{"policy":{"rules":[{"allow":["example.com"],"methods":["GET"]}]}}}`, 201},
	{"GET /carrel/v1/sandboxes", "/carrel/v1/sandboxes", "", 200},
	{"GET /carrel/v1/sandboxes/{id}", "/carrel/v1/sandboxes/{new}", "", 200},
	{"POST /carrel/v1/sandboxes/{id}/timeout", "/carrel/v1/sandboxes/{new}/timeout", `{"timeout":"1h"}`, 200},
	{"PUT /carrel/v1/sandboxes/{id}/network", "/carrel/v1/sandboxes/{box}/network", `{"internet":true,"rules":{"example.com":[{"transform":{"headers":{"a":"b"}}}]}}`, 200},
	{"GET /carrel/v1/sandboxes/{id}/metrics", "/carrel/v1/sandboxes/{box}/metrics", "", 200},
	{"GET /carrel/v1/sandboxes/{id}/logs", "/carrel/v1/sandboxes/{box}/logs", "", 200},
	{"GET /carrel/v1/sandboxes/{id}/trace", "/carrel/v1/sandboxes/{box}/trace", "", 200},
	{"GET /carrel/v1/sandboxes/{id}/processes", "/carrel/v1/sandboxes/{box}/processes", "", 200},
	{"GET /carrel/v1/trail", "/carrel/v1/trail?limit=5", "", 200},
	{"GET /carrel/v1/trail/verify", "/carrel/v1/trail/verify", "", 200},
	{"GET /carrel/v1/usage", "/carrel/v1/usage?by=project,day,label:of", "", 200},
	{"GET /carrel/v1/events", "/carrel/v1/events?after=1", "", 200},
	{"GET /carrel/v1/templates", "/carrel/v1/templates", "", 200},
	{"GET /carrel/v1/templates/{name}", "/carrel/v1/templates/{tplname}", "", 200},
	{"PATCH /carrel/v1/templates/{name}", "/carrel/v1/templates/{tplname}", `{"start":["sleep","1"]}`, 200},
	{"POST /carrel/v1/templates/import", "/carrel/v1/templates/import?name=other", "{archive}", 200},
	{"GET /carrel/v1/templates/{name}/packages", "/carrel/v1/templates/{tplname}/packages", "", 200},
	{"GET /carrel/v1/templates/{name}/diff", "/carrel/v1/templates/{tplname}/diff?to=other", "", 200},
	{"GET /carrel/v1/template-store/uses", "/carrel/v1/template-store/uses", "", 200},
	{"POST /carrel/v1/template-store/gc", "/carrel/v1/template-store/gc", `{"dryRun":true}`, 200},
	{"DELETE /carrel/v1/templates/{name}", "/carrel/v1/templates/other", "", 204},
	{"POST /carrel/v1/sandboxes/{id}/pause", "/carrel/v1/sandboxes/{new}/pause", "", 200},
	{"POST /carrel/v1/sandboxes/{id}/resume", "/carrel/v1/sandboxes/{new}/resume", "", 200},
	{"POST /carrel/v1/sandboxes/{id}/snapshots", "/carrel/v1/sandboxes/{new}/snapshots", `{"name":"later","label":"a label"}`, 201},
	{"POST /carrel/v1/sandboxes/{id}/fork", "/carrel/v1/sandboxes/{box}/fork", `{"count":2}`, 201},
	{"POST /carrel/v1/sandboxes/{id}/rollback", "/carrel/v1/sandboxes/{box}/rollback", `{"to":"{snap}"}`, 200},
	{"GET /carrel/v1/sandboxes/{id}/timeline", "/carrel/v1/sandboxes/{box}/timeline", "", 200},
	{"PATCH /carrel/v1/sandboxes/{id}/metadata", "/carrel/v1/sandboxes/{box}/metadata", `{"set":{"team":"b"},"remove":["old"]}`, 200},
	{"PUT /carrel/v1/sandboxes/{id}/lifecycle", "/carrel/v1/sandboxes/{box}/lifecycle", `{"onTimeout":"pause","retention":{"last":3,"for":"1h"}}`, 200},
	{"GET /carrel/v1/snapshots", "/carrel/v1/snapshots?auto=true", "", 200},
	{"GET /carrel/v1/snapshots/{name}", "/carrel/v1/snapshots/{snap}", "", 200},
	{"PATCH /carrel/v1/snapshots/{name}", "/carrel/v1/snapshots/{snap}", `{"label":"mine","kept":true}`, 200},
	{"GET /carrel/v1/snapshots/{name}/file", "/carrel/v1/snapshots/{snap}/file?path=/", "", 200},
	{"GET /carrel/v1/snapshots/{name}/diff", "/carrel/v1/snapshots/{snap}/diff?to=later", "", 200},
	{"DELETE /carrel/v1/snapshots/{name}", "/carrel/v1/snapshots/later", "", 204},
	{"GET /carrel/v1/snapshot-store", "/carrel/v1/snapshot-store", "", 200},
	{"POST /carrel/v1/snapshot-store/gc", "/carrel/v1/snapshot-store/gc", "", 200},
	{"POST /carrel/v1/sandboxes/{id}/programs", "/carrel/v1/sandboxes/{box}/programs", `{"programs":[{"name":"x","help":"y"}]}`, 200},
	{"POST /carrel/v1/secrets", "/carrel/v1/secrets", `{"name":"another","value":"v","hosts":["example.com"]}`, 201},
	{"GET /carrel/v1/secrets", "/carrel/v1/secrets", "", 200},
	{"GET /carrel/v1/secrets/{secret}", "/carrel/v1/secrets/another", "", 200},
	{"PUT /carrel/v1/secrets/{secret}", "/carrel/v1/secrets/another", `{"value":"w"}`, 200},
	{"DELETE /carrel/v1/secrets/{secret}", "/carrel/v1/secrets/another", "", 204},
	{"POST /carrel/v1/secret-store/rekey", "/carrel/v1/secret-store/rekey", "", 204},
	{"GET /carrel/v1/ssh-keys", "/carrel/v1/ssh-keys", "", 200},
	{"POST /carrel/v1/ssh-keys", "/carrel/v1/ssh-keys", `{"name":"second","publicKey":"{publickey}","sandboxes":["{box}"]}`, 201},
	{"DELETE /carrel/v1/ssh-keys/{name}", "/carrel/v1/ssh-keys/second", "", 204},
	{"DELETE /templates/{id}", "/templates/{tpl}", "", 204},
	{"DELETE /carrel/v1/sandboxes/{id}", "/carrel/v1/sandboxes/{new}", "", 204},
	{"DELETE /sandboxes/{id}", "/sandboxes/{box}", "", 204},
	{"GET /health", "/health", "", 204},
	{"GET /healthz", "/healthz", "", 204},
	{"GET /readyz", "/readyz", "", 204},
	{"POST /volumes", "/volumes", "", 501},
	{"POST /templates", "/templates", "", 501},
}

// unrecorded are routes that this test can't ask, and the reasons.
var unrecorded = map[string]string{
	"GET /carrel/v1/audit":                                          "the wire writes that log, and this daemon has none",
	"GET /carrel/v1/sandboxes/{id}/audit":                           "as before",
	"GET /carrel/v1/sandboxes/{id}/dial/{port}":                     "it answers with raw bytes",
	"GET /carrel/v1/sandboxes/{id}/programs/{session}/calls/{call}": "it answers with raw bytes",
	"POST /carrel/v1/sandboxes/{id}/promote":                        "there is no other tier here; it answers with a sandbox",
	"POST /carrel/v1/unclaimed/{id}/reclaim":                        "here is nothing without a record; it answers with nothing",
	"DELETE /carrel/v1/unclaimed/{id}":                              "as before",
	"POST /carrel/v1/movement/sandboxes/{id}/passport":              "this daemon shares no store; package test/move reads its answers",
	"POST /carrel/v1/movement/sandboxes":                            "as before",
	"DELETE /carrel/v1/movement/sandboxes/{id}":                     "as before; it answers with nothing",
	"POST /carrel/v1/movement/templates/{name}/passport":            "as before",
	"POST /carrel/v1/movement/templates":                            "as before",
	"GET /carrel/v1/sandboxes/{id}/processes/{process}/output":      "no process is kept here; package client reads its answer",
	"POST /carrel/v1/builds":                                        "nothing can be built here: there are no real sandboxes; package test/build builds",
	"GET /carrel/v1/builds/{id}":                                    "as before",
	"POST /carrel/v1/builds/{id}/cancel":                            "as before",
	"GET /carrel/v1/builds/{id}/logs":                               "as before",
	"POST /carrel/v1/template-tags":                                 "as before",
	"DELETE /carrel/v1/template-tags":                               "as before",
	"POST /v2/templates/{id}/builds/{build}":                        "as before; package test/sdk has E2B's clients",
	"GET /templates/{id}/builds/{build}/status":                     "as before",
	"GET /templates/{id}/builds/{build}/logs":                       "as before",
	"POST /templates/tags":                                          "as before",
	"DELETE /templates/tags":                                        "as before",
	"POST /carrel/v1/templates/pull":                                "there is no registry here; its lines are those of import",
	"POST /carrel/v1/templates/{name}/push":                         "as before",
	"POST " + identity.IntrospectPath:                               "it answers with what RFC 7662 says, which package identity tests",
	"POST " + signin.DeviceAuthPath:                                 "it answers with what RFC 8628 says, which TestDeviceFlow and others here test",
	"POST " + signin.TokenPath:                                      "as before",
	"POST " + signin.RevokePath:                                     "as before, of RFC 7009",
}

// TestDocumentIsTrue asks a real daemon for everything, and compares each answer with the document
// that the same daemon serves. The document must list the status, and its schema must fit and name
// every field.
func TestDocumentIsTrue(t *testing.T) {
	n := newNeighbours(t)
	names := n.real
	names["publickey"] = otherPublicKey(t)
	owner := stranger{key: n.Key(), project: "a"}
	_, raw := n.ask(owner, http.MethodGet, api.DocumentPath, "")
	truth := newDocument(t, raw)
	asked := map[string]bool{}
	for _, one := range recorded {
		method, path, _ := strings.Cut(one.pattern, " ")
		body := fill(one.body, names)
		if body == "{archive}" {
			b, err := io.ReadAll(rootfs(t))
			if err != nil {
				t.Fatal(err)
			}
			body = string(b)
		}
		who := owner
		if administrators(path) {
			who.project = ""
		}
		var status int
		var answer string
		if strings.HasSuffix(path, "/programs") {
			status, answer = n.first(owner, method, fill(one.path, names), body)
		} else {
			status, answer = n.ask(who, method, fill(one.path, names), body)
		}
		if status != one.status {
			t.Errorf("%s: %d, want %d: %.300s", one.pattern, status, one.status, answer)
			continue
		}
		asked[one.pattern] = true
		truth.check(path, method, status, answer)
		var made struct{ SandboxID, ID string }
		if method == http.MethodPost && strings.HasSuffix(path, "/sandboxes") && json.Unmarshal([]byte(answer), &made) == nil {
			names["new"] = made.SandboxID + made.ID
		}
	}
	for _, route := range truth.routes() {
		method, path, _ := strings.Cut(route, " ")
		later := truth.operation(path, method)["responses"].(map[string]any)["501"] != nil
		if !asked[route] && unrecorded[route] == "" && !later {
			t.Errorf("%s has no line in recorded", route)
		}
		if asked[route] && unrecorded[route] != "" {
			t.Errorf("%s is in recorded, so unrecorded need not excuse it", route)
		}
	}
	for _, path := range []string{identity.DiscoveryPath, identity.KeysPath, identity.BundlePath} {
		truth.operation(path, http.MethodGet)
	}
	truth.operation(identity.IntrospectPath, http.MethodPost)
}

// administrators reports whether a path is for administrators, who act for no project there.
func administrators(path string) bool {
	return path == "/metrics" || slices.ContainsFunc([]string{"/doctor", "/pool", "/admission", "/v1/metrics", "/pprof", "/snapshot-store", "/rekey", "/unclaimed", "/v1/projects",
		"/v1/people", "/v1/members", "/v1/organisations", "/v1/quota", "/v1/ceiling", "/v1/budgets", "/trail/verify", "/v1/nodes"},
		func(part string) bool { return strings.Contains(path, part) })
}

// otherPublicKey returns an SSH key that the daemon does not know.
func otherPublicKey(t *testing.T) string {
	t.Helper()
	key, err := sshdoor.NewHostKey()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey())))
}

// document is the daemon's document, made strict: an answer may have no field that the document
// does not name.
type document struct {
	t   *testing.T
	doc map[string]any
	raw []byte
}

func newDocument(t *testing.T, raw string) *document {
	t.Helper()
	d := &document{t: t}
	if err := json.Unmarshal([]byte(raw), &d.doc); err != nil {
		t.Fatalf("%v: %.200s", err, raw)
	}
	closeObjects(d.doc)
	var err error
	if d.raw, err = json.Marshal(d.doc); err != nil {
		t.Fatal(err)
	}
	return d
}

// closeObjects makes every schema below v refuse fields that it does not name.
func closeObjects(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["properties"].(map[string]any); ok && v["type"] == "object" && v["additionalProperties"] == nil {
			v["additionalProperties"] = false
		}
		for _, one := range v {
			closeObjects(one)
		}
	case []any:
		for _, one := range v {
			closeObjects(one)
		}
	}
}

// routes lists every method of every path.
func (d *document) routes() []string {
	var all []string
	for path, item := range d.doc["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			all = append(all, strings.ToUpper(method)+" "+path)
		}
	}
	return all
}

// operation returns the document's description of a route.
func (d *document) operation(path, method string) map[string]any {
	d.t.Helper()
	item, _ := d.doc["paths"].(map[string]any)[path].(map[string]any)
	op, _ := item[strings.ToLower(method)].(map[string]any)
	if op == nil {
		d.t.Fatalf("%s %s is not described", method, path)
	}
	return op
}

// check compares an answer with the document.
func (d *document) check(path, method string, status int, answer string) {
	d.t.Helper()
	where := []string{"paths", path, strings.ToLower(method), "responses", fmt.Sprint(status)}
	responses := d.operation(path, method)["responses"].(map[string]any)
	if responses[fmt.Sprint(status)] == nil {
		if status < 400 || responses["default"] == nil {
			d.t.Errorf("%s %s: %d is not described", method, path, status)
			return
		}
		where[4] = "default"
	}
	content, _ := responses[where[4]].(map[string]any)["content"].(map[string]any)
	if content == nil {
		if answer != "" {
			d.t.Errorf("%s %s: the document says nothing of an answer: %.100s", method, path, answer)
		}
		return
	}
	for media := range content {
		switch media {
		case "application/json":
			d.value(append(where, "content", media, "schema"), answer)
		case openapi.Lines:
			lines := bufio.NewScanner(strings.NewReader(answer))
			lines.Buffer(nil, 1<<20)
			n := 0
			for lines.Scan() {
				if line := lines.Text(); strings.HasSuffix(line, "}") { // the last may be cut off
					d.value(append(where, "content", media, "schema"), line)
					n++
				}
			}
			if n == 0 {
				d.t.Errorf("%s %s: no line in %q", method, path, answer)
			}
		}
	}
}

// value compares one JSON value with the schema at a place of the document.
func (d *document) value(where []string, text string) {
	d.t.Helper()
	pointer := "doc.json#"
	for _, part := range where {
		pointer += "/" + url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(part))
	}
	c := jsonschema.NewCompiler()
	c.Draft = jsonschema.Draft2020
	c.AssertFormat = true
	if err := c.AddResource("doc.json", bytes.NewReader(d.raw)); err != nil {
		d.t.Fatal(err)
	}
	schema, err := c.Compile(pointer)
	if err != nil {
		d.t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		d.t.Errorf("%s: %v: %.200s", where[1:3], err, text)
		return
	}
	if err := schema.Validate(v); err != nil {
		d.t.Errorf("%s: %#v\n%.600s", where[1:3], err, text)
	}
}

// first sends a request and reads the first line of an endless answer.
func (n *neighbours) first(s stranger, method, path, body string) (int, string) {
	n.t.Helper()
	req, err := http.NewRequestWithContext(n.t.Context(), method, n.URL()+path, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	req.Header.Set("X-API-KEY", s.key)
	req.Header.Set("Carrel-Tenant", s.project)
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	line, _ := bufio.NewReader(resp.Body).ReadString('\n')
	return resp.StatusCode, line
}
