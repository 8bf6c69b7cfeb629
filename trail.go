package carrel

import (
	"context"
	"errors"
	"iter"
	"time"
)

// The kinds of a [TrailRecord]. The first four are about callers, the others about the trail itself.
const (
	TrailRead   = "read"   // a caller looked at something
	TrailChange = "change" // a caller made, changed or removed something
	TrailEnter  = "enter"  // a caller ran a command or used a file or a port in a sandbox
	TrailRefuse = "refuse" // a caller was refused

	TrailStart     = "start"      // a daemon opened the trail
	TrailSeal      = "seal"       // signs everything before it
	TrailCut       = "cut"        // signs the end of what retention removed
	TrailTorn      = "torn"       // an unfinished last line was cut off after a crash
	TrailLost      = "lost"       // records that could not be written
	TrailEgress    = "egress"     // the digest of decisions of the wire's audit log
	TrailEgressCut = "egress-cut" // retention removed decisions of the wire's audit log
)

// TrailRecord is one record of the audit trail: what a caller did. Its hash covers the whole record
// and the hash of the record before.
type TrailRecord struct {
	Seq  int64     `json:"seq"`
	Time time.Time `json:"time"`
	Prev string    `json:"prev"` // the hash of the record before
	Kind string    `json:"kind"`

	Key     string `json:"key,omitempty"`    // the name of the key that the caller showed
	KeyID   string `json:"keyID,omitempty"`  // the ID of an [APIKey]
	Person  string `json:"person,omitempty"` // the ID of a [Person]
	Project string `json:"project,omitempty"`
	Role    Role   `json:"role,omitempty"`
	From    string `json:"from,omitempty"`    // the caller's network address
	Request string `json:"request,omitempty"` // the request's ID, as in the daemon's log
	Op      string `json:"op,omitempty"`      // the route, or what was done inside the sandbox
	Target  string `json:"target,omitempty"`  // the things that it was about
	Status  int    `json:"status,omitempty"`  // of the answer
	// Repeats counts further equal operations since Since that have no record of their own.
	Repeats int       `json:"repeats,omitempty"`
	Since   time.Time `json:"since,omitzero"`

	// First, Last and Digest are a range of decisions of the wire, and the SHA-256 of their lines.
	// In a cut, Last is the last removed record, and Digest its hash.
	First  int64  `json:"first,omitempty"`
	Last   int64  `json:"last,omitempty"`
	Digest string `json:"digest,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"` // of a torn line
	Text   string `json:"text,omitempty"`

	Hash string `json:"hash,omitempty"` // SHA-256 of the record without this field and Sig
	Sig  string `json:"sig,omitempty"`  // of the hash, in seals and cuts

	// Line is the record as it was written. Only its bytes have the hash.
	Line []byte `json:"-"`
}

// TrailOptions selects records of the trail. Zero fields select all.
type TrailOptions struct {
	Project string    `json:"project,omitempty"`
	Key     string    `json:"key,omitempty"` // a key's name or ID
	Kind    string    `json:"kind,omitempty"`
	Op      string    `json:"op,omitempty"`     // a part of the operation
	Target  string    `json:"target,omitempty"` // one thing that it was about
	Since   time.Time `json:"since,omitzero"`
	Until   time.Time `json:"until,omitzero"`
	// After is the Seq of the last record that the caller has.
	After int64 `json:"after,omitempty"`
	// Limit selects the newest Limit records; 0 is 1000, and -1 all.
	Limit int `json:"limit,omitempty"`
}

// TrailProblem is something in the trail that nobody but a tamperer, or a damaged disk, can have
// caused.
type TrailProblem struct {
	// Seq is the record; 0 for the whole trail.
	Seq int64 `json:"seq,omitempty"`
	// What is changed, removed, reordered, truncated, forged, unsigned or egress.
	What string `json:"what"`
	Text string `json:"text"`
}

// TrailReport is what a verification found.
type TrailReport struct {
	OK       bool           `json:"ok"`
	Records  int64          `json:"records"`
	First    int64          `json:"first"`    // the oldest record that is kept
	Last     int64          `json:"last"`     // the newest one
	Head     string         `json:"head"`     // its hash
	SignedTo int64          `json:"signedTo"` // the newest record that a signature covers
	Key      string         `json:"key"`      // the public key that the signatures were checked with
	Egress   int64          `json:"egress"`   // decisions of the wire whose digests were right
	Notes    []string       `json:"notes,omitempty"`
	Problems []TrailProblem `json:"problems,omitempty"`
}

// Trails is the audit trail of what callers did.
type Trails interface {
	// Trail streams records, oldest first. An owner sees those of the own project; an administrator
	// sees all. Errors: Forbidden, Invalid.
	Trail(ctx context.Context, opts TrailOptions) iter.Seq2[TrailRecord, error]
	// VerifyTrail checks the chain, the signatures and the wire's audit log. It is for
	// administrators of the machine.
	VerifyTrail(ctx context.Context) (TrailReport, error)
}

// NoTrails is a [Trails] without a trail.
type NoTrails struct{}

var _ Trails = NoTrails{}

func noTrail() error {
	return &Error{Op: "read audit trail", Kind: Unsupported, Err: errors.New("there is no audit trail here")}
}

// Trail implements Trails.
func (NoTrails) Trail(context.Context, TrailOptions) iter.Seq2[TrailRecord, error] {
	return func(yield func(TrailRecord, error) bool) { yield(TrailRecord{}, noTrail()) }
}

// VerifyTrail implements Trails.
func (NoTrails) VerifyTrail(context.Context) (TrailReport, error) { return TrailReport{}, noTrail() }
