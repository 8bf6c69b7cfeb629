package hostdoor

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
)

const (
	maxTokenName = 128     // bytes
	maxAudience  = 2 << 10 // bytes
	// mintTimeout is less than the time for the answer, so that an answer can still be sent.
	mintTimeout = 5 * time.Second
)

// metadataNames are the host names, besides addresses, that a request may have.
var metadataNames = []string{"metadata", "metadata.carrel.internal"}

// forwarded lists headers of forwarded requests.
var forwarded = []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Forwarded", "Via", "Origin"}

// serveToken mints one of the sandbox's identity tokens.
func (d *Door) serveToken(w http.ResponseWriter, r *http.Request) {
	name, audience, problem := tokenQuery(r.URL.RawQuery)
	serveAsked(d, w, r, problem, tokenAnswers, func(ctx context.Context, id carrel.ID) (carrel.Token, error) {
		if d.opts.Tokens == nil {
			return carrel.Token{}, &carrel.Error{Kind: carrel.Unsupported}
		}
		return d.opts.Tokens(ctx, id, name, audience)
	})
}

// serveSandbox tells a sandbox who it is.
func (d *Door) serveSandbox(w http.ResponseWriter, r *http.Request) {
	var bad *problem
	if r.URL.RawQuery != "" {
		bad = &problem{http.StatusBadRequest, "no query is taken", ""}
	}
	serveAsked(d, w, r, bad, sandboxAnswers, func(ctx context.Context, id carrel.ID) (guest.Self, error) {
		if d.opts.Sandbox == nil {
			return guest.Self{}, &carrel.Error{Kind: carrel.Unsupported}
		}
		sb, err := d.opts.Sandbox(ctx, id)
		return guest.Self{ID: sb.ID, Template: sb.Template, Alias: sb.Alias, Generation: sb.Generation, Tokens: sb.Tokens}, err
	})
}

// serveAsked answers a sandbox's request about itself. bad is the error in its query.
func serveAsked[T any](d *Door, w http.ResponseWriter, r *http.Request, bad *problem, texts texts, fn func(context.Context, carrel.ID) (T, error)) {
	id, _ := r.Context().Value(callerKey{}).(carrel.ID)
	if p := guard(w, r); p != nil {
		bad = p
	}
	if bad != nil {
		bad.write(w)
		return
	}
	release, wait, err := d.asked.acquire(r.Context(), id)
	if err != nil {
		return // the caller has gone
	}
	if wait > 0 {
		tooOften(w, wait, "this sandbox asks too often", "keep a token until shortly before it expires")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), mintTimeout)
	defer cancel()
	value, err := carry(ctx, d, id, release, func(ctx context.Context) (T, error) { return fn(ctx, id) })
	if err != nil {
		level := slog.LevelWarn
		if k := carrel.KindOf(err); k == carrel.NotFound || k == carrel.Invalid || k == carrel.Forbidden {
			level = slog.LevelDebug // caused by the sandbox, which must not fill the log
		}
		d.log.Log(ctx, level, "asked by a sandbox", "path", r.URL.Path, "sandbox", id, "err", err)
		texts.of(err).write(w)
		return
	}
	answer(w, http.StatusOK, value)
}

// guard refuses requests that a program was tricked into. A server inside that fetches addresses
// named by others can seldom set a header. A page in a browser can't set this header without a
// preflight request. A proxy says that it is one. A name that others made to lead to our address is
// not one of ours.
func guard(w http.ResponseWriter, r *http.Request) *problem {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		return &problem{http.StatusMethodNotAllowed, "only GET", ""}
	}
	for _, h := range forwarded {
		if _, ok := r.Header[h]; ok {
			return &problem{http.StatusForbidden, h + ": a request that was passed on is not answered", ""}
		}
	}
	if flavor := r.Header[guest.MetadataHeader]; len(flavor) != 1 || flavor[0] != guest.MetadataFlavor {
		return &problem{http.StatusForbidden, guest.MetadataHeader + ": want " + guest.MetadataFlavor, "curl -H '" + guest.MetadataHeader + ": " + guest.MetadataFlavor + "' …"}
	}
	if r.URL.Host != "" || !ownHost(r.Host) {
		return &problem{http.StatusForbidden, "Host: want an address or " + metadataNames[0], ""}
	}
	if r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
		return &problem{http.StatusBadRequest, "no body is taken", ""}
	}
	return nil
}

// ownHost reports whether a request's host can be this door's. A DNS name that others own can't.
func ownHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Zone() == ""
	}
	for _, name := range metadataNames {
		if strings.EqualFold(host, name) {
			return true
		}
	}
	return false
}

// tokenQuery reads the wanted token from a query: exactly one of name and audience.
func tokenQuery(raw string) (name, audience string, bad *problem) {
	no := func(message string) (string, string, *problem) {
		return "", "", &problem{http.StatusBadRequest, message, "?name=NAME or ?audience=AUDIENCE, of a token that the sandbox was given"}
	}
	q, err := url.ParseQuery(raw)
	if err != nil {
		return no("the query can't be read")
	}
	for key, values := range q {
		if key != "name" && key != "audience" {
			return no("the query has something other than a name or an audience")
		}
		if len(values) != 1 || values[0] == "" {
			return no(key + ": want one")
		}
		if v := values[0]; !utf8.ValidString(v) || strings.ContainsFunc(v, unicode.IsControl) {
			return no(key + ": not a text")
		}
	}
	name, audience = q.Get("name"), q.Get("audience")
	switch {
	case (name == "") == (audience == ""):
		return no("want either a name or an audience")
	case len(name) > maxTokenName:
		return no("name: too long")
	case len(audience) > maxAudience:
		return no("audience: too long")
	}
	return name, audience, nil
}

var tokenAnswers = texts{
	carrel.Invalid:     {http.StatusBadRequest, "the request was refused as invalid", ""},
	carrel.NotFound:    {http.StatusNotFound, "this sandbox has no such token", "its owner gives tokens when it is created: carrel create --token NAME=AUDIENCE"},
	carrel.Conflict:    {http.StatusConflict, "this sandbox is being changed", "try again"},
	carrel.Unavailable: {http.StatusServiceUnavailable, "a token can't be made now", "try again"},
	carrel.TimedOut:    {http.StatusGatewayTimeout, "the token took too long", "try again"},
	carrel.Unsupported: {http.StatusNotImplemented, "this host signs no tokens", ""},
	carrel.Forbidden:   {http.StatusForbidden, "this sandbox may not have tokens", ""},
	carrel.Denied:      {http.StatusForbidden, "this sandbox may not have tokens", ""},
	carrel.Internal:    {http.StatusInternalServerError, "the token could not be made", "the daemon's log says why"},
}

var sandboxAnswers = texts{
	carrel.NotFound:    {http.StatusNotFound, "this sandbox is not known any more", ""},
	carrel.Unavailable: {http.StatusServiceUnavailable, "this can't be told now", "try again"},
	carrel.Unsupported: {http.StatusNotImplemented, "this host does not tell", ""},
	carrel.Internal:    {http.StatusInternalServerError, "this could not be told", "the daemon's log says why"},
}
