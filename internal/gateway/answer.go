package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
)

// answer is the gateway's own answer in place of the sandbox's. The names and texts are E2B's,
// because its SDKs read them.
type answer struct {
	SandboxID string `json:"sandboxId,omitempty"`
	Message   string `json:"message"`
	Port      uint16 `json:"port,omitempty"`
	Code      int    `json:"code"`

	title string // of the page, if not the message
	gone  bool   // there is no such sandbox here
}

// HeaderRefused says in the gateway's own answers why nothing was done, for a front that can send the
// request to another node. [RefusedGone] is: the sandbox is not here.
const (
	HeaderRefused = "Carrel-Refused"
	RefusedGone   = "gone"
)

// Refuse answers a request for a sandbox in the gateway's form.
func Refuse(w http.ResponseWriter, r *http.Request, id carrel.ID, code int, message string) {
	(&answer{SandboxID: string(id), Message: message, Code: code}).write(w, r)
}

func notFound(t Target) *answer {
	return &answer{gone: true, SandboxID: string(t.ID), Message: "The sandbox was not found", Code: http.StatusBadGateway, title: "Sandbox Not Found"}
}

func closedPort(t Target) *answer {
	return &answer{SandboxID: string(t.ID), Message: "The sandbox is running but port is not open", Port: t.Port, Code: http.StatusBadGateway, title: "Closed Port Error"}
}

func transitioning(t Target) *answer {
	return &answer{SandboxID: string(t.ID), Message: "The sandbox is changing its state, try again", Code: http.StatusConflict}
}

func silent(t Target) *answer {
	return &answer{SandboxID: string(t.ID), Message: "The sandbox did not answer", Port: t.Port, Code: http.StatusBadGateway}
}

func bodyBroken(t Target) *answer {
	return &answer{SandboxID: string(t.ID), Message: "The request's body is malformed or broke off", Port: t.Port, Code: http.StatusBadRequest}
}

func broken(t Target) *answer {
	return &answer{SandboxID: string(t.ID), Message: "internal error, see the daemon's log", Code: http.StatusInternalServerError}
}

func hidden(t Target) *answer {
	return &answer{SandboxID: string(t.ID), Message: "not found", Port: t.Port, Code: http.StatusNotFound}
}

func tokenMissing(t Target) *answer {
	return &answer{SandboxID: string(t.ID), Code: http.StatusForbidden,
		Message: "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing"}
}

func tokenWrong(t Target) *answer {
	return &answer{SandboxID: string(t.ID), Code: http.StatusForbidden,
		Message: "Sandbox is secured with traffic access token. Provided token is invalid."}
}

// wakeDenied has E2B's meaning: a caller who may not use the guest may not wake it either.
func wakeDenied(t Target) *answer {
	return &answer{SandboxID: string(t.ID), Code: http.StatusForbidden,
		Message: "The sandbox is paused, and only a request with its access token resumes it"}
}

func noRoom(t Target, err error) *answer {
	return &answer{SandboxID: string(t.ID), Code: http.StatusTooManyRequests,
		Message: "The sandbox can't be resumed now: " + err.Error()}
}

func cantWake(t Target, err error) *answer {
	return &answer{SandboxID: string(t.ID), Code: http.StatusNotImplemented,
		Message: "The sandbox can't be resumed here: " + err.Error()}
}

func tooMany(t Target, most int) *answer {
	return &answer{SandboxID: string(t.ID), Code: http.StatusTooManyRequests,
		Message: "The sandbox has too many open connections (" + strconv.Itoa(most) + ")"}
}

// refuse answers a request that does not name a sandbox correctly.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, err error) {
	a := &answer{Message: err.Error(), Code: refusalCode(err)}
	a.gone = a.Code == http.StatusUnauthorized // no sandbox here made the signature
	if re, ok := errors.AsType[*routeError](err); ok {
		a.SandboxID, a.Message = re.ID, re.Message
	}
	a.write(w, r)
}

// refusalCode is the status of a request that names a sandbox in a wrong way.
func refusalCode(err error) int {
	if carrel.KindOf(err) == carrel.Unauthenticated {
		return http.StatusUnauthorized
	}
	return http.StatusBadRequest
}

// outcome says why a sandbox that was there a moment ago gave no answer.
func (g *Gateway) outcome(ctx context.Context, rt *routed, err error) *answer {
	t := rt.target
	sb, gerr := g.opts.Sandboxes.Get(ctx, t.ID)
	switch {
	case carrel.KindOf(gerr) == carrel.NotFound:
		return notFound(t) // the sandbox ended during the request
	case gerr == nil && sb.State != carrel.Running:
		if ans := rt.stateAnswer(sb); ans != nil {
			return ans
		}
		return rt.transitioning() // another try wakes it
	case gerr == nil && sb.Generation != rt.sandbox.Generation:
		return rt.transitioning() // it was paused and resumed, or rolled back, during the request
	case errors.Is(err, syscall.ECONNREFUSED):
		return closedPort(t)
	}
	g.opts.Log.Debug("proxy", "sandbox", t.ID, "port", t.Port, "err", err)
	return silent(t)
}

// drainTime is how long the gateway reads the rest of a refused client's request.
const drainTime = 5 * time.Second

// write sends the answer, as JSON or as a page for people. It lets a preflight succeed, because a
// browser shows a page nothing of a failed one. Then the page gets the answer itself.
func (a *answer) write(w http.ResponseWriter, r *http.Request) {
	if a.gone {
		w.Header().Set(HeaderRefused, RefusedGone)
	}
	if r.ProtoMajor == 1 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainTime))
	}
	h := w.Header()
	if r.Header.Get("Origin") != "" {
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Allow-Methods", "*")
		h.Set("Access-Control-Allow-Headers", "*")
		h.Set("Access-Control-Expose-Headers", "*")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Headers", "*, Authorization")
			h.Set("Access-Control-Max-Age", "600")
			w.WriteHeader(http.StatusNoContent)
			return
		}
	}
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if a.Code == http.StatusTooManyRequests {
		h.Set("Retry-After", "1")
	}
	if forPeople(r) {
		var page bytes.Buffer
		if err := errorPage.Execute(&page, a); err == nil {
			h.Set("Content-Type", "text/html; charset=utf-8")
			h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
			w.WriteHeader(a.Code)
			_, _ = w.Write(page.Bytes())
			return
		}
	}
	raw, _ := json.Marshal(a) // texts and numbers can always be marshalled
	h.Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(a.Code)
	_, _ = w.Write(append(raw, '\n'))
}

// forPeople reports whether a page is the better answer. E2B looks only at the browser's name.
// Here, a request of a script in a browser, which has an Origin, gets JSON.
func forPeople(r *http.Request) bool {
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		return true
	}
	return strings.HasPrefix(r.UserAgent(), "Mozilla/") && r.Header.Get("Origin") == ""
}

// Title is the page's title. It is E2B's where E2B has one.
func (a *answer) Title() string {
	if a.title != "" {
		return a.title
	}
	return a.Message
}

// errorPage is the page for a person who opens a preview that does not exist.
var errorPage = template.Must(template.New("error").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{.Title}}</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:15vh auto;padding:0 1rem;color:#222}code{background:#f2f2f2;padding:.1em .3em}</style>
</head><body><h1>{{.Message}}</h1>
{{if .SandboxID}}<p>Sandbox <code>{{.SandboxID}}</code>{{if .Port}}, port <code>{{.Port}}</code>{{end}}</p>{{end}}
{{if and .Port (eq .Code 502)}}<p>Start a server on this port inside the sandbox, then load the page again.</p>{{end}}
</body></html>
`))
