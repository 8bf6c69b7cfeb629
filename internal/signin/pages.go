package signin

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"html/template"
	"net/http"

	"github.com/carrel-dev/carrel"
)

var errTries = errors.New("too many attempts; wait a little")

// style is the only style of the pages. The policy allows it by its hash.
const style = `body{font:16px/1.5 system-ui,sans-serif;max-width:34em;margin:4em auto;padding:0 1em}
input{font:inherit;width:100%;padding:.4em;box-sizing:border-box;margin-bottom:.8em}
button,.button{font:inherit;display:inline-block;margin:.4em .6em .4em 0;padding:.4em 1.2em}
.bad{color:#a00}code{font-size:1.3em}`

// view is what a page shows.
type view struct {
	Page, Person, Token, Next, Provider, Bad, Done, Hint string
	Code, Label, From                                    string
	Local                                                bool // the person has a password here
	Style                                                template.CSS
}

var pages = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Carrel</title><style>{{.Style}}</style>
<h1>Carrel</h1>
{{define "token"}}<input type="hidden" name="token" value="{{.Token}}">{{end}}
{{if .Bad}}<p class="bad" role="alert">{{.Bad}}</p>{{end}}
{{if eq .Page "login"}}
{{if .Provider}}<p><a class="button" href="{{.Provider}}">Sign in at your identity provider</a></p>
<p>Or with a password:</p>{{end}}
<form method="post" action="/login"><input type="hidden" name="next" value="{{.Next}}">
<label for="name">Name</label><input id="name" name="name" autocomplete="username" autofocus required>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required>
<button>Sign in</button></form>
{{else if eq .Page "home"}}
<p>You are signed in as <b>{{.Person}}</b>.</p>
{{if .Local}}<p><a href="/password">Change the password</a></p>{{end}}
<p><a href="/device">Log in a command line</a></p>
<form method="post" action="/logout">{{template "token" .}}<button>Sign out</button></form>
{{else if eq .Page "password"}}
<p>Another password for <b>{{.Person}}</b>:</p>
<form method="post" action="/password">{{template "token" .}}
<label for="old">Password until now</label>
<input id="old" name="old" type="password" autocomplete="current-password" required>
<label for="new">New password, at least 12 characters</label>
<input id="new" name="new" type="password" autocomplete="new-password" minlength="12" required>
<label for="again">The new one again</label>
<input id="again" name="again" type="password" autocomplete="new-password" required>
<button>Change</button></form>
{{else if eq .Page "device"}}
<p>You are signed in as <b>{{.Person}}</b>. Type the code that your own command line shows.
If somebody sent you a code, do not type it: it would give your rights to that person.</p>
<form method="post" action="/device">{{template "token" .}}
<label for="code">Code</label>
<input id="code" name="code" value="{{.Code}}" autocomplete="off" autofocus required>
<button>Go on</button></form>
{{else if eq .Page "confirm"}}
<p>A command line{{if .Label}} that calls itself <b>{{.Label}}</b>{{end}}, at the address
<b>{{.From}}</b>, asks to act as <b>{{.Person}}</b> with all of that person's rights. It shows the
code <code>{{.Code}}</code>.</p>
<p>Confirm only if you started it yourself, just now.</p>
<form method="post" action="/device/confirm">{{template "token" .}}
<input type="hidden" name="code" value="{{.Code}}">
<button name="answer" value="yes">Confirm</button>
<button name="answer" value="no">Refuse</button></form>
{{else}}<p>{{.Done}}</p>{{if .Hint}}<p>{{.Hint}}</p>{{end}}<p><a href="/login">Go on</a></p>{{end}}
`))

// policy forbids everything that the pages don't need: scripts, frames, other origins.
var policy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
}()

// harden keeps other pages, caches and logs away from the pages.
func harden(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "same-origin") // with none, forms would have no origin
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Content-Security-Policy", policy)
}

func render(w http.ResponseWriter, status int, v view) error {
	v.Style = style
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = pages.Execute(w, v) // a client that hung up needs no answer
	return nil
}

// statusOf is the status of an error's page.
func statusOf(err error) int {
	switch carrel.KindOf(err) {
	case carrel.Unauthenticated:
		return http.StatusUnauthorized
	case carrel.Forbidden:
		return http.StatusForbidden
	case carrel.Invalid:
		return http.StatusBadRequest
	case carrel.NotFound:
		return http.StatusNotFound
	case carrel.Exhausted:
		return http.StatusTooManyRequests
	case carrel.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// fail shows what went wrong.
func (d *Door) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	text := "Something went wrong here."
	var ce *carrel.Error
	if errors.As(err, &ce) && ce.Err != nil && status != http.StatusInternalServerError {
		text = ce.Err.Error()
	}
	if status == http.StatusInternalServerError {
		d.opts.Log.ErrorContext(r.Context(), "a page of the sign-in", "err", err)
	}
	if wait := carrel.RetryAfterOf(err); wait > 0 {
		w.Header().Set("Retry-After", seconds(wait))
	}
	_ = render(w, status, view{Page: "done", Done: text, Hint: carrel.HintOf(err)})
}
