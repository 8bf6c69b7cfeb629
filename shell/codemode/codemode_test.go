package codemode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/carrel-dev/carrel/shell/tool"
)

func rules(t testing.TB, text string) *Rules {
	t.Helper()
	r, err := ParseRules([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRules(t *testing.T) {
	for _, c := range []struct{ rules, method, args, why string }{
		{`{"allow":[]}`, "a", `{}`, "no rule allows this tool"},
		{`{"allow":[{"methods":["a"]}]}`, "a", `{"x":[1,{}]}`, ""},
		{`{"allow":[{"methods":["a"]}]}`, "ab", `{}`, "no rule allows this tool"},
		{`{"allow":[{"methods":["a/*"]}]}`, "a/b", `{}`, ""},
		{`{"allow":[{"methods":["a/*"]}]}`, "a/b/c", `{}`, "no rule allows this tool"},
		{`{"allow":[{"methods":["a/**"]}]}`, "a/b/c", `{}`, ""},
		{`{"allow":[{"methods":["**"]}]}`, "x/y", `{}`, ""},
		{`{"allow":[{"methods":["*/read"]}]}`, "files/read", `{}`, ""},
		{`{"allow":[{"methods":["a"]}]}`, "a", `[1]`, "the arguments are no object"},
		{`{"allow":[{"methods":["a"]}]}`, "a", `null`, "the arguments are no object"},
		{`{"allow":[{"methods":["a"],"params":{"p":{"starts_with":"/w/","not_contains":".."}}}]}`, "a", `{"p":"/w/x"}`, ""},
		{`{"allow":[{"methods":["a"],"params":{"p":{"starts_with":"/w/","not_contains":".."}}}]}`, "a", `{"p":"/w/../x"}`, `p: it contains ".."`},
		{`{"allow":[{"methods":["a"],"params":{"p":{"starts_with":"/w/"}}}]}`, "a", `{"p":["/w/"]}`, `p: it does not start with "/w/"`},
		{`{"allow":[{"methods":["a"],"params":{"p":{}}}]}`, "a", `{}`, "p: it is missing"},
		{`{"allow":[{"methods":["a"],"params":{"p":{"optional":true}}}]}`, "a", `{}`, ""},
		{`{"allow":[{"methods":["a"],"params":{"p":{"exists":false}}}]}`, "a", `{}`, ""},
		{`{"allow":[{"methods":["a"],"params":{"p":{"exists":false}},"others":true}]}`, "a", `{"p":null}`, "p: it may not be given"},
		{`{"allow":[{"methods":["a"],"params":{"p":{}}}]}`, "a", `{"p":1,"P":2}`, "P: no rule names this parameter"},
		{`{"allow":[{"methods":["a"],"params":{"p":{}},"others":true}]}`, "a", `{"p":1,"q":2}`, ""},
		{`{"allow":[{"methods":["a"],"params":{"n":{"type":"integer","ge":1,"lt":10}}}]}`, "a", `{"n":9}`, ""},
		{`{"allow":[{"methods":["a"],"params":{"n":{"type":"integer","ge":1,"lt":10}}}]}`, "a", `{"n":10}`, "n: it is not less than 10"},
		{`{"allow":[{"methods":["a"],"params":{"n":{"type":"integer"}}}]}`, "a", `{"n":1.5}`, "n: it is of type number, not integer"},
		{`{"allow":[{"methods":["a"],"params":{"n":{"type":"number"}}}]}`, "a", `{"n":1}`, ""},
		{`{"allow":[{"methods":["a"],"params":{"n":{"le":5}}}]}`, "a", `{"n":"4"}`, "n: it is not at most 5"},
		{`{"allow":[{"methods":["a"],"params":{"s":{"gt":"b","le":"d"}}}]}`, "a", `{"s":"c"}`, ""},
		{`{"allow":[{"methods":["a"],"params":{"s":{"in":["x",2,null]}}}]}`, "a", `{"s":null}`, ""},
		{`{"allow":[{"methods":["a"],"params":{"s":{"in":["x",2,null]}}}]}`, "a", `{"s":"y"}`, `s: it is none of ["x",2,null]`},
		{`{"allow":[{"methods":["a"],"params":{"s":{"in":[]}}}]}`, "a", `{"s":"y"}`, `s: it is none of []`},
		{`{"allow":[{"methods":["a"],"params":{"s":{"not_in":["rm"]}}}]}`, "a", `{"s":"rm"}`, `s: it is one of ["rm"]`},
		{`{"allow":[{"methods":["a"],"params":{"s":{"eq":null}}}]}`, "a", `{"s":1}`, "s: it is not null"},
		{`{"allow":[{"methods":["a"],"params":{"s":{"ne":{"k":[1]}}}}]}`, "a", `{"s":{"k":[1]}}`, `s: it is {"k":[1]}`},
		{`{"allow":[{"methods":["a"],"params":{"s":{"pattern":"[a-z]+"}}}]}`, "a", `{"s":"abc\n"}`, `s: it does not match "[a-z]+"`},
		{`{"allow":[{"methods":["a"],"params":{"s":{"pattern":"a|b"}}}]}`, "a", `{"s":"ab"}`, `s: it does not match "a|b"`},
		{`{"allow":[{"methods":["a"],"params":{"s":{"min_length":2,"max_length":3}}}]}`, "a", `{"s":"üüü"}`, ""},
		{`{"allow":[{"methods":["a"],"params":{"s":{"max_length":1}}}]}`, "a", `{"s":[1,2]}`, "s: its length is 2, more than 1"},
		{`{"allow":[{"methods":["a"],"params":{"s":{"each":{"type":"string","ends_with":".go"}}}}]}`, "a", `{"s":["a.go","b.c"]}`, `s: element 1: it does not end with ".go"`},
		{`{"allow":[{"methods":["a"],"params":{"s":{"or":[{"eq":1},{"contains":"x"}]}}}]}`, "a", `{"s":"axb"}`, ""},
		{`{"allow":[{"methods":["a"],"params":{"s":{"or":[{"eq":1},{"contains":"x"}]}}}]}`, "a", `{"s":2}`, `s: it is not 1, and it does not contain "x"`},
		{`{"allow":[{"methods":["a"],"params":{"s":{"not":{"starts_with":"-"}}}}]}`, "a", `{"s":"-x"}`, "s: it is what it may not be"},
		{`{"allow":[{"methods":["a"],"params":{"o.id":{"eq":5}}}]}`, "a", `{"o":{"id":5}}`, ""},
		{`{"allow":[{"methods":["a"],"params":{"o.id":{"eq":5}}}]}`, "a", `{"o":{"id":5,"x":1}}`, "o.x: no rule names this parameter"},
		{`{"allow":[{"methods":["a"],"params":{"p":{"eq":1}}},{"methods":["*"],"params":{"p":{"eq":2}}}]}`, "a", `{"p":2}`, ""},
		{`{"max_calls":0,"allow":[{"methods":["a"]}]}`, "a", `{}`, "more than 0 calls"},
	} {
		err := NewGuard(rules(t, c.rules), nil).Check(c.method, json.RawMessage(c.args))
		got := ""
		var d *Denied
		if errors.As(err, &d) {
			got = d.Reason
		}
		if got != c.why {
			t.Errorf("%s\n%s(%s): %q, want %q", c.rules, c.method, c.args, got, c.why)
		}
	}
}

func TestRulesRefused(t *testing.T) {
	for _, text := range []string{``, `null`, `[]`, `{} {}`, `{"alow":[]}`, `{"allow":[{}]}`, `{"allow":[{"methods":[]}]}`, `{"allow":[{"methods":["a"],"params":{"p":{"starts-with":"x"}}}]}`,
		`{"allow":[{"methods":["a"],"params":{"p":{"starts_with":null}}}]}`, `{"allow":[{"methods":["a"],"params":{"p":null}}]}`, `{"allow":[{"methods":["a"],"params":{"p":{"type":"str"}}}]}`,
		`{"allow":[{"methods":["a"],"params":{"p":{"pattern":"("}}}]}`, `{"allow":[{"methods":["a"],"params":{"p":{"lt":true}}}]}`, `{"allow":[{"methods":["a"],"params":{"p":{"or":[]}}}]}`,
		`{"allow":[{"methods":["a"],"params":{"p":{"in":null}}}]}`, `{"allow":null}`, `{"allow":[{"methods":["a"],"max_calls":-1}]}`, `{"allow":[{"methods":["a"],"params":{"a..b":{}}}]}`,
		`{"allow":[{"methods":["a"],"params":{"p":` + strings.Repeat(`{"not":`, 40) + `{}` + strings.Repeat(`}`, 40) + `}}]}`} {
		if r, err := ParseRules([]byte(text)); err == nil {
			t.Errorf("%.100s: %+v", text, r)
		}
	}
}

func TestBudgets(t *testing.T) {
	var seen []Decision
	g := NewGuard(rules(t, `{"max_calls":4,"allow":[{"methods":["pay"],"max_calls":3,"params":{"n":{"type":"number","total":10}}},{"methods":["look"]}]}`), func(d Decision) { seen = append(seen, d) })
	for i, c := range []struct {
		method, args string
		ok           bool
	}{{"pay", `{"n":6}`, true}, {"pay", `{"n":5}`, false}, {"pay", `{"n":-5}`, false}, {"pay", `{"n":4}`, true}, {"pay", `{"n":0}`, true}, {"pay", `{"n":0}`, false}, {"look", `{}`, true}, {"look", `{}`, false}} {
		if err := g.Check(c.method, json.RawMessage(c.args)); (err == nil) != c.ok {
			t.Errorf("%d: %v", i, err)
		}
	}
	if len(seen) != 8 || !seen[0].Allowed || seen[1].Allowed || seen[1].Reason != "n: the total would be 11, more than 10" {
		t.Errorf("%+v", seen)
	}
}

func echo(name string) Tool {
	return Tool{Name: name, Call: func(_ context.Context, args json.RawMessage) (json.RawMessage, error) { return args, nil }}
}

func TestRun(t *testing.T) {
	tools := []Tool{echo("echo"), echo("a/b"), {Name: "fails", Call: func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, errors.New("why") }}}
	for _, c := range []struct{ script, value, out, err string }{
		{`return tools.echo({x: 1}).x + 1`, `2`, "", ""},
		{`const r = await tools.a.b({y: [1]}); console.log("got", r, 5n); return r`, `{"y":[1]}`, "got {\"y\":[1]} 5n\n", ""},
		{`return tools["a/b"]()`, `{}`, "", ""},
		{`try { tools.fails({}) } catch (e) { return e.message }`, `"why"`, "", ""},
		{`try { tools.nope({}) } catch (e) { return e.message }`, `"there is no tool \"nope\""`, "", ""},
		{`return tools.echo({secret: 1})`, "", "", "denied: echo: secret: it is 1"},
		{`throw new TypeError("boom")`, "", "", "TypeError: boom"},
		{`return`, "", "", ""},
		{`} ; globalThis.x = 1; {`, "", "", "SyntaxError"},
		{`await new Promise(() => {})`, "", "", "waits for a promise"},
		{`return typeof require + typeof process + typeof fetch + typeof host + typeof std`, `"undefinedundefinedundefinedundefinedundefined"`, "", ""},
		{`JSON.stringify = () => '{"secret":1}'; Object.prototype.toJSON = () => ({secret: 1}); return tools.echo({x: 1})`, "", "", "denied"},
		{`tools.echo = 1; globalThis.tools = null; return tools.echo({x: 3})`, `{"x":3}`, "", ""},
		{`return (async () => {}).constructor("return typeof call + typeof host")()`, `"undefinedundefined"`, "", ""},
	} {
		g := NewGuard(rules(t, `{"allow":[{"methods":["echo"],"others":true,"params":{"secret":{"optional":true,"ne":1}}},{"methods":["**"]}]}`), nil)
		if c.err != "" || strings.Contains(c.script, "echo") {
			g = NewGuard(rules(t, `{"allow":[{"methods":["echo"],"others":true,"params":{"secret":{"optional":true,"ne":1}}},{"methods":["fails","nope","a/*"]}]}`), nil)
		}
		r, err := Run(t.Context(), c.script, Options{Tools: tools, Guard: g})
		if string(r.Value) != c.value || r.Output != c.out || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %s %q %v", c.script, r.Value, r.Output, err)
		}
	}
}

func TestHostile(t *testing.T) {
	for name, script := range map[string]string{
		"loop": `for (;;) {}`, "loop that catches": `for (;;) try { for (;;) {} } catch {} finally { continue }`, "promises": `const f = () => Promise.resolve().then(f); await f()`,
		"memory": `const a = []; for (;;) a.push(new Uint8Array(1e6).fill(1))`, "regexp": `/^(a+)+$/.test("a".repeat(40) + "b")`, "recursion": `const f = () => f() + 1; f()`,
		"output": `for (;;) console.log("x".repeat(1e4))`, "result": `return "x".repeat(1e7)`, "calls": `for (;;) tools.echo({})`, "answer": `let o = {}; for (;;) o = tools.echo({o})`,
		"proxy": `tools.echo(new Proxy({}, {ownKeys() { for (;;) {} }}))`, "getter": `tools.echo({get x() { for (;;) {} }})`, "toJSON": `tools.echo({toJSON() { for (;;) {} }})`,
		"error": `throw {get message() { for (;;) {} }, get stack() { for (;;) {} }}`, "then": `return {then(f) { f(this) }}`,
		"nested": `const f = () => tools.echo({toJSON: f}); f()`, "index": `"a".repeat(3e7).indexOf("a".repeat(1e7) + "b")`,
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			_, err := Run(t.Context(), script, Options{Tools: []Tool{echo("echo")}, Guard: NewGuard(rules(t, `{"allow":[{"methods":["**"]}]}`), nil),
				Limits: Limits{Time: 5 * time.Second, Steps: 3_000_000, Memory: 32 << 20, Output: 64 << 10}})
			if err == nil {
				t.Error("it ended well")
			}
			if took := time.Since(began); took > 5*time.Minute {
				t.Errorf("it took %v", took)
			}
			t.Logf("%.100v", err)
		})
	}
	if _, err := Run(t.Context(), `tools.echo({})`, Options{Tools: []Tool{echo("echo")}}); err == nil || !strings.Contains(err.Error(), "there are no rules") {
		t.Errorf("without rules: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Run(ctx, `for (;;) {}`, Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a context's end: %v", err)
	}
}

type weather struct {
	City string   `json:"city" jsonschema:"which city"`
	Days int      `json:"days,omitempty" jsonschema:"how many"`
	Tags []string `json:"tags,omitempty"`
	Long bool     `json:"long,omitempty"`
}

type forecast struct {
	Text string `json:"text"`
}

// server returns a session with a real MCP server in this process.
func server(t *testing.T) *mcp.ClientSession {
	t.Helper()
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "weather", Description: "tells the weather"}, func(_ context.Context, _ *mcp.CallToolRequest, in weather) (*mcp.CallToolResult, forecast, error) {
		if in.City == "nowhere" {
			return nil, forecast{}, errors.New("no such city")
		}
		return nil, forecast{fmt.Sprintf("%s: sun for %d days %v %v", in.City, in.Days, in.Tags, in.Long)}, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "say"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "plain words"}}}, nil, nil
	})
	here, there := mcp.NewInMemoryTransports()
	ss, err := s.Connect(t.Context(), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := mcp.NewClient(&mcp.Implementation{Name: "carrel", Version: "1"}, nil).Connect(t.Context(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); ss.Close() })
	return c
}

func TestMCP(t *testing.T) {
	tools, err := FromMCP(t.Context(), server(t))
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	g := NewGuard(rules(t, `{"allow":[{"methods":["weather"],"max_calls":2,"others":true,"params":{"city":{"in":["Rome","nowhere"]}}},{"methods":["say"]}]}`), func(d Decision) { seen = append(seen, fmt.Sprint(d.Method, d.Allowed)) })
	r, err := Run(t.Context(), `const out = [tools.weather({city: "Rome", days: 2}).text, tools.say()];
		for (const city of ["Paris", "nowhere"]) try { tools.weather({city}) } catch (e) { out.push(e.message) } return out`, Options{Tools: tools, Guard: g})
	if err != nil || string(r.Value) != `["Rome: sun for 2 days [] false","plain words","denied: weather: city: it is none of [\"Rome\",\"nowhere\"]","no such city"]` {
		t.Errorf("%s %v", r.Value, err)
	}
	if fmt.Sprint(seen) != "[weathertrue saytrue weatherfalse weathertrue]" {
		t.Errorf("%v", seen)
	}
	programs, err := Programs(tools, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args     string
		in       string
		status   int
		out, err string
	}{
		{"weather --city Rome --days=3 --tags a --tags b --long", "", 0, `{"text":"Rome: sun for 3 days [a b] true"}` + "\n", ""},
		{"weather Rome", "", 0, `{"text":"Rome: sun for 0 days [] false"}` + "\n", ""},
		{"weather -", `{"city":"Rome","days":1}`, 0, `{"text":"Rome: sun for 1 days [] false"}` + "\n", ""},
		{"weather -", `[1]`, 2, "", "weather: standard input is no JSON object\nTry 'weather --help' for more information.\n"},
		{"weather", "", 2, "", "weather: --city is required\nTry 'weather --help' for more information.\n"},
		{"weather Rome Paris", "", 2, "", "weather: extra operand 'Paris'\nTry 'weather --help' for more information.\n"},
		{"weather --nope 1", "", 2, "", "weather: unrecognized option '--nope'\nTry 'weather --help' for more information.\n"},
		{"weather Rome --days x", "", 2, "", "weather: invalid argument \"x\" for '--days': not of type integer\nTry 'weather --help' for more information.\n"},
		{"weather nowhere", "", 1, "", "weather: no such city\n"},
		{"say", "", 0, "plain words\n", ""},
	} {
		words := strings.Fields(c.args)
		var out, errs bytes.Buffer
		status := programs[words[0]](&tool.Call{Ctx: t.Context(), Name: words[0], Args: words[1:], In: strings.NewReader(c.in), Out: &out, Err: &errs})
		if status != c.status || out.String() != c.out || errs.String() != c.err {
			t.Errorf("%s: %d %q %q", c.args, status, out.String(), errs.String())
		}
	}
	var help bytes.Buffer
	programs["weather"](&tool.Call{Ctx: t.Context(), Name: "weather", Args: []string{"--help"}, Out: &help})
	if h := help.String(); !strings.Contains(h, "--city string (required): which city") || !strings.Contains(h, "tells the weather") {
		t.Error(h)
	}
}

// TestProgramsRefuses checks that Programs refuses tools that can't be programs of one machine. It
// also checks that a tool that panics ends only its own call.
func TestProgramsRefuses(t *testing.T) {
	call := func(context.Context, json.RawMessage) (json.RawMessage, error) { panic("inside") }
	many := make([]Tool, maxPrograms+1)
	for i := range many {
		many[i] = Tool{Name: fmt.Sprint("t", i), Call: call}
	}
	for name, tools := range map[string][]Tool{
		"too many": many, "no name": {{Call: call}}, "a dash first": {{Name: "-x", Call: call}},
		"one name": {{Name: "a/b", Call: call}, {Name: "a-b", Call: call}}, "a schema": {{Name: "a", Schema: []byte("{"), Call: call}},
	} {
		if _, err := Programs(tools, nil); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	programs, err := Programs(many[:1], nil)
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	c := &tool.Call{Ctx: t.Context(), Name: "/usr/bin/t0", In: strings.NewReader(""), Err: &errs}
	if status := programs["t0"](c); status != 70 || errs.String() != "t0: the tool failed inside: inside\n" {
		t.Errorf("%d %q", status, errs.String())
	}
}

func FuzzRules(f *testing.F) {
	f.Add([]byte(`{"max_calls":1,"allow":[{"methods":["a/**","*b"],"params":{"p.q":{"type":"string","or":[{"eq":null},{"pattern":"x+"}],"each":{"in":[1]}}}}]}`), "a/b", []byte(`{"p":{"q":"x"}}`))
	f.Add([]byte(`{"allow":[{"methods":["**"],"params":{"n":{"ge":0,"total":5}}}]}`), "x", []byte(`{"n":3}`))
	f.Fuzz(func(t *testing.T, text []byte, method string, args []byte) {
		r, err := ParseRules(text)
		if err != nil {
			return
		}
		g := NewGuard(r, nil)
		for range 3 {
			_ = g.Check(method, args)
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if len(again) < maxRules/2 {
			if _, err := ParseRules(again); err != nil {
				t.Fatalf("%s: %v", again, err)
			}
		}
	})
}
