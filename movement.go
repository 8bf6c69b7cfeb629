package carrel

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// Movement moves sandboxes and templates between services that share one store of snapshots. Only
// administrators may use it.
//
// One service publishes a paused sandbox, which gives a passport. Another one adopts the passport:
// the sandbox is then paused there, under the same ID, with its snapshots and its tokens. The first
// one releases it. Who calls makes sure that only one of the two resumes it: Movement has no lock
// over several machines.
type Movement interface {
	// Publish puts everything that another machine needs into the shared store and waits for it. id
	// is a paused sandbox, or a snapshot. The passport of a snapshot describes its sandbox as if it
	// had been paused at that moment.
	//
	// Errors: NotFound, Conflict (the sandbox is not paused, or was resumed meanwhile), Unsupported
	// (this service shares no store), Invalid (damage), Exhausted, Unavailable.
	Publish(ctx context.Context, id string) (Passport, error)
	// Adopt makes a sandbox from a passport, paused. It is idempotent. Before it writes anything, it
	// checks that this machine can restore the sandbox.
	//
	// Errors: Invalid (the passport or the content is damaged, or does not fit together), Unsupported
	// (this machine can't restore it, Field says why), Conflict (a sandbox with this ID is here in
	// another state), AlreadyExists (its name is taken), NotFound (the content is gone), Exhausted,
	// Unavailable.
	Adopt(ctx context.Context, p Passport) (Sandbox, error)
	// Release forgets a sandbox that is another machine's now. If it runs, its instance ends without
	// a snapshot. What it published stays in the shared store. Idempotent: an unknown sandbox is no
	// error.
	Release(ctx context.Context, id ID) error
	// PublishTemplate is Publish for a template. Errors: also Conflict, for one that is not whole.
	PublishTemplate(ctx context.Context, nameOrID string) (TemplatePassport, error)
	// AdoptTemplate is Adopt for a template. It keeps its ID, name and tag. Errors: also
	// AlreadyExists, if another newer template has its name.
	AdoptTemplate(ctx context.Context, p TemplatePassport) (Template, error)
}

// PassportVersion is the version of the form of passports.
const PassportVersion = 1

// Passport is everything that another machine needs to take over a sandbox. It holds the sandbox's
// tokens and environment, so its texts for people leave those out. Only JSON has them.
type Passport struct {
	Version  int        `json:"version"`
	Sandbox  ID         `json:"sandboxID"`
	Project  string     `json:"project"`
	Snapshot SnapshotID `json:"snapshotID"` // the one that it resumes from
	// Needs says which machines can restore that snapshot.
	Needs Needs `json:"needs"`
	// Images are the root images and guests under the sandbox and its snapshots.
	Images []MovedImage `json:"images"`
	// State holds the records, in the form of the service.
	State json.RawMessage `json:"state"`
	// Sum is the SHA-256 of all of this. It detects damage, not forgery.
	Sum string `json:"sum"`
}

// Needs says what a machine must have to restore a snapshot.
type Needs struct {
	Tier   Tier `json:"tier"`
	Memory bool `json:"memory"` // the snapshot holds memory; without it, the sandbox boots
	// Arch is the architecture, as in GOARCH. Build is the driver's build that wrote the memory.
	Arch  string `json:"arch"`
	Build string `json:"build,omitempty"`
	// CPU are the processor's features that programs in the memory may use. Level is the x86-64
	// level that they cover, for people and for placement; "" if there is none.
	CPU   string `json:"cpu,omitempty"`
	Level string `json:"cpuLevel,omitempty"`
	// Kernel is the release of the kernel that the sandbox ran on. It is told for people: no tier's
	// snapshots depend on it.
	Kernel string `json:"kernel,omitempty"`
}

// MovedImage is an image in the shared store.
type MovedImage struct {
	Name string `json:"name"` // in the records
	Sum  string `json:"sum"`  // SHA-256
	Size int64  `json:"size"` // bytes
}

// TemplatePassport is everything that another machine needs of a template. Its environment may hold
// secrets: as for Passport, only JSON has it.
type TemplatePassport struct {
	Version  int      `json:"version"`
	Template Template `json:"template"`
	// Image is the template's root filesystem; nil for a template without files.
	Image *MovedImage `json:"image,omitempty"`
	Sum   string      `json:"sum"` // as in Passport
}

// Sealed returns the passport with its sum.
func (p Passport) Sealed() (Passport, error) {
	sum, err := p.sum()
	p.Sum = sum
	return p, err
}

// Check returns Invalid for a passport of an unknown version, or one that was changed.
func (p Passport) Check() error {
	sum, err := p.sum()
	return checkSealed("adopt sandbox", p.Version, p.Sum, sum, err)
}

func (p Passport) sum() (string, error) {
	p.Sum = ""
	return sumOf(p)
}

// Sealed returns the passport with its sum.
func (p TemplatePassport) Sealed() (TemplatePassport, error) {
	sum, err := p.sum()
	p.Sum = sum
	return p, err
}

// Check returns Invalid for a passport of an unknown version, or one that was changed.
func (p TemplatePassport) Check() error {
	sum, err := p.sum()
	return checkSealed("adopt template", p.Version, p.Sum, sum, err)
}

func (p TemplatePassport) sum() (string, error) {
	p.Sum = ""
	return sumOf(p)
}

// sumOf returns the SHA-256 of a passport's JSON, which is the same on each machine.
func sumOf(v any) (string, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), nil
}

func checkSealed(op string, version int, said, is string, err error) error {
	bad := func(field, hint string, err error) error {
		return &Error{Op: op, Kind: Invalid, Field: field, Err: err, Hint: hint}
	}
	switch {
	case version != PassportVersion:
		return bad("version", "publish it again, with the same carrel on both machines",
			fmt.Errorf("the passport has version %d, this program knows %d", version, PassportVersion))
	case err != nil:
		return bad("passport", "", err)
	case said != is:
		return bad("sum", "publish it again", errors.New("the passport was changed since it was made: its SHA-256 is another"))
	}
	return nil
}

// String describes the passport without its secrets.
func (p Passport) String() string {
	return fmt.Sprintf("passport of sandbox %s at %s (%s)", p.Sandbox, p.Snapshot, p.Needs.Tier)
}

// Format implements fmt.Formatter: every verb prints String.
func (p Passport) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, p.String()) }

// LogValue implements slog.LogValuer.
func (p Passport) LogValue() slog.Value { return slog.StringValue(p.String()) }

// String describes the passport without its secrets.
func (p TemplatePassport) String() string {
	return fmt.Sprintf("passport of template %s (%s)", p.Template.ID, p.Template.FullName())
}

// Format implements fmt.Formatter: every verb prints String.
func (p TemplatePassport) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, p.String()) }

// LogValue implements slog.LogValuer.
func (p TemplatePassport) LogValue() slog.Value { return slog.StringValue(p.String()) }

// NoMovement is a [Movement] for services that move nothing.
type NoMovement struct{}

var _ Movement = NoMovement{}

const noMovement = "movement between machines"

// Publish implements Movement.
func (NoMovement) Publish(context.Context, string) (Passport, error) {
	return Passport{}, lacking("publish sandbox", noMovement)
}

// Adopt implements Movement.
func (NoMovement) Adopt(context.Context, Passport) (Sandbox, error) {
	return Sandbox{}, lacking("adopt sandbox", noMovement)
}

// Release implements Movement.
func (NoMovement) Release(context.Context, ID) error { return lacking("release sandbox", noMovement) }

// PublishTemplate implements Movement.
func (NoMovement) PublishTemplate(context.Context, string) (TemplatePassport, error) {
	return TemplatePassport{}, lacking("publish template", noMovement)
}

// AdoptTemplate implements Movement.
func (NoMovement) AdoptTemplate(context.Context, TemplatePassport) (Template, error) {
	return Template{}, lacking("adopt template", noMovement)
}
