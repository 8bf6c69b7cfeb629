package cli

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// past makes a straight timeline of n snapshots. The last one is the head.
func past(n int) *fake {
	f := &fake{box: carrel.Sandbox{ID: boxID, State: carrel.Running, Snapshot: snapID(n)}}
	for i := 1; i <= n; i++ {
		s := carrel.Snapshot{ID: snapID(i), Sandbox: boxID, Created: noon.Add(time.Duration(i-n-1) * time.Minute), Cause: carrel.CauseRequest, Memory: true}
		if i > 1 {
			s.Parent = snapID(i - 1)
		}
		f.snaps = append(f.snaps, s)
	}
	return f
}

// TestVerbs runs command lines and compares everything that a script could use.
func TestVerbs(t *testing.T) {
	box, s1, s2, s3 := string(boxID), string(snapID(1)), string(snapID(2)), string(snapID(3))
	for _, c := range []struct {
		line string // $ID, $1–$3 are the sandbox and its snapshots
		want outcome
		tune func(*fake)
	}{
		{line: "pause $ID", want: outcome{out: box + "\n", calls: []string{"pause {FilesOnly:false Cause:}"}}},
		{line: "pause $ID --files-only", want: outcome{out: box + "\n", calls: []string{"pause {FilesOnly:true Cause:}"}}},
		{line: "--json pause $ID", want: outcome{out: `{"failed":[],"paused":["` + box + `"]}` + "\n", calls: []string{"pause {FilesOnly:false Cause:}"}}},
		{line: "pause " + string(noID) + " $ID", want: outcome{out: box + "\n", err: "carrel: find: " + string(noID) + ": not found\n", code: 3, calls: []string{"pause {FilesOnly:false Cause:}"}}},
		{line: "--json pause " + string(noID) + " $ID", want: outcome{
			out: `{"failed":[{"id":"` + string(noID) + `","kind":"not found","error":"find: ` + string(noID) + `: not found"}],"paused":["` + box + `"]}` + "\n",
			err: "carrel: find: " + string(noID) + ": not found\n", code: 3, calls: []string{"pause {FilesOnly:false Cause:}"}}},
		{line: "pause $ID NONSENSE", want: outcome{code: 2, err: "carrel: parse id: sandboxID: \"NONSENSE\" is not a sandbox ID\nhint: a sandbox ID is the letter i and 20 lower-case letters or digits\n"}},
		{line: "resume $ID --timeout 90s", want: outcome{out: box + "\n", err: "carrel: " + box + " was running already\n", calls: []string{"resume {Timeout:1m30s FilesOnly:false}"}}},
		{line: "resume $ID --files-only", want: outcome{out: box + "\n", calls: []string{"resume {Timeout:0s FilesOnly:true}"}}, tune: paused},
		{line: "--json resume $ID", want: outcome{out: `{"failed":[],"resumed":["` + box + `"],"running":[]}` + "\n", calls: []string{"resume {Timeout:0s FilesOnly:false}"}}, tune: paused},

		{line: "snapshot $ID --name warm:v1 --label hello --files-only", want: outcome{out: s1 + "\n", calls: []string{"snapshot {Name:warm:v1 Label:hello FilesOnly:true Cause: Detail:}"}}},
		{line: "snapshot inspect s0000002", want: outcome{out: "*", calls: []string{"list {Sandbox: Project: Name: Limit:0 Cursor: Auto:true}"}}},
		{line: "snapshot label $1 text", want: outcome{out: s1 + "\n", calls: []string{"update " + s1 + ` label "text"`}}},
		{line: "snapshot name $1 warm", want: outcome{out: s1 + "\n", calls: []string{"update " + s1 + ` names ["warm"]`}}},
		{line: "snapshot name base --remove base", want: outcome{out: s2 + "\n", calls: []string{"update " + s2 + ` names ["base:v2"]`}}, tune: named},
		{line: "snapshot name base base:default", want: outcome{out: s2 + "\n", calls: []string{"update " + s2 + ` names ["base:v2" "base:default"]`}}, tune: named},
		{line: "snapshot name base more", want: outcome{out: s2 + "\n", calls: []string{"update " + s2 + ` names ["base" "base:v2" "more"]`}}, tune: named},
		{line: "snapshot name $1 --remove base", want: outcome{code: 3, err: "carrel: name snapshot: name: " + s1 + " does not have the name \"base\"\nhint: its names: carrel snapshot inspect " + s1 + "\n"}},
		{line: "snapshot keep $1", want: outcome{out: s1 + "\n", calls: []string{"update " + s1 + " kept true"}}},
		{line: "snapshot keep $1 --off", want: outcome{out: s1 + "\n", calls: []string{"update " + s1 + " kept false"}}},
		{line: "snapshot rm base $1", want: outcome{out: s2 + "\n" + s1 + "\n", calls: []string{"delete " + s2, "delete " + s1}}, tune: named},
		{line: "snapshot rm nothing $1", want: outcome{out: s1 + "\n", err: "carrel: get snapshot: no snapshot \"nothing\"\n", code: 3, calls: []string{"delete " + s1}}},
		{line: "snapshot rm s000000", want: outcome{code: 3, err: "carrel: get snapshot: no snapshot \"s000000\"\n"}}, // too short for an ID
		{line: "snapshot rm $ID", want: outcome{code: 2, err: "carrel: find snapshot: snapshot: " + box + " is a sandbox's ID\nhint: its snapshots: carrel timeline " + box + "\n"}},
		{line: "snapshot gc", want: outcome{out: "4096\n", err: "carrel: freed 4.0 KiB: 1 pack removed or rewritten, 2 unfinished snapshots\n"}},
		{line: "--json snapshot gc", want: outcome{out: `{"packs":1,"drafts":2,"freed":4096}` + "\n"}},
		{line: "--json snapshot usage", want: outcome{out: `{"snapshots":3,"size":3145728,"hot":1048576,"packs":2097152,"quota":1073741824}` + "\n"}},

		{line: "fork $ID -n 2 --timeout 1m", want: outcome{out: string(forkID) + "\n",
			err:  "carrel: fork: exhausted\nhint: fewer\ncarrel: 1 of 2 forks were made and stay\n",
			code: 1, calls: []string{"fork {Count:2 At: Timeout:1m0s FilesOnly:false}"}},
			tune: halfForked},
		{line: "fork $ID -n 0", want: outcome{code: 2, err: "carrel: --count 0 is not between 1 and 10000\nhint: see carrel fork --help\n"}},
		{line: "fork $ID -n 10001", want: outcome{code: 2, err: "carrel: --count 10001 is not between 1 and 10000\nhint: see carrel fork --help\n"}},

		{line: "rollback $ID", want: outcome{out: s3 + "\n", calls: []string{"rollback to " + s3 + " {Keep:false}"}}},
		{line: "rollback $ID $1", want: outcome{out: s1 + "\n", calls: []string{"rollback to " + s1 + " {Keep:false}"}}},
		{line: "rollback $ID s0000002", want: outcome{out: s2 + "\n", calls: []string{"rollback to " + s2 + " {Keep:false}"}}},
		{line: "rollback $ID base", want: outcome{out: s2 + "\n", calls: []string{"rollback to " + s2 + " {Keep:false}"}}, tune: named},
		{line: "rollback $ID -n 2", want: outcome{out: s1 + "\n", calls: []string{"rollback to " + s1 + " {Keep:false}"}}},
		{line: "rollback $ID -n 3", want: outcome{code: 3, err: "carrel: find snapshot: " + box + ": 3 steps back from its head lie before its first snapshot; 2 is the most\nhint: see carrel timeline " + box + "\n"}},
		{line: "rollback $ID -n -1", want: outcome{code: 2, err: "carrel: --steps -1 is negative\nhint: see carrel rollback --help\n"}},
		{line: "rollback $ID $1 --last", want: outcome{code: 2, err: "carrel: name a snapshot, or give one of --last and --steps\nhint: see carrel rollback --help\n"}},
		{line: "rollback $ID -n 1 --last", want: outcome{code: 2, err: "carrel: name a snapshot, or give one of --last and --steps\nhint: see carrel rollback --help\n"}},
		{line: "create -t base --from warm", want: outcome{code: 2, err: "carrel: give --template or --from\nhint: see carrel create --help\n"}},
		{line: "rollback $ID --last", want: outcome{out: s3 + "\n", calls: []string{"rollback to " + s3 + " {Keep:false}"}}, tune: func(f *fake) { f.box.Snapshot = snapID(1) }},
		{line: "rollback $ID --keep", want: outcome{out: s3 + "\n", calls: []string{"rollback to " + s3 + " {Keep:true}"},
			err: "carrel: what was left behind is kept; to go there again: carrel rollback " + box + " --last\n"}},
		{line: "rollback $ID", want: outcome{code: 3, err: "carrel: find snapshot: " + box + ": it has no snapshot to go back to\nhint: take one before the next risk: carrel snapshot " + box + "\n"}, tune: unkept},

		{line: "diff $1 s0000003", want: outcome{calls: []string{"list {Sandbox: Project: Name: Limit:0 Cursor: Auto:true}", "diff " + s1 + " " + s3}}},
		{line: "diff $ID", want: outcome{calls: []string{"diff " + s2 + " " + s3}}},
		{line: "diff $2", want: outcome{calls: []string{"diff " + s1 + " " + s2}}},
		{line: "--json diff $2", want: outcome{out: `{"from":"` + s1 + `","to":"` + s2 + `","changes":[]}` + "\n", calls: []string{"diff " + s1 + " " + s2}}},
		{line: "diff $1", want: outcome{code: 3, err: "carrel: find snapshot: " + box + ": " + s1 + " is the first snapshot: there is none to compare it with\nhint: name two: carrel diff SNAPSHOT SNAPSHOT\n"}},

		{line: "create --from s0000002", want: outcome{out: box + "\n", calls: []string{"list {Sandbox: Project: Name: Limit:0 Cursor: Auto:true}", `create from "` + s2 + `" ` + noLife}}},
		{line: "create --from base", want: outcome{out: box + "\n", calls: []string{`create from "` + s2 + `" ` + noLife}}, tune: named},
		{line: "create --on-timeout pause --auto-resume --pause-idle 5m --idle-cpu 2 --checkpoint-every 10m --checkpoint-before ^rm --checkpoint-before a,b --keep-last 7 --keep-for 24h",
			want: outcome{out: box + "\n", calls: []string{`create from "" {OnTimeout:pause FilesOnly:false AutoResume:true Idle:{After:5m0s CPUPct:2 IgnoreCommands:false} ` +
				`Checkpoints:{Every:10m0s Before:[^rm a,b] FilesOnly:false} Retention:{Last:7 For:24h0m0s}}`}}},
		{line: "exec $ID true", want: outcome{code: 125, err: "carrel: open computer: " + box + ": the sandbox is paused\nhint: carrel resume " + box + "\n"}, tune: paused},
		{line: "exec $ID true", want: outcome{code: 125, err: "carrel: open computer: this far\n", calls: []string{"resume {Timeout:0s FilesOnly:false}"}},
			tune: func(f *fake) { paused(f); f.box.Lifecycle.AutoResume = true }},
		{line: "exec $ID true", want: outcome{code: 125, err: "carrel: open computer: this far\n", calls: []string{"resume {Timeout:0s FilesOnly:false}"}},
			tune: func(f *fake) { paused(f); f.box.Lifecycle.Idle.After = time.Minute }},
		{line: "cp $ID:/etc/passwd -", want: outcome{code: 5, err: "carrel: open computer: " + box + ": the sandbox is paused\nhint: carrel resume " + box + "\n"}, tune: paused},
		{line: "exec $ID true", want: outcome{code: 125, err: "carrel: open computer: " + box + ": the sandbox is starting\n"}, tune: func(f *fake) { f.box.State = carrel.Starting }},
	} {
		f := past(3)
		if c.tune != nil {
			c.tune(f)
		}
		line := strings.NewReplacer("$ID", box, "$1", s1, "$2", s2, "$3", s3).Replace(c.line)
		got := f.run(t, strings.Fields(line)...)
		if got.code != c.want.code || (c.want.out != "*" && got.out != c.want.out) || got.err != c.want.err || !slices.Equal(got.calls, c.want.calls) {
			t.Errorf("carrel %s:\n got %v\nwant %v", c.line, got, c.want)
		}
	}
}

const noLife = "{OnTimeout:pause FilesOnly:false AutoResume:false Idle:{After:30m0s CPUPct:0 IgnoreCommands:false} Checkpoints:{Every:0s Before:[] FilesOnly:false} Retention:{Last:0 For:0s}}"

func paused(f *fake) { f.box.State = carrel.Paused }
func unkept(f *fake) { f.box.Snapshot, f.snaps = "", nil }
func named(f *fake)  { f.snaps[1].Names = []string{"base", "base:v2"} }
func halfForked(f *fake) {
	f.results = []carrel.ForkResult{
		{Sandbox: carrel.Sandbox{ID: forkID}},
		{Err: &carrel.Error{Op: "fork", Kind: carrel.Exhausted, Hint: "fewer"}},
	}
}

func TestForkJSON(t *testing.T) {
	f := past(1)
	halfForked(f)
	got := f.run(t, "--json", "fork", string(boxID), "-n", "2")
	if got.code != 1 || !strings.Contains(got.out, `"failed":[{"kind":"exhausted","error":"fork: exhausted","hint":"fewer"}]`) || !strings.Contains(got.out, `"forks":[{"id":"`+string(forkID)) {
		t.Errorf("%v", got)
	}
}

// TestAmbiguous shows that the beginning of two IDs means neither, even if the two are on different
// pages of a list.
func TestAmbiguous(t *testing.T) {
	f := past(5)
	f.pageSize = 2
	f.snaps[4].ID = f.snaps[0].ID[:12] + "zzzzzzzzz"
	got := f.run(t, "snapshot", "rm", "s0000001")
	if got.code != 2 || !strings.Contains(got.err, "2 snapshots begin with s0000001") {
		t.Errorf("%v", got)
	}
	got = f.run(t, "snapshot", "rm", "s00000010000y")
	if got.code != 3 {
		t.Errorf("%v", got)
	}
	got = f.run(t, "snapshot", "rm", string(f.snaps[4].ID[:13]))
	if got.code != 0 || got.out != string(f.snaps[4].ID)+"\n" {
		t.Errorf("%v", got)
	}
}

// TestLifecycle shows that flags change what they name and nothing else.
func TestLifecycle(t *testing.T) {
	f := past(0)
	f.run(t, "lifecycle", string(boxID)) // fills in the sandbox
	f.box.Lifecycle = carrel.Lifecycle{OnTimeout: carrel.ActionPause, AutoResume: true, Checkpoints: carrel.Checkpoints{Every: time.Hour, Before: []string{"rm -rf", "\x1b[2J"}}}
	got := f.run(t, "lifecycle", string(boxID))
	for _, want := range []string{"on timeout +pause", "wakes by itself +true", "pauses when idle +never", `checkpoints +every 1h0m0s, before "rm -rf", before "?[2J"`, "keeps of them +the last 20"} {
		key, value, _ := strings.Cut(want, " +")
		if !strings.Contains(got.out, key) || !strings.Contains(got.out, value) {
			t.Errorf("no %s %s in\n%s", key, value, got.out)
		}
	}
	if len(got.calls) != 0 || strings.Contains(got.out, "\x1b") {
		t.Errorf("%v", got)
	}
	got = f.run(t, "--json", "lifecycle", string(boxID), "--auto-resume=false", "--pause-idle", "1m", "--checkpoint-before", "")
	want := carrel.Lifecycle{OnTimeout: carrel.ActionPause, Idle: carrel.Idle{After: time.Minute}, Checkpoints: carrel.Checkpoints{Every: time.Hour}}
	if l := f.box.Lifecycle; l.OnTimeout != want.OnTimeout || l.AutoResume || l.Idle != want.Idle || l.Checkpoints.Every != time.Hour || l.Checkpoints.Before != nil {
		t.Errorf("%+v, %v", l, got)
	}
}

// TestPausedLook checks the output of ls and info for a paused sandbox.
func TestPausedLook(t *testing.T) {
	f := past(2)
	f.box.State, f.box.Started, f.box.Ends, f.box.Generation = carrel.Paused, noon.Add(-time.Hour), noon.Add(-time.Minute), 3
	got := f.run(t, "ls")
	if !strings.Contains(got.out, "RESUMES FROM") || !strings.Contains(got.out, "paused") || !strings.Contains(got.out, "s0000002") || strings.Contains(got.out, "-1m0s") {
		t.Error(got.out)
	}
	for _, verb := range []string{"info", "inspect"} {
		got = f.run(t, verb, string(boxID))
		for _, want := range []string{"paused since", "2026-03-01T11:59:00Z", string(snapID(2)), "3 times", "on timeout"} {
			if !strings.Contains(got.out, want) {
				t.Errorf("%s: no %q in\n%s", verb, want, got.out)
			}
		}
	}
	f.box.State = carrel.Running
	if got = f.run(t, "ls"); strings.Contains(got.out, "s0000002") {
		t.Error(got.out)
	}
}

// TestHostileError shows that text in a daemon's error does not reach the terminal as an escape
// sequence.
func TestHostileError(t *testing.T) {
	f := past(1)
	f.err = &carrel.Error{Op: "snapshot", Kind: carrel.AlreadyExists, Err: errors.New("\x1b]0;x\x07 \u202e evil\u009b"), Hint: "\x1b[31mrun this"}
	got := f.run(t, "snapshot", string(boxID))
	if got.code != 5 || strings.ContainsAny(got.err, "\x1b\x07\u202e\u009b") {
		t.Errorf("%v", got)
	}
}
