package ledger

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// Bounds of the labels in a piece. A piece is written every hour, so long labels would cost more
// than what they describe. Labels beyond the bounds are left out.
const (
	maxLabels = 32
	maxLabel  = 512 // bytes of a name and its value
)

// piece is an open piece of usage. Ledger.mu guards it.
type piece struct {
	row state.Usage // as it was last written
	// known says that this process knows that the subject lives. Otherwise only an earlier one knew.
	known bool

	// What was used since the piece's beginning, up to counted.
	counted   *state.Reading
	cpu       time.Duration
	mem, disk int64 // KiB × ms
	out, in   int64

	saved      time.Duration // when it was last written, by the monotonic clock
	savedBytes int64         // out + in at that time
}

// runs reports whether a piece is of a running instance.
func (p *piece) runs() bool { return p.row.Kind != carrel.UsageSnapshot }

// describe says which piece a sandbox is in while it has this record. ok is false for a sandbox that
// does not run.
func describe(rec state.Record) (u state.Usage, ok bool) {
	sb := rec.Sandbox
	u = state.Usage{Subject: string(sb.ID), Kind: carrel.UsageRun, Project: sb.Project, Key: rec.By,
		Template: sb.Template, Tier: sb.Tier, Labels: labelsOf(sb.Metadata),
		MilliCPUs: int64(math.Round(sb.Limits.CPUs * 1000)), MemoryMiB: int64(sb.Limits.MemoryMB)}
	switch {
	case sb.State == state.Warm:
		u.Kind, u.Project, u.Key, u.Labels = carrel.UsagePool, "", "", nil
		return u, true
	case sb.State != carrel.Running && sb.State != carrel.Pausing:
		return u, false
	case sb.Build != "":
		u.Kind = carrel.UsageBuild
	}
	return u, true
}

// describeSnapshot says which piece a snapshot is in. Snapshots without a project, such as
// templates' own starts, belong to the pool.
func describeSnapshot(sr state.SnapshotRecord) state.Usage {
	sn := sr.Snapshot
	return state.Usage{Subject: string(sn.ID), Kind: carrel.UsageSnapshot, Project: sn.Project, Key: sr.Record.By,
		Template: sn.Template, Tier: sn.Tier, Labels: labelsOf(sr.Record.Sandbox.Metadata), Bytes: max(sn.Size, 0)}
}

// labelsOf copies the labels that a piece can hold.
func labelsOf(all map[string]string) map[string]string {
	if len(all) == 0 {
		return nil
	}
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if len(out) < maxLabels && len(name)+len(all[name]) <= maxLabel {
			out[name] = all[name]
		}
	}
	return out
}

// alike reports whether two pieces have the same owner and size.
func alike(a, b state.Usage) bool {
	return a.Subject == b.Subject && a.Kind == b.Kind && a.Project == b.Project && a.Key == b.Key &&
		a.Template == b.Template && a.Tier == b.Tier && a.MilliCPUs == b.MilliCPUs &&
		a.MemoryMiB == b.MemoryMiB && a.Bytes == b.Bytes && maps.Equal(a.Labels, b.Labels)
}

// begin opens a piece now.
func begin(what state.Usage, now Moment) *piece {
	what.ID = fmt.Sprintf("%s.%s-%s", what.Subject, strconv.FormatInt(now.Wall.UnixNano(), 36),
		strconv.FormatInt(int64(now.Mono), 36))
	what.Start, what.Mono, what.Boot = now.Wall.UTC(), now.Mono, now.Boot
	return &piece{row: what, known: true, saved: now.Mono}
}

// next opens the piece after a cut. The instance goes on, and so do its counters.
func (p *piece) next(what state.Usage, now Moment) *piece {
	n := begin(what, now)
	n.known = p.known
	if p.counted != nil {
		c := *p.counted
		c.Mono = max(c.Mono, now.Mono) // the time before is in the earlier piece
		n.counted = &c
		n.row.Counted = &c
	}
	return n
}

// bare returns the owner and size of a piece.
func bare(u state.Usage) state.Usage {
	return state.Usage{Subject: u.Subject, Kind: u.Kind, Project: u.Project, Key: u.Key, Template: u.Template,
		Tier: u.Tier, Labels: u.Labels, MilliCPUs: u.MilliCPUs, MemoryMiB: u.MemoryMiB, Bytes: u.Bytes}
}

// sample adds a measurement. A counter that went back began anew.
func (p *piece) sample(r state.Reading) {
	last := p.counted
	p.counted = &r
	if last == nil {
		p.cpu, p.out, p.in = p.cpu+max(r.CPU, 0), add(p.out, r.Sent), add(p.in, r.Received)
		// Before the first measurement the use was the same, as far as anybody knows.
		p.use(p.row.Mono, r.Mono, r.Memory, r.Disk)
		return
	}
	since := func(now, before int64) int64 {
		if now < before {
			return now
		}
		return now - before
	}
	p.cpu += time.Duration(since(int64(r.CPU), int64(last.CPU)))
	p.out = add(p.out, since(r.Sent, last.Sent))
	p.in = add(p.in, since(r.Received, last.Received))
	p.use(last.Mono, r.Mono, last.Memory/2+r.Memory/2, last.Disk/2+r.Disk/2)
}

// use adds memory and disk that were in use for some time.
func (p *piece) use(from, to time.Duration, memory, disk int64) {
	ms := millis(from, to)
	p.mem = add(p.mem, mulDiv(memory>>10, ms, 1))
	p.disk = add(p.disk, mulDiv(disk>>10, ms, 1))
}

// millis is how many milliseconds pass between two moments. The sum over adjoining times is exact.
func millis(from, to time.Duration) int64 {
	return max(0, to.Milliseconds()-from.Milliseconds())
}

// at returns the piece as it is at a moment of its own boot, still open.
func (p *piece) at(mono time.Duration) state.Usage {
	u := p.row
	lengthen(&u, millis(u.Mono, mono))
	q := *p
	if c := p.counted; c != nil && mono > c.Mono {
		q.use(c.Mono, mono, c.Memory, c.Disk)
		r := *c
		r.Mono = mono
		u.Counted = &r
	} else {
		u.Counted = c
	}
	u.CPUMicros, u.MemUsed, u.DiskUsed = q.cpu.Microseconds(), q.mem>>10, q.disk>>10
	u.BytesOut, u.BytesIn = q.out, q.in
	return u
}

// lengthen gives a piece its length.
func lengthen(u *state.Usage, ms int64) {
	u.AliveMS = ms
	u.CPUAlive, u.MemAlive = mulDiv(u.MilliCPUs, ms, 1), mulDiv(u.MemoryMiB, ms, 1)
	u.BytesAlive = mulDiv(u.Bytes, ms, 1<<20)
}

// end closes a row.
func end(u state.Usage) state.Usage {
	u.End = u.Start.Add(time.Duration(min(u.AliveMS, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond)
	u.Counted = nil
	return u
}

// load makes a piece of an open row that an earlier process wrote.
func load(u state.Usage) *piece {
	p := &piece{row: u, cpu: time.Duration(u.CPUMicros) * time.Microsecond, mem: mulDiv(u.MemUsed, 1<<10, 1),
		disk: mulDiv(u.DiskUsed, 1<<10, 1), out: u.BytesOut, in: u.BytesIn, saved: u.Mono}
	if u.Counted != nil {
		c := *u.Counted
		c.Sent, c.Received = 0, 0 // the daemon's counters begin anew
		p.counted = &c
	}
	return p
}

// add adds two numbers that are not negative, up to the largest.
func add(a, b int64) int64 {
	if b = max(b, 0); a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// mulDiv is a × b / c, rounded down, up to the largest number. None is negative, c is not 0.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(max(a, 0)), uint64(max(b, 0)))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}
