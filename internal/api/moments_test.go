package api

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// TestMoments checks the exact answer of each of our endpoints about snapshots, pauses and forks.
func TestMoments(t *testing.T) {
	srv := start(t, newFake(), func(o *Options) { o.Snapshots = shelf{} })
	sb := func(change func(*carrel.Sandbox)) string {
		b := box
		change(&b)
		raw, _ := json.Marshal(b)
		return string(raw)
	}
	running := sb(func(*carrel.Sandbox) {})
	snap, _ := json.Marshal(moment)
	plain := moment
	plain.Names = nil
	unnamed, _ := json.Marshal(plain)
	const v1 = "/carrel/v1"
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", v1 + "/sandboxes/" + boxID + "/pause", ``, 200, sb(func(b *carrel.Sandbox) { b.State = carrel.Paused })},
		{"POST", v1 + "/sandboxes/" + boxID + "/pause", `{"filesOnly":true}`, 200, sb(func(b *carrel.Sandbox) { b.State = carrel.Paused })},
		{"POST", v1 + "/sandboxes/" + boxID + "/resume", `{"timeout":"90s"}`, 200, `{"sandbox":` + running + `,"resumed":false}`},
		{"POST", v1 + "/sandboxes/" + boxID + "/snapshots", `{"name":"a:default","label":"b"}`, 201, strings.Replace(string(snap), "team/warm", "a", 1)},
		{"POST", v1 + "/sandboxes/" + boxID + "/snapshots", ``, 201, string(unnamed)},
		{"POST", v1 + "/sandboxes/" + boxID + "/fork", `{"count":2,"timeout":"1h"}`, 201, `{"forks":[{"sandbox":` + running + `},{"sandbox":` + running + `}]}`},
		{"POST", v1 + "/sandboxes/" + boxID + "/fork", ``, 201, `{"forks":[{"sandbox":` + running + `}]}`},
		{"POST", v1 + "/sandboxes/" + boxID + "/rollback", `{"to":"` + momentID + `","keep":true}`, 200, running},
		{"GET", v1 + "/sandboxes/" + boxID + "/timeline", ``, 200, `{"sandbox":"` + boxID + `","snapshots":[],"size":0}`},
		{"PUT", v1 + "/sandboxes/" + boxID + "/lifecycle", `{"onTimeout":"pause","idle":{"after":"1m"}}`, 200,
			sb(func(b *carrel.Sandbox) {
				b.Lifecycle = carrel.Lifecycle{OnTimeout: carrel.ActionPause, Idle: carrel.Idle{After: time.Minute}}
			})},
		{"GET", v1 + "/snapshots", ``, 200, `{"snapshots":[` + string(snap) + `]}`},
		{"GET", v1 + "/snapshots/" + momentID, ``, 200, string(snap)},
		{"GET", v1 + "/snapshots/team%2Fwarm", ``, 200, string(snap)},
		{"PATCH", v1 + "/snapshots/team%2Fwarm", `{"label":"x"}`, 200, string(snap)},
		{"DELETE", v1 + "/snapshots/team%2Fwarm", ``, 204, ``},
		{"DELETE", v1 + "/snapshots/nope", ``, 404, `{"code":404,"message":"get snapshot: snapshotID: no snapshot nope","kind":"not found","op":"get snapshot","field":"snapshotID","cause":"no snapshot nope"}`},
		{"GET", v1 + "/snapshots/team%2Fwarm/diff?to=" + laterID, ``, 200, `[]`},
		{"GET", v1 + "/snapshot-store", ``, 200, `{"snapshots":1,"size":2,"hot":3,"packs":4,"quota":5}`},
		{"POST", v1 + "/snapshot-store/gc", ``, 200, `{"packs":1,"drafts":2,"freed":3}`},
	} {
		if resp, body := call(t, srv, c.method, c.path, c.body); resp.StatusCode != c.status || body != c.want {
			t.Errorf("%s %s %s\ngot  %d %s\nwant %d %s", c.method, c.path, c.body, resp.StatusCode, body, c.status, c.want)
		}
	}
	for _, path := range []string{"pause", "resume", "snapshots", "fork"} {
		if resp, body := call(t, srv, "POST", v1+"/sandboxes/"+otherID+"/"+path, ``); resp.StatusCode != 404 {
			t.Errorf("%s of nothing: %d %s", path, resp.StatusCode, body)
		}
	}
	bare := start(t, newFake())
	for method, path := range map[string]string{"GET": "/snapshot-store", "POST": "/snapshot-store/gc"} {
		if resp, body := call(t, bare, method, v1+path, ``); resp.StatusCode != 501 {
			t.Errorf("without a store: %d %s", resp.StatusCode, body)
		}
	}
}

// shelf is a snapshot store that only knows its costs.
type shelf struct{}

func (shelf) Usage(context.Context) (snapshot.Usage, error) {
	return snapshot.Usage{Snapshots: 1, Size: 2, Hot: 3, Packs: 4, Quota: 5}, nil
}
func (shelf) GC(context.Context) (snapshot.Collected, error) {
	return snapshot.Collected{Packs: 1, Drafts: 2, Freed: 3}, nil
}

// TestLifecycleForms sends a whole lifecycle in all forms: in create and alone, as texts and in
// Go's own form.
func TestLifecycleForms(t *testing.T) {
	want := carrel.Lifecycle{
		OnTimeout: carrel.ActionPause, FilesOnly: true, AutoResume: true, Idle: carrel.Idle{After: 5 * time.Minute, CPUPct: 2.5, IgnoreCommands: true},
		Checkpoints: carrel.Checkpoints{Every: 10 * time.Minute, Before: []string{`^rm\b`, "git push"}, FilesOnly: true},
		Retention:   carrel.Retention{Last: 5, For: time.Hour},
	}
	const texts = `{"onTimeout":"pause","filesOnly":true,"autoResume":true,"idle":{"after":"5m","cpuPct":2.5,"ignoreCommands":true},` +
		`"checkpoints":{"every":"10m","before":["^rm\\b","git push"],"filesOnly":true},"retention":{"last":5,"for":"1h"}}`
	own, _ := json.Marshal(want)
	f := newFake()
	var got carrel.Lifecycle
	f.create = func(o carrel.CreateOptions) (carrel.Sandbox, error) { got = o.Lifecycle; return box, nil }
	f.lifecycle = func(_ carrel.ID, l carrel.Lifecycle) (carrel.Sandbox, error) { got = l; return box, nil }
	srv := start(t, f)
	for _, l := range []string{texts, string(own)} {
		for _, c := range [][3]string{{"POST", "/carrel/v1/sandboxes", `{"lifecycle":` + l + `}`}, {"PUT", "/carrel/v1/sandboxes/" + boxID + "/lifecycle", l}} {
			got = carrel.Lifecycle{}
			if resp, body := call(t, srv, c[0], c[1], c[2]); resp.StatusCode >= 300 || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %d %s\n%+v", c[2], resp.StatusCode, body, got)
			}
		}
	}
	if resp, body := call(t, srv, "PUT", "/carrel/v1/sandboxes/"+boxID+"/lifecycle", `{}`); resp.StatusCode != 200 || !reflect.DeepEqual(got, carrel.Lifecycle{}) {
		t.Errorf("back to nothing: %d %s %+v", resp.StatusCode, body, got)
	}
}

// TestBadMoments sends invalid requests about snapshots, pauses and forks. The answer must name the
// field.
func TestBadMoments(t *testing.T) {
	f := newFake()
	never := errors.New("this must not reach the service")
	f.create = func(carrel.CreateOptions) (carrel.Sandbox, error) { return carrel.Sandbox{}, never }
	f.pause = func(carrel.ID, carrel.PauseOptions) (carrel.Sandbox, error) { return carrel.Sandbox{}, never }
	f.resume = func(carrel.ID, carrel.ResumeOptions) (carrel.Sandbox, bool, error) {
		return carrel.Sandbox{}, false, never
	}
	f.snapshot = func(carrel.ID, carrel.SnapshotOptions) (carrel.Snapshot, error) { return moment, never }
	f.fork = func(carrel.ID, carrel.ForkOptions) ([]carrel.ForkResult, error) { return nil, never }
	f.rollback = func(carrel.ID, carrel.SnapshotID, carrel.RollbackOptions) (carrel.Sandbox, error) {
		return carrel.Sandbox{}, never
	}
	f.lifecycle = func(carrel.ID, carrel.Lifecycle) (carrel.Sandbox, error) { return carrel.Sandbox{}, never }
	f.update = func(carrel.SnapshotID, carrel.SnapshotUpdate) (carrel.Snapshot, error) { return moment, never }
	f.snapshots = func(carrel.SnapshotListOptions) (carrel.SnapshotPage, error) { return carrel.SnapshotPage{}, never }
	f.diff = func(carrel.SnapshotID, carrel.SnapshotID) ([]carrel.FileChange, error) { return nil, never }
	srv := start(t, f)
	const theirs, ours = "/sandboxes/" + boxID, "/carrel/v1/sandboxes/" + boxID
	many := `["` + strings.Repeat(`a","`, 64) + `a"]`
	for _, c := range []struct {
		method, path, body string
		field, text        string
	}{
		// E2B's.
		{"POST", theirs + "/pause", `{"memory":1}`, "memory", "number given, true or false needed"},
		{"POST", theirs + "/pause", `{`, "", "not JSON"},
		{"POST", theirs + "/fork", `{"count":0}`, "count", "Count must be at least 1"},
		{"POST", theirs + "/fork", `{"count":-1}`, "count", "Count must be at least 1"},
		{"POST", theirs + "/fork", `{"count":101}`, "count", "Count cannot be greater than 100"},
		{"POST", theirs + "/fork", `{"count":1e9}`, "count", ""},
		{"POST", theirs + "/fork", `{"count":"2"}`, "count", "string given, a whole number in range needed"},
		{"POST", theirs + "/fork", `{"timeout":0}`, "timeout", "at once"},
		{"POST", theirs + "/fork", `{"timeout":-1}`, "timeout", "negative"},
		{"POST", theirs + "/fork", `{"timeout":2147483647}`, "timeout", "greater than 720 hours"},
		{"POST", theirs + "/resume", `{"timeout":-1}`, "timeout", "negative"},
		{"POST", theirs + "/connect", `{"timeout":1,"memory":"no"}`, "memory", "true or false needed"},
		{"POST", "/v2" + theirs + "/connect", `{"timeout":-1}`, "timeout", "negative"},
		{"POST", theirs + "/snapshots", `{"name":""}`, "name", "not of the form name or name:tag"},
		{"POST", theirs + "/snapshots", `{"name":7}`, "name", "a text needed"},
		{"POST", theirs + "/snapshots", `{"name":"a:b:c"}`, "name", "not of the form name or name:tag"},
		{"POST", theirs + "/snapshots", `{"name":"a:"}`, "name", "not of the form name or name:tag"},
		{"POST", theirs + "/snapshots", `{"name":"a b"}`, "name", "a character that no name has"},
		{"POST", theirs + "/snapshots", `{"name":"a\u0000"}`, "name", "a character that no name has"},
		{"POST", theirs + "/snapshots", `{"name":"` + momentID + `"}`, "name", "the form of a snapshot's ID"},
		{"POST", theirs + "/snapshots", `{"name":"` + strings.Repeat("x", 129) + `"}`, "name", "longer than 128"},
		{"GET", "/snapshots?sandboxID=nope", ``, "sandboxID", "not a sandbox ID"},
		{"GET", "/snapshots?limit=0", ``, "limit", "from 1 to 100"},
		{"GET", "/snapshots?limit=101", ``, "limit", "from 1 to 100"},
		{"GET", "/snapshots?name=a%20b", ``, "name", ""},
		{"GET", "/snapshots?nextToken=" + strings.Repeat("x", 1025), ``, "nextToken", "longer"},
		{"POST", "/v2/sandboxes", `{"templateID":"base","autoPause":"yes"}`, "autoPause", "true or false needed"},
		{"POST", "/v2/sandboxes", `{"templateID":"base","autoResume":true}`, "autoResume", "an object needed"},
		{"POST", "/v2/sandboxes", `{"templateID":"base","autoPauseMemory":false}`, "autoPauseMemory", "only applies when autoPause is true"},
		{"POST", "/v2/sandboxes", `{"templateID":"base","autoPause":true,"autoPauseMemory":false,"autoResume":{"enabled":true}}`, "autoPauseMemory", "can't be combined with autoResume"},
		// Ours.
		{"POST", ours + "/pause", `{"memory":false}`, "memory", "there is no such field"},
		{"POST", ours + "/pause", `{"filesOnly":"x"}`, "filesOnly", ""},
		{"POST", ours + "/pause", `{"Cause":"idle"}`, "Cause", "there is no such field"},
		{"POST", ours + "/pause", `{} {}`, "", "something follows the document"},
		{"POST", ours + "/pause", `{"filesOnly":`, "", "not JSON"},
		{"POST", ours + "/pause", `[]`, "body", "an object needed"},
		{"POST", ours + "/resume", `{"timeout":"soon"}`, "timeout", "not a duration such as 90s or 2h"},
		{"POST", ours + "/resume", `{"timeout":-1}`, "timeout", "negative"},
		{"POST", ours + "/resume", `{"timeout":1.5}`, "timeout", "neither nanoseconds nor"},
		{"POST", ours + "/resume", `{"timeout":true}`, "timeout", "neither nanoseconds nor"},
		{"POST", ours + "/resume", `{"timeout":"9999h"}`, "timeout", "is more than 720h"},
		{"POST", ours + "/resume", `{"filesOnly":1}`, "filesOnly", "true or false needed"},
		{"POST", ours + "/fork", `{"count":101}`, "count", "greater than 100"},
		{"POST", ours + "/fork", `{"at":"yesterday"}`, "at", "is not a snapshot's ID"},
		{"POST", ours + "/fork", `{"count":-1}`, "count", "at least 1"},
		{"POST", ours + "/fork", `{"count":"1"}`, "count", "a whole number in range needed"},
		{"POST", ours + "/fork", `{"timeout":"-1s"}`, "timeout", "-1s is negative"},
		{"POST", ours + "/snapshots", `{"label":"` + strings.Repeat("ü", 257) + `"}`, "label", "longer than 256"},
		{"POST", ours + "/snapshots", `{"label":"a\u001b[2J"}`, "label", "a control character"},
		{"POST", ours + "/snapshots", `{"name":"a/b:c:d"}`, "name", ""},
		{"POST", ours + "/snapshots", `{"Detail":"x"}`, "Detail", "there is no such field"},
		{"POST", ours + "/rollback", ``, "", "the body is empty"},
		{"POST", ours + "/rollback", `{}`, "to", "missing"},
		{"POST", ours + "/rollback", `{"to":"yesterday"}`, "to", "not a snapshot ID"},
		{"POST", ours + "/rollback", `{"to":"` + boxID + `"}`, "to", "not a snapshot ID"},
		{"POST", ours + "/rollback", `{"to":"` + momentID + `","keep":"x"}`, "keep", "true or false needed"},
		{"PUT", ours + "/lifecycle", `{"onTimeout":"sleep"}`, "onTimeout", "neither kill nor pause"},
		{"PUT", ours + "/lifecycle", `{"onTimeout":1}`, "onTimeout", "a text needed"},
		{"PUT", ours + "/lifecycle", `{"idle":{"after":"x"}}`, "idle.after", "not a duration"},
		{"PUT", ours + "/lifecycle", `{"idle":{"after":"-5s"}}`, "idle.after", "negative"},
		{"PUT", ours + "/lifecycle", `{"idle":{"cpuPct":-1}}`, "idle.cpuPct", "-1 is negative"},
		{"PUT", ours + "/lifecycle", `{"idle":{"cpuPct":"5"}}`, "idle.cpuPct", "a number needed"},
		{"PUT", ours + "/lifecycle", `{"idle":"5m"}`, "idle", "an object needed"},
		{"PUT", ours + "/lifecycle", `{"idle":{"afer":"5m"}}`, "afer", "there is no such field"},
		{"PUT", ours + "/lifecycle", `{"checkpoints":{"every":{}}}`, "checkpoints.every", "neither nanoseconds nor"},
		{"PUT", ours + "/lifecycle", `{"checkpoints":{"before":["ok","("]}}`, "checkpoints.before[1]", "not a regular expression of Go's"},
		{"PUT", ours + "/lifecycle", `{"checkpoints":{"before":["` + strings.Repeat("a", 1001) + `"]}}`, "checkpoints.before[0]", "longer than 1000"},
		{"PUT", ours + "/lifecycle", `{"checkpoints":{"before":["(((a{1000}){1000}){1000})"]}}`, "checkpoints.before[0]", "not a regular expression"},
		{"PUT", ours + "/lifecycle", `{"checkpoints":{"before":` + many + `}}`, "checkpoints.before", "65 expressions are more than 64"},
		{"PUT", ours + "/lifecycle", `{"checkpoints":{"before":"rm"}}`, "checkpoints.before", "a list needed"},
		{"PUT", ours + "/lifecycle", `{"retention":{"last":-1}}`, "retention.last", "-1 is negative"},
		{"PUT", ours + "/lifecycle", `{"retention":{"last":1.5}}`, "retention.last", "a whole number in range needed"},
		{"PUT", ours + "/lifecycle", `{"retention":{"for":-1}}`, "retention.for", "negative"},
		{"PUT", ours + "/lifecycle", ``, "", "the body is empty"},
		{"POST", "/carrel/v1/sandboxes", `{"lifecycle":{"checkpoints":{"before":["["]}}}`, "lifecycle.checkpoints.before[0]", "not a regular expression"},
		{"POST", "/carrel/v1/sandboxes", `{"lifecycle":{"idle":{"after":"1"}}}`, "lifecycle.idle.after", "not a duration"},
		{"POST", "/carrel/v1/sandboxes", `{"lifecycle":{"retention":{"last":"1"}}}`, "lifecycle.retention.last", ""},
		{"POST", "/carrel/v1/sandboxes", `{"tmeplate":"base"}`, "tmeplate", "there is no such field"},
		{"PATCH", "/carrel/v1/snapshots/" + momentID, `{"names":["a","b c"]}`, "names[1]", "a character that no name has"},
		{"PATCH", "/carrel/v1/snapshots/" + momentID, `{"names":"a"}`, "names", "a list needed"},
		{"PATCH", "/carrel/v1/snapshots/" + momentID, `{"names":["` + strings.Repeat(`a","`, 32) + `a"]}`, "names", "33 are more than 32"},
		{"PATCH", "/carrel/v1/snapshots/" + momentID, `{"label":"a\nb"}`, "label", "a control character"},
		{"PATCH", "/carrel/v1/snapshots/" + momentID, `{"kept":"yes"}`, "kept", "true or false needed"},
		{"PATCH", "/carrel/v1/snapshots/" + momentID, `{"memory":true}`, "memory", "there is no such field"},
		{"GET", "/carrel/v1/snapshots?limit=-1", ``, "limit", "from 0 to 100"},
		{"GET", "/carrel/v1/snapshots?auto=x", ``, "auto", "neither true nor false"},
		{"GET", "/carrel/v1/snapshots?sandbox=x", ``, "sandbox", "not a sandbox ID"},
		{"GET", "/carrel/v1/snapshots?name=%0a", ``, "name", ""},
		{"GET", "/carrel/v1/snapshots/" + momentID + "/diff", ``, "to", "missing"},
	} {
		resp, body := call(t, srv, c.method, c.path, c.body)
		var e errorBody
		if err := json.Unmarshal([]byte(body), &e); err != nil || resp.StatusCode != 400 || e.Code != 400 || e.Field != c.field || !strings.Contains(e.Message, c.text) {
			t.Errorf("%s %s %s\ngot %d %s\nwant 400, field %q, %q", c.method, c.path, clip(c.body), resp.StatusCode, body, c.field, c.text)
		}
	}
}

// FuzzLifecycle feeds the strict decoder. An accepted lifecycle must be bounded, and a refusal must
// be the client's fault.
func FuzzLifecycle(f *testing.F) {
	for _, s := range []string{`{}`, `null`, `{"idle":{"after":"5m","cpuPct":1e308}}`, `{"checkpoints":{"every":1,"before":["("]}}`, `{"retention":{"last":-1,"for":"1h"}}`,
		`{"onTimeout":"pause","x":1}`, `{"idle":{"after":"9223372036854775807ns"}}`, `{"idle":{"after":null}}`, `{} `, `{}{}`, `{"idle":[]}`, "{\"\xff\":1}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if checkDepth([]byte(s)) != nil {
			return
		}
		var in lifecycleIn
		err := unmarshalStrict([]byte(s), &in)
		var l carrel.Lifecycle
		if err == nil {
			l, err = in.check("")
		}
		if err != nil {
			if p, ok := errors.AsType[*problem](err); !ok || p.status != 400 {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		if l.Idle.After < 0 || l.Checkpoints.Every < 0 || l.Retention.For < 0 || l.Retention.Last < 0 || l.Idle.CPUPct < 0 {
			t.Fatalf("%q: %+v", s, l)
		}
	})
}

// FuzzSnapshotName shows that an accepted name can't be taken for anything else.
func FuzzSnapshotName(f *testing.F) {
	for _, s := range []string{"a", "a:b", "a/b:default", ":a", "a:", "a:b:c", momentID, momentID + ":v1", "é", " "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, err := snapshotName("name", s)
		if err != nil {
			return
		}
		if _, perr := carrel.ParseSnapshotID(name); perr == nil || name == "" || len(name) > maxName || strings.Count(name, ":") > 1 || strings.HasSuffix(name, ":default") {
			t.Fatalf("%q is the name %q", s, name)
		}
		if again, err := snapshotName("name", name); err != nil || again != name {
			t.Fatalf("%q: %q and then %q, %v", s, name, again, err)
		}
	})
}
