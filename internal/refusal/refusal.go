// Package refusal is what a box says about what it stopped: one record for each
// thing that was refused, in a form that an agent can act on.
//
// A record says what was tried, which rule refused it, why, and how a person would
// allow it. Equal records are folded into one with a count. A [Log] collects them from any
// number of goroutines; it is bounded, because what is refused is chosen by the program
// in the box.
//
// # Threat
//
// The program in the box chooses names, process names and how often it tries. It must not: make the Log
// grow; push the one record that matters out of it with a flood of others; play with the
// terminal that reads a [Summary]; make two different names look the same in the JSON form.
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
	// What is "/home/ann/.ssh/id_ed25519", "example.com:443", "ptrace". Bytes that are not UTF-8
	// are written as \xNN, in all texts.
	What string `json:"what"`
	// Operation is the system call or protocol, for example "openat" or "https".
	Operation string `json:"operation,omitempty"`
	Rule      string `json:"rule"`            // what refused it: "built-in: ssh keys", ".carrel.yaml: write.deny[0]"
	Reason    string `json:"reason"`          // for a person
	Allow     string `json:"allow,omitempty"` // how to allow it: "--read ~/.ssh"; "" when nothing does
	Program   string `json:"program,omitempty"`
	PID       int    `json:"pid,omitempty"` // in the box
	// Certain is false where the refusal was concluded from the rules and the attempt, and not
	// seen: the program may have met another error first.
	Certain bool `json:"certain"`
	// Minor is what programs try as a matter of habit and do well without, such as caching compiled
	// code beside a library. Summary leaves it out.
	Minor bool      `json:"minor,omitempty"`
	Count int       `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}
