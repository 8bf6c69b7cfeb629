package carrel

import (
	"context"
	"iter"
	"time"
)

// Decision is one judgement of the wire: an event of the audit log. Of what was
// allowed it is written when the connection, session or request has ended.
type Decision struct {
	Seq  int64     `json:"seq"`
	Time time.Time `json:"time"` // when it was judged
	ID   ID        `json:"id"`   // the sandbox
	// Project is whose sandbox it is.
	Project string `json:"project,omitempty"`
	// Process is the program inside that asked, where that could be found out.
	Process string `json:"process,omitempty"`
	Allowed bool   `json:"allowed"`
	// Protocol is dns, tcp, udp, tls, http or https (opened on the way).
	Protocol string `json:"protocol"`
	Name     string `json:"name,omitempty"` // DNS name, TLS server name or HTTP host
	Address  string `json:"address,omitempty"`
	Port     uint16 `json:"port,omitempty"`
	Method   string `json:"method,omitempty"` // of HTTP; of DNS the question's type
	Path     string `json:"path,omitempty"`   // without the query
	Status   int    `json:"status,omitempty"` // of the HTTP response
	// Rule is what decided: "rule 2 (github)", "preset npm", "default", "built-in: private address".
	Rule   string `json:"rule"`
	Reason string `json:"reason,omitempty"` // why it was refused, for a person
	Hint   string `json:"hint,omitempty"`   // what to ask for
	// Secrets are the names of the secrets and tokens that were put in.
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
	// Project is for an administrator, who sees all projects; others see their own anyway.
	Project string    `json:"project,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Until   time.Time `json:"until,omitzero"`
	Allowed *bool     `json:"allowed,omitempty"`
	Host    string    `json:"host,omitempty"` // a name, "*.name", an address or a CIDR
	Rule    string    `json:"rule,omitempty"` // a part of the rule's text
	Secret  string    `json:"secret,omitempty"`
	// After is the Seq of the last decision that is known already: only later ones are
	// wanted, as when a stream that broke is taken up again.
	After int64 `json:"after,omitempty"`
	// Limit is for the newest so many of what there is; 0 is 1000. With Follow and
	// neither Since nor After, 0 is none, and all with one of them.
	Limit  int  `json:"limit,omitempty"`
	Follow bool `json:"follow,omitempty"` // go on with what happens from now
}

// Audits is the audit log.
type Audits interface {
	// Audit streams decisions, oldest first. It ends with ctx, and without Follow at the
	// log's end.
	Audit(ctx context.Context, opts AuditOptions) iter.Seq2[Decision, error]
}
