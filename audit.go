package carrel

import (
	"context"
	"iter"
	"time"
)

// Decision is one judgement of a sandbox's traffic: an event of the audit log. The decision on
// allowed traffic is written when the connection, session or request has ended.
type Decision struct {
	Seq  int64     `json:"seq"`
	Time time.Time `json:"time"` // when it was judged
	ID   ID        `json:"id"`   // the sandbox
	// Project is the project that the sandbox belongs to.
	Project string `json:"project,omitempty"`
	// Process is the program inside that made the request, if it is known.
	Process string `json:"process,omitempty"`
	Allowed bool   `json:"allowed"`
	// Protocol is dns, tcp, udp, tls, http or https (TLS that Carrel opened to read the request).
	Protocol string `json:"protocol"`
	Name     string `json:"name,omitempty"` // DNS name, TLS server name or HTTP host
	Address  string `json:"address,omitempty"`
	Port     uint16 `json:"port,omitempty"`
	Method   string `json:"method,omitempty"` // HTTP's method; for DNS the question's type
	Path     string `json:"path,omitempty"`   // without the query
	Status   int    `json:"status,omitempty"` // of the HTTP response
	// Rule names the rule that decided: "rule 2 (github)", "preset npm", "default", "built-in:
	// private address".
	Rule   string `json:"rule"`
	Reason string `json:"reason,omitempty"` // why it was refused, for a person
	Hint   string `json:"hint,omitempty"`   // what to ask for
	// Answer says who answered for how long, where the rule asks a person.
	Answer string `json:"answer,omitempty"`
	// Secrets are the names of the secrets and tokens that were put into the request.
	Secrets  []string      `json:"secrets,omitempty"`
	Sent     int64         `json:"sent,omitempty"`     // bytes out of the sandbox
	Received int64         `json:"received,omitempty"` // bytes into it
	Duration time.Duration `json:"duration,omitempty"` // nanoseconds
	// Repeats counts equal refusals that were folded into this event.
	Repeats int `json:"repeats,omitempty"`
}

// AuditOptions selects decisions. Zero fields select all.
type AuditOptions struct {
	ID ID `json:"id,omitempty"`
	// Project selects one project. It is for an administrator, who sees all projects; other callers
	// see only their own.
	Project string    `json:"project,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Until   time.Time `json:"until,omitzero"`
	Allowed *bool     `json:"allowed,omitempty"`
	Host    string    `json:"host,omitempty"` // a name, "*.name", an address or a CIDR
	Rule    string    `json:"rule,omitempty"` // a part of the rule's text
	Secret  string    `json:"secret,omitempty"`
	// After is the Seq of the last decision that the caller has; only later ones are sent. It is
	// for continuing a stream that broke.
	After int64 `json:"after,omitempty"`
	// Limit selects the newest Limit decisions of the past; 0 means 1000. With Follow, 0 means all
	// past decisions if Since or After is given, and none otherwise.
	Limit  int  `json:"limit,omitempty"`
	Follow bool `json:"follow,omitempty"` // continue with new decisions
}

// Audits is the audit log.
type Audits interface {
	// Audit streams decisions, oldest first. It ends when ctx ends; without Follow it also ends at
	// the end of the log.
	Audit(ctx context.Context, opts AuditOptions) iter.Seq2[Decision, error]
}
