package api

import (
	"html/template"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel"
)

// LoginPath is where "e2b auth login" sends a person's browser. E2B's CLI finds it below
// https://$E2B_DOMAIN/docs, or below $E2B_DOCS_BASE.
//
// The CLI listens on a port of the person's machine and passes that address along. The page asks
// for the API key and sends the browser to that address, with the key. Nothing here issues tokens:
// the CLI's access token is the key itself.
//
// The threat is a page elsewhere that makes a person hand a key to somebody. So a key goes to an
// address of the person's own machine only, another site can't send the form, and no page can show
// this one in a frame.
const LoginPath = "/docs/api/cli"

// The addresses that the CLI keeps for later: to renew an access token, and to log out.
const (
	loginTokenPath  = LoginPath + "/token"
	loginRevokePath = LoginPath + "/revoke"
)

// loginClient is the name that the CLI gives itself in requests to these.
const loginClient = "carrel"

// maxLoginForm bounds the form, in bytes.
const maxLoginForm = 16 << 10

// loginPage is shown before and after the login.
var loginPage = template.Must(template.New("login").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Carrel: log in</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:34em;margin:4em auto;padding:0 1em}
input{font:inherit;width:100%;padding:.4em;box-sizing:border-box}button{font:inherit;margin-top:1em;padding:.4em 1.2em}
.bad{color:#a00}</style>
<h1>Carrel</h1>
{{if .Done}}<p>{{.Done}}</p>{{else}}
<p>The command line asks for your API key. It is sent to this daemon, and then to the command that
waits at <b>{{.Next}}</b> on your own machine.</p>
{{if .Bad}}<p class="bad" role="alert">{{.Bad}}</p>{{end}}
<form method="post" action="{{.Path}}"><input type="hidden" name="next" value="{{.Next}}">
<label for="key">API key</label><input id="key" name="key" type="password" autocomplete="off" autofocus required>
<button>Log in</button></form>
<p>The daemon's first key is in its data directory, in the file <code>api-key</code>.</p>
{{end}}
`))

// loginView is what the page shows.
type loginView struct{ Path, Next, Bad, Done string }

// loginRoutes are the routes of E2B's login.
type loginRoutes struct{ *Server }

// login serves LoginPath and what is below. It needs no key in the header.
func (s loginRoutes) login(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		w.Header().Set("Allow", "GET, POST")
		p := tell(carrel.Invalid, "method %s is not allowed for %s", r.Method, clip(r.URL.Path))
		p.status, p.body.Code = http.StatusMethodNotAllowed, http.StatusMethodNotAllowed
		return p
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxLoginForm)
	switch post := r.Method == http.MethodPost; {
	case r.URL.Path == LoginPath && post:
		return s.loginWith(w, r)
	case r.URL.Path == LoginPath:
		return s.showLogin(w, r)
	case r.URL.Path == loginTokenPath && post:
		return s.renewLogin(w, r)
	case r.URL.Path == loginRevokePath && post:
		writeJSON(w, http.StatusOK, struct{}{}) // there is no session to end
		return nil
	}
	return tell(carrel.NotFound, "no such endpoint: %s %s", r.Method, clip(r.URL.Path))
}

// showLogin shows the form, or how the login went: the CLI sends the browser back to say so.
func (s loginRoutes) showLogin(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	switch q.Get("state") {
	case "success":
		return renderLogin(w, http.StatusOK, loginView{Done: "You are logged in. You can close this page."})
	case "error":
		return renderLogin(w, http.StatusOK, loginView{Done: "The login failed: " + clip(q.Get("error"))})
	}
	next, err := localAddress(q.Get("next"))
	if err != nil {
		return err
	}
	return renderLogin(w, http.StatusOK, loginView{Path: LoginPath, Next: next.String()})
}

// loginWith takes the form and sends the browser to the CLI.
func (s loginRoutes) loginWith(w http.ResponseWriter, r *http.Request) error {
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		if err != nil || u.Host != r.Host {
			return tell(carrel.Forbidden, "the form was sent by another site")
		}
	}
	if err := r.ParseForm(); err != nil {
		return tell(carrel.Invalid, "the form can't be read: %s", err)
	}
	next, err := localAddress(r.PostForm.Get("next"))
	if err != nil {
		return err
	}
	key := strings.TrimSpace(r.PostForm.Get("key"))
	c, ok := s.owner(r, key)
	if !ok {
		return renderLogin(w, http.StatusUnauthorized,
			loginView{Path: LoginPath, Next: next.String(),
				Bad: "This is not an API key of this daemon."})
	}
	base := baseURL(r)
	next.RawQuery = url.Values{"email": {c.Key + "@" + c.Project}, "accessToken": {key},
		"refreshToken":  {key},
		"tokenEndpoint": {base + loginTokenPath}, "revokeEndpoint": {base + loginRevokePath},
		"clientId": {loginClient}}.Encode()
	harden(w.Header())
	http.Redirect(w, r, next.String(), http.StatusSeeOther)
	return nil
}

// owner returns the caller whose key this is.
func (s loginRoutes) owner(r *http.Request, key string) (carrel.Caller, bool) {
	if key == "" {
		return carrel.Caller{}, false
	}
	ask := &http.Request{Host: r.Host, URL: r.URL, Header: http.Header{"X-Api-Key": {key}}}
	c, err := s.opts.Callers.Caller(ask)
	return c, err == nil
}

// renewLogin gives the CLI an access token for its refresh token, as OAuth 2.0 has it. Both are the
// key. A key that the daemon does not know any more ends the login.
func (s loginRoutes) renewLogin(w http.ResponseWriter, r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return tell(carrel.Invalid, "the form can't be read: %s", err)
	}
	key := r.PostForm.Get("refresh_token")
	if _, ok := s.owner(r, key); r.PostForm.Get("grant_type") != "refresh_token" || !ok {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant",
			"error_description": "this is not an API key of this daemon"})
		return nil
	}
	writeJSON(w, http.StatusOK, map[string]any{"access_token": key, "refresh_token": key,
		"token_type": "Bearer", "expires_in": int(s.opts.MaxTimeout.Seconds())})
	return nil
}

// localAddress reads the address of the waiting CLI. It must be a port of the browser's machine.
func localAddress(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err == nil && text != "" && u.Scheme == "http" && u.User == nil &&
		(u.Path == "" || u.Path == "/") &&
		u.Opaque == "" && u.Fragment == "" {
		host := u.Hostname()
		port, perr := strconv.ParseUint(u.Port(), 10, 16)
		ip := net.ParseIP(host)
		if perr == nil && port > 0 && (host == "localhost" || ip != nil && ip.IsLoopback()) {
			return &url.URL{Scheme: "http", Host: u.Host, Path: "/"}, nil
		}
	}
	p := invalid("next", "%q is not a port of this machine, such as http://localhost:1234",
		clip(text))
	p.body.Hint = "open the address that \"e2b auth login\" prints, whole"
	return nil, p
}

// harden keeps other pages and logs away from the login.
func harden(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "+
		"frame-ancestors 'none'; form-action 'self' http://localhost:* http://127.0.0.1:*")
	h.Del("Access-Control-Allow-Origin")
}

func renderLogin(w http.ResponseWriter, status int, view loginView) error {
	harden(w.Header())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = loginPage.Execute(w, view) // a client that hung up needs no answer
	return nil
}
