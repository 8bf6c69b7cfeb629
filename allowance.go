package carrel

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// LimitName names one number of a [Quota].
type LimitName string

// The limits of a quota. Those of what sandboxes hold count the ones that have an instance: a paused
// one holds only its snapshots.
const (
	LimitSandboxes LimitName = "sandboxes"        // alive at once
	LimitCreates   LimitName = "createsPerMinute" // made within a minute, forks included
	LimitVCPUs     LimitName = "vcpus"            // of all living sandboxes together
	LimitMemory    LimitName = "memoryMB"         // MiB, of all living sandboxes together
	LimitDisk      LimitName = "diskMB"           // MiB, of all living sandboxes together
	LimitSnapshots LimitName = "snapshotsMB"      // MiB of snapshots, before they are compressed and shared
	LimitBuilds    LimitName = "builds"           // waiting and running at once
	LimitEgress    LimitName = "egressMB"         // MiB sent to the outside in a day (UTC)
	LimitForks     LimitName = "forksPerCall"     // asked for by one call
)

// LimitNames returns the names of all limits, in the order of their lists.
func LimitNames() []LimitName {
	return []LimitName{LimitSandboxes, LimitCreates, LimitVCPUs, LimitMemory, LimitDisk, LimitSnapshots,
		LimitBuilds, LimitEgress, LimitForks}
}

// Quota bounds what a project or an API key uses. A limit that is in neither map is no bound.
type Quota struct {
	// Hard limits are never passed: what would pass one is Exhausted.
	Hard map[LimitName]Milli `json:"hard,omitempty"`
	// Soft limits only warn: passing one is an event and a line in the daemon's log.
	Soft map[LimitName]Milli `json:"soft,omitempty"`
}

// IsZero reports whether a quota bounds nothing.
func (q Quota) IsZero() bool { return len(q.Hard) == 0 && len(q.Soft) == 0 }

// CheckQuota says what is wrong with a quota, with an Error of kind Invalid.
func CheckQuota(q Quota) error {
	names := LimitNames()
	for part, limits := range map[string]map[LimitName]Milli{"hard": q.Hard, "soft": q.Soft} {
		for name, n := range limits {
			field := part + "." + string(name)
			switch {
			case !slices.Contains(names, name):
				return &Error{Op: opSetQuota, Kind: Invalid, Field: part, Err: fmt.Errorf("there is no limit %.40q", name),
					Hint: fmt.Sprintf("the limits are %v", names)}
			case n < 0:
				return &Error{Op: opSetQuota, Kind: Invalid, Field: field, Err: fmt.Errorf("%s is negative", n)}
			}
			if hard, ok := q.Hard[name]; ok && part == "soft" && n > hard {
				return &Error{Op: opSetQuota, Kind: Invalid, Field: field,
					Err: fmt.Errorf("%s is above the hard limit, %s, so it would never warn", n, hard)}
			}
		}
	}
	return nil
}

const opSetQuota = "set quota"

// Holder is who has a quota or a ceiling: a project, or one of its API keys.
type Holder struct {
	Project string `json:"project"`
	// Key is the ID of an [APIKey]; "" is the project itself.
	Key string `json:"key,omitempty"`
}

// QuotaReport is a quota and what is used of it.
type QuotaReport struct {
	Holder
	// KeyName is the key's name; "" for a project.
	KeyName string      `json:"keyName,omitempty"`
	Limits  []QuotaLine `json:"limits"`
}

// QuotaLine is one limit. A nil bound is none.
type QuotaLine struct {
	Name LimitName `json:"name"`
	Hard *Milli    `json:"hard,omitempty"`
	Soft *Milli    `json:"soft,omitempty"`
	Used Milli     `json:"used"`
}

// LimitHit says which limit refused a request. It is in an [Error] of kind Exhausted.
type LimitHit struct {
	Name LimitName `json:"name"`
	// Of is whose limit it is: `project "web"` or `API key "ci"`.
	Of string `json:"of"`
	// Key is the ID of the API key, if the limit is a key's.
	Key string `json:"key,omitempty"`
	// Limit is the hard limit, Used what counts towards it now, and Asked what the request would add.
	Limit Milli `json:"limit"`
	Used  Milli `json:"used"`
	Asked Milli `json:"asked"`
}

// Ceiling says what the sandboxes of a project, or those that an API key makes, may ever be allowed. A
// request for more is Forbidden. A list that is nil and a number that is 0 are no bound; an empty
// list allows nothing.
type Ceiling struct {
	// Egress are the destinations that a network may open, as in a [Rule]'s Allow.
	Egress []string `json:"egress,omitzero"`
	// Tiers and Templates are what sandboxes may be made in and of. A template is named by its name or
	// its ID. A snapshot counts as the template of its sandbox.
	Tiers     []Tier   `json:"tiers,omitzero"`
	Templates []string `json:"templates,omitzero"`
	// Limits bounds the size of one sandbox.
	Limits Limits `json:"limits,omitzero"`
	// Timeout bounds how long a sandbox may run without being asked for again.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Secrets are the secrets that may be put into requests, by name or ID.
	Secrets []string `json:"secrets,omitzero"`
}

// IsZero reports whether a ceiling bounds nothing.
func (c Ceiling) IsZero() bool {
	return c.Egress == nil && c.Tiers == nil && c.Templates == nil && c.Limits == Limits{} &&
		c.Timeout == 0 && c.Secrets == nil
}

// CeilingOf is a ceiling and whose it is.
type CeilingOf struct {
	Holder
	KeyName string `json:"keyName,omitempty"`
	Ceiling
}

// Budget bounds what a project, or its sandboxes with one label, may cost.
type Budget struct {
	Project string `json:"project"`
	// Name is what the budget is called in its project.
	Name string `json:"name"`
	// Label is "NAME=VALUE": an entry of sandboxes' metadata. "" is the whole project.
	Label string `json:"label,omitempty"`
	// Amount is in Unit: BudgetMoney, in the price list's currency, or BudgetSeconds, of sandboxes
	// that run.
	Amount Micro      `json:"amount"`
	Unit   BudgetUnit `json:"unit"`
	// Period is when it begins anew, in UTC: BudgetDay, BudgetMonth, or BudgetTotal for never.
	Period BudgetPeriod `json:"period"`
	// WarnPct is at how many per cent of the amount it warns; 0 is 80.
	WarnPct int `json:"warnPct,omitempty"`
	// Since is the beginning of a total. It is when the budget was made.
	Since time.Time `json:"since,omitzero"`
}

// BudgetUnit is what a budget counts.
type BudgetUnit string

// The units.
const (
	BudgetMoney   BudgetUnit = "money"
	BudgetSeconds BudgetUnit = "seconds"
)

// BudgetPeriod is the time after which a budget begins anew.
type BudgetPeriod string

// The periods.
const (
	BudgetDay   BudgetPeriod = "day"
	BudgetMonth BudgetPeriod = "month"
	BudgetTotal BudgetPeriod = "total"
)

// Begins is when the period of a budget began in which now lies, and ends when it ends; zero is never.
func (b Budget) Begins(now time.Time) (begins, ends time.Time) {
	y, m, d := now.UTC().Date()
	switch b.Period {
	case BudgetDay:
		begins = time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
		return begins, begins.AddDate(0, 0, 1)
	case BudgetMonth:
		begins = time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)
		return begins, begins.AddDate(0, 1, 0)
	}
	return b.Since, time.Time{}
}

// Covers reports whether a sandbox with this metadata counts towards the budget of its project.
func (b Budget) Covers(metadata map[string]string) bool {
	name, value, labelled := strings.Cut(b.Label, "=")
	if !labelled {
		return true
	}
	has, ok := metadata[name]
	return ok && has == value
}

// CheckBudget says what is wrong with a budget, with an Error of kind Invalid.
func CheckBudget(b Budget) error {
	wrong := func(field, format string, args ...any) error {
		return &Error{Op: "set budget", Kind: Invalid, Field: field, Err: fmt.Errorf(format, args...)}
	}
	const most = 1 << 30 * 1_000_000
	name, value, ok := strings.Cut(b.Label, "=")
	switch {
	case CheckKeyName(b.Name) != nil:
		return wrong("name", "%.40q is not 1 to %d characters that can be printed", b.Name, maxKeyName)
	case b.Label != "" && (!ok || name == ""):
		return wrong("label", "%.40q is not NAME=VALUE", b.Label)
	case len(name)+len(value) > maxBudgetLabel:
		return wrong("label", "it is longer than the %d bytes that are metered", maxBudgetLabel)
	case b.Amount <= 0 || b.Amount > most:
		return wrong("amount", "%s is not more than 0 and at most %s", b.Amount, Micro(most))
	case b.Unit != BudgetMoney && b.Unit != BudgetSeconds:
		return wrong("unit", "%.40q is neither %s nor %s", b.Unit, BudgetMoney, BudgetSeconds)
	case b.Period != BudgetDay && b.Period != BudgetMonth && b.Period != BudgetTotal:
		return wrong("period", "%.40q is not %s, %s or %s", b.Period, BudgetDay, BudgetMonth, BudgetTotal)
	case b.WarnPct < 0 || b.WarnPct > 100:
		return wrong("warnPct", "%d is not from 0 to 100", b.WarnPct)
	}
	return nil
}

// maxBudgetLabel is as long as a label may be to be metered, in bytes.
const maxBudgetLabel = 512

// BudgetStatus is a budget and what is spent of it.
type BudgetStatus struct {
	Budget
	Spent    Micro  `json:"spent"`
	Currency string `json:"currency,omitempty"`
	// Warned and Spent say that it has warned, and that it holds its sandboxes back.
	Warned bool `json:"warned,omitempty"`
	Over   bool `json:"over,omitempty"`
	// Ends is when it begins anew; zero is never.
	Ends time.Time `json:"ends,omitzero"`
}

// Allowances are the quotas, ceilings and budgets of projects and their keys. A caller sees those of
// its project. Only an administrator of the machine sets those of a project; who may manage the keys
// of a project also sets those of its keys. In a [Holder] of a call, an empty project is the
// caller's, and the key is an ID or a name.
type Allowances interface {
	// Quotas returns the quotas that the caller sees, with what is used of them. With own it returns
	// those that bind the caller itself: its project's, and its key's.
	Quotas(ctx context.Context, own bool) ([]QuotaReport, error)
	// SetQuota replaces a quota; the zero Quota removes it. Errors: Invalid, NotFound, Forbidden.
	SetQuota(ctx context.Context, of Holder, q Quota) (QuotaReport, error)
	// Ceilings returns the ceilings that the caller sees.
	Ceilings(ctx context.Context) ([]CeilingOf, error)
	// SetCeiling replaces a ceiling; the zero Ceiling removes it. What runs already stays as it is
	// until it is changed or resumed. Errors: Invalid, NotFound, Forbidden.
	SetCeiling(ctx context.Context, of Holder, c Ceiling) (CeilingOf, error)
	// Budgets returns the budgets that the caller sees, with what is spent.
	Budgets(ctx context.Context) ([]BudgetStatus, error)
	// SetBudget makes or replaces the budget with its name. Errors: Invalid, NotFound, Forbidden.
	SetBudget(ctx context.Context, b Budget) (BudgetStatus, error)
	// DeleteBudget removes a budget. Errors: NotFound, Forbidden.
	DeleteBudget(ctx context.Context, project, name string) error
}

// NoAllowances is an [Allowances] for services that have one caller.
type NoAllowances struct{}

const noAllowances = "quotas"

// Quotas implements Allowances.
func (NoAllowances) Quotas(context.Context, bool) ([]QuotaReport, error) {
	return nil, lacking("read quotas", noAllowances)
}

// SetQuota implements Allowances.
func (NoAllowances) SetQuota(context.Context, Holder, Quota) (QuotaReport, error) {
	return QuotaReport{}, lacking(opSetQuota, noAllowances)
}

// Ceilings implements Allowances.
func (NoAllowances) Ceilings(context.Context) ([]CeilingOf, error) {
	return nil, lacking("read ceilings", noAllowances)
}

// SetCeiling implements Allowances.
func (NoAllowances) SetCeiling(context.Context, Holder, Ceiling) (CeilingOf, error) {
	return CeilingOf{}, lacking("set ceiling", noAllowances)
}

// Budgets implements Allowances.
func (NoAllowances) Budgets(context.Context) ([]BudgetStatus, error) {
	return nil, lacking("read budgets", noAllowances)
}

// SetBudget implements Allowances.
func (NoAllowances) SetBudget(context.Context, Budget) (BudgetStatus, error) {
	return BudgetStatus{}, lacking("set budget", noAllowances)
}

// DeleteBudget implements Allowances.
func (NoAllowances) DeleteBudget(context.Context, string, string) error {
	return lacking("delete budget", noAllowances)
}

// Words says an amount of a budget's unit.
func (b Budget) Words(n Micro, currency string) string {
	if b.Unit == BudgetSeconds {
		return n.String() + " s"
	}
	return strings.TrimSpace(n.String() + " " + currency)
}
