package agent

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/internal/guest"
)

const (
	// leaveLimit bounds the time to answer a leave. Clients that take nothing are cut off before
	// that, at leavePatience.
	leaveLimit    = 250 * time.Millisecond
	leavePatience = 200 * time.Millisecond
	// leaveInsist is how long one write of an interrupted stream may take afterwards. The pause may
	// fail, and the client must not keep the stream then.
	leaveInsist = time.Second
	// leaveFlush gives the server time to write the last bytes of streams whose handlers have
	// returned. There is no other way to know when that is done.
	leaveFlush = 2 * time.Millisecond

	maxLeave  = 16 << 10 // bytes of its body
	maxReason = 1 << 10  // bytes of its reason
)

// serveLeave ends every open stream with the host's reason. Later requests are served as always,
// because the pause may fail.
func (a *Agent) serveLeave(w http.ResponseWriter, r *http.Request) {
	if !a.trusted(r) {
		writeError(w, http.StatusForbidden, r.URL.Path+" is for the host alone")
		return
	}
	var req guest.LeaveRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxLeave)).Decode(&req); err != nil {
		writeError(w, http.StatusBadRequest, "body: "+err.Error())
		return
	}
	req.Reason = strings.ToValidUTF8(req.Reason, "")
	if req.Reason == "" || len(req.Reason) > maxReason {
		writeError(w, http.StatusBadRequest, "reason: give a sentence for the clients")
		return
	}
	a.leave(&interrupted{req.Reason})
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
}

// leave interrupts every exchange and returns when all have ended, or leaveLimit
// has passed.
func (a *Agent) leave(why *interrupted) {
	open := a.exchanges.all()
	if len(open) == 0 {
		return
	}
	for _, x := range open {
		x.interrupt(why)
	}
	patience, limit := time.NewTimer(leavePatience), time.NewTimer(leaveLimit)
	defer patience.Stop()
	defer limit.Stop()
	for i := 0; i < len(open); {
		select {
		case <-open[i].done:
			i++
		case <-patience.C:
			for _, x := range open[i:] {
				x.abort()
			}
		case <-limit.C:
			for _, x := range open[i:] {
				x.insist()
			}
			return
		}
	}
	time.Sleep(leaveFlush)
}

// serveActivity reports whether this guest is in use.
func (a *Agent) serveActivity(w http.ResponseWriter, r *http.Request) {
	if !a.trusted(r) {
		writeError(w, http.StatusForbidden, r.URL.Path+" is for the host alone")
		return
	}
	out := guest.Activity{Streams: a.exchanges.count()}
	for _, p := range a.procs.list() {
		if p.tag == nil || *p.tag != guest.StartTag {
			out.Processes++
		}
	}
	writeJSON(w, http.StatusOK, out)
}
