package fleet

import (
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/quota"
)

// The paths of a front's door for nodes. All are POST, with a message in JSON each way. A node shows
// its certificate, except to [PathJoin].
const (
	PathJoin        = "/fleet/v1/join"
	PathCertificate = "/fleet/v1/certificate"
	PathEnroll      = "/fleet/v1/enroll"
	PathRenew       = "/fleet/v1/renew"
	PathClaim       = "/fleet/v1/claim"
	PathBegin       = "/fleet/v1/begin"
	PathPublish     = "/fleet/v1/publish"
	PathEnd         = "/fleet/v1/end"
	PathHomes       = "/fleet/v1/homes"
)

// JoinRequest asks for a node's first certificate. Request is a PKCS #10 request. Proof proves the
// join token for the name and the request.
type JoinRequest struct {
	Name    string `json:"name"`
	Request []byte `json:"request"`
	Proof   []byte `json:"proof,omitempty"`
}

// JoinAnswer has the certificates of the node and of the fleet's authority, in PEM. Proof proves the
// join token for both.
type JoinAnswer struct {
	Certificate []byte `json:"certificate"`
	Authority   []byte `json:"authority"`
	Proof       []byte `json:"proof,omitempty"`
}

// EnrollRequest says how fronts reach the node.
type EnrollRequest struct {
	URL     string   `json:"url"`
	Key     string   `json:"key"`
	Version string   `json:"version"`
	Taints  []string `json:"taints,omitempty"`
}

// MemberRequest is what a member asks for; each path uses some of the fields. The name is in the
// certificate.
type MemberRequest struct {
	Token    int64         `json:"token"`
	Homes    []HomeMessage `json:"homes,omitempty"`    // for PathClaim
	ID       carrel.ID     `json:"id,omitempty"`       // for PathBegin and PathPublish
	IDs      []carrel.ID   `json:"ids,omitempty"`      // for PathEnd
	Stay     int64         `json:"stay,omitempty"`     // for PathPublish
	Passport []byte        `json:"passport,omitempty"` // for PathPublish
	Paused   bool          `json:"paused,omitempty"`   // for PathPublish
}

// HomeMessage is a home without secrets.
type HomeMessage struct {
	Sandbox carrel.ID `json:"sandbox"`
	Project string    `json:"project,omitempty"`
	State   State     `json:"state,omitempty"`
	Node    string    `json:"node,omitempty"` // in answers
	Stay    int64     `json:"stay,omitempty"` // 0 in a claim: it is not known
	// Load is what counts towards the quotas while it runs.
	Load quota.Load `json:"load,omitzero"`
}

// MemberAnswer is what a front answers to a member.
type MemberAnswer struct {
	Token    int64         `json:"token,omitempty"`
	LeaseMS  int64         `json:"leaseMs,omitempty"` // from when the request was sent
	Draining bool          `json:"draining,omitempty"`
	Homes    []HomeMessage `json:"homes,omitempty"`
}

// Lease returns the time of the lease.
func (a MemberAnswer) Lease() time.Duration { return time.Duration(a.LeaseMS) * time.Millisecond }

// ErrorMessage is the body of an answer of 400 or more.
type ErrorMessage struct {
	Kind   string `json:"kind"`
	Field  string `json:"field,omitempty"`
	Error  string `json:"error"`
	Hint   string `json:"hint,omitempty"`
	Fenced bool   `json:"fenced,omitempty"` // it is ErrFenced
	Held   bool   `json:"held,omitempty"`   // it is ErrHeld
	// Limit is the limit that refuses it.
	Limit *carrel.LimitHit `json:"limit,omitempty"`
}

// MaxMessage bounds a message, in bytes. A passport is the largest part of one.
const MaxMessage = 8 << 20

// MaxClaims bounds the homes and IDs in one message.
const MaxClaims = 500
