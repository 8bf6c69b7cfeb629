package agent

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
)

// serveProcesses answers with the records of processes, including ended ones that are remembered.
func (a *Agent) serveProcesses(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, a.shelf.list())
}

// serveOutput answers with a piece of a process's kept output. If there is none yet it waits, as
// long as the client asks, and at most for guest.OutputWait.
func (a *Agent) serveOutput(w http.ResponseWriter, r *http.Request) {
	q, err := outputQuery(r.URL.Query())
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	t := a.shelf.find(q.Serial, q.Process)
	if t == nil {
		writeError(w, http.StatusGone, "nothing is kept of such a process")
		return
	}
	over := time.NewTimer(q.Wait)
	defer over.Stop()
	for waiting := q.Wait > 0; ; {
		out, news := t.read(q.From, q.Most)
		if news == nil || !waiting {
			writeJSON(w, http.StatusOK, out)
			return
		}
		select {
		case <-news:
		case <-over.C:
			waiting = false
		case <-r.Context().Done():
			return
		case <-a.ctx.Done():
			writeError(w, http.StatusServiceUnavailable, errClosing.Error())
			return
		}
	}
}

// outputQuery reads a request for output.
func outputQuery(v url.Values) (q carrel.OutputQuery, err error) {
	number := func(name string, most int64) (n int64) {
		text := v.Get(name)
		if text == "" || err != nil {
			return 0
		}
		n, perr := strconv.ParseInt(text, 10, 64)
		if perr != nil || n < 0 {
			err = fmt.Errorf("%s: not a number from 0", name)
		}
		return min(n, most)
	}
	const any = 1<<63 - 1
	q.Process = v.Get("process")
	q.Serial, q.From = number("serial", any), number("from", any)
	q.Most = int(number("most", outputMost))
	q.Wait = time.Duration(number("wait", guest.OutputWait.Milliseconds())) * time.Millisecond
	if q.Most == 0 {
		q.Most = outputMost
	}
	if err == nil && q.Process == "" && q.Serial == 0 {
		err = fmt.Errorf("process: missing")
	}
	return q, err
}
