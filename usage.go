package carrel

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// UsageKind says what was used.
type UsageKind string

// The kinds of usage.
const (
	// UsageRun is a sandbox that runs for its project.
	UsageRun UsageKind = "run"
	// UsageBuild is a sandbox in which a template is built.
	UsageBuild UsageKind = "build"
	// UsageSnapshot is the storage of a snapshot.
	UsageSnapshot UsageKind = "snapshot-storage"
	// UsagePool is a sandbox that was made ahead and belongs to no project yet.
	UsagePool UsageKind = "pool"
)

// Milli is a number in thousandths, and Micro one in millionths. They are whole numbers, so that
// sums are exact. In JSON they are decimal numbers.
type (
	Milli int64
	Micro int64
)

// String returns the number as a decimal.
func (m Milli) String() string { return decimal(int64(m), 3) }

// String returns the number as a decimal.
func (m Micro) String() string { return decimal(int64(m), 6) }

// MarshalJSON writes a decimal number.
func (m Milli) MarshalJSON() ([]byte, error) { return []byte(m.String()), nil }

// MarshalJSON writes a decimal number.
func (m Micro) MarshalJSON() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalJSON reads a decimal number, exactly.
func (m *Milli) UnmarshalJSON(text []byte) error {
	n, err := parseDecimal(string(text), 3)
	*m = Milli(n)
	return inJSON(text, m, err)
}

// UnmarshalJSON reads a decimal number, exactly.
func (m *Micro) UnmarshalJSON(text []byte) error {
	n, err := ParseMicro(string(text))
	*m = n
	return inJSON(text, m, err)
}

// inJSON gives an error the form to which the decoder adds the name of the field.
func inJSON(text []byte, into any, err error) error {
	if err == nil {
		return nil
	}
	return &json.UnmarshalTypeError{Value: fmt.Sprintf("%.40s", text), Type: reflect.TypeOf(into).Elem()}
}

// ParseMilli reads a decimal number with at most three digits after the point.
func ParseMilli(text string) (Milli, error) {
	n, err := parseDecimal(text, 3)
	return Milli(n), err
}

// ParseMicro reads a decimal number with at most six digits after the point.
func ParseMicro(text string) (Micro, error) {
	n, err := parseDecimal(text, 6)
	return Micro(n), err
}

// decimal writes n / 10^digits without zeros at its end.
func decimal(n int64, digits int) string {
	sign, u := "", uint64(n)
	if n < 0 {
		sign, u = "-", -uint64(n)
	}
	text := fmt.Sprintf("%0*d", digits+1, u)
	whole, part := text[:len(text)-digits], strings.TrimRight(text[len(text)-digits:], "0")
	if part != "" {
		part = "." + part
	}
	return sign + whole + part
}

// parseDecimal reads a decimal number as a multiple of 10^-digits.
func parseDecimal(text string, digits int) (int64, error) {
	bad := func(why string) error { return fmt.Errorf("%.40q is not a decimal number%s", text, why) }
	rest, negative := strings.CutPrefix(text, "-")
	whole, part, point := strings.Cut(rest, ".")
	if whole == "" || point && part == "" || strings.Trim(whole+part, "0123456789") != "" {
		return 0, bad("")
	}
	if len(part) > digits {
		return 0, bad(fmt.Sprintf(" with at most %d digits after the point", digits))
	}
	n, err := strconv.ParseInt(whole+part+strings.Repeat("0", digits-len(part)), 10, 64)
	if err != nil {
		return 0, bad(" of a size that can be counted")
	}
	if negative {
		n = -n
	}
	return n, nil
}

// UsageTotals are sums of usage. A sum that is too large to be counted stays at the largest number.
//
// The first block is usage by being alive: time multiplied by the size that was reserved. The
// second block is usage by being active: what the programs really used.
type UsageTotals struct {
	AliveSeconds     Milli `json:"aliveSeconds"`     // of running sandboxes
	VCPUSeconds      Micro `json:"vcpuSeconds"`      // alive × vCPUs
	MemoryMiBSeconds Milli `json:"memoryMiBSeconds"` // alive × memory

	CPUSeconds           Micro `json:"cpuSeconds"`           // processor time
	MemoryUsedMiBSeconds Milli `json:"memoryUsedMiBSeconds"` // time × memory in use
	DiskUsedMiBSeconds   Milli `json:"diskUsedMiBSeconds"`   // time × bytes written to the disk
	BytesOut             int64 `json:"bytesOut"`             // sent by sandboxes to the outside
	BytesIn              int64 `json:"bytesIn"`              // received from the outside

	// SnapshotMiBSeconds is time × size of snapshots, before they are compressed and shared.
	SnapshotMiBSeconds Milli `json:"snapshotMiBSeconds"`

	// Cost is the price of all this, in millionths of the currency; nil without a price list.
	Cost *Micro `json:"cost,omitempty"`
}

// Add adds other's figures, except the cost.
func (t *UsageTotals) Add(other UsageTotals) {
	addTo(&t.AliveSeconds, other.AliveSeconds)
	addTo(&t.VCPUSeconds, other.VCPUSeconds)
	addTo(&t.MemoryMiBSeconds, other.MemoryMiBSeconds)
	addTo(&t.CPUSeconds, other.CPUSeconds)
	addTo(&t.MemoryUsedMiBSeconds, other.MemoryUsedMiBSeconds)
	addTo(&t.DiskUsedMiBSeconds, other.DiskUsedMiBSeconds)
	addTo(&t.BytesOut, other.BytesOut)
	addTo(&t.BytesIn, other.BytesIn)
	addTo(&t.SnapshotMiBSeconds, other.SnapshotMiBSeconds)
}

// addTo adds a number that is not negative, up to the largest one.
func addTo[T ~int64](sum *T, n T) {
	if *sum > math.MaxInt64-n {
		*sum = math.MaxInt64
		return
	}
	*sum += n
}

// UsageOptions selects and groups usage.
type UsageOptions struct {
	// By are the columns of the groups, in order: project, key, template, tier, kind, sandbox, day,
	// or label:NAME. Without any there is one group, of everything.
	By []string
	// From and To bound the time. A zero From is 30 days ago, a zero To is now.
	From, To time.Time
	// Project and Sandbox select. Members see only their own project.
	Project string
	Sandbox ID
}

// UsageReport is the answer to a question about usage.
type UsageReport struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	By   []string  `json:"by"`
	// Currency is the price list's; "" without one.
	Currency string     `json:"currency,omitempty"`
	Rows     []UsageRow `json:"rows"`
	// Total is of everything that was selected.
	Total UsageTotals `json:"total"`
	// Behind are nodes of a fleet that did not answer. They count with what was known of them.
	Behind []UsageBehind `json:"behind,omitempty"`
}

// UsageBehind is a node whose usage is known up to a time. Until then, only sums of whole days are
// known, by project, key, template, tier and kind: other columns are "", and questions about one
// sandbox leave the node out.
type UsageBehind struct {
	Node  string    `json:"node"`
	Until time.Time `json:"until"`
}

// UsageRow is one group.
type UsageRow struct {
	// Group has a value for each column that was asked for. A label that a sandbox does not have is
	// "".
	Group []string `json:"group"`
	UsageTotals
}

// Metering says how much was used. Errors: Invalid, Exhausted for an answer with too many groups.
type Metering interface {
	Usage(ctx context.Context, opts UsageOptions) (UsageReport, error)
}

// NoMetering is a [Metering] for services that do not measure.
type NoMetering struct{}

// Usage implements Metering.
func (NoMetering) Usage(context.Context, UsageOptions) (UsageReport, error) {
	return UsageReport{}, lacking("read usage", "ledger of usage")
}
