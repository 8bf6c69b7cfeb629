package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

const (
	defaultHold   = 2 * time.Minute
	maxAskSeconds = 3600
)

// askOf is the text that tells one rule that asks from others. Limits and names change nothing.
func askOf(r carrel.Rule) string {
	r.Name, r.Limits = "", carrel.TrafficLimits{}
	text, _ := json.Marshal(r)
	sum := sha256.Sum256(text)
	about := "connections:"
	if len(r.Methods) > 0 || len(r.Paths) > 0 {
		about = requestsPrefix
	}
	return about + hex.EncodeToString(sum[:])
}

const requestsPrefix = "requests:"

// checkAsk refuses what nobody can be asked about.
func checkAsk(at string, r *rule, dests []destination) *fault {
	switch {
	case r.protocol == onlyUDP:
		return faultf(at+".protocol", "", "only TCP can be held until a person answers")
	case slices.ContainsFunc(dests, func(d destination) bool { return d.name == HostName }):
		return faultf(at+".ask", "write allow", "nobody is asked about services of this host")
	}
	return nil
}

// Asks reports whether a policy has a rule that asks a person.
func (p *Policy) Asks() bool { return p.asks }

// Hold is how long a connection may wait for a person's answer.
func (p *Policy) Hold() time.Duration { return p.hold }

// AskField returns the field of the first rule that asks; "" if there is none.
func AskField(p carrel.Policy) string {
	if i := slices.IndexFunc(p.Rules, func(r carrel.Rule) bool { return len(r.Ask) > 0 }); i >= 0 {
		return fmt.Sprintf("policy.rules[%d].ask", i)
	}
	return ""
}

// AsksRequests reports whether the rule of a [Verdict.Ask] is about requests. Then a person is asked
// about a method and a path.
func AsksRequests(ask string) bool { return strings.HasPrefix(ask, requestsPrefix) }

// asksByName reports whether a rule that asks decides by what a connection says. A person must be
// told what it says, so the connection is looked at.
func (d *finding) asksByName() bool {
	return d.rule.ask != "" && (d.mayAllow != nil || d.rule.protocol != onlyTCP)
}

// undecided returns a verdict that leaves the decision to the requests that follow.
func (v Verdict) undecided(more bool) Verdict {
	if more {
		v.Allow, v.Ask, v.Reason = true, "", ""
	}
	return v
}

// Granted returns a verdict to which a person has said yes; answer says who and for how long. The
// address of its name is still judged.
func (v Verdict) Granted(answer string) Verdict {
	v.Allow, v.Answer, v.Reason, v.Hint = true, answer, "", ""
	return v
}

// Permits reports whether a flow with the verdict v, which was allowed or granted, may go to an
// address that [Policy.JudgeTarget] has judged.
func (v Verdict) Permits(target Verdict) bool {
	return target.Allow || target.Ask != "" && target.Ask == v.Ask
}

// unheld refuses a session of UDP, which can't be held.
func unheld(f *known, r *rule) Verdict {
	return Verdict{Rule: r.label, Index: -1,
		Reason: fmt.Sprintf("%s is not allowed: %s asks a person, and only TCP can be held", describe(f), r.label),
		Hint:   "use TCP: clients that try QUIC fall back to it by themselves"}
}

// Answered puts the answer to a question into a policy for ever: a rule before the one that asked.
// A host is a canonical name or an address. method and path are empty unless the rule is about
// requests. It reports an error if the policy has no such rule any more, or if no rule can say that.
func Answered(p carrel.Policy, ask string, allow bool, q carrel.Question) (carrel.Policy, error) {
	i := slices.IndexFunc(p.Rules, func(r carrel.Rule) bool { return len(r.Ask) > 0 && askOf(r) == ask })
	if i < 0 {
		return p, &carrel.Error{Op: opAnswer, Kind: carrel.Conflict, ID: q.Sandbox,
			Err: fmt.Errorf("the sandbox's policy no longer has the rule that asked (%s)", q.Rule)}
	}
	asked := p.Rules[i]
	r := carrel.Rule{Name: "answered", Ports: []string{strconv.Itoa(int(q.Port))}, Protocol: asked.Protocol}
	if q.Method != "" {
		path, err := cleanPath(q.Path)
		if err != nil || strings.Contains(path, "*") {
			return p, &carrel.Error{Op: opAnswer, Kind: carrel.Invalid, Field: "for", ID: q.Sandbox,
				Err:  fmt.Errorf("no rule can be written for the path %s", clip(q.Path)),
				Hint: "answer for once or for an hour"}
		}
		r.Methods, r.Paths = []string{q.Method}, []string{path}
	}
	if allow {
		if r.Allow, r.Limits = []string{q.Host}, asked.Limits; r.Protocol == "" {
			r.Protocol = ruleProtocol[q.Protocol]
		}
		r.Inspect = asked.Inspect && r.Protocol != "tcp"
	} else {
		r.Deny = []string{q.Host}
	}
	before := p.Rules
	p.Rules = slices.Insert(slices.Clone(before), i, r)
	if _, err := compile(p); err != nil {
		// The answer may leave the rule nothing to ask.
		p.Rules = slices.Clone(before)
		p.Rules[i] = r
	}
	return p, Check(p)
}

// ruleProtocol is the protocol of a rule for that of a question.
var ruleProtocol = map[string]string{"tcp": "tcp", "tls": "https", "https": "https", "http": "http"}

const opAnswer = "answer question"
