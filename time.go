package carrel

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// SnapshotID names one snapshot for life: the letter s and twenty lower-case
// letters or digits. It may stand wherever a template is named.
type SnapshotID string

// NewSnapshotID returns a fresh random SnapshotID.
func NewSnapshotID() SnapshotID { return SnapshotID("s" + randomText(idLen)) }

// ParseSnapshotID checks that s has the form of a SnapshotID. The error's Kind is
// [Invalid].
func ParseSnapshotID(s string) (SnapshotID, error) {
	if isSnapshotID(s) {
		return SnapshotID(s), nil
	}
	const most = 64
	if len(s) > most {
		s = s[:most] + "…"
	}
	return "", &Error{Op: "parse snapshot id", Kind: Invalid, Field: "snapshotID",
		Err:  fmt.Errorf("%q is not a snapshot ID", s),
		Hint: "a snapshot ID is the letter s and 20 lower-case letters or digits; see carrel timeline"}
}

func isSnapshotID(s string) bool {
	return len(s) == idLen+1 && s[0] == 's' && strings.Trim(s[1:], idAlphabet) == ""
}

// Cause says why a snapshot was taken.
type Cause string

// The causes.
const (
	CauseRequest  Cause = "request"  // somebody asked for it
	CausePause    Cause = "pause"    // the sandbox was paused on request
	CauseTimeout  Cause = "timeout"  // it was paused because its timeout passed
	CauseIdle     Cause = "idle"     // it was paused because nothing happened in it
	CauseFork     Cause = "fork"     // it was forked
	CauseInterval Cause = "interval" // Checkpoints.Every
	CauseCommand  Cause = "command"  // before a command that Checkpoints.Before matches
	CauseGuest    Cause = "guest"    // carrel-guest checkpoint, from inside
	CauseRollback Cause = "rollback" // what a rollback left behind
	CausePromote  Cause = "promote"  // the last moment in the tier that it left
	CauseTemplate Cause = "template" // a template's own start; such a one is in no list
)

// Snapshot is a moment of a sandbox that can be gone back to, or begun from.
type Snapshot struct {
	ID      SnapshotID `json:"id"`
	Sandbox ID         `json:"sandbox"` // whose moment it is; it may be gone
	// Project is whose it is: the sandbox's.
	Project string `json:"project,omitempty"`
	// Parent is the moment that this one came after; "" for the first. When a parent
	// is deleted its children become its own parent's.
	Parent  SnapshotID `json:"parent,omitempty"`
	Created time.Time  `json:"created"`
	Cause   Cause      `json:"cause"`
	// Names find it: in the form name or name:tag, each given to one snapshot at a time.
	Names  []string `json:"names,omitempty"`
	Label  string   `json:"label,omitempty"`  // for people
	Memory bool     `json:"memory"`           // with memory and processes; files only otherwise
	Kept   bool     `json:"kept,omitempty"`   // no retention rule removes it, nor the end of its sandbox
	Detail string   `json:"detail,omitempty"` // the command of CauseCommand, and the like
	Tier   Tier     `json:"tier"`
	// Template, Alias and Limits are those of the sandbox.
	Template string `json:"template"`
	Alias    string `json:"alias,omitempty"`
	Limits   Limits `json:"limits"`
	Size     int64  `json:"size"` // bytes of what it holds, uncompressed
	// New is what it added to the store, in bytes as stored; −1 until that is known.
	New int64 `json:"new"`
}

// Action is what happens to a sandbox.
type Action string

// The actions at a timeout.
const (
	ActionKill  Action = "kill"
	ActionPause Action = "pause"
)

// Lifecycle says what happens to a sandbox by itself. The zero value: it is
// killed when its timeout passes, and nothing else.
type Lifecycle struct {
	// OnTimeout is what happens when the timeout passes; "" is ActionKill.
	OnTimeout Action `json:"onTimeout,omitempty"`
	// FilesOnly pauses by itself without memory: it boots afresh when it is resumed.
	FilesOnly bool `json:"filesOnly,omitempty"`
	// AutoResume wakes it, when it is paused, with the next request to it.
	AutoResume bool `json:"autoResume,omitempty"`
	// Idle pauses it when nothing happens in it; it implies AutoResume.
	Idle Idle `json:"idle,omitzero"`
	// Checkpoints are snapshots taken by themselves.
	Checkpoints Checkpoints `json:"checkpoints,omitzero"`
	// Retention removes them again.
	Retention Retention `json:"retention,omitzero"`
}

// Idle says when nothing happens in a sandbox: no request or connection to it, no
// command that was started through the guest, and less processor use than CPUPct,
// all of that for After.
type Idle struct {
	After time.Duration `json:"after,omitempty"` // 0 switches it off; at least 5 s
	// CPUPct is in percent of one core; 0 is 5.
	CPUPct float64 `json:"cpuPct,omitempty"`
	// IgnoreCommands lets it be idle while commands run that use no processor: servers
	// started in the background, shells left open.
	IgnoreCommands bool `json:"ignoreCommands,omitempty"`
}

// Checkpoints says when snapshots are taken by themselves.
type Checkpoints struct {
	Every time.Duration `json:"every,omitempty"` // 0 switches it off; at least 10 s
	// Before holds regular expressions (Go's syntax): before a command starts through the
	// guest whose line one of them matches, a snapshot is taken. The command does not
	// start when that fails.
	Before    []string `json:"before,omitempty"`
	FilesOnly bool     `json:"filesOnly,omitempty"`
}

// Retention says which of a sandbox's snapshots are removed: those that were
// taken by themselves, for a fork, a rollback or a pause, and are not Kept, named,
// labelled, the head of a living sandbox, or needed to resume. Of pauses only the newest
// stays, and those where the timeline branches; they don't count for Last. The zero
// value is the service's default.
type Retention struct {
	Last int           `json:"last,omitempty"` // so many of the newest stay; 0 is 20
	For  time.Duration `json:"for,omitempty"`  // and those younger than this
}

// PauseOptions says how to pause.
type PauseOptions struct {
	FilesOnly bool `json:"filesOnly,omitempty"` // memory and processes are given up
	// Cause is CausePause when "".
	Cause Cause `json:"-"`
}

// ResumeOptions says how to resume.
type ResumeOptions struct {
	// Timeout is until it is killed or paused again; 0 is the one it last had. For a
	// sandbox that runs already it is only ever extended.
	Timeout time.Duration `json:"timeout,omitempty"`
	// FilesOnly gives up the memory and processes of a paused sandbox and boots it afresh
	// on its files.
	FilesOnly bool `json:"filesOnly,omitempty"`
}

// SnapshotOptions says what snapshot to take.
type SnapshotOptions struct {
	Name      string `json:"name,omitempty"`
	Label     string `json:"label,omitempty"`
	FilesOnly bool   `json:"filesOnly,omitempty"`
	// Cause is CauseRequest when "". Such a snapshot is Kept.
	Cause  Cause  `json:"-"`
	Detail string `json:"-"`
}

// MaxForks is how many forks one call may ask for. A service may have room for less.
const MaxForks = 10000

// ForkOptions says how to fork.
type ForkOptions struct {
	// Count is from 1 to [MaxForks]; 0 is 1. One request to a daemon makes 100 at most: a client sends several.
	Count int `json:"count,omitempty"`
	// At is the moment in the sandbox's past that they begin from; "" is the present. Several calls that name the
	// Sandbox.Snapshot of the first one's results make forks of one moment.
	At SnapshotID `json:"at,omitempty"`
	// Timeout is each fork's. 0 is the default, or the parent's where that is paused at its timeout.
	Timeout time.Duration `json:"timeout,omitempty"`
}

// ForkResult is one fork, or why it could not be made.
type ForkResult struct {
	Sandbox Sandbox
	Err     error // nil: Sandbox is valid
}

// RollbackOptions says how to roll back.
type RollbackOptions struct {
	// Keep takes a snapshot (CauseRollback) of what is left behind, so that the rollback
	// can itself be undone.
	Keep bool `json:"keep,omitempty"`
}

// PromoteOptions says where a promotion goes.
type PromoteOptions struct {
	// Tier is the new tier; "" is the daemon's default, or GVisor where that is Sim.
	Tier Tier `json:"tier,omitempty"`
	// Template is what the files are put on top of; "" is the tier's default.
	Template string `json:"template,omitempty"`
}

// SnapshotListOptions filters and pages ListSnapshots. Newest snapshots come first.
type SnapshotListOptions struct {
	Sandbox ID
	Project string // for an administrator: of this project only
	Name    string // a name, with or without its tag
	Limit   int    // 1–100; 0 is 100
	Cursor  string // SnapshotPage.Next of the page before
	// Auto lists also what was taken for pauses, forks and by itself; without it only
	// CauseRequest and CauseGuest are listed, as E2B does, and what is kept or named.
	Auto bool
}

// SnapshotPage is one page of a ListSnapshots.
type SnapshotPage struct {
	Snapshots []Snapshot
	Next      string // cursor of the next page; "" on the last
}

// SnapshotUpdate changes what a snapshot is called. A nil field stays.
type SnapshotUpdate struct {
	Names *[]string `json:"names,omitempty"`
	Label *string   `json:"label,omitempty"`
	Kept  *bool     `json:"kept,omitempty"`
}

// Timeline is a sandbox's past: its own snapshots and those they came from, as a
// tree by their Parent, oldest first.
type Timeline struct {
	Sandbox   ID         `json:"sandbox"`
	Head      SnapshotID `json:"head,omitempty"` // the moment that its present state came after; "" for none
	Snapshots []Snapshot `json:"snapshots"`
	// Forks are the living sandboxes that were made from these snapshots, by the moment their
	// present state came after.
	Forks map[SnapshotID][]ID `json:"forks,omitempty"`
	Size  int64               `json:"size"` // bytes stored for all of them together, as far as known
}

// ChangeKind says what became of a file.
type ChangeKind string

// The kinds of changes.
const (
	ChangeAdded    ChangeKind = "added"
	ChangeRemoved  ChangeKind = "removed"
	ChangeModified ChangeKind = "modified" // content, type or target
	ChangeMode     ChangeKind = "mode"     // mode or owner only
)

// FileChange is one difference between the files of two snapshots.
type FileChange struct {
	Path string     `json:"path"`
	Kind ChangeKind `json:"kind"`
	// Before and After are nil where there is no such file.
	Before *FileInfo `json:"before,omitempty"`
	After  *FileInfo `json:"after,omitempty"`
}

// Moments is what can be done with a sandbox's time.
type Moments interface {
	// Pause keeps the sandbox's state and gives up everything else: a paused sandbox
	// costs no process and no memory. Errors: NotFound, Conflict (it is paused already,
	// or being paused), Exhausted (the snapshot store; the sandbox runs on).
	Pause(ctx context.Context, id ID, opts PauseOptions) (Sandbox, error)
	// Resume brings a paused sandbox back, under the same ID and with the same
	// tokens, and extends the timeout of a running one. resumed says which it was.
	// Callers at once share one resumption. Errors: NotFound, Exhausted, Unsupported
	// (this machine or build can't restore it).
	Resume(ctx context.Context, id ID, opts ResumeOptions) (sb Sandbox, resumed bool, err error)
	// Snapshot keeps the present moment of a running or paused sandbox, which goes on.
	Snapshot(ctx context.Context, id ID, opts SnapshotOptions) (Snapshot, error)
	// Fork makes new sandboxes from this moment of a running or paused one: one result
	// each. The error is for what is wrong with all of them.
	Fork(ctx context.Context, id ID, opts ForkOptions) ([]ForkResult, error)
	// Rollback puts the sandbox back to an earlier moment of its own timeline: same ID,
	// same tokens, same URLs. Streams that are open end. When it fails the sandbox is as
	// before, or paused at the moment asked for. Errors: NotFound (either), Invalid
	// (another sandbox's moment).
	Rollback(ctx context.Context, id ID, to SnapshotID, opts RollbackOptions) (Sandbox, error)
	// Promote moves a simulated sandbox to a tier that runs real programs: same ID, same tokens, same URLs, and the files
	// that it has changed; processes do not survive. When it fails the sandbox is as before, or paused. Errors:
	// NotFound, Conflict (it is no simulated one), Unsupported (the tier), Invalid (the tier, the template).
	Promote(ctx context.Context, id ID, opts PromoteOptions) (Sandbox, error)

	// GetSnapshot finds a snapshot by ID or name. Error: NotFound.
	GetSnapshot(ctx context.Context, idOrName string) (Snapshot, error)
	ListSnapshots(ctx context.Context, opts SnapshotListOptions) (SnapshotPage, error)
	// UpdateSnapshot changes names, label and Kept. Errors: NotFound, AlreadyExists (a
	// name), Invalid.
	UpdateSnapshot(ctx context.Context, id SnapshotID, u SnapshotUpdate) (Snapshot, error)
	// DeleteSnapshot removes one. Its children stay what they are. Errors: NotFound,
	// Conflict (a paused sandbox needs it).
	DeleteSnapshot(ctx context.Context, idOrName string) error
	// Timeline returns a sandbox's past. Error: NotFound.
	Timeline(ctx context.Context, id ID) (Timeline, error)
	// Diff lists what files changed from one snapshot to another, sorted by path.
	// Errors: NotFound, Invalid (snapshots of different templates).
	Diff(ctx context.Context, from, to SnapshotID) ([]FileChange, error)
	// SetLifecycle replaces what happens to a sandbox by itself.
	SetLifecycle(ctx context.Context, id ID, l Lifecycle) (Sandbox, error)
}
