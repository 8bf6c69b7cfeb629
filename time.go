package carrel

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// SnapshotID names one snapshot for its whole life: the letter s and twenty lower-case letters or
// digits. It may be used wherever a template is named.
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
	CauseBudget   Cause = "budget"   // it was paused because a budget is spent
	CauseFork     Cause = "fork"     // it was forked
	CauseInterval Cause = "interval" // Checkpoints.Every
	CauseCommand  Cause = "command"  // before a command that matches Checkpoints.Before
	CauseGuest    Cause = "guest"    // carrel-guest checkpoint, from inside
	CauseRollback Cause = "rollback" // what a rollback left behind
	CausePromote  Cause = "promote"  // the last moment in its old tier
	CauseTemplate Cause = "template" // a template's own start; no list shows it
	CauseBuild    Cause = "build"    // files after a step of a build; no list shows it
)

// Snapshot is a saved moment of a sandbox. A sandbox can go back to it, and new ones can begin from
// it.
type Snapshot struct {
	ID      SnapshotID `json:"id"`
	Sandbox ID         `json:"sandbox"` // the sandbox it was taken of; that may be gone
	// Project owns the snapshot: the sandbox's project.
	Project string `json:"project,omitempty"`
	// Parent is the snapshot before this one; "" for the first. When a parent is deleted, its own
	// parent becomes the parent of its children.
	Parent  SnapshotID `json:"parent,omitempty"`
	Created time.Time  `json:"created"`
	Cause   Cause      `json:"cause"`
	// Names can be used to find the snapshot: each has the form name or name:tag, and belongs to
	// one snapshot at a time.
	Names  []string `json:"names,omitempty"`
	Label  string   `json:"label,omitempty"`  // for people
	Memory bool     `json:"memory"`           // with memory and processes; files only otherwise
	Kept   bool     `json:"kept,omitempty"`   // survives retention rules and its sandbox's end
	Detail string   `json:"detail,omitempty"` // for CauseCommand the command, for others similar
	Tier   Tier     `json:"tier"`
	// Template, Alias and Limits are those of the sandbox.
	Template string `json:"template"`
	Alias    string `json:"alias,omitempty"`
	Limits   Limits `json:"limits"`
	Size     int64  `json:"size"` // bytes of its content, uncompressed
	// New is what the snapshot added to the store, in stored bytes; −1 while unknown.
	New int64 `json:"new"`
	// Unavailable says why the content can't be read now, such as an object store that is away; ""
	// when it can. It comes back by itself.
	Unavailable string `json:"unavailable,omitempty"`
}

// Action says what is done to a sandbox.
type Action string

// The actions at a timeout.
const (
	ActionKill  Action = "kill"
	ActionPause Action = "pause"
)

// Lifecycle says what the service does to a sandbox by itself. The zero value kills the sandbox
// when its timeout passes, and does nothing else.
type Lifecycle struct {
	// OnTimeout is the action when the timeout passes; "" is ActionKill.
	OnTimeout Action `json:"onTimeout,omitempty"`
	// FilesOnly makes automatic pauses keep no memory: the sandbox boots afresh when it is resumed.
	FilesOnly bool `json:"filesOnly,omitempty"`
	// AutoResume resumes a paused sandbox with the next request to it.
	AutoResume bool `json:"autoResume,omitempty"`
	// Idle pauses the sandbox when it is idle; it implies AutoResume.
	Idle Idle `json:"idle,omitzero"`
	// Checkpoints are automatic snapshots.
	Checkpoints Checkpoints `json:"checkpoints,omitzero"`
	// Retention removes them again.
	Retention Retention `json:"retention,omitzero"`
}

// Idle says when a sandbox counts as idle. For the time After it must have no request or
// connection, no running command that was started through the guest, and less processor use than
// CPUPct.
type Idle struct {
	After time.Duration `json:"after,omitempty"` // 0 switches it off; at least 5 s
	// CPUPct is a percentage of one core; 0 means 5.
	CPUPct float64 `json:"cpuPct,omitempty"`
	// IgnoreCommands lets the sandbox be idle while commands run that use no processor: servers
	// started in the background, shells left open.
	IgnoreCommands bool `json:"ignoreCommands,omitempty"`
}

// Checkpoints says when automatic snapshots are taken.
type Checkpoints struct {
	Every time.Duration `json:"every,omitempty"` // 0 switches it off; at least 10 s
	// Before holds regular expressions (Go's syntax). When a command starts through the guest and
	// one of them matches its line, a snapshot is taken first. If that fails, the command does not
	// start.
	Before    []string `json:"before,omitempty"`
	FilesOnly bool     `json:"filesOnly,omitempty"`
}

// Retention says how many of a sandbox's automatic snapshots are kept: those for checkpoints,
// forks, rollbacks and pauses. It never removes one that is Kept, named or labelled, that is the
// head of a living sandbox, or that a resume needs. Of snapshots for pauses, the newest stays, and
// those where the timeline branches; they don't count for Last. The zero value is the service's
// default.
type Retention struct {
	Last int           `json:"last,omitempty"` // number of newest that stay; 0 is 20
	For  time.Duration `json:"for,omitempty"`  // and those younger than this
}

// PauseOptions says how to pause.
type PauseOptions struct {
	FilesOnly bool `json:"filesOnly,omitempty"` // memory and processes are lost
	// Cause is CausePause when "".
	Cause Cause `json:"-"`
}

// ResumeOptions says how to resume.
type ResumeOptions struct {
	// Timeout is the time until the sandbox is killed or paused again; 0 means its last timeout.
	// For a sandbox that already runs, it can only extend the time.
	Timeout time.Duration `json:"timeout,omitempty"`
	// FilesOnly drops the memory and processes of a paused sandbox and boots it afresh on its
	// files.
	FilesOnly bool `json:"filesOnly,omitempty"`
}

// SnapshotOptions says what snapshot to take.
type SnapshotOptions struct {
	Name      string `json:"name,omitempty"`
	Label     string `json:"label,omitempty"`
	FilesOnly bool   `json:"filesOnly,omitempty"`
	// Cause "" means CauseRequest. Such a snapshot is Kept.
	Cause  Cause  `json:"-"`
	Detail string `json:"-"`
}

// MaxForks is the most forks that one call may ask for. A service may have room for less.
const MaxForks = 10000

// ForkOptions says how to fork.
type ForkOptions struct {
	// Count is from 1 to [MaxForks]; 0 means 1. One request to a daemon makes at most 100 forks;
	// for more, a client sends several requests.
	Count int `json:"count,omitempty"`
	// At is the moment in the sandbox's past from which the forks begin; "" is the present. To fork
	// one moment with several calls, pass the Sandbox.Snapshot of the first call's results to the
	// others.
	At SnapshotID `json:"at,omitempty"`
	// Timeout is the timeout of each fork. 0 means the service's default; but if the parent is
	// paused at its timeout, it means the parent's.
	Timeout time.Duration `json:"timeout,omitempty"`
	// FilesOnly begins the forks with the files alone. Their first process boots anew, and the
	// parent's memory is not written.
	FilesOnly bool `json:"filesOnly,omitempty"`
}

// ForkResult is one fork, or the reason why it could not be made.
type ForkResult struct {
	Sandbox Sandbox
	Err     error // nil: Sandbox is valid
}

// RollbackOptions says how to roll back.
type RollbackOptions struct {
	// Keep first takes a snapshot (CauseRollback) of the present state, so that the rollback can
	// itself be undone.
	Keep bool `json:"keep,omitempty"`
}

// PromoteOptions says how to promote.
type PromoteOptions struct {
	// Tier is the new tier; "" is for a simulated sandbox alone, and means the daemon's default, or
	// GVisor if that default is Sim.
	Tier Tier `json:"tier,omitempty"`
	// Template is the template under the sandbox's files; "" is the sandbox's own. A simulated
	// sandbox has none, and gets base.
	Template string `json:"template,omitempty"`
}

// SnapshotListOptions filters and pages ListSnapshots. Newest snapshots come first.
type SnapshotListOptions struct {
	Sandbox ID
	Project string // for an administrator: only this project's
	Name    string // a name, with or without its tag
	Limit   int    // 1–100; 0 is 100
	Cursor  string // the previous page's SnapshotPage.Next
	// Auto adds automatic snapshots to the list, and those for pauses and forks. Without it the
	// list has only snapshots of CauseRequest and CauseGuest, as with E2B, and all that are kept or
	// named.
	Auto bool
}

// SnapshotPage is one page of ListSnapshots.
type SnapshotPage struct {
	Snapshots []Snapshot
	Next      string   // cursor of the next page; "" on the last
	Missing   []string // nodes that did not answer, as in [Page]
}

// SnapshotUpdate changes a snapshot's names, label and Kept. A nil field changes nothing.
type SnapshotUpdate struct {
	Names *[]string `json:"names,omitempty"`
	Label *string   `json:"label,omitempty"`
	Kept  *bool     `json:"kept,omitempty"`
}

// Timeline is a sandbox's past: its own snapshots and their ancestors, as a tree by Parent, oldest
// first.
type Timeline struct {
	Sandbox   ID         `json:"sandbox"`
	Head      SnapshotID `json:"head,omitempty"` // the last snapshot before its present state; "" for none
	Snapshots []Snapshot `json:"snapshots"`
	// Forks are the living sandboxes that were made from these snapshots. The key is the last
	// snapshot before the sandbox's present state.
	Forks map[SnapshotID][]ID `json:"forks,omitempty"`
	Size  int64               `json:"size"` // bytes stored for all of them together, if known
}

// ChangeKind says how a file changed.
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

// MaxSnapshotFile is the most of a file that SnapshotFile returns.
const MaxSnapshotFile = 1 << 20

// SnapshotFile is one file as a snapshot has it.
type SnapshotFile struct {
	Info FileInfo `json:"info"`
	// Content is the beginning of a regular file, and all of it if Whole is set. It is empty for
	// everything else: a symbolic link is not followed.
	Content []byte `json:"content,omitempty"`
	Whole   bool   `json:"whole"`
}

// Moments are the operations on a sandbox's time.
type Moments interface {
	// Pause saves the sandbox's state and frees everything else: a paused sandbox costs no process
	// and no memory. Errors: NotFound, Conflict (it is paused already, or being paused), Exhausted
	// (the snapshot store; the sandbox runs on).
	Pause(ctx context.Context, id ID, opts PauseOptions) (Sandbox, error)
	// Resume brings a paused sandbox back, with the same ID and tokens. For a running one it
	// extends the timeout. resumed reports whether the sandbox was paused. Concurrent callers share
	// one resumption. Errors: NotFound, Exhausted, Unsupported (this machine or build can't restore
	// it).
	Resume(ctx context.Context, id ID, opts ResumeOptions) (sb Sandbox, resumed bool, err error)
	// Snapshot saves the present moment of a running or paused sandbox. The sandbox goes on as
	// before.
	Snapshot(ctx context.Context, id ID, opts SnapshotOptions) (Snapshot, error)
	// Fork makes new sandboxes from one moment of a running or paused sandbox, with one result for
	// each. The error is for a problem that concerns all of them.
	Fork(ctx context.Context, id ID, opts ForkOptions) ([]ForkResult, error)
	// Rollback puts the sandbox back to an earlier moment of its own timeline: same ID, same
	// tokens, same URLs. Open streams end. If it fails, the sandbox is as before, or paused at the
	// requested moment. Errors: NotFound (either), Invalid (another sandbox's moment).
	Rollback(ctx context.Context, id ID, to SnapshotID, opts RollbackOptions) (Sandbox, error)
	// Promote moves a sandbox to another tier that runs real programs. ID, tokens, URLs and changed
	// files stay the same; processes do not survive. If it fails, the sandbox is as before, or
	// paused. Errors: NotFound, Unsupported (the tier), Invalid (the tier: it is in it already, or it
	// runs no real programs; the template).
	Promote(ctx context.Context, id ID, opts PromoteOptions) (Sandbox, error)

	// GetSnapshot finds a snapshot by ID or name. Error: NotFound.
	GetSnapshot(ctx context.Context, idOrName string) (Snapshot, error)
	ListSnapshots(ctx context.Context, opts SnapshotListOptions) (SnapshotPage, error)
	// UpdateSnapshot changes names, label and Kept. Errors: NotFound, AlreadyExists (a
	// name), Invalid.
	UpdateSnapshot(ctx context.Context, id SnapshotID, u SnapshotUpdate) (Snapshot, error)
	// DeleteSnapshot removes a snapshot. Its children keep their content. Errors: NotFound,
	// Conflict (a paused sandbox needs it).
	DeleteSnapshot(ctx context.Context, idOrName string) error
	// Timeline returns a sandbox's past. Error: NotFound.
	Timeline(ctx context.Context, id ID) (Timeline, error)
	// Diff lists the files that changed from one snapshot to another, sorted by path. Errors:
	// NotFound, Invalid (snapshots of different templates).
	Diff(ctx context.Context, from, to SnapshotID) ([]FileChange, error)
	// SnapshotFile reads one file of a snapshot, given by its absolute path. Links on the way to it
	// are not followed. Errors: NotFound (either), Invalid (the path).
	SnapshotFile(ctx context.Context, id SnapshotID, name string) (SnapshotFile, error)
	// SetLifecycle replaces a sandbox's Lifecycle.
	SetLifecycle(ctx context.Context, id ID, l Lifecycle) (Sandbox, error)
}
