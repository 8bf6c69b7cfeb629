package policy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"
	"go.yaml.in/yaml/v3"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// valid are correct policy files.
var valid = map[string]string{
	"nothing":   `{}`,
	"JSON":      "{\n\t\"default\": \"deny\",\n\t\"rules\": [{\"allow\": [\"example.com\"], \"ports\": [\"443\", \"8000-8999\"]}]\n}",
	"JSON text": `{"rules": [{"name": "\ud83d\ude00 and \u00e9\/", "allow": ["*"]}]}`,
	"everything": `
default: deny
presets: [openai, github]
ech: allow
silent: true
limits: {connections: 100, connectionsPerSecond: 2.5, requestsPerSecond: 10, sendBytesPerSecond: 1000000, receiveBytesPerSecond: 0}
rules:
  - name: api
    allow: [api.example.com, "*.example.org", 203.0.113.9, 198.51.100.0/24, "2001:db8::/32"]
    ports: [443, 8000-8999]
    protocol: https
    methods: [GET, POST, M-SEARCH]
    paths: ["/v1/**", "/health", "/a/*.json", /]
    limits: {connections: 3}
  - deny: ["*"]
    ports: ["25"]
inject:
  - host: api.example.com
    methods: [GET]
    paths: [/v1/**]
    bearer: openai-key
    env: {API_KEY: "", OTHER: placeholder}
  - host: "*.example.org"
    basic: {user: me, secret: password}
    headers: {X-Token: "Bearer ${tokens.aws}", X-Key: "a ${secrets.one} b"}
    query: {key: "${e2b.secrets.Two}"}
    cleartext: true
    keepEchoes: true
`,
	"international name": `rules: [{allow: ["bücher.example", "*.ΠΑΡΆΔΕΙΓΜΑ.example."]}]`,
	"aliases":            "rules:\n  - allow: &hosts [example.com, example.org]\n    ports: [80]\n    protocol: http\n  - allow: *hosts\n    ports: [443]\n",
	"private":            `rules: [{allow: [10.1.0.0/16, "fd12::/16", 192.168.7.7]}]`,
	"SSH":                `rules: [{allow: [git.example.com], ports: [22], protocol: tcp}]`,
	"repeated allow":     `rules: [{allow: [example.com]}, {allow: [example.com, example.org]}]`,
	"other ports":        `rules: [{deny: [example.com], ports: [80]}, {allow: [example.com]}]`,
	"other method":       `rules: [{allow: [example.com], methods: [GET]}, {deny: [example.com]}]`,
	"deny the rest":      `rules: [{allow: [api.example.com]}, {deny: ["*.example.com"]}, {allow: ["*"], protocol: https}]`,
	"two keys":           `inject: [{host: example.com, paths: [/a/**], bearer: a}, {host: example.com, bearer: b}]`,
	"BOM":                "\ufeffrules: []\n",
}

// invalid are wrong files, each with the field, the line and words of the reason. both says whether
// the schema refuses it too.
var invalid = map[string]struct {
	file, field string
	line        int
	words       string
	schema      bool
}{
	"empty":                  {"", "policy", 1, "empty", false},
	"comment alone":          {"# nothing\n", "policy", 1, "empty", false},
	"no mapping":             {"- a\n", "policy", 1, "a list given", true},
	"broken":                 {"rules:\n  - allow: [\n", "policy", 2, "", false},
	"broken JSON":            {"{\"rules\": [}\n", "policy", 1, "", false},
	"two documents":          {"default: deny\n---\ndefault: allow\n", "policy", 2, "second document", false},
	"unknown key":            {"defualt: deny\n", "policy.defualt", 1, "no key", true},
	"unknown key of a rule":  {"rules:\n  - allow: [example.com]\n    port: [443]\n", "policy.rules[0].port", 3, "no key", true},
	"unknown key in JSON":    {"{\n\"rules\": [\n{\"allow\": [\"*\"],\n\"Ports\": []}]}", "policy.rules[0].Ports", 4, "no key", true},
	"key twice":              {"default: deny\nrules: []\ndefault: allow\n", "policy.default", 3, "twice, first in line 1", false},
	"key twice in JSON":      {"{\"default\": \"deny\",\n\"default\": \"allow\"}", "policy.default", 2, "twice", false},
	"merge key":              {"a: &a {default: deny}\n<<: *a\n", "policy.a", 1, "no key", false},
	"alias bomb":             {bomb(), "policy.rules[110].allow", 2, "comes to more than", false},
	"list wanted":            {"rules:\n  - allow: example.com\n", "policy.rules[0].allow", 2, "a list needed", true},
	"text wanted":            {"rules:\n  - allow: [yes]\n  - allow: [true]\n", "policy.rules[1].allow", 3, "true given, text needed", true},
	"number as name":         {"rules: [{allow: [10]}]", "policy.rules[0].allow", 1, "text needed", true},
	"null":                   {"rules:\n", "policy.rules", 1, "nothing given", true},
	"bool as text":           {"silent: \"true\"\n", "policy.silent", 1, "true or false", true},
	"whole number wanted":    {"limits: {connections: 1.5}", "policy.limits.connections", 1, "whole number", true},
	"negative":               {"limits: {connections: -1}", "policy.limits.connections", 1, "negative", true},
	"negative in a rule":     {"rules: [{allow: ['*'], limits: {requestsPerSecond: -0.5}}]", "policy.rules[0].limits.requestsPerSecond", 1, "negative", true},
	"not a number":           {"limits: {connectionsPerSecond: .nan}", "policy.limits.connectionsPerSecond", 1, "", false},
	"infinite":               {"limits: {connectionsPerSecond: .inf}", "policy.limits.connectionsPerSecond", 1, "", false},
	"huge":                   {"limits: {sendBytesPerSecond: 99999999999999999999}", "policy.limits.sendBytesPerSecond", 1, "whole number", false},
	"default":                {"default: maybe\n", "policy.default", 1, "neither", true},
	"ech":                    {"ech: true\n", "policy.ech", 1, "text needed", true},
	"preset":                 {"presets:\n- github\n- gihtub\n", "policy.presets[1]", 3, "no preset", false},
	"preset twice":           {"presets: [github, github]", "policy.presets[1]", 1, "twice", true},
	"neither":                {"rules:\n  - ports: [443]\n", "policy.rules[0]", 2, "allow, deny or ask", true},
	"both":                   {"rules:\n  - allow: [a.example]\n    deny: [b.example]\n", "policy.rules[0]", 2, "has more", true},
	"empty allow":            {"rules: [{allow: []}]", "policy.rules[0]", 1, "allow, deny or ask", true},
	"URL":                    {"rules: [{allow: ['https://example.com/']}]", "policy.rules[0].allow", 1, "URL", true},
	"port in a name":         {"rules: [{allow: ['example.com:443']}]", "policy.rules[0].allow", 1, "has a port", true},
	"path in a name":         {"rules: [{allow: ['example.com/v1']}]", "policy.rules[0].allow", 1, "has a path", true},
	"space":                  {"rules: [{allow: [' example.com']}]", "policy.rules[0].allow", 1, "no destination", true},
	"NUL":                    {"{\"rules\": [{\"allow\": [\"example.com\\u0000.example.net\"]}]}", "policy.rules[0].allow", 1, "character", false},
	"star inside":            {"rules: [{allow: ['api.*.example.com']}]", "policy.rules[0].allow", 1, "stands for", true},
	"star glued":             {"rules: [{allow: ['*example.com']}]", "policy.rules[0].allow", 1, "stands for", true},
	"two dots":               {"rules: [{allow: ['a..example']}]", "policy.rules[0].allow", 1, "two dots", false},
	"long label":             {"rules: [{allow: [" + strings.Repeat("a", 64) + ".example]}]", "policy.rules[0].allow", 1, "63", false},
	"old address":            {"rules: [{allow: ['127.1']}]", "policy.rules[0].allow", 1, "neither a name nor an address", false},
	"address as number":      {"rules: [{allow: ['2130706433']}]", "policy.rules[0].allow", 1, "neither", false},
	"address in hex":         {"rules: [{allow: ['0x7f000001']}]", "policy.rules[0].allow", 1, "neither", false},
	"bad CIDR":               {"rules: [{allow: [203.0.113.0/33]}]", "policy.rules[0].allow", 1, "no CIDR", false},
	"bits beyond":            {"rules: [{allow: [203.0.113.9/24]}]", "policy.rules[0].allow", 1, "bits beyond", false},
	"mapped":                 {"rules: [{allow: ['::ffff:203.0.113.0/120']}]", "policy.rules[0].allow", 1, "form of IPv6", false},
	"zone":                   {"rules: [{allow: ['2001:db8::1%eth0']}]", "policy.rules[0].allow", 1, "zone", true},
	"loopback":               {"rules: [{allow: [127.0.0.0/8]}]", "policy.rules[0].allow", 1, "no sandbox reaches it", false},
	"loopback mapped":        {"rules: [{allow: ['::ffff:127.0.0.1']}]", "policy.rules[0].allow", 1, "no sandbox reaches it", false},
	"loopback through NAT":   {"rules: [{allow: ['64:ff9b::127.0.0.1']}]", "policy.rules[0].allow", 1, "no sandbox reaches it", false},
	"metadata":               {"rules: [{allow: [169.254.169.254]}]", "policy.rules[0].allow", 1, "no sandbox reaches it", false},
	"the link itself":        {"rules: [{allow: [10.73.0.1]}]", "policy.rules[0].allow", 1, "no sandbox reaches it", false},
	"same twice":             {"rules: [{allow: [example.com, EXAMPLE.com.]}]", "policy.rules[0].allow", 1, "same as", false},
	"bad international":      {"rules: [{allow: ['a\u200db.example']}]", "policy.rules[0].allow", 1, "no name", false},
	"port 0":                 {"rules:\n- allow: ['*']\n  ports:\n  - 443\n  - 0\n", "policy.rules[0].ports", 5, "1 to 65535", true},
	"port 65536":             {"rules: [{allow: ['*'], ports: [65536]}]", "policy.rules[0].ports", 1, "1 to 65535", true},
	"port with sign":         {"rules: [{allow: ['*'], ports: ['+443']}]", "policy.rules[0].ports", 1, "1 to 65535", true},
	"range backwards":        {"rules: [{allow: ['*'], ports: [9-1]}]", "policy.rules[0].ports", 1, "backwards", false},
	"half a range":           {"rules: [{allow: ['*'], ports: ['80-']}]", "policy.rules[0].ports", 1, "1 to 65535", true},
	"protocol":               {"rules: [{allow: ['*'], protocol: TCP}]", "policy.rules[0].protocol", 1, "none of", true},
	"methods over tcp":       {"rules: [{allow: ['*'], protocol: tcp, methods: [GET]}]", "policy.rules[0].methods", 1, "not seen into", true},
	"paths over udp":         {"rules: [{allow: ['*'], protocol: udp, paths: [/]}]", "policy.rules[0].paths", 1, "not seen into", true},
	"inspect over tcp":       {"rules: [{allow: ['*'], protocol: tcp, inspect: true}]", "policy.rules[0].inspect", 1, "not seen into", true},
	"inspect what is denied": {"rules: [{deny: ['*'], inspect: true}]", "policy.rules[0].inspect", 1, "denied", true},
	"limit what is denied":   {"rules: [{deny: ['*'], limits: {connections: 1}}]", "policy.rules[0].limits", 1, "denied", true},
	"CONNECT":                {"rules: [{allow: ['*'], methods: [CONNECT]}]", "policy.rules[0].methods", 1, "tunnels", true},
	"method in lower case":   {"rules: [{allow: ['*'], methods: [get]}]", "policy.rules[0].methods", 1, "case", true},
	"method with a space":    {"rules: [{allow: ['*'], methods: ['GET /']}]", "policy.rules[0].methods", 1, "no method", true},
	"path without slash":     {"rules: [{allow: ['*'], paths: [v1]}]", "policy.rules[0].paths", 1, "begin with", true},
	"path with dots":         {"rules: [{allow: ['*'], paths: [/v1/../v2]}]", "policy.rules[0].paths", 1, "dots", false},
	"encoded path":           {"rules: [{allow: ['*'], paths: ['/a%2fb']}]", "policy.rules[0].paths", 1, "encoded", true},
	"stars glued":            {"rules: [{allow: ['*'], paths: ['/a**']}]", "policy.rules[0].paths", 1, "whole segments", false},
	"SSH by name":            {"rules:\n- allow: [git.example.com]\n  ports: [443, 22]\n", "policy.rules[0].ports", 3, "port 22 is for SSH", false},
	"database by name":       {"rules: [{allow: [db.example.com], ports: ['5432']}]", "policy.rules[0].ports", 1, "PostgreSQL", false},
	"denied after allowed":   {"rules:\n- allow: [a.example]\n- deny: [b.example]\n- allow: [c.example]\n- deny: [a.example]\n", "policy.rules[3]", 5, "rule 4 can never match: rule 1 before it allows the same", false},
	"allowed after denied":   {"rules:\n- name: no\n  deny: ['*.example.com']\n- allow: [api.example.com]\n", "policy.rules[1]", 4, "rule 2 can never match: rule 1 (no) before it denies the same", false},
	"after everything":       {"rules:\n- allow: ['*']\n- deny: [203.0.113.0/24]\n", "policy.rules[1]", 3, "can never match", false},
	"inside a block":         {"rules:\n- deny: [203.0.113.0/24]\n- allow: [203.0.113.9, 203.0.113.64/26]\n", "policy.rules[1]", 3, "can never match", false},
	"limits in vain":         {"rules:\n- allow: ['*.example.com']\n- allow: [api.example.com]\n  limits: {connections: 1}\n", "policy.rules[1]", 3, "can never match", false},
	"no host":                {"inject: [{bearer: key}]", "policy.inject[0].host", 1, "no destination", true},
	"any host":               {"inject: [{host: '*', bearer: key}]", "policy.inject[0].host", 1, "every host", true},
	"host is an address":     {"inject: [{host: 203.0.113.9, bearer: key}]", "policy.inject[0].host", 1, "no name", false},
	"nothing put in":         {"inject: [{host: example.com, env: {A: b}}]", "policy.inject[0]", 1, "nothing", true},
	"bearer and basic":       {"inject: [{host: example.com, bearer: a, basic: {user: u, secret: b}}]", "policy.inject[0].basic", 1, "same header", true},
	"bearer and header":      {"inject: [{host: example.com, bearer: a, headers: {authorization: b}}]", "policy.inject[0].headers.authorization", 1, "twice", false},
	"header twice":           {"inject: [{host: example.com, headers: {X-A: a, x-a: b}}]", "policy.inject[0].headers.x-a", 1, "twice", false},
	"Host":                   {"inject: [{host: example.com, headers: {Host: evil.example}}]", "policy.inject[0].headers.Host", 1, "can't be set", true},
	"Transfer-Encoding":      {"inject: [{host: example.com, headers: {Transfer-Encoding: chunked}}]", "policy.inject[0].headers.Transfer-Encoding", 1, "can't be set", true},
	"Upgrade":                {"inject: [{host: example.com, headers: {upgrade: h2c}}]", "policy.inject[0].headers.upgrade", 1, "can't be set", false},
	"line break in header":   {"inject: [{host: example.com, headers: {X-A: \"a\\r\\nX-B: b\"}}]", "policy.inject[0].headers.X-A", 1, "control character", true},
	"NUL in header":          {"inject: [{host: example.com, headers: {X-A: \"a\\0\"}}]", "policy.inject[0].headers.X-A", 1, "control character", true},
	"colon in header name":   {"inject: [{host: example.com, headers: {'X-A:': a}}]", "policy.inject[0].headers", 1, "no name of a header", true},
	"line break in query":    {"inject: [{host: example.com, query: {\"a\\nb\": c}}]", "policy.inject[0].query", 1, "control", false},
	"unknown reference":      {"inject: [{host: example.com, headers: {X-A: '${env.HOME}'}}]", "policy.inject[0].headers.X-A", 1, "no reference", false},
	"reference without end":  {"inject: [{host: example.com, headers: {X-A: '${secrets.a'}}]", "policy.inject[0].headers.X-A", 1, "no end", false},
	"reference inside":       {"inject: [{host: example.com, query: {a: '${secrets.${secrets.a}}'}}]", "policy.inject[0].query.a", 1, "no secret", false},
	"secret as reference":    {"inject: [{host: example.com, bearer: '${secrets.a}'}]", "policy.inject[0].bearer", 1, "alone", true},
	"value for a name":       {"inject: [{host: example.com, bearer: 'sk/12 3'}]", "policy.inject[0].bearer", 1, "no name of a secret", true},
	"secret in a variable":   {"inject: [{host: example.com, bearer: a, env: {KEY: '${secrets.a}'}}]", "policy.inject[0].env.KEY", 1, "no secret", false},
	"variable's name":        {"inject: [{host: example.com, bearer: a, env: {LD-X: a}}]", "policy.inject[0].env", 1, "no name of a variable", true},
	"never used":             {"inject:\n- {host: example.com, bearer: a}\n- {host: Example.COM, methods: [GET], bearer: b}\n", "policy.inject[1]", 3, "never be used", false},
	"colon in user":          {"inject: [{host: example.com, basic: {user: 'a:b', secret: c}}]", "policy.inject[0].basic.user", 1, "colon", true},
}

// bomb returns a file whose aliases expand to 10⁹ values.
func bomb() string {
	var b strings.Builder
	b.WriteString("rules:\n  - &r {allow: &a [" + strings.TrimSuffix(strings.Repeat("a.example,", 900), ",") + "]}\n")
	b.WriteString(strings.Repeat("  - {allow: *a}\n", 500))
	return b.String()
}

func TestParse(t *testing.T) {
	schema := compileSchema(t)
	for name, file := range valid {
		t.Run(name, func(t *testing.T) {
			p, err := policy.Parse("policy.yaml", []byte(file))
			if err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(tree(t, file)); err != nil {
				t.Errorf("the schema refuses it: %v", err)
			}
			// The policy is the same after a round trip over the API.
			raw, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			again, err := policy.Parse("policy.json", raw)
			if err != nil {
				t.Fatalf("%s: %v", raw, err)
			}
			if !reflect.DeepEqual(empty(p), empty(again)) {
				t.Errorf("%+v\nbecame\n%+v", p, again)
			}
			if err := policy.Check(p); err != nil {
				t.Error(err)
			}
		})
	}
}

// empty sets lists without entries to nil, as JSON leaves them out.
func empty(p carrel.Policy) carrel.Policy {
	if len(p.Rules) == 0 {
		p.Rules = nil
	}
	return p
}

func TestParseRefuses(t *testing.T) {
	schema := compileSchema(t)
	for name, c := range invalid {
		t.Run(name, func(t *testing.T) {
			_, err := policy.Parse("policy.yaml", []byte(c.file))
			var e *carrel.Error
			if !errors.As(err, &e) || e.Kind != carrel.Invalid {
				t.Fatalf("error %v", err)
			}
			if e.Field != c.field {
				t.Errorf("field %q, want %q (%v)", e.Field, c.field, err)
			}
			if where := fmt.Sprintf("policy.yaml:%d:", c.line); !strings.HasPrefix(e.Err.Error(), where) {
				t.Errorf("%q, want it at %s", e.Err, where)
			}
			if !strings.Contains(err.Error(), c.words) {
				t.Errorf("%q does not say %q", err, c.words)
			}
			if c.schema && schema.Validate(tree(t, c.file)) == nil {
				t.Error("the schema takes it")
			}
		})
	}
}

func TestParseBounds(t *testing.T) {
	var many, wide strings.Builder
	for i := range 1001 {
		fmt.Fprintf(&many, "- allow: [n%d.example]\n", i)
	}
	for i := range 10_001 {
		fmt.Fprintf(&wide, "n%d.example,", i)
	}
	for name, file := range map[string]string{
		"larger than":  "# " + strings.Repeat("x", 1<<20) + "\n",
		"1001 rules":   "rules:\n" + many.String(),
		"destinations": "rules: [{allow: [" + strings.TrimSuffix(wide.String(), ",") + "]}]",
		"UTF-8":        "default: \xff",
	} {
		_, err := policy.Parse("p", []byte(file))
		if !errors.Is(err, carrel.Invalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestParseKeepsValues shows that an error does not repeat a value that stands in place of a
// secret's name.
func TestParseKeepsValues(t *testing.T) {
	_, err := policy.Parse("p", []byte("inject: [{host: example.com, bearer: 'hunter2 hunter2'}]"))
	if err == nil || strings.Contains(err.Error()+carrel.HintOf(err), "hunter2") {
		t.Errorf("%v", err)
	}
}

func TestLoad(t *testing.T) {
	name := filepath.Join(t.TempDir(), "openai")
	if err := os.WriteFile(name, []byte("default: allow\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]carrel.Policy{
		"deny":          {},
		"allow":         {Default: "allow"},
		"openai":        {Presets: []string{"openai"}},
		"openai,github": {Presets: []string{"openai", "github"}},
		name:            {Default: "allow"},
	} {
		if p, err := policy.Load(ref); err != nil || !reflect.DeepEqual(p, want) {
			t.Errorf("%s: %+v, %v", ref, p, err)
		}
	}
	for ref, kind := range map[string]carrel.Kind{"nonsense": carrel.NotFound, "./nonsense": carrel.NotFound, "llm,llm": carrel.Invalid, t.TempDir(): carrel.Invalid} {
		if _, err := policy.Load(ref); !errors.Is(err, kind) {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.Draft = jsonschema.Draft2020
	if err := c.AddResource("policy.json", bytes.NewReader(policy.Schema())); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("policy.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tree reads a file as a schema validator sees it.
func tree(t *testing.T, file string) any {
	t.Helper()
	var v any
	if json.Unmarshal([]byte(file), &v) == nil {
		return v
	}
	if err := yaml.Unmarshal([]byte(file), &v); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestSchemaFields fails when the schema and the Go types have different fields.
func TestSchemaFields(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal(policy.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	defs := schema["$defs"].(map[string]any)
	for _, c := range []struct {
		name string
		node any
		typ  reflect.Type
	}{
		{"policy", schema, reflect.TypeFor[carrel.Policy]()},
		{"rule", defs["rule"], reflect.TypeFor[carrel.Rule]()},
		{"limits", defs["limits"], reflect.TypeFor[carrel.TrafficLimits]()},
		{"injection", defs["injection"], reflect.TypeFor[carrel.Injection]()},
		{"basic", defs["injection"].(map[string]any)["properties"].(map[string]any)["basic"], reflect.TypeFor[carrel.BasicAuth]()},
	} {
		node := c.node.(map[string]any)
		if node["additionalProperties"] != false {
			t.Errorf("%s: unknown keys are taken", c.name)
		}
		var have, want []string
		for k := range node["properties"].(map[string]any) {
			have = append(have, k)
		}
		for i := range c.typ.NumField() {
			tag, _, _ := strings.Cut(c.typ.Field(i).Tag.Get("json"), ",")
			want = append(want, tag)
		}
		slices.Sort(have)
		slices.Sort(want)
		if !slices.Equal(have, want) {
			t.Errorf("%s: the schema has %v, the type %v", c.name, have, want)
		}
	}
}

func TestPresets(t *testing.T) {
	for _, p := range policy.Presets() {
		if p.Description == "" || len(p.Rules) == 0 {
			t.Errorf("%s: no description or no rules", p.Name)
		}
		c := ours(t, carrel.Policy{Presets: []string{p.Name}})
		for _, r := range p.Rules {
			for _, host := range r.Allow {
				host = strings.Replace(host, "*.", "de.", 1)
				if v := c.JudgeName(host); !v.Allow || v.Rule != "preset "+p.Name {
					t.Errorf("%s: %s: %+v", p.Name, host, v)
				}
			}
		}
		if v := c.JudgeName("example.com"); v.Allow {
			t.Errorf("%s: %+v", p.Name, v)
		}
	}
}

// TestAddPresets adds presets of an organisation's own, for example for its package server.
func TestAddPresets(t *testing.T) {
	write := func(text string) string {
		name := filepath.Join(t.TempDir(), "presets.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	file := write("presets:\n- name: packages\n  description: what tools install\n  rules: [{allow: [packages.example.com], ports: [443]}]\n")
	for range 2 { // the second time replaces the first
		if err := policy.AddPresets(file); err != nil {
			t.Fatal(err)
		}
	}
	p, err := policy.Load("packages,github")
	if err != nil {
		t.Fatal(err)
	}
	c := ours(t, p)
	if v := c.JudgeName("packages.example.com"); !v.Allow || v.Rule != "preset packages" {
		t.Errorf("%+v", v)
	}
	before := len(policy.Presets())
	for what, text := range map[string]string{
		"built-in name": "presets: [{name: github, rules: [{allow: [example.com]}]}]",
		"no name":       "presets: [{rules: [{allow: [example.com]}]}]",
		"verdict":       "presets: [{name: allow, rules: [{allow: [example.com]}]}]",
		"bad name":      "presets: [{name: 'a,b', rules: [{allow: [example.com]}]}]",
		"twice":         "presets: [{name: one, rules: [{allow: [example.com]}]}, {name: one, rules: [{allow: [example.com]}]}]",
		"bad rule":      "presets: [{name: one, rules: [{allow: [example.com], ports: [0]}]}]",
		"unknown key":   "presets: [{name: one, rule: []}]",
	} {
		if err := policy.AddPresets(write(text)); !errors.Is(err, carrel.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := policy.AddPresets(filepath.Join(t.TempDir(), "none")); !errors.Is(err, carrel.NotFound) {
		t.Errorf("%v", err)
	}
	if n := len(policy.Presets()); n != before {
		t.Errorf("%d presets, there were %d", n, before)
	}
}
