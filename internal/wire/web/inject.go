package web

import (
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// plan lists the changes to one request.
type plan struct {
	headers []header
	query   []header
	names   []string // of the secrets and tokens
	scrub   *needles // the texts to remove from the answer; nil for none
}

// header is a field or a query parameter to set.
type header struct {
	name, lower, value string
}

// planner makes plans for the requests of one session. It keeps the last plan, because the values
// seldom change and the table of texts to remove takes time to build. It is safe for concurrent
// use.
type planner struct {
	mu     sync.Mutex
	from   *carrel.Injection
	values map[string]string // by reference
	last   *plan
}

// plan resolves an injection for a request to host. An error is a refusal. It names the missing
// credential, and never contains a value.
func (p *planner) plan(ctx context.Context, c Credentials, id carrel.ID, host string, in *carrel.Injection) (*plan, error) {
	r := resolver{credentials: c, id: id, host: host, values: make(map[string]string, 1)}
	p.mu.Lock()
	from, values, last := p.from, p.values, p.last
	p.mu.Unlock()
	if from != nil && sameInjection(from, in) {
		same := true
		for ref, before := range values {
			v, err := r.value(ctx, ref)
			if err != nil {
				return nil, err
			}
			same = same && v == before
		}
		if same {
			return last, nil
		}
	}
	made, err := r.plan(ctx, in)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.from, p.values, p.last = in, r.values, made
	p.mu.Unlock()
	return made, nil
}

func sameInjection(a, b *carrel.Injection) bool {
	return a == b || (a != nil && b != nil && reflect.DeepEqual(a, b))
}

// resolver looks up the credentials that an injection names.
type resolver struct {
	credentials Credentials
	id          carrel.ID
	host        string
	values      map[string]string
}

func (r *resolver) plan(ctx context.Context, in *carrel.Injection) (*plan, error) {
	p := &plan{}
	var pair string
	if in.Bearer != "" {
		v, err := r.value(ctx, "secrets."+in.Bearer)
		if err != nil {
			return nil, err
		}
		p.headers = append(p.headers, newHeader("Authorization", "Bearer "+v))
	}
	if in.Basic != nil {
		v, err := r.value(ctx, "secrets."+in.Basic.Secret)
		if err != nil {
			return nil, err
		}
		pair = in.Basic.User + ":" + v
		p.headers = append(p.headers, newHeader("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(pair))))
	}
	for _, name := range slices.Sorted(maps.Keys(in.Headers)) {
		v, err := r.expand(ctx, in.Headers[name])
		if err != nil {
			return nil, err
		}
		p.headers = append(p.headers, newHeader(name, v))
	}
	for _, name := range slices.Sorted(maps.Keys(in.Query)) {
		v, err := r.expand(ctx, in.Query[name])
		if err != nil {
			return nil, err
		}
		p.query = append(p.query, header{name: name, value: v})
	}
	for _, h := range p.headers {
		if err := h.check(in, r); err != nil {
			return nil, err
		}
	}
	for ref := range r.values {
		_, name, _ := strings.Cut(ref, ".")
		p.names = append(p.names, name)
	}
	slices.Sort(p.names)
	if !in.KeepEchoes {
		// Only values that the sandbox was not given are secret. A value that stands in a policy in
		// clear is also in the sandbox's record. Its owner expects it in the answers of servers
		// that repeat it.
		texts := make(map[string]struct{})
		for _, v := range r.values {
			spellings(texts, v)
		}
		if pair != "" {
			spellings(texts, pair)
		}
		p.scrub = newNeedles(texts)
	}
	return p, nil
}

func newHeader(name, value string) header {
	return header{name: http.CanonicalHeaderKey(name), lower: strings.ToLower(name), value: value}
}

// check refuses a header that would not be one field, or would set a field that only the proxy may
// set.
func (h header) check(in *carrel.Injection, r *resolver) error {
	if !isToken(h.name) || hop(known(h.name)) || known(h.name) == "host" || known(h.name) == "content-length" {
		return errors.New("the header " + visible(h.name) + " can't be put into a request")
	}
	for i := range len(h.value) {
		if c := h.value[i]; c >= ' ' && c < 0x7f {
			continue
		}
		var culprits []string
		for ref, v := range r.values {
			if !isVisible(v) {
				_, name, _ := strings.Cut(ref, ".")
				culprits = append(culprits, name)
			}
		}
		slices.Sort(culprits)
		if len(culprits) > 0 {
			return errors.New("secret " + strings.Join(culprits, ", ") + " can't be put into a header: it holds characters that don't belong there")
		}
		return errors.New("the value of the header " + h.name + " holds characters that don't belong there")
	}
	return nil
}

func isVisible(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// expand replaces references in a text.
func (r *resolver) expand(ctx context.Context, text string) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		ref, after, closed := strings.Cut(rest, "}")
		ref, ours := reference(ref)
		if !closed || !ours {
			b.WriteString("${")
			text = rest
			continue
		}
		v, err := r.value(ctx, ref)
		if err != nil {
			return "", err
		}
		b.WriteString(v)
		text = after
	}
}

// reference returns "secrets.NAME" or "tokens.NAME" for both spellings of a reference.
func reference(s string) (string, bool) {
	for _, prefix := range [...][2]string{
		{"secrets.", "secrets."}, {"tokens.", "tokens."},
		{"e2b.secrets.", "secrets."}, {"e2b.identity.tokens.", "tokens."},
	} {
		if name, ok := strings.CutPrefix(s, prefix[0]); ok && name != "" {
			return prefix[1] + name, true
		}
	}
	return "", false
}

// value looks up a reference. It looks each up once for a request.
func (r *resolver) value(ctx context.Context, ref string) (string, error) {
	if v, ok := r.values[ref]; ok {
		return v, nil
	}
	kind, name, _ := strings.Cut(ref, ".")
	var v string
	err := error(&carrel.Error{Kind: carrel.NotFound})
	if r.credentials != nil {
		if kind == "secrets" {
			v, err = r.credentials.Secret(ctx, r.id, name, r.host)
		} else {
			v, err = r.credentials.Token(ctx, r.id, name)
		}
	}
	if err != nil {
		return "", missing(kind, name, r.host, err)
	}
	r.values[ref] = v
	return v, nil
}

// missing says which credential was not available. It leaves out the cause, which may say more than
// a sandbox should know.
func missing(kind, name, host string, err error) error {
	what := strings.TrimSuffix(kind, "s") + " " + name
	switch carrel.KindOf(err) {
	case carrel.NotFound:
		return &carrel.Error{Kind: carrel.NotFound, Err: errors.New("there is no " + what + ", which belongs into this request")}
	case carrel.Forbidden, carrel.Denied:
		return &carrel.Error{Kind: carrel.Forbidden, Err: errors.New(what + " may not be sent to " + host)}
	}
	return &carrel.Error{Kind: carrel.Unavailable, Err: errors.New(what + " can't be had at the moment")}
}

// uncredentialed is the refusal of a request whose credentials are not available.
func uncredentialed(v policy.Verdict, err error) *refusal {
	return &refusal{
		status: http.StatusBadGateway, rule: v.Rule, reason: err.Error(),
		hint: "ask whoever runs this sandbox to set it; the request was not sent",
	}
}

// replaces reports whether the plan sets a field of this name. The request's own field is then
// removed.
func (p *plan) replaces(name []byte) bool {
	if p == nil {
		return false
	}
	for i := range p.headers {
		if same(name, p.headers[i].lower) {
			return true
		}
	}
	return false
}

// rewriteQuery sets the plan's parameters. It removes all parameters of the same name, in any
// spelling. The others stay unchanged.
func (p *plan) rewriteQuery(query string) string {
	if p == nil || len(p.query) == 0 {
		return query
	}
	var b strings.Builder
	for query != "" {
		i := strings.IndexAny(query, "&;")
		part, sep := query, ""
		if i >= 0 {
			part, sep = query[:i], query[i:i+1]
		}
		query = query[len(part)+len(sep):]
		if !p.setsParameter(part) {
			b.WriteString(part + sep)
		}
	}
	out := strings.TrimRight(b.String(), "&;")
	for _, q := range p.query {
		if out != "" {
			out += "&"
		}
		out += url.QueryEscape(q.name) + "=" + url.QueryEscape(q.value)
	}
	return out
}

func (p *plan) setsParameter(part string) bool {
	name, _, _ := strings.Cut(part, "=")
	if n, err := url.QueryUnescape(name); err == nil {
		name = n
	}
	name, _, _ = strings.Cut(name, "[") // some servers take name[]=… as a list called name
	return slices.ContainsFunc(p.query, func(q header) bool { return strings.EqualFold(strings.TrimSpace(name), q.name) })
}
