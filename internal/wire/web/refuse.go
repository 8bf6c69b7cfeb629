package web

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// ruleHTTP is the rule that refuses requests which break the protocol's own rules.
const ruleHTTP = "built-in: http"

// refusal is an answer that the sandbox gets in place of the server's.
type refusal struct {
	status             int
	rule, reason, hint string
	retryAfter         int  // seconds
	close              bool // the start of the next request is not known
}

func malformed(reason string) *refusal {
	return &refusal{status: http.StatusBadRequest, rule: ruleHTTP, reason: reason, close: true}
}

// crowded is the refusal of a request beyond the bound.
var crowded = &refusal{
	status: http.StatusTooManyRequests, rule: ruleHTTP, reason: "the sandbox has too many requests open at once",
	hint: "wait until some have ended", retryAfter: 1,
}

// denied is the refusal for a verdict.
func denied(v policy.Verdict) *refusal {
	return &refusal{status: http.StatusForbidden, rule: v.Rule, reason: v.Reason, hint: v.Hint}
}

// unreachable says that the server could not be reached or did not answer.
func unreachable(v policy.Verdict, err error) *refusal {
	r := &refusal{status: http.StatusBadGateway, rule: v.Rule, reason: err.Error(), hint: carrel.HintOf(err)}
	switch carrel.KindOf(err) {
	case carrel.Exhausted:
		r.status, r.retryAfter = http.StatusTooManyRequests, 1
	case carrel.TimedOut:
		r.status = http.StatusGatewayTimeout
	}
	return r
}

// limited says that a limit was reached.
func limited(v policy.Verdict, err error) *refusal {
	return &refusal{status: http.StatusTooManyRequests, rule: v.Rule, reason: err.Error(), hint: carrel.HintOf(err), retryAfter: 1}
}

// line is the refusal in one line.
func (r *refusal) line(q *request, tls bool) string {
	var b strings.Builder
	b.WriteString("carrel: ")
	if q != nil && q.method != "" && q.host != "" {
		b.WriteString(q.method + map[bool]string{false: " http://", true: " https://"}[tls] + q.host + q.port + q.path + " was refused: ")
	} else {
		b.WriteString("the request was refused: ")
	}
	b.WriteString(r.reason)
	if r.rule != "" {
		b.WriteString(" (" + r.rule + ")")
	}
	if r.hint != "" {
		b.WriteString("; " + r.hint)
	}
	return visible(b.String())
}

// fields returns the answer's header fields and its body.
func (r *refusal) fields(q *request, tls, wantsJSON bool) (fields [][2]string, text []byte) {
	line := r.line(q, tls)
	kind := "text/plain; charset=utf-8"
	if wantsJSON {
		kind = "application/json"
		text, _ = json.Marshal(map[string]any{"error": map[string]any{
			"message": line, "type": "carrel_denied", "rule": r.rule, "reason": r.reason, "hint": r.hint,
		}})
		text = append(text, '\n')
	} else {
		text = append([]byte(line), '\n')
	}
	fields = [][2]string{
		{"Carrel-Denied", visible(r.rule)},
		{"Content-Type", kind},
		{"Content-Length", strconv.Itoa(len(text))},
		{"Cache-Control", "no-store"},
		{"X-Content-Type-Options", "nosniff"},
	}
	if r.retryAfter > 0 {
		fields = append(fields, [2]string{"Retry-After", strconv.Itoa(r.retryAfter)})
	}
	return fields, text
}

// visible replaces characters that do not belong on one line.
func visible(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, s)
}

func wantsJSON(accept string) bool { return strings.Contains(strings.ToLower(accept), "json") }
