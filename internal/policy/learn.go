package policy

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel"
)

// Bounds of what is learned. A program that knows that it is watched decides what is seen.
const (
	maxTargets    = 300
	maxNotes      = 300
	maxPrograms   = 20 // of one target
	maxMethods    = 12 // of one target; with more, its rules name none
	maxMethodSets = 3  // of one target; with more, it gets one rule
)

// LearnOptions says what a [Learner] takes into its policy.
type LearnOptions struct {
	// Denied takes in what a rule refused, too, so that a person can decide about it. What no rule
	// can open stays out.
	Denied bool
	// Hosts leaves out methods and paths.
	Hosts bool
	// Inject are the injections of the sandbox. The policy gets those that put secrets into its
	// requests.
	Inject []carrel.Injection
}

// Learner makes the smallest policy that allows again what a sandbox did. It reads the decisions of
// the wire: a sandbox whose policy allows everything and has inspect shows the most.
//
// What it learns is what happened, with these exceptions. Parts of paths that look like IDs, or of
// which there are many, become "*". What is very long or very many becomes "**", or one rule with
// all methods and paths of its host. And where one connection was not looked into, every request to
// that host and port is allowed.
type Learner struct {
	opts  LearnOptions
	seen  map[target]*traffic
	notes map[string]int // by text: how often
}

// target is what one rule at least is about.
type target struct {
	host     string // a canonical name, or an address
	port     uint16 // 0 is any: only a name was asked for
	protocol string // as in a rule
}

// traffic is what happened with one target.
type traffic struct {
	Seen
	private map[netip.Addr]bool // addresses of the name that a rule must name
	blind   bool                // at least one connection was not looked into
	vague   map[string]int      // requests with a path that no pattern can judge, by method
	paths   pathTree
}

// Seen is the traffic that a learned rule stands for.
type Seen struct {
	Times    int      `json:"times"`
	Denied   int      `json:"denied,omitempty"` // how many of them were refused
	Programs []string `json:"programs,omitempty"`
}

// Learned is a learned policy.
type Learned struct {
	Policy carrel.Policy `json:"policy"`
	// Seen has one entry for each rule.
	Seen []Seen `json:"seen"`
	// Notes say what the policy leaves out or could not know.
	Notes []string `json:"notes,omitempty"`
}

// NewLearner returns a Learner that has seen nothing.
func NewLearner(opts LearnOptions) *Learner {
	return &Learner{opts: opts, seen: map[target]*traffic{}, notes: map[string]int{}}
}

// Add takes in a decision. The order of decisions does not matter.
func (l *Learner) Add(d carrel.Decision) {
	switch {
	case strings.HasPrefix(d.Rule, "audit:"):
		l.note("the log lost decisions: the policy may allow too little")
		return
	case !d.Allowed && !l.opts.Denied:
		l.note("what was refused is left out: --denied takes it in")
		return
	case !d.Allowed && strings.HasPrefix(d.Rule, "built-in:"):
		l.note(fmt.Sprintf("%s is left out: no rule opens it (%s)", destinationOf(d), d.Rule))
		return
	}
	at, ok := l.targetOf(d)
	if !ok {
		return
	}
	t := l.seen[at]
	if t == nil && len(l.seen) >= maxTargets {
		l.note(fmt.Sprintf("there were more than %d destinations: the others are left out", maxTargets))
		return
	}
	if t == nil {
		t = &traffic{private: map[netip.Addr]bool{}, vague: map[string]int{}}
		l.seen[at] = t
	}
	t.add(d)
}

// note notes what the policy leaves out. Most notes name a destination that a program chose, so their
// number is bounded.
func (l *Learner) note(text string) {
	if _, had := l.notes[text]; !had && len(l.notes) >= maxNotes {
		text = "there is more that the policy leaves out"
	}
	l.notes[text]++
}

// destinationOf is the text for a decision's destination.
func destinationOf(d carrel.Decision) string { return clip(cmp.Or(d.Name, d.Address, "a destination")) }

// targetOf finds out what a decision is about. It reports false for one that needs no rule.
func (l *Learner) targetOf(d carrel.Decision) (target, bool) {
	at := target{host: d.Address, port: d.Port}
	if name, ok := canonical(d.Name); ok {
		at.host = name
	}
	switch {
	case at.host == "":
		return at, false
	case at.host == HostName:
		return at, d.Port != 0
	case d.Protocol == "dns":
		// Whoever asked for a name went on to connect, unless the name was refused.
		return target{host: at.host}, !d.Allowed
	case d.Protocol == "udp" && d.Port == 443 && at.host != d.Address:
		l.note(fmt.Sprintf("QUIC to %s is left out: clients use TCP then", destinationOf(d)))
		return at, false
	case d.Protocol == "tls" || d.Protocol == "https":
		at.protocol = "https"
	default:
		at.protocol = d.Protocol
	}
	return at, true
}

// add takes in one decision.
func (t *traffic) add(d carrel.Decision) {
	times := 1 + d.Repeats
	t.Times += times
	if !d.Allowed {
		t.Denied += times
	}
	program, _, _ := strings.Cut(d.Process, " (pid ")
	if program != "" && len(t.Programs) < maxPrograms && !slices.Contains(t.Programs, program) {
		t.Programs = append(t.Programs, program)
		slices.Sort(t.Programs)
	}
	if a, err := netip.ParseAddr(d.Address); err == nil {
		if c, _ := classify(plainAddr(a)); c == private {
			t.private[plainAddr(a)] = true
		}
	}
	if d.Method == "" || d.Path == "" {
		t.blind = true
		return
	}
	path, err := cleanPath(d.Path)
	if err != nil {
		t.vague[d.Method] += times
		return
	}
	t.paths.add(d.Method, path, times)
}

// draft is a rule before those with the same conditions are put together.
type draft struct {
	rule carrel.Rule
	seen Seen
}

// conditions is everything of a rule but its destinations, as one text.
func (d draft) conditions() string {
	r := d.rule
	return strings.Join([]string{strings.Join(r.Ports, ","), r.Protocol, strings.Join(r.Methods, ","),
		strings.Join(r.Paths, "\x00"), strconv.FormatBool(r.Inspect)}, "\n")
}

// Learned returns the policy.
func (l *Learner) Learned() Learned {
	var drafts []draft
	for _, at := range slices.SortedFunc(maps.Keys(l.seen), compareTargets) {
		if l.isCovered(at) {
			continue
		}
		drafts = append(drafts, l.drafts(at, l.seen[at])...)
	}
	// A rule after one that matches the same would be a mistake, so rules with fewer methods come
	// first. The order makes no difference otherwise, since all allow.
	slices.SortStableFunc(drafts, func(x, y draft) int {
		return cmp.Compare(breadth(x.rule), breadth(y.rule))
	})
	var out Learned
	place := map[string]int{}
	for _, d := range drafts {
		key := d.conditions()
		i, had := place[key]
		if !had || slices.Contains(d.rule.Allow, HostName) || slices.Contains(out.Policy.Rules[i].Allow, HostName) {
			place[key] = len(out.Seen)
			out.Policy.Rules, out.Seen = append(out.Policy.Rules, d.rule), append(out.Seen, d.seen)
			continue
		}
		r, s := &out.Policy.Rules[i], &out.Seen[i]
		r.Allow = append(r.Allow, d.rule.Allow...)
		s.Times, s.Denied = s.Times+d.seen.Times, s.Denied+d.seen.Denied
		s.Programs = slices.Compact(slices.Sorted(slices.Values(slices.Concat(s.Programs, d.seen.Programs))))
	}
	for i := range out.Policy.Rules {
		allow := &out.Policy.Rules[i].Allow
		*allow = unique(*allow)
	}
	out.Policy.Inject = l.injections()
	for _, note := range slices.Sorted(maps.Keys(l.notes)) {
		if n := l.notes[note]; n > 1 {
			note = fmt.Sprintf("%s (%d times)", note, n)
		}
		out.Notes = append(out.Notes, note)
	}
	return out
}

func compareTargets(x, y target) int {
	return cmp.Or(cmp.Compare(x.host, y.host), cmp.Compare(x.port, y.port),
		cmp.Compare(x.protocol, y.protocol))
}

// breadth is the number of methods that a rule allows.
func breadth(r carrel.Rule) int {
	if len(r.Methods) == 0 {
		return maxMethods + 1
	}
	return len(r.Methods)
}

// unique removes what stands twice, and keeps the order.
func unique(texts []string) (out []string) {
	for _, t := range texts {
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// isCovered reports whether the rule of another target allows all that a target is about: one with a
// port tells more than one without, and "tcp" is for TLS and HTTP, too.
func (l *Learner) isCovered(at target) bool {
	for other := range l.seen {
		if other.host != at.host {
			continue
		}
		if at.port == 0 && other.port != 0 ||
			at.port == other.port && other.protocol == "tcp" && (at.protocol == "http" || at.protocol == "https") {
			return true
		}
	}
	return false
}

// drafts makes the rules for one target.
func (l *Learner) drafts(at target, t *traffic) []draft {
	plain := carrel.Rule{Allow: []string{at.host}, Protocol: at.protocol}
	if at.port != 0 {
		plain.Ports = []string{strconv.Itoa(int(at.port))}
	}
	if at.host != HostName {
		for _, a := range slices.SortedFunc(maps.Keys(t.private), netip.Addr.Compare) {
			if a.String() != at.host {
				plain.Allow = append(plain.Allow, a.String())
			}
		}
	}
	if _, err := netip.ParseAddr(at.host); err == nil && at.protocol != "udp" {
		plain.Protocol = "tcp" // an address is allowed for whatever goes to it
	}
	isWeb := plain.Protocol == "https" || plain.Protocol == "http"
	if !isWeb || l.opts.Hosts || t.blind {
		if isWeb && t.blind && !l.opts.Hosts {
			l.note(fmt.Sprintf("requests to %s port %d were not seen: inspect shows their methods and paths",
				at.host, at.port))
		}
		return []draft{{plain, t.Seen}}
	}
	return t.requestRules(plain)
}

// requestRules makes rules with methods and paths.
func (t *traffic) requestRules(plain carrel.Rule) []draft {
	paths, sets := t.paths.patterns(), map[string]*requests{}
	every := &requests{methods: map[string]int{}}
	for path, counts := range paths {
		every.add(path, counts)
		counts = maps.Clone(counts)
		maps.DeleteFunc(counts, func(m string, _ int) bool { return t.vague[m] > 0 })
		if len(counts) > 0 {
			key := strings.Join(slices.Sorted(maps.Keys(counts)), ",")
			if sets[key] == nil {
				sets[key] = &requests{methods: map[string]int{}}
			}
			sets[key].add(path, counts)
		}
	}
	if len(t.vague) > 0 { // requests of these methods go anywhere
		anywhere := &requests{methods: map[string]int{}}
		for _, counts := range paths {
			maps.DeleteFunc(counts, func(m string, _ int) bool { return t.vague[m] == 0 })
			anywhere.add("", counts)
		}
		anywhere.add("", t.vague)
		every.add("", t.vague)
		every.paths, anywhere.paths = nil, nil
		sets[""] = anywhere
	}
	if len(sets) > maxMethodSets {
		sets = map[string]*requests{"": every}
	}
	var out []draft
	for _, key := range slices.Sorted(maps.Keys(sets)) {
		out = append(out, sets[key].draft(plain, t.Seen))
	}
	return out
}

// requests are those that one rule allows.
type requests struct {
	methods map[string]int
	paths   []string // none is all
}

func (r *requests) add(path string, counts map[string]int) {
	r.paths = append(r.paths, path)
	for m, n := range counts {
		r.methods[m] += n
	}
}

// draft makes the rule.
func (r *requests) draft(plain carrel.Rule, seen Seen) draft {
	out := draft{plain, seen}
	out.seen.Times, out.seen.Programs = 0, slices.Clone(seen.Programs)
	for _, n := range r.methods {
		out.seen.Times += n
	}
	out.seen.Denied = min(seen.Denied, out.seen.Times)
	out.rule.Allow = slices.Clone(plain.Allow)
	out.rule.Methods, out.rule.Paths = slices.Sorted(maps.Keys(r.methods)), r.paths
	if len(out.rule.Methods) > maxMethods {
		out.rule.Methods = nil
	}
	slices.Sort(out.rule.Paths)
	out.rule.Inspect = out.rule.Methods == nil && out.rule.Paths == nil
	return out
}

// injections returns the sandbox's injections for hosts that the policy allows.
func (l *Learner) injections() (out []carrel.Injection) {
	for _, in := range l.opts.Inject {
		for at := range l.seen {
			suffix, below := strings.CutPrefix(in.Host, "*")
			if at.host == in.Host || below && strings.HasSuffix(at.host, suffix) {
				out = append(out, in)
				break
			}
		}
	}
	return out
}
