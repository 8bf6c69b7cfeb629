// Package refusal describes what a box has stopped. It has one record for each refused thing, in a
// form that an agent can act on.
//
// A record contains the attempt, the rule that refused it, the reason, and how a person could allow
// it. Equal records are folded into one with a count. A [Log] collects them from any number of
// goroutines. It is bounded, because the program in the box chooses what it attempts.
//
// # Threat
//
// The program in the box chooses names, process names and the number of its attempts. It must not
// make the Log grow, nor push the one important record out of it with a flood of others. It must
// not send control sequences to the terminal that shows a [Summary], nor make two different names
// look the same in the JSON form.
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
	Kind Kind `json:"kind"`
	// What is the refused thing: "/home/ann/.ssh/id_ed25519", "example.com:443", "ptrace". In all
	// texts, bytes that are not UTF-8 are written as \xNN.
	What string `json:"what"`
	// Operation is the system call or protocol, for example "openat" or "https".
	Operation string `json:"operation,omitempty"`
	Rule      string `json:"rule"`            // the rule: "built-in: ssh keys", ".carrel.yaml: write.deny[0]"
	Reason    string `json:"reason"`          // for a person
	Allow     string `json:"allow,omitempty"` // how to allow it: "--read ~/.ssh"; "" if nothing does
	Program   string `json:"program,omitempty"`
	PID       int    `json:"pid,omitempty"` // in the box
	// Certain is false when the refusal was concluded from the rules and the attempt, but not
	// observed. The program may have met another error first.
	Certain bool `json:"certain"`
	// Minor marks attempts that programs make out of habit and can do without, such as caching
	// compiled code beside a library. Summary leaves them out.
	Minor bool      `json:"minor,omitempty"`
	Count int       `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}
