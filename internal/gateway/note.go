package gateway

import (
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/request"
)

// answered is called with each answer of a sandbox, before the client gets it.
func (g *Gateway) answered(resp *http.Response) error {
	if rt := routedOf(resp.Request.Context()); rt != nil {
		g.served(rt, resp.StatusCode)
		g.note(resp.Request, rt, resp.StatusCode)
		if rt.ours {
			disarm(resp.Header)
		}
	}
	return g.withEnding(resp)
}

// note gives a request to the audit trail. Answers about a sandbox that is not there are left out:
// nobody entered anything.
func (g *Gateway) note(r *http.Request, rt *routed, status int) {
	if g.opts.Journal == nil || rt.health || rt.sandbox.ID == "" || status >= http.StatusInternalServerError {
		return
	}
	op := request.Operation{Kind: request.Refused(carrel.TrailEnter, status), Op: visited(r, rt.target),
		Targets: []string{string(rt.sandbox.ID)}, Status: status,
		Caller: carrel.Caller{Key: "visitor", Project: rt.sandbox.Project, Role: carrel.RoleVisitor}}
	if c, ok := carrel.CallerIn(r.Context()); ok {
		op.Caller = c
	}
	if info := request.Of(r.Context()); info != nil {
		op.From, op.Request = info.From, info.ID
	}
	g.opts.Journal.Note(op)
}

// served tells once how a request was answered.
func (g *Gateway) served(rt *routed, status int) {
	if rt.status.CompareAndSwap(0, int32(status)) && g.opts.Served != nil {
		g.opts.Served(rt.call, status, time.Since(rt.at))
	}
}

// refuseWith sends an answer in place of the sandbox's.
func (g *Gateway) refuseWith(w http.ResponseWriter, r *http.Request, rt *routed, a *answer) {
	g.served(rt, a.Code)
	a.write(w, r)
}

// callOf names what a request is for, from a fixed set: no part of it is the client's choice.
func callOf(r *http.Request, t Target) string {
	switch t.Port {
	case carrel.GuestPort:
	case carrel.InterpreterPort:
		return "interpreter"
	default:
		return "port"
	}
	p := path.Clean("/" + r.URL.Path)
	for _, call := range guestCalls {
		rest, ok := strings.CutPrefix(p, call)
		switch {
		case !ok:
		case !strings.HasSuffix(call, "/") && rest == "":
			return call[1:]
		case strings.HasSuffix(call, "/") && rpc[rest]:
			return call[1:] + rest
		}
	}
	return "guest"
}

// guestCalls are the services of the guest. Other paths of its port are counted as one, because a
// client chooses them.
var guestCalls = []string{"/process.Process/", "/filesystem.Filesystem/", "/files", "/metrics", "/envs", "/health"}

// visited says what a request is for, in few words: a call of the guest, or a port.
func visited(r *http.Request, t Target) string {
	if t.Port != carrel.GuestPort {
		return "port " + strconv.Itoa(int(t.Port))
	}
	p := path.Clean("/" + r.URL.Path)
	for _, call := range guestCalls {
		if !strings.HasPrefix(p, call) {
			continue
		}
		if method, service := strings.CutPrefix(p, call); service && strings.HasSuffix(call, "/") {
			if !rpc[method] {
				method = "…"
			}
			return call[1:] + method
		}
		return r.Method + " " + call
	}
	return "guest"
}

// rpc are the methods of the guest's services.
var rpc = map[string]bool{"Start": true, "Connect": true, "List": true, "Update": true, "StreamInput": true, "SendInput": true,
	"SendSignal": true, "CloseStdin": true, "Stat": true, "MakeDir": true, "Move": true, "ListDir": true, "Remove": true,
	"WatchDir": true, "CreateWatcher": true, "GetWatcherEvents": true, "RemoveWatcher": true}
