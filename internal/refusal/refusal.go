// Package refusal is what a box says about what it stopped: one record for each
// thing that was refused, in a form that an agent can act on.
//
// A record says what was tried, which rule refused it, why, and how a person would
// allow it. Equal records are folded into one with a count. A [Log] collects them from any
// number of goroutines; it is bounded, because what is refused is chosen by the program
// in the box.
package refusal

import "time"

// Kind is what was tried.
type Kind string

// The kinds.
const (
	Read    Kind = "read"    // open, list or look up a file
	Write   Kind = "write"   // create, change, remove or rename a file
	Connect Kind = "connect" // reach an address or a Unix socket
	Name    Kind = "name"    // look a host name up
	Bind    Kind = "bind"    // listen on a port or Unix socket
	Syscall Kind = "syscall" // a system call that the box has no use for
	Signal  Kind = "signal"  // signal or trace a process outside
	Limit   Kind = "limit"   // a limit was reached
)

// Refusal is one record. The JSON form is stable: fields are added, never changed.
type Refusal struct {
	Kind Kind   `json:"kind"`
	What string `json:"what"` // "/home/ann/.ssh/id_ed25519", "example.com:443", "ptrace"
	// Operation is the system call or protocol, for example "openat" or "https".
	Operation string `json:"operation,omitempty"`
	Rule      string `json:"rule"`            // what refused it: "built-in: ssh keys", ".carrel.yaml: write.deny[0]"
	Reason    string `json:"reason"`          // for a person
	Allow     string `json:"allow,omitempty"` // how to allow it: "--read ~/.ssh"; "" when nothing does
	Program   string `json:"program,omitempty"`
	PID       int    `json:"pid,omitempty"` // in the box
	// Certain is false where the refusal was concluded from the rules and the attempt, and not
	// seen: the program may have met another error first.
	Certain bool      `json:"certain"`
	Count   int       `json:"count"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
}

// Options are a Log's settings. The zero value is usable.
type Options struct {
	Max int              // records kept; 0 is 1000. More are counted in Dropped
	Now func() time.Time // time.Now if nil
}

// Report is the JSON document of "carrel run --report".
type Report struct {
	Version  int       `json:"version"` // 1
	Command  []string  `json:"command"`
	Dir      string    `json:"dir"`
	Tier     string    `json:"tier"`
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended"`
	ExitCode int       `json:"exitCode"`
	Signal   string    `json:"signal,omitempty"`
	Refused  []Refusal `json:"refused"` // oldest first; never null
	Dropped  int       `json:"dropped,omitempty"`
	Notes    []string  `json:"notes,omitempty"` // what this host could not do
}

// Log collects refusals. It is safe for concurrent use.
type Log struct{}

// New returns an empty Log.
func New(o Options) *Log { panic("not built") }

// Add notes one refusal. Count, First and Last are set by the Log. Records are equal when
// Kind, What, Rule and Operation are.
func (l *Log) Add(r Refusal) { panic("not built") }

// List returns what was refused, in the order in which each was first, and how many records
// did not fit.
func (l *Log) List() (list []Refusal, dropped int) { panic("not built") }

// Summary is the text for stderr: at most lines lines, "" when nothing was refused. Control characters
// in names are escaped, so that no file name can play with the terminal.
func Summary(list []Refusal, dropped, lines int) string { panic("not built") }
