package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// inState sets the state of the fake's one sandbox.
func inState(f *fake, st carrel.State) {
	f.get = func(id carrel.ID) (carrel.Sandbox, error) {
		if id != box.ID {
			return carrel.Sandbox{}, &carrel.Error{Op: "get sandbox", Kind: carrel.NotFound, ID: id}
		}
		sb := box
		sb.State = st
		return sb, nil
	}
}

// TestPausedStates checks which of E2B's two states each of ours is shown as, and which of ours
// each of E2B's filters finds.
func TestPausedStates(t *testing.T) {
	f := newFake()
	srv := start(t, f)
	for st, want := range map[carrel.State]string{
		carrel.Starting: "running", carrel.Running: "running", carrel.Pausing: "paused", carrel.Paused: "paused", carrel.Resuming: "paused",
	} {
		inState(f, st)
		if _, body := call(t, srv, "GET", "/sandboxes/"+boxID, ""); !strings.Contains(body, `"state":"`+want+`"`) {
			t.Errorf("%s: %s", st, body)
		}
	}
	inState(f, carrel.Stopping)
	if resp, body := call(t, srv, "GET", "/sandboxes/"+boxID, ""); resp.StatusCode != 404 {
		t.Errorf("being killed: %d %s", resp.StatusCode, body)
	}
	var asked carrel.ListOptions
	f.list = func(o carrel.ListOptions) (carrel.Page, error) { asked = o; return carrel.Page{}, nil }
	for query, want := range map[string][]carrel.State{
		"state=running": {carrel.Running}, "state=paused": {carrel.Pausing, carrel.Paused, carrel.Resuming},
		"": {carrel.Running, carrel.Pausing, carrel.Paused, carrel.Resuming},
	} {
		if call(t, srv, "GET", "/v2/sandboxes?"+query, ""); !slices.Equal(asked.States, want) {
			t.Errorf("%q finds %v", query, asked.States)
		}
	}
	for _, st := range []string{"pausing", "paused", "resuming"} {
		if call(t, srv, "GET", "/carrel/v1/sandboxes?state="+st, ""); !slices.Equal(asked.States, []carrel.State{carrel.State(st)}) {
			t.Errorf("ours: %q finds %v", st, asked.States)
		}
	}
}

// TestLifecycleFields converts E2B's three fields in both directions.
func TestLifecycleFields(t *testing.T) {
	f := newFake()
	var got carrel.CreateOptions
	f.create = func(o carrel.CreateOptions) (carrel.Sandbox, error) { got = o; return box, nil }
	f.get = func(carrel.ID) (carrel.Sandbox, error) {
		sb := box
		sb.Lifecycle = got.Lifecycle
		return sb, nil
	}
	srv := start(t, f)
	for _, c := range []struct {
		body   string
		want   carrel.Lifecycle
		detail string
	}{
		{``, carrel.Lifecycle{}, `{"autoResume":false,"onTimeout":"kill"}`},
		{`"autoPause":false,"autoResume":{"enabled":false}`, carrel.Lifecycle{}, `{"autoResume":false,"onTimeout":"kill"}`},
		{`"autoPause":true`, carrel.Lifecycle{OnTimeout: carrel.ActionPause}, `{"autoResume":false,"onTimeout":"pause"}`},
		{`"autoPause":true,"autoPauseMemory":true,"autoResume":{"enabled":true}`, carrel.Lifecycle{OnTimeout: carrel.ActionPause, AutoResume: true}, `{"autoResume":true,"onTimeout":"pause"}`},
		{`"autoPause":true,"autoPauseMemory":false`, carrel.Lifecycle{OnTimeout: carrel.ActionPause, FilesOnly: true}, `{"autoResume":false,"onTimeout":"pause"}`},
		{`"autoResume":{"enabled":true}`, carrel.Lifecycle{AutoResume: true}, `{"autoResume":true,"onTimeout":"kill"}`},
	} {
		for _, path := range []string{"/sandboxes", "/v2/sandboxes"} {
			body := strings.Replace(`{"templateID":"base",`+c.body+`}`, ",}", "}", 1)
			if resp, out := call(t, srv, "POST", path, body); resp.StatusCode != 201 || !reflect.DeepEqual(got.Lifecycle, c.want) {
				t.Errorf("%s: %d %s %+v", body, resp.StatusCode, out, got.Lifecycle)
			}
		}
		if _, body := call(t, srv, "GET", "/sandboxes/"+boxID, ""); !strings.Contains(body, `"lifecycle":`+c.detail) {
			t.Errorf("%s is shown as %s", c.body, body)
		}
	}
	// A lifecycle with a pause on idleness always shows auto-resume.
	got.Lifecycle = carrel.Lifecycle{Idle: carrel.Idle{After: time.Minute}}
	if _, body := call(t, srv, "GET", "/sandboxes/"+boxID, ""); !strings.Contains(body, `"lifecycle":{"autoResume":true,"onTimeout":"kill"}`) {
		t.Errorf("idle: %s", body)
	}
}

// TestConnect shows that both versions answer 200 for a running sandbox and 201 for a resumed one,
// and that the options arrive.
func TestConnect(t *testing.T) {
	f := newFake()
	var got carrel.ResumeOptions
	resumed := false
	f.resume = func(carrel.ID, carrel.ResumeOptions) (carrel.Sandbox, bool, error) { return box, resumed, nil }
	next := f.resume
	f.resume = func(id carrel.ID, o carrel.ResumeOptions) (carrel.Sandbox, bool, error) { got = o; return next(id, o) }
	srv := start(t, f)
	for _, c := range []struct {
		path, body string
		want       carrel.ResumeOptions
	}{
		{"/v2", ``, carrel.ResumeOptions{Timeout: 300 * time.Second}},
		{"/v2", `{}`, carrel.ResumeOptions{Timeout: 300 * time.Second}},
		{"/v2", `{"timeout":7,"memory":true}`, carrel.ResumeOptions{Timeout: 7 * time.Second}},
		{"/v2", `{"memory":false}`, carrel.ResumeOptions{Timeout: 300 * time.Second, FilesOnly: true}},
		{"", `{"timeout":7,"memory":false}`, carrel.ResumeOptions{Timeout: 7 * time.Second, FilesOnly: true}},
		{"", `{"timeout":0}`, carrel.ResumeOptions{}},
	} {
		for _, resumed = range []bool{false, true} {
			status := map[bool]int{false: 200, true: 201}[resumed]
			if resp, body := call(t, srv, "POST", c.path+"/sandboxes/"+boxID+"/connect", c.body); resp.StatusCode != status || body != created || got != c.want {
				t.Errorf("%s %s: %d %s %+v", c.path, c.body, resp.StatusCode, body, got)
			}
		}
	}
	f.resume = func(carrel.ID, carrel.ResumeOptions) (carrel.Sandbox, bool, error) {
		return carrel.Sandbox{}, false, &carrel.Error{Op: "resume sandbox", Kind: carrel.Unsupported, ID: box.ID, Err: errors.New("made by another build")}
	}
	if resp, body := call(t, srv, "POST", "/v2/sandboxes/"+boxID+"/connect", ""); resp.StatusCode != 501 || !strings.Contains(body, "made by another build") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// TestAutoPauseKeptOnReconnect shows that connecting never changes the action at the timeout. E2B's
// users lost auto-pause this way.
func TestAutoPauseKeptOnReconnect(t *testing.T) {
	var mu sync.Mutex
	var now carrel.Sandbox
	f := newFake()
	f.create = func(o carrel.CreateOptions) (carrel.Sandbox, error) {
		now = box
		now.Lifecycle = o.Lifecycle
		return now, nil
	}
	f.get = func(carrel.ID) (carrel.Sandbox, error) { mu.Lock(); defer mu.Unlock(); return now, nil }
	f.pause = func(carrel.ID, carrel.PauseOptions) (carrel.Sandbox, error) {
		now.State = carrel.Paused
		return now, nil
	}
	f.resume = func(_ carrel.ID, o carrel.ResumeOptions) (carrel.Sandbox, bool, error) {
		was := now.State
		now.State = carrel.Running
		return now, was == carrel.Paused, nil
	}
	f.lifecycle = func(carrel.ID, carrel.Lifecycle) (carrel.Sandbox, error) {
		t.Error("the lifecycle was set")
		return now, nil
	}
	srv := start(t, f)
	call(t, srv, "POST", "/v2/sandboxes", `{"templateID":"base","autoPause":true,"autoResume":{"enabled":true}}`)
	kept := func(when string) {
		t.Helper()
		if _, body := call(t, srv, "GET", "/sandboxes/"+boxID, ""); !strings.Contains(body, `"lifecycle":{"autoResume":true,"onTimeout":"pause"}`) {
			t.Errorf("%s: %s", when, body)
		}
	}
	kept("at first")
	for _, path := range []string{"/v2", ""} {
		call(t, srv, "POST", path+"/sandboxes/"+boxID+"/connect", `{"timeout":60}`)
		kept("after connecting to it while it runs")
		call(t, srv, "POST", "/sandboxes/"+boxID+"/pause", "")
		kept("while it is paused")
		if resp, _ := call(t, srv, "POST", path+"/sandboxes/"+boxID+"/connect", `{"timeout":60}`); resp.StatusCode != 201 {
			t.Errorf("resumed: %d", resp.StatusCode)
		}
		kept("after resuming it")
	}
}

// TestResume checks E2B's deprecated endpoint.
func TestResume(t *testing.T) {
	f := newFake()
	inState(f, carrel.Paused)
	var got carrel.ResumeOptions
	var set []carrel.Lifecycle
	f.resume = func(id carrel.ID, o carrel.ResumeOptions) (carrel.Sandbox, bool, error) {
		got = o
		return box, true, nil
	}
	f.lifecycle = func(_ carrel.ID, l carrel.Lifecycle) (carrel.Sandbox, error) { set = append(set, l); return box, nil }
	srv := start(t, f)
	for body, want := range map[string]carrel.ResumeOptions{
		``: {Timeout: 15 * time.Second}, `{"timeout":9,"memory":false}`: {Timeout: 9 * time.Second, FilesOnly: true},
	} {
		if resp, out := call(t, srv, "POST", "/sandboxes/"+boxID+"/resume", body); resp.StatusCode != 201 || out != created || got != want || set != nil {
			t.Errorf("%s: %d %s %+v", body, resp.StatusCode, out, got)
		}
	}
	for _, on := range []string{"true", "false"} {
		call(t, srv, "POST", "/sandboxes/"+boxID+"/resume", `{"autoPause":`+on+`}`)
	}
	if len(set) != 2 || set[0].OnTimeout != carrel.ActionPause || set[1].OnTimeout != carrel.ActionKill {
		t.Errorf("%+v", set)
	}
	f.resume = func(id carrel.ID, o carrel.ResumeOptions) (carrel.Sandbox, bool, error) { return box, false, nil }
	if resp, out := call(t, srv, "POST", "/sandboxes/"+boxID+"/resume", ``); resp.StatusCode != 409 { // somebody else was faster
		t.Errorf("%d %s", resp.StatusCode, out)
	}
}

// TestPause checks the answers that the SDKs distinguish, and the fields of the body.
func TestPause(t *testing.T) {
	f := newFake()
	var got carrel.PauseOptions
	f.pause = func(_ carrel.ID, o carrel.PauseOptions) (carrel.Sandbox, error) { got = o; return box, nil }
	srv := start(t, f)
	for body, want := range map[string]bool{``: false, `{}`: false, `{"memory":true}`: false, `{"memory":false}`: true, `{"memory":null}`: false} {
		if resp, out := call(t, srv, "POST", "/sandboxes/"+boxID+"/pause", body); resp.StatusCode != 204 || out != "" || got.FilesOnly != want || got.Cause != "" {
			t.Errorf("%s: %d %s %+v", body, resp.StatusCode, out, got)
		}
	}
	f.pause = func(id carrel.ID, _ carrel.PauseOptions) (carrel.Sandbox, error) {
		return carrel.Sandbox{}, &carrel.Error{Op: "pause sandbox", Kind: carrel.Conflict, ID: id, Err: errors.New("it is paused already")}
	}
	if resp, body := call(t, srv, "POST", "/sandboxes/"+boxID+"/pause", ""); resp.StatusCode != 409 || !strings.Contains(body, `"code":409`) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// TestFork shows that each fork's result is in its own entry. An error has the code that a whole
// answer would have.
func TestFork(t *testing.T) {
	f := newFake()
	var got carrel.ForkOptions
	f.fork = func(_ carrel.ID, o carrel.ForkOptions) ([]carrel.ForkResult, error) {
		got = o
		return []carrel.ForkResult{
			{Sandbox: box},
			{Err: &carrel.Error{Op: "create sandbox", Kind: carrel.Exhausted, Err: errors.New("as many sandboxes as there may be"), Hint: "kill some"}},
			{Err: errors.New("/secret/path broke")},
		}, nil
	}
	srv := start(t, f)
	resp, body := call(t, srv, "POST", "/sandboxes/"+boxID+"/fork", `{"count":3,"timeout":300}`)
	var out []struct {
		Sandbox *struct {
			SandboxID string `json:"sandboxID"`
		}
		Error *errorBody
	}
	if err := json.Unmarshal([]byte(body), &out); err != nil || resp.StatusCode != 201 || len(out) != 3 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	if out[0].Sandbox == nil || out[0].Sandbox.SandboxID != boxID || out[0].Error != nil || out[1].Sandbox != nil || out[1].Error.Code != 429 ||
		out[1].Error.Message != "create sandbox: as many sandboxes as there may be" || out[2].Error.Code != 500 || strings.Contains(body, "secret") {
		t.Error(body)
	}
	if got.Count != 3 || got.Timeout != 300*time.Second {
		t.Errorf("%+v", got)
	}
	for body, want := range map[string]carrel.ForkOptions{``: {Count: 1, Timeout: 15 * time.Second}, `{"count":100}`: {Count: 100, Timeout: 15 * time.Second}} {
		if call(t, srv, "POST", "/sandboxes/"+boxID+"/fork", body); got != want {
			t.Errorf("%s: %+v", body, got)
		}
	}
}

// TestTakeSnapshot checks the fields of the body. Python's SDK 2.63 can ask for a snapshot of files
// only.
func TestTakeSnapshot(t *testing.T) {
	f := newFake()
	var got carrel.SnapshotOptions
	f.snapshot = func(_ carrel.ID, o carrel.SnapshotOptions) (carrel.Snapshot, error) { got = o; return moment, nil }
	srv := start(t, f)
	for body, want := range map[string]carrel.SnapshotOptions{
		``: {}, `{}`: {}, `{"memory":true}`: {}, `{"memory":null}`: {}, `{"memory":false}`: {FilesOnly: true},
		`{"name":"warm:default","memory":false}`: {Name: "warm", FilesOnly: true},
	} {
		if resp, out := call(t, srv, "POST", "/sandboxes/"+boxID+"/snapshots", body); resp.StatusCode != 201 || got != want {
			t.Errorf("%s: %d %s %+v", body, resp.StatusCode, out, got)
		}
	}
}

// TestSnapshots checks the list's filters and pages, and names with and without E2B's default tag.
func TestSnapshots(t *testing.T) {
	f := newFake()
	var asked carrel.SnapshotListOptions
	f.snapshots = func(o carrel.SnapshotListOptions) (carrel.SnapshotPage, error) {
		asked = o
		plain := moment
		plain.Names = nil
		return carrel.SnapshotPage{Snapshots: []carrel.Snapshot{moment, plain}, Next: "more"}, nil
	}
	srv := start(t, f)
	resp, body := call(t, srv, "GET", "/snapshots?sandboxID="+boxID+"-client&name=team%2Fwarm%3Adefault&limit=2&nextToken=x", "")
	if body != `[{"snapshotID":"team/warm:default","names":["team/warm:default"]},{"snapshotID":"`+momentID+`","names":[]}]` || resp.Header.Get("X-Next-Token") != "more" {
		t.Errorf("%v %s", resp.Header, body)
	}
	if asked != (carrel.SnapshotListOptions{Sandbox: boxID, Name: "team/warm", Limit: 2, Cursor: "x"}) {
		t.Errorf("%+v", asked)
	}
	if call(t, srv, "GET", "/snapshots?name=a:v1", ""); asked != (carrel.SnapshotListOptions{Name: "a:v1", Limit: 100}) {
		t.Errorf("%+v", asked)
	}
	f.snapshots = func(carrel.SnapshotListOptions) (carrel.SnapshotPage, error) { return carrel.SnapshotPage{}, nil }
	const one = `[{"snapshotID":"team/warm:default","names":["team/warm:default"]}]`
	for query, want := range map[string]string{
		"": "[]", "?name=" + momentID: one, "?name=" + momentID + ":default": one, "?sandboxID=" + boxID + "&name=" + momentID: one,
		"?name=" + laterID: "[]", "?sandboxID=" + otherID + "&name=" + momentID: "[]",
	} {
		if resp, body := call(t, srv, "GET", "/snapshots"+query, ""); resp.StatusCode != 200 || body != want || resp.Header.Get("X-Next-Token") != "" {
			t.Errorf("%s: %d %s", query, resp.StatusCode, body)
		}
	}
}

// TestSnapshotAsTemplate shows that create passes a snapshot's ID or name on unchanged, and that
// delete distinguishes snapshots from templates.
func TestSnapshotAsTemplate(t *testing.T) {
	f := newFake()
	var got string
	f.create = func(o carrel.CreateOptions) (carrel.Sandbox, error) {
		got = o.Template
		if o.Template == "a:v9" {
			return carrel.Sandbox{}, &carrel.Error{Op: "create sandbox", Kind: carrel.NotFound, Field: "template", Err: errors.New("no such name")}
		}
		return box, nil
	}
	var deleted []string
	f.deleted = func(id string) error { deleted = append(deleted, "template "+id); return nil }
	f.unsnap = func(name string) error {
		switch name {
		case "busy":
			return &carrel.Error{Op: "delete snapshot", Kind: carrel.Conflict, Err: errors.New("a paused sandbox needs it")}
		case "warm", momentID, "warm:v1":
			deleted = append(deleted, "snapshot "+name)
			return nil
		}
		return noSnapshot(name)
	}
	srv := start(t, f)
	for _, text := range []string{momentID, momentID + ":default", "team/warm", "team/warm:v1", "warm:latest"} {
		for _, path := range []string{"/sandboxes", "/v2/sandboxes"} {
			if resp, body := call(t, srv, "POST", path, `{"templateID":"`+text+`"}`); resp.StatusCode != 201 || got != text { // the service decides what it means
				t.Errorf("%s: %d %s, asked for %s", text, resp.StatusCode, body, got)
			}
		}
	}
	if resp, body := call(t, srv, "POST", "/v2/sandboxes", `{"templateID":"a:v9"}`); resp.StatusCode != 404 || !strings.Contains(body, "template 'a:v9' not found") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	for _, c := range []struct {
		name   string
		status int
	}{{"warm", 204}, {"warm:default", 204}, {"warm:v1", 204}, {momentID, 204}, {"base", 204}, {"nope", 404}, {"nope:v1", 404}, {laterID, 404}, {"busy", 409}} {
		if resp, body := call(t, srv, "DELETE", "/templates/"+c.name, ""); resp.StatusCode != c.status || (c.status == 404 && !strings.Contains(body, `"code":404`)) {
			t.Errorf("%s: %d %s", c.name, resp.StatusCode, body)
		}
	}
	if !slices.Equal(deleted, []string{"snapshot warm", "snapshot warm", "snapshot warm:v1", "snapshot " + momentID, "template tpl1"}) {
		t.Error(deleted)
	}
}

// TestOnPaused shows that an impossible operation on a paused sandbox gives a clear conflict. The
// sandbox can be killed, and its metrics and logs can be read.
func TestOnPaused(t *testing.T) {
	f := newFake()
	inState(f, carrel.Paused)
	conflict := &carrel.Error{Op: "do it", Kind: carrel.Conflict, ID: boxID, Err: errors.New("the sandbox is paused"), Hint: "resume it first"}
	f.setTimeout = func(carrel.ID, time.Duration, bool) (carrel.Sandbox, error) { return carrel.Sandbox{}, conflict }
	f.setNetwork = func(carrel.ID, carrel.Network) (carrel.Sandbox, error) { return carrel.Sandbox{}, conflict }
	srv := start(t, f)
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/timeout", `{"timeout":5}`, http.StatusConflict},
		{"POST", "/refreshes", ``, http.StatusConflict},
		{"PUT", "/network", `{"denyOut":["8.8.8.8"]}`, http.StatusConflict},
		{"GET", "/metrics", ``, http.StatusOK},
		{"GET", "/logs", ``, http.StatusOK},
		{"DELETE", "", ``, http.StatusNoContent},
	} {
		resp, body := call(t, srv, c.method, "/sandboxes/"+boxID+c.path, c.body)
		if resp.StatusCode != c.status || (c.status == 409 && !strings.Contains(body, "the sandbox is paused")) {
			t.Errorf("%s %s: %d %s", c.method, c.path, resp.StatusCode, body)
		}
	}
}
