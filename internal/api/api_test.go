package api

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	detail = `{"sandboxID":"` + boxID + `","templateID":"tpl1","alias":"base","clientID":"carrel",` +
		`"startedAt":"2026-01-02T03:04:05.006Z","endAt":"2026-01-02T03:09:05Z","state":"running",` +
		`"cpuCount":2,"memoryMB":512,"diskSizeMB":1024,"envdVersion":"0.6.13","metadata":{"a":"b"},"volumeMounts":[],` +
		`"envdAccessToken":"tok","domain":null,"allowInternetAccess":true,` +
		`"network":{"allowPublicTraffic":true},"lifecycle":{"autoResume":false,"onTimeout":"kill"}}`
	listed  = `{"sandboxID":"` + boxID + `","templateID":"tpl1","alias":"base","clientID":"carrel","startedAt":"2026-01-02T03:04:05.006Z","endAt":"2026-01-02T03:09:05Z","state":"running","cpuCount":2,"memoryMB":512,"diskSizeMB":1024,"envdVersion":"0.6.13","metadata":{"a":"b"},"volumeMounts":[]}`
	created = `{"sandboxID":"` + boxID + `","templateID":"tpl1","alias":"base","clientID":"carrel","envdVersion":"0.6.13","envdAccessToken":"tok","trafficAccessToken":null,"domain":null}`
	gone    = `{"code":404,"message":"Sandbox \"` + otherID + `\" doesn't exist or you don't have access to it","kind":"not found","id":"` + otherID + `"}`
)

// TestEndpoints checks each endpoint's exact answer.
func TestEndpoints(t *testing.T) {
	srv := start(t, newFake())
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/v2/sandboxes", `{"templateID":"base"}`, 201, created},
		{"POST", "/sandboxes", `{"templateID":"base:default","timeout":5,"autoPause":false,"mcp":{"duckduckgo":{}},"volumeMounts":[],"unknown":{"x":1}}`, 201, created},
		{"POST", "/sandboxes", `{"templateID":"base","secure":false}`, 201, strings.Replace(created, `"envdAccessToken":"tok",`, "", 1)},
		{"POST", "/v2/sandboxes", `{"templateID":"base","secure":false}`, 201, created},
		{"POST", "/v2/sandboxes", `{"templateID":"base","network":{"allowPublicTraffic":false}}`, 201, strings.Replace(created, `"trafficAccessToken":null`, `"trafficAccessToken":"traffic"`, 1)},
		{"GET", "/sandboxes/" + boxID, "", 200, detail},
		{"GET", "/sandboxes/" + boxID + "-client", "", 200, detail},
		{"GET", "/sandboxes/" + otherID, "", 404, gone},
		{"DELETE", "/sandboxes/" + boxID, "", 204, ""},
		{"DELETE", "/sandboxes/" + otherID, "", 404, gone},
		{"DELETE", "/sandboxes/nope", "", 404, `{"code":404,"message":"Sandbox \"nope\" doesn't exist or you don't have access to it","kind":"not found","id":"nope"}`},
		{"POST", "/sandboxes/" + boxID + "/timeout", `{"timeout":10}`, 204, ""},
		{"POST", "/sandboxes/" + boxID + "/timeout", `{"timeout":0}`, 204, ""},
		{"POST", "/sandboxes/" + otherID + "/timeout", `{"timeout":10}`, 404, gone},
		{"POST", "/sandboxes/" + boxID + "/refreshes", `{"duration":10}`, 204, ""},
		{"POST", "/sandboxes/" + boxID + "/refreshes", ``, 204, ""},
		{"POST", "/v2/sandboxes/" + boxID + "/connect", ``, 200, created},
		{"POST", "/v2/sandboxes/" + boxID + "/connect", `{"timeout":60,"memory":false}`, 200, created},
		{"POST", "/sandboxes/" + boxID + "/connect", `{"timeout":60}`, 200, created},
		{"POST", "/sandboxes/" + otherID + "/connect", `{"timeout":60}`, 404, gone},
		{"GET", "/sandboxes/" + boxID + "/metrics", "", 200, `[]`},
		{"GET", "/sandboxes/" + otherID + "/metrics", "", 404, gone},
		{"GET", "/sandboxes/metrics?sandbox_ids=" + boxID + "," + otherID + ",nope", "", 200, `{"sandboxes":{}}`},
		{"GET", "/sandboxes/" + boxID + "/logs", "", 200, `{"logs":[],"logEntries":[]}`},
		{"GET", "/v2/sandboxes/" + boxID + "/logs", "", 200, `{"logs":[]}`},
		{"PUT", "/sandboxes/" + boxID + "/network", `{"denyOut":["8.8.8.8"]}`, 204, ""},
		{"PUT", "/sandboxes/" + otherID + "/network", `{}`, 404, gone},
		{"GET", "/templates/aliases/base", "", 200, `{"templateID":"tpl1","public":false}`},
		{"GET", "/templates/aliases/team%2Fnope", "", 404, `{"code":404,"message":"template 'team/nope' not found","kind":"not found","field":"templateID","hint":"list them with: carrel template ls"}`},
		{"GET", "/snapshots", "", 200, `[{"snapshotID":"team/warm:default","names":["team/warm:default"]}]`},
		{"POST", "/sandboxes/" + boxID + "/pause", ``, 204, ""},
		{"POST", "/sandboxes/" + boxID + "/pause", `{"memory":false}`, 204, ""},
		{"POST", "/sandboxes/" + otherID + "/pause", `{}`, 404, gone},
		{"POST", "/sandboxes/" + boxID + "/snapshots", `{}`, 201, `{"snapshotID":"` + momentID + `","names":[]}`},
		{"POST", "/sandboxes/" + boxID + "/snapshots", ``, 201, `{"snapshotID":"` + momentID + `","names":[]}`},
		{"POST", "/sandboxes/" + boxID + "/snapshots", `{"name":"a/b:v1"}`, 201, `{"snapshotID":"a/b:v1","names":["a/b:v1"]}`},
		{"POST", "/sandboxes/" + boxID + "/snapshots", `{"name":"a"}`, 201, `{"snapshotID":"a:default","names":["a:default"]}`},
		{"POST", "/sandboxes/" + otherID + "/snapshots", `{}`, 404, gone},
		{"POST", "/sandboxes/" + boxID + "/fork", ``, 201, `[{"sandbox":` + created + `}]`},
		{"POST", "/sandboxes/" + boxID + "/fork", `{"count":2,"timeout":9}`, 201, `[{"sandbox":` + created + `},{"sandbox":` + created + `}]`},
		{"POST", "/sandboxes/" + otherID + "/fork", ``, 404, gone},
		{"POST", "/sandboxes/" + otherID + "/resume", ``, 404, gone},
		{"DELETE", "/templates/" + momentID, "", 204, ""},
		{"DELETE", "/templates/" + momentID + ":default", "", 204, ""},
		{"DELETE", "/templates/team%2Fwarm%3Adefault", "", 204, ""},
		{"DELETE", "/templates/" + laterID, "", 404, `{"code":404,"message":"template '` + laterID + `' not found","kind":"not found","field":"templateID","hint":"list them with: carrel template ls"}`},
		{"POST", "/sandboxes/" + boxID + "/resume", `{}`, 409, `{"code":409,"message":"Sandbox \"` + boxID + `\" is already running","kind":"conflict"}`},
		{"GET", "/nowhere", "", 404, `{"code":404,"message":"no such endpoint: GET /nowhere","kind":"not found"}`},
		{"PATCH", "/sandboxes", "", 405, `{"code":405,"message":"method PATCH is not allowed for /sandboxes (allowed: GET, HEAD, POST)","kind":"invalid"}`},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			resp, body := call(t, srv, c.method, c.path, c.body)
			if resp.StatusCode != c.status || body != c.want {
				t.Errorf("%s\ngot  %d %s\nwant %d %s", c.body, resp.StatusCode, body, c.status, c.want)
			}
			if body != "" && !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
				t.Errorf("content type %q", resp.Header.Get("Content-Type"))
			}
		})
	}
}

// TestBadInput sends requests with one error each. The answer must name its field.
func TestBadInput(t *testing.T) {
	srv := start(t, newFake())
	deep := strings.Repeat("[", 65) + strings.Repeat("]", 65)
	create := func(field, value string) string { return `{"templateID":"base","` + field + `":` + value + `}` }
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		field, text              string
	}{
		{"empty body", "POST", "/v2/sandboxes", ``, 400, "", "Error when parsing request: the body is empty, a JSON object is needed"},
		{"not JSON", "POST", "/v2/sandboxes", `{"templateID"`, 400, "", "Error when parsing request: not JSON: unexpected end of JSON input (at byte 13)"},
		{"two documents", "POST", "/v2/sandboxes", `{"templateID":"base"} {}`, 400, "", "not JSON"},
		{"a list", "POST", "/v2/sandboxes", `[]`, 400, "body", "body: array given, an object needed"},
		{"too deep", "POST", "/v2/sandboxes", create("x", deep), 400, "", "nested deeper than 64 levels"},
		{"too big", "POST", "/v2/sandboxes", create("x", `"`+strings.Repeat("y", maxBody)+`"`), 413, "", "request body is larger than 1048576 bytes"},
		{"no template", "POST", "/v2/sandboxes", `{}`, 400, "templateID", "templateID: missing"},
		{"null template", "POST", "/v2/sandboxes", `{"templateID":null}`, 400, "templateID", "templateID: missing"},
		{"template of a wrong type", "POST", "/v2/sandboxes", `{"templateID":7}`, 400, "templateID", "Error when parsing request: templateID: number given, a text needed"},
		{"unknown template", "POST", "/v2/sandboxes", `{"templateID":"nope"}`, 404, "templateID", "template 'nope' not found"},
		{"unknown tag", "POST", "/v2/sandboxes", `{"templateID":"base:v9"}`, 404, "templateID", "template 'base:v9' not found"},
		{"NUL in template", "POST", "/v2/sandboxes", `{"templateID":"a\u0000b"}`, 400, "templateID", "Invalid template reference"},
		{"huge template", "POST", "/v2/sandboxes", `{"templateID":"` + strings.Repeat("x", 300) + `"}`, 400, "templateID", "longer than 256"},
		{"timeout text", "POST", "/v2/sandboxes", create("timeout", `"5"`), 400, "timeout", "Error when parsing request: timeout: string given, a whole number in range needed"},
		{"timeout part", "POST", "/v2/sandboxes", create("timeout", `1.5`), 400, "timeout", "number 1.5 given"},
		{"timeout negative", "POST", "/v2/sandboxes", create("timeout", `-1`), 400, "timeout", "timeout: -1 is negative"},
		{"timeout zero", "POST", "/v2/sandboxes", create("timeout", `0`), 400, "timeout", "timeout: 0 would end the sandbox at once"},
		{"timeout overflow", "POST", "/v2/sandboxes", create("timeout", `99999999999999999999`), 400, "timeout", "number 99999999999999999999 given"},
		{"timeout long", "POST", "/v2/sandboxes", create("timeout", `2147483647`), 400, "timeout", "Timeout cannot be greater than 720 hours"},
		{"metadata number", "POST", "/v2/sandboxes", create("metadata", `{"a":1}`), 400, "metadata", "number given, a text needed"},
		{"metadata list", "POST", "/v2/sandboxes", create("metadata", `[]`), 400, "metadata", "array given, an object needed"},
		{"env name", "POST", "/v2/sandboxes", create("envVars", `{"a=b":"c"}`), 400, "envVars", `envVars: the name "a=b" contains '=' or a NUL character`},
		{"env without name", "POST", "/v2/sandboxes", create("envVars", `{"":"c"}`), 400, "envVars", "envVars: a variable has no name"},
		{"env NUL", "POST", "/v2/sandboxes", create("envVars", `{"a":"\u0000"}`), 400, "envVars", `envVars: the value of "a" contains a NUL character`},
		{"denied name", "POST", "/v2/sandboxes", create("network", `{"denyOut":["example.com"]}`), 400, "network.denyOut", "invalid denied CIDR example.com"},
		{"allowed nonsense", "POST", "/v2/sandboxes", create("network", `{"allowOut":["300.1.1.1"],"denyOut":["0.0.0.0/0"]}`), 400, "network.allowOut", "invalid allowed address 300.1.1.1"},
		{"names without block", "POST", "/v2/sandboxes", create("network", `{"allowOut":["*.example.com"]}`), 400, "network.denyOut",
			"When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to block all other traffic."},
		{"private but open", "POST", "/sandboxes", `{"templateID":"base","secure":false,"network":{"allowPublicTraffic":false}}`, 400, "network.allowPublicTraffic",
			"You cannot create a sandbox without public access unless you enable secure envd access via 'secure' flag."},
		{"network type", "POST", "/v2/sandboxes", create("network", `{"allowOut":"x"}`), 400, "network.allowOut", "string given, a list needed"},
		{"mcp", "POST", "/v2/sandboxes", create("mcp", `["x"]`), 400, "mcp", "an object needed"},
		{"volumes", "POST", "/v2/sandboxes", create("volumeMounts", `[{"name":"a","path":"/b"}]`), 501, "volumeMounts", "not supported yet"},
		{"iam", "POST", "/v2/sandboxes", create("iam", `{"tokens":{"a":{"audience":"x"}}}`), 400, "iam.tokens.a.tokenType", `"" is no type of token`},
		{"rules", "POST", "/v2/sandboxes", create("network", `{"rules":{"example.com":[1]}}`), 400, "network.rules", "number given"},
		{"mask with a path", "POST", "/v2/sandboxes", create("network", `{"maskRequestHost":"x.example.com/x"}`), 400, "network.maskRequestHost", "mask request host is not valid: x.example.com/x"},
		{"https port", "POST", "/v2/sandboxes", create("network", `{"httpsPorts":[8443,65536]}`), 400, "network.httpsPorts", "65536 can't be a port that speaks TLS"},
		{"mask not ASCII", "POST", "/v2/sandboxes", create("network", `{"maskRequestHost":"bücher.example.com"}`), 400, "network.maskRequestHost", "mask request host 'bücher.example.com' is not ASCII. Please use ASCII characters only."},
		{"empty mask", "POST", "/v2/sandboxes", create("network", `{"maskRequestHost":""}`), 400, "network.maskRequestHost", "mask request host is not valid"},
		{"https port of the guest", "POST", "/v2/sandboxes", create("network", `{"httpsPorts":[49983]}`), 400, "network.httpsPorts", "49983 can't be a port that speaks TLS"},
		{"https port below", "POST", "/v2/sandboxes", create("network", `{"httpsPorts":[-1]}`), 400, "network.httpsPorts", "-1 can't be a port that speaks TLS"},
		{"injected host", "POST", "/v2/sandboxes", create("network", `{"rules":{"a.example":[{"transform":{"headers":{"Host":"b"}}}]}}`), 400, "network.rules.a.example.Host", "can't be set"},
		{"proxy", "POST", "/v2/sandboxes", create("network", `{"egressProxy":{"address":"x"}}`), 400, "network.egressProxy.address", "host:port"},
		{"update: denied name", "PUT", "/sandboxes/" + boxID + "/network", `{"denyOut":["8.8.8.8","example.com"]}`, 400, "network.denyOut", "invalid denied CIDR example.com"},
		{"ours: denied name", "POST", "/carrel/v1/sandboxes", `{"network":{"denyOut":["example.com"]}}`, 400, "denyOut[0]", "invalid denied CIDR example.com"},
		{"timeout missing", "POST", "/sandboxes/" + boxID + "/timeout", `{}`, 400, "timeout", "timeout: missing"},
		{"timeout below", "POST", "/sandboxes/" + boxID + "/timeout", `{"timeout":-5}`, 400, "timeout", "timeout: -5 is negative"},
		{"connect v1 without", "POST", "/sandboxes/" + boxID + "/connect", `{}`, 400, "timeout", "timeout: missing"},
		{"refresh long", "POST", "/sandboxes/" + boxID + "/refreshes", `{"duration":3601}`, 400, "duration", "more than 3600"},
		{"limit", "GET", "/v2/sandboxes?limit=101", "", 400, "limit", "limit: \"101\" is not a whole number from 1 to 100"},
		{"limit zero", "GET", "/v2/sandboxes?limit=0", "", 400, "limit", ""},
		{"state", "GET", "/v2/sandboxes?state=running,dead", "", 400, "state", `state: "dead" is neither running nor paused`},
		{"order", "GET", "/v2/sandboxes?order=up", "", 400, "order", ""},
		{"startedAfter", "GET", "/v2/sandboxes?startedAfter=yesterday", "", 400, "startedAfter", ""},
		{"metadata filter", "GET", "/v2/sandboxes?metadata=a", "", 400, "metadata", `metadata: "a" is not one key=value pair`},
		{"metrics start", "GET", "/sandboxes/" + boxID + "/metrics?start=x", "", 400, "start", ""},
		{"metrics order", "GET", "/sandboxes/" + boxID + "/metrics?start=9&end=5", "", 400, "start", "start time cannot be after end time"},
		{"metrics of none", "GET", "/sandboxes/metrics", "", 400, "sandbox_ids", ""},
		{"log level", "GET", "/v2/sandboxes/" + boxID + "/logs?level=loud", "", 400, "level", ""},
		{"build", "POST", "/v3/templates", `{"name":"x"}`, 501, "",
			"building templates is not supported yet"},
		{"old build", "POST", "/templates", `{}`, 501, "",
			"building templates by E2B's first API is not supported yet"},
		{"build status", "GET", "/templates/a/builds/b/status", ``, 501, "", ""},
		{"volumes list", "GET", "/volumes", ``, 501, "", "volumes is not supported yet"},
		{"ours: timeout", "POST", "/carrel/v1/sandboxes", `{"timeout":"soon"}`, 400, "timeout", `timeout: "soon" is not a duration such as 90s or 2h`},
		{"ours: negative", "POST", "/carrel/v1/sandboxes", `{"timeout":-1}`, 400, "timeout", "timeout: -1ns is negative"},
		{"ours: limits type", "POST", "/carrel/v1/sandboxes", `{"limits":{"memoryMB":"1"}}`, 400, "limits.memoryMB", ""},
		{"ours: import name", "POST", "/carrel/v1/templates/import", `x`, 400, "name", "name: missing"},
		{"ours: pull image", "POST", "/carrel/v1/templates/pull", `{"image":"a"}`, 400, "name",
			"name: missing"},
		{"ours: dial port", "GET", "/carrel/v1/sandboxes/" + boxID + "/dial/0", "", 400, "port", ""},
		{"ours: dial plain", "GET", "/carrel/v1/sandboxes/" + boxID + "/dial/80", "", 426, "", ""},
		{"ours: events", "GET", "/carrel/v1/events?after=x", "", 400, "after", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, body := call(t, srv, c.method, c.path, c.body)
			var e errorBody
			if err := json.Unmarshal([]byte(body), &e); err != nil {
				t.Fatalf("%v: %s", err, body)
			}
			if resp.StatusCode != c.status || e.Code != c.status || !strings.Contains(e.Message, c.text) || (c.field != "" && e.Field != c.field) {
				t.Errorf("got %d %s, want %d, field %q, %q", resp.StatusCode, body, c.status, c.field, c.text)
			}
		})
	}
}

// TestErrorKinds checks, from outside, the table from kinds to statuses.
func TestErrorKinds(t *testing.T) {
	for kind, status := range map[carrel.Kind]int{
		carrel.Invalid: 400, carrel.Unauthenticated: 401, carrel.Forbidden: 403, carrel.Denied: 403, carrel.AlreadyExists: 409,
		carrel.Conflict: 409, carrel.Exhausted: 429, carrel.Unavailable: 503, carrel.Unsupported: 501, carrel.TimedOut: 504, carrel.Internal: 500, "new": 500,
	} {
		f := newFake()
		f.kill = func(id carrel.ID) error {
			return &carrel.Error{Op: "kill sandbox", Kind: kind, ID: id, Err: errors.New("/secret/path broke"), Hint: "try this"}
		}
		resp, body := call(t, start(t, f), "DELETE", "/sandboxes/"+boxID, "")
		var e errorBody
		if err := json.Unmarshal([]byte(body), &e); err != nil || resp.StatusCode != status || e.Code != status || e.Hint != "try this" {
			t.Errorf("%s: %d %s", kind, resp.StatusCode, body)
		}
		if (status == 429 || status == 503) != (resp.Header.Get("Retry-After") == "1") {
			t.Errorf("%s: Retry-After %q", kind, resp.Header.Get("Retry-After"))
		}
		if strings.Contains(body, "secret") != (status != 500) {
			t.Errorf("%s: the cause of a fault of ours is not for clients: %s", kind, body)
		}
	}
}

func TestAuth(t *testing.T) {
	ready := false
	srv := start(t, newFake(), func(o *Options) { o.Ready = func() bool { return ready } })
	get := func(path string, headers ...string) (int, string) {
		req, _ := http.NewRequest("GET", srv.URL+path, nil)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(raw)
	}
	if s, _ := get("/health"); s != 503 {
		t.Errorf("health while starting: %d", s)
	}
	ready = true
	if s, _ := get("/health"); s != 204 {
		t.Errorf("health: %d", s)
	}
	for _, c := range []struct {
		headers []string
		status  int
		text    string
	}{
		{nil, 401, `"code":401,"message":"authorization header is missing"`},
		{[]string{"X-API-KEY", "e2b_wrong"}, 401, `"code":401,"message":"Cannot get the team for the given API key"`},
		{[]string{"X-API-KEY", testKey + "x"}, 401, "Cannot get the team"},
		{[]string{"Authorization", "Basic " + testKey}, 401, "missing"},
		{[]string{"X-API-KEY", testKey}, 200, `"isDefault":true`},
		{[]string{"Authorization", "Bearer " + testKey}, 200, `"teamID"`},
	} {
		if s, body := get("/teams", c.headers...); s != c.status || !strings.Contains(body, c.text) {
			t.Errorf("%v: %d %s", c.headers, s, body)
		}
	}
	if s, _ := get("/nowhere"); s != 401 {
		t.Errorf("a path that is not there, without a key: %d", s)
	}
}

func TestCreateOptions(t *testing.T) {
	var got carrel.CreateOptions
	f := newFake()
	f.create = func(o carrel.CreateOptions) (carrel.Sandbox, error) { got = o; return box, nil }
	srv := start(t, f)
	for _, c := range []struct {
		path, body string
		check      func(carrel.CreateOptions) bool
	}{
		{"/sandboxes", `{}`, func(o carrel.CreateOptions) bool {
			return o.Timeout == 15*time.Second && o.Network.Internet && !o.Insecure && o.Template == "base"
		}},
		{"/v2/sandboxes", `{}`, func(o carrel.CreateOptions) bool { return o.Timeout == 300*time.Second && !o.Insecure }},
		{"/v2/sandboxes", `{"allow_internet_access":false}`, func(o carrel.CreateOptions) bool { return !o.Network.Internet }},
		{"/v2/sandboxes", `{"network":{"denyOut":["0.0.0.0/0"],"allowOut":["1.1.1.1","*.example.com"]}}`, func(o carrel.CreateOptions) bool {
			return !o.Network.Internet && slices.Equal(o.Network.AllowOut, []string{"1.1.1.1", "*.example.com"})
		}},
		{"/v2/sandboxes", `{"iam":{"tokens":{"aws":{"audience":"sts.example.com","tokenType":"JWT-SVID"}}},"network":{"rules":{"api.example.com":[{"transform":{"headers":{"X-Key":"k"}}}]},"egressProxy":{"address":"proxy.example.com:1080","username":"u","password":"p"}}}`, func(o carrel.CreateOptions) bool {
			return o.Tokens["aws"].Audience == "sts.example.com" && o.Network.Rules["api.example.com"][0].Transform.Headers["X-Key"] == "k" && o.Network.EgressProxy.Password == "p"
		}},
		{"/v2/sandboxes", `{"network":{"denyOut":["8.8.8.8"]}}`, func(o carrel.CreateOptions) bool {
			return o.Network.Internet && slices.Equal(o.Network.DenyOut, []string{"8.8.8.8"})
		}},
		{"/v2/sandboxes", `{"network":{"maskRequestHost":"x.example.com:${PORT}","httpsPorts":[8443,8443]}}`, func(o carrel.CreateOptions) bool {
			return o.Network.MaskHost == "x.example.com:${PORT}" && slices.Equal(o.Network.HTTPSPorts, []uint16{8443})
		}},
		{"/v2/sandboxes", `{"timeout":7,"envVars":{"A":"1"},"metadata":{"k":"v"},"network":{"allowPublicTraffic":false}}`, func(o carrel.CreateOptions) bool {
			return o.Timeout == 7*time.Second && maps.Equal(o.Env, map[string]string{"A": "1"}) && o.Metadata["k"] == "v" && o.Network.PrivateTraffic
		}},
	} {
		body := strings.Replace(c.body, "{", `{"templateID":"base",`, 1)
		if c.body == "{}" {
			body = `{"templateID":"base"}`
		}
		if resp, out := call(t, srv, "POST", c.path, body); resp.StatusCode != 201 || !c.check(got) {
			t.Errorf("%s %s: %d %s\n%+v", c.path, c.body, resp.StatusCode, out, got)
		}
	}
	ours := `{"template":"x","tier":"gvisor","timeout":"90s","limits":{"cpus":0.5,"memoryMB":256},"network":{"internet":true},"insecure":true,"env":{"A":"b"}}`
	if resp, out := call(t, srv, "POST", "/carrel/v1/sandboxes", ours); resp.StatusCode != 201 || got.Timeout != 90*time.Second ||
		got.Tier != carrel.GVisor || got.Limits.CPUs != .5 || !got.Insecure || !got.Network.Internet || got.Template != "x" {
		t.Errorf("ours: %d %s %+v", resp.StatusCode, out, got)
	}
	raw, _ := json.Marshal(carrel.CreateOptions{Timeout: time.Minute})
	if resp, _ := call(t, srv, "POST", "/carrel/v1/sandboxes", string(raw)); resp.StatusCode != 201 || got.Timeout != time.Minute {
		t.Errorf("Go's own form of a duration: %d %+v", resp.StatusCode, got)
	}
}

func TestList(t *testing.T) {
	var got carrel.ListOptions
	f := newFake()
	f.list = func(o carrel.ListOptions) (carrel.Page, error) {
		got = o
		p := carrel.Page{Sandboxes: []carrel.Sandbox{box}, Running: 7}
		if o.Cursor == "" {
			p.Next = "more"
		}
		return p, nil
	}
	srv := start(t, f)
	resp, body := call(t, srv, "GET", "/v2/sandboxes?state=running%2Cpaused&state=running&limit=2&order=asc&template=base&startedAfter=2026-01-02T03:04:05Z&metadata="+
		url.QueryEscape("k%252520=%2525C3%2525A9"), "")
	if resp.StatusCode != 200 || body != "["+listed+"]" || resp.Header.Get("X-Next-Token") != "more" || resp.Header.Get("X-Total-Running") != "7" {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
	if len(got.States) != 5 || got.Limit != 2 || !got.OldestFirst || got.Template != "base" || got.StartedAfter.Year() != 2026 || len(got.Metadata) != 1 {
		t.Errorf("%+v", got)
	}
	resp, _ = call(t, srv, "GET", "/v2/sandboxes?nextToken=more", "")
	if resp.Header.Get("X-Next-Token") != "" || got.Cursor != "more" || got.Limit != 100 || !slices.Equal(got.States, []carrel.State{carrel.Running, carrel.Pausing, carrel.Paused, carrel.Resuming}) {
		t.Errorf("%+v", got)
	}
	if _, body := call(t, srv, "GET", "/sandboxes", ""); body != "["+listed+","+listed+"]" {
		t.Errorf("v1 does not read all pages: %s", body)
	}
}

// TestMetadataFilter encodes the filter as the SDK does, which is three times over.
func TestMetadataFilter(t *testing.T) {
	for _, want := range []map[string]string{
		{"k 1": "v=&%", "ü": "%20+"}, {"a": ""}, {"": "x"}, {"plain": "text"},
	} {
		pairs := url.Values{}
		for k, v := range want {
			pairs.Set(encodeURIComponent(k), encodeURIComponent(v))
		}
		onTheWire := "metadata=" + encodeURIComponent(pairs.Encode())
		q, err := url.ParseQuery(onTheWire)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseMetadataFilter(q.Get("metadata"))
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %v %v", onTheWire, got, err)
		}
	}
	if got, err := ParseMetadataFilter("user=abc&app=prod"); err != nil || got["user"] != "abc" || got["app"] != "prod" {
		t.Errorf("by hand: %v %v", got, err)
	}
}

// encodeURIComponent is JavaScript's function of that name.
func encodeURIComponent(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

func TestTemplates(t *testing.T) {
	f := newFake()
	f.deleted = func(id string) error {
		return &carrel.Error{Op: "delete template", Kind: carrel.Forbidden, Err: errors.New("base is built in")}
	}
	srv := start(t, f)
	for _, path := range []string{"/templates", "/v2/templates?limit=5", "/templates/base", "/templates/tpl1"} {
		resp, body := call(t, srv, "GET", path, "")
		if resp.StatusCode != 200 || !strings.Contains(body, `"templateID":"tpl1"`) || !strings.Contains(body, `"names":["base"]`) ||
			!strings.Contains(body, `"buildStatus":"ready"`) || !strings.Contains(body, `"memoryMB":1024`) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	if resp, body := call(t, srv, "DELETE", "/templates/base", ""); resp.StatusCode != 403 || !strings.Contains(body, "base is built in") {
		t.Errorf("built in: %d %s", resp.StatusCode, body)
	}
	f.deleted = func(id string) error { return nil }
	if resp, _ := call(t, srv, "DELETE", "/templates/base", ""); resp.StatusCode != 204 {
		t.Errorf("delete: %d", resp.StatusCode)
	}
	if resp, _ := call(t, srv, "DELETE", "/templates/nope", ""); resp.StatusCode != 404 {
		t.Errorf("delete nothing: %d", resp.StatusCode)
	}
}

func TestObserve(t *testing.T) {
	f := newFake()
	at := time.Unix(1700000000, 0)
	f.metrics = func(id carrel.ID, from, to time.Time) ([]carrel.Metric, error) {
		if !from.Equal(time.Unix(5, 0)) && !from.IsZero() {
			t.Errorf("from %v", from)
		}
		return []carrel.Metric{{Time: at, CPUCount: .5, CPUUsedPct: 12.5, MemUsed: 1, MemTotal: 2, MemCache: 3, DiskUsed: 4, DiskTotal: 5}}, nil
	}
	f.logs = func(id carrel.ID, o carrel.LogOptions) ([]carrel.LogEntry, error) {
		es := []carrel.LogEntry{{Time: at, Level: "info", Message: "made"}, {Time: at.Add(time.Second), Level: "error", Message: "broke"}}
		if o.NewestFirst {
			slices.Reverse(es)
		}
		return slices.DeleteFunc(es, func(e carrel.LogEntry) bool { return !o.Until.IsZero() && e.Time.After(o.Until) }), nil
	}
	srv := start(t, f)
	const sample = `{"timestamp":"2023-11-14T22:13:20Z","timestampUnix":1700000000,"cpuCount":1,"cpuUsedPct":12.5,"memUsed":1,"memTotal":2,"memCache":3,"diskUsed":4,"diskTotal":5}`
	if _, body := call(t, srv, "GET", "/sandboxes/"+boxID+"/metrics?start=5", ""); body != "["+sample+"]" {
		t.Error(body)
	}
	if _, body := call(t, srv, "GET", "/sandboxes/metrics?sandbox_ids="+boxID, ""); body != `{"sandboxes":{"`+boxID+`":`+sample+`}}` {
		t.Error(body)
	}
	const made, broke = `{"timestamp":"2023-11-14T22:13:20Z","level":"info","message":"made","fields":{}}`, `{"timestamp":"2023-11-14T22:13:21Z","level":"error","message":"broke","fields":{}}`
	for query, want := range map[string]string{
		"": made + "," + broke, "?direction=backward": broke + "," + made, "?level=warn": broke, "?search=mad": made,
		"?limit=1": made, "?direction=backward&cursor=1700000000000": made,
	} {
		if _, body := call(t, srv, "GET", "/v2/sandboxes/"+boxID+"/logs"+query, ""); body != `{"logs":[`+want+`]}` {
			t.Errorf("%s: %s", query, body)
		}
	}
	if _, body := call(t, srv, "GET", "/sandboxes/"+boxID+"/logs", ""); !strings.Contains(body, `{"timestamp":"2023-11-14T22:13:20Z","line":"{\"level\":\"info\",\"message\":\"made\"}"}`) {
		t.Error(body)
	}
}

// TestNetworkWords shows that errors about network rules have exactly E2B's texts, at a sandbox's
// creation and at a change of its rules.
func TestNetworkWords(t *testing.T) {
	srv := start(t, newFake())
	for body, want := range map[string]string{
		`{"denyOut":["example.com"]}`:                               "invalid denied CIDR example.com",
		`{"allowOut":["300.1.1.1"]}`:                                "invalid allowed address 300.1.1.1",
		`{"allowOut":["example.com"],"denyOut":["8.8.8.8"]}`:        "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to block all other traffic.",
		`{"maskRequestHost":"x.example.com/x"}`:                     "mask request host is not valid: x.example.com/x",
		`{"denyOut":["` + strings.Repeat("x", 200) + `\u001b[1m"]}`: "invalid denied CIDR " + strings.Repeat("x", 80) + "…",
	} {
		for _, c := range [][2]string{{"POST", "/v2/sandboxes"}, {"PUT", "/sandboxes/" + boxID + "/network"}} {
			sent := body
			if c[0] == "POST" {
				sent = `{"templateID":"base","network":` + body + `}`
			} else if strings.Contains(body, "mask") {
				continue // an update leaves it as it is
			}
			resp, got := call(t, srv, c[0], c[1], sent)
			var e errorBody
			if err := json.Unmarshal([]byte(got), &e); err != nil || resp.StatusCode != http.StatusBadRequest || e.Message != want || !strings.HasPrefix(e.Field, "network.") {
				t.Errorf("%s %s: %s, want %q", c[0], body, got, want)
			}
		}
	}
}

func TestNetworkUpdate(t *testing.T) {
	var got carrel.Network
	f := newFake()
	f.setNetwork = func(_ carrel.ID, n carrel.Network) (carrel.Sandbox, error) { got = n; return box, nil }
	f.get = func(carrel.ID) (carrel.Sandbox, error) {
		sb := box
		sb.Network.PrivateTraffic, sb.Network.MaskHost, sb.Network.HTTPSPorts = true, "a.example.com", []uint16{8443}
		return sb, nil
	}
	srv := start(t, f)
	if _, body := call(t, srv, "GET", "/sandboxes/"+boxID, ""); !strings.Contains(body, `"maskRequestHost":"a.example.com","httpsPorts":[8443]`) {
		t.Error(body)
	}
	if resp, body := call(t, srv, "PUT", "/sandboxes/"+boxID+"/network", `{"allow_internet_access":false,"allowOut":["1.1.1.1"]}`); resp.StatusCode != 204 || got.Internet || !got.PrivateTraffic || len(got.AllowOut) != 1 ||
		got.MaskHost != "a.example.com" || len(got.HTTPSPorts) != 1 {
		t.Errorf("%d %s %+v", resp.StatusCode, body, got)
	}
}

func FuzzMetadataFilter(f *testing.F) {
	for _, s := range []string{"", "a=b", "k%252520=v", "a=b&c=d", "%", "a=%zz", "a==b", "&", "a%3Db", "a=b%26c%3Dd"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseMetadataFilter(s)
		if (err == nil) != (got != nil || s == "") {
			t.Fatalf("%q: %v %v", s, got, err)
		}
		if err != nil {
			p, ok := errors.AsType[*problem](err)
			if !ok || p.status != 400 || p.body.Field != "metadata" {
				t.Fatalf("%q: %v", s, err)
			}
		}
	})
}

func FuzzCreateBody(f *testing.F) {
	for _, s := range []string{`{}`, `{"templateID":"base"}`, `{"templateID":"base","timeout":1e9}`, `{"network":{"allowOut":["*.a"],"denyOut":["0.0.0.0/0"]}}`, `[`, `null`, `{"templateID":"a","envVars":{"A":null}}`,
		`{"templateID":"s0123456789abcdefghij:default","autoPause":true,"autoResume":{"enabled":true}}`, `{"templateID":"a:b","autoPauseMemory":false}`} {
		f.Add(s)
	}
	srv := New(Options{Callers: adminKey(testKey)})
	f.Fuzz(func(t *testing.T, s string) {
		if checkDepth([]byte(s)) != nil {
			return
		}
		var body createBody
		if err := json.Unmarshal([]byte(s), &body); err != nil {
			if _, ok := errors.AsType[*problem](describe(err)); !ok {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		if body.Timeout == nil {
			body.Timeout = new(int32)
		}
		opts, err := srv.createOptions(body)
		if l := opts.Lifecycle; err == nil && (opts.Template == "" || opts.Timeout <= 0 || opts.Timeout > srv.opts.MaxTimeout || (l.FilesOnly && (l.AutoResume || l.OnTimeout != carrel.ActionPause))) {
			t.Fatalf("%q: %+v", s, opts)
		}
	})
}
