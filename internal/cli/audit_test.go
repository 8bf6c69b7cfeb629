package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// auditFake is a fake with an audit log.
type auditFake struct {
	fake
	asked carrel.AuditOptions
	log   []carrel.Decision
	fails error
}

func (f *auditFake) Audit(_ context.Context, opts carrel.AuditOptions) iter.Seq2[carrel.Decision, error] {
	f.asked = opts
	return func(yield func(carrel.Decision, error) bool) {
		for _, d := range f.log {
			if !yield(d, nil) {
				return
			}
		}
		if f.fails != nil {
			yield(carrel.Decision{}, f.fails)
		}
	}
}

func (f *auditFake) run(t *testing.T, args ...string) outcome {
	t.Helper()
	t.Setenv("LC_ALL", "C.UTF-8")
	t.Setenv("TERM", "xterm")
	var out, errw bytes.Buffer
	a := &app{out: &out, err: &errw, now: func() time.Time { return noon },
		open: func(context.Context) (carrel.Service, error) { return f, nil }}
	code := a.main(t.Context(), args)
	return outcome{out: out.String(), err: errw.String(), code: code}
}

var decisions = []carrel.Decision{
	{Seq: 1, Time: noon, ID: boxID, Allowed: true, Protocol: "https", Name: "api.example.com", Address: "203.0.113.9", Port: 443, Method: "POST", Path: "/v1/x",
		Status: 201, Rule: "rule 2 (api)", Secrets: []string{"key"}, Sent: 1500, Received: 20, Duration: 1234567 * time.Microsecond, Process: "curl (pid 7)"},
	{Seq: 2, Time: noon.Add(time.Second), ID: forkID, Protocol: "tls", Name: "evil\x1b[2J\u202e\r\n.example.com", Address: "2001:db8::7", Port: 443,
		Rule: "default", Reason: "no rule allows it", Repeats: 4},
	{Seq: 3, Time: noon, ID: boxID, Protocol: "dns", Name: "example.org", Method: "TXT", Rule: "default"},
	{Seq: 4, Time: noon, ID: boxID, Protocol: "udp", Address: "10.0.0.7", Port: 53, Rule: "built-in: private address"},
	{Seq: 5, Time: noon, ID: boxID, Allowed: true, Rule: "audit: 12 events lost"},
}

func TestAuditLines(t *testing.T) {
	f := &auditFake{log: decisions}
	got := f.run(t, "audit")
	want := `2026-03-01T12:00:00.000Z  iaaaaaaaaaaaaaaaaaaaa  allowed  https  api.example.com→203.0.113.9:443  POST /v1/x  201  1.5 KiB out, 20 B in  1.235s  by curl (pid 7)  with key  rule 2 (api)
2026-03-01T12:00:01.000Z  ibbbbbbbbbbbbbbbbbbbb  denied   tls    evil\x1b[2J\u202e\r\n.example.com→[2001:db8::7]:443  default: no rule allows it; 4 more like it
2026-03-01T12:00:00.000Z  iaaaaaaaaaaaaaaaaaaaa  denied   dns    example.org  TXT  default
2026-03-01T12:00:00.000Z  iaaaaaaaaaaaaaaaaaaaa  denied   udp    10.0.0.7:53  built-in: private address
2026-03-01T12:00:00.000Z  iaaaaaaaaaaaaaaaaaaaa  allowed         -  audit: 12 events lost
`
	if got.out != want || got.code != 0 || got.err != "" {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if one := f.run(t, "audit", string(boxID)); strings.Contains(one.out, string(boxID)) || f.asked.ID != boxID {
		t.Errorf("of one sandbox: %s", one)
	}
	for i, line := range strings.Split(strings.TrimSpace(f.run(t, "--json", "audit").out), "\n") {
		var d carrel.Decision
		if err := json.Unmarshal([]byte(line), &d); err != nil || !reflect.DeepEqual(d, decisions[i]) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestAuditFlags(t *testing.T) {
	yes, no := true, false
	day := time.Date(2026, 2, 28, 0, 0, 0, 0, time.Local)
	for line, want := range map[string]carrel.AuditOptions{
		"audit":                        {},
		"audit --denied -n 5":          {Allowed: &no, Limit: 5},
		"audit --allowed --since 1h":   {Allowed: &yes, Since: noon.Add(-time.Hour)},
		"audit --since 2d --until 90s": {Since: noon.AddDate(0, 0, -2), Until: noon.Add(-90 * time.Second)},
		"audit --since 2026-02-28":     {Since: day},
		"audit --host *.example.com --rule github --secret key " + string(boxID): {ID: boxID, Host: "*.example.com", Rule: "github", Secret: "key"},
		"audit -f":            {Follow: true, Limit: followedPast},
		"audit -f -n 0":       {Follow: true},
		"audit -f --since 1h": {Follow: true, Since: noon.Add(-time.Hour)},
	} {
		f := &auditFake{}
		got := f.run(t, strings.Fields(line)...)
		if got.code != 0 || !reflect.DeepEqual(f.asked, want) {
			t.Errorf("%s: %s, asked for %+v", line, got, f.asked)
		}
	}
	for _, line := range []string{"audit --allowed --denied", "audit X", "audit --since yesterday", "audit --since -1h", "audit -n -1", "audit a b", "audit --until 2026-03-01T12:00Z"} {
		if got := (&auditFake{}).run(t, strings.Fields(line)...); got.code != 2 {
			t.Errorf("%s: %s", line, got)
		}
	}
}

func TestAuditFails(t *testing.T) {
	f := &auditFake{log: decisions[:1], fails: &carrel.Error{Op: "read audit log", Kind: carrel.Unavailable, Err: errors.New("cut off")}}
	if got := f.run(t, "audit"); got.code != 7 || !strings.Contains(got.err, "cut off") || !strings.Contains(got.out, "api.example.com") {
		t.Errorf("%s", got)
	}
	if got := (&fake{}).run(t, "audit"); got.code != 8 {
		t.Errorf("without a log: %s", got)
	}
	f = &auditFake{log: make([]carrel.Decision, auditDefault)}
	if got := f.run(t, "audit"); !strings.Contains(got.err, "-n shows more") {
		t.Errorf("stderr %q", got.err)
	}
}
