package hostdoor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
)

const (
	maxBody    = 16 << 10
	maxLabel   = 200     // bytes
	maxCommand = 4 << 10 // bytes
)

// serveCheckpoint takes a snapshot of the sandbox that sends the request.
func (d *Door) serveCheckpoint(w http.ResponseWriter, r *http.Request) {
	ctl := http.NewResponseController(w)
	id, _ := r.Context().Value(callerKey{}).(carrel.ID)
	req, problem := readRequest(w, r)
	defer func() { _ = ctl.SetWriteDeadline(time.Now().Add(writeTimeout)) }()
	if problem != nil {
		problem.write(w) // the deadline still holds: the server reads the rest of the body
		return
	}
	// A snapshot may take longer than the request's deadline. The server still reads, but only to
	// notice when the caller leaves.
	_ = ctl.SetReadDeadline(time.Time{})
	release, wait, err := d.limits.acquire(r.Context(), id)
	if err != nil {
		return // the caller has gone
	}
	if wait > 0 {
		tooOften(w, wait, "this sandbox asks for too many checkpoints", "a few at once, and then one each second")
		return
	}
	snap, err := d.take(r.Context(), release, id, req)
	if err != nil {
		d.log.Warn("checkpoint asked for by a sandbox", "sandbox", id, "err", err)
		answers.of(err).write(w)
		return
	}
	answer(w, http.StatusOK, guest.CheckpointReply{SnapshotID: string(snap.ID), Generation: d.opts.Generation(id)})
}

// take takes the snapshot.
func (d *Door) take(ctx context.Context, release func(), id carrel.ID, req *guest.CheckpointRequest) (carrel.Snapshot, error) {
	opts := carrel.SnapshotOptions{Label: req.Label, FilesOnly: req.FilesOnly, Cause: carrel.CauseGuest}
	if req.Command != "" {
		opts.Cause, opts.Detail = carrel.CauseCommand, req.Command
	}
	return carry(ctx, d, id, release, func(ctx context.Context) (carrel.Snapshot, error) {
		return d.opts.Moments.Snapshot(ctx, id, opts)
	})
}

// readRequest reads and checks a request: one JSON object with known fields.
func readRequest(w http.ResponseWriter, r *http.Request) (*guest.CheckpointRequest, *problem) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, &problem{http.StatusMethodNotAllowed, "only POST", ""}
	}
	if r.URL.RawQuery != "" {
		return nil, &problem{http.StatusBadRequest, "no query is taken", ""}
	}
	// A page in a browser can't send this type without a preflight request, which is refused.
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, &problem{http.StatusUnsupportedMediaType, "Content-Type: want application/json", ""}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, &problem{http.StatusRequestEntityTooLarge, "body: too large", ""}
	} else if err != nil {
		return nil, &problem{http.StatusBadRequest, "body: it did not arrive", ""}
	}
	if !utf8.Valid(body) {
		return nil, &problem{http.StatusBadRequest, "body: not UTF-8", ""}
	}
	var req guest.CheckpointRequest
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil {
		return nil, &problem{http.StatusBadRequest, "body: " + err.Error(), ""} // of the caller's own words
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, &problem{http.StatusBadRequest, "body: something follows the object", ""}
	}
	switch {
	case len(req.Label) > maxLabel:
		return nil, &problem{http.StatusBadRequest, "label: at most " + strconv.Itoa(maxLabel) + " bytes", ""}
	case strings.ContainsFunc(req.Label, unicode.IsControl):
		return nil, &problem{http.StatusBadRequest, "label: contains control characters", ""}
	case len(req.Command) > maxCommand:
		return nil, &problem{http.StatusBadRequest, "command: at most " + strconv.Itoa(maxCommand) + " bytes", ""}
	}
	return &req, nil
}

// tooOften answers when to ask again.
func tooOften(w http.ResponseWriter, wait time.Duration, message, hint string) {
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	refuse(w, http.StatusTooManyRequests, message, hint)
}

// problem is an answer that refuses a request.
type problem struct {
	status        int
	message, hint string
}

// texts are the texts that a sandbox gets for errors. They are fixed, because the causes may name
// things of the host. The text of Internal is for all other kinds.
type texts map[carrel.Kind]problem

var answers = texts{
	carrel.Invalid:     {http.StatusBadRequest, "the request was refused as invalid", ""},
	carrel.NotFound:    {http.StatusNotFound, "this sandbox is not known any more", ""},
	carrel.Conflict:    {http.StatusConflict, "this sandbox is being changed: a snapshot, a pause or a rollback is under way", "try again"},
	carrel.Exhausted:   {http.StatusInsufficientStorage, "there is no room for another snapshot", "the sandbox's owner can delete some: carrel timeline"},
	carrel.Unavailable: {http.StatusServiceUnavailable, "a snapshot can't be taken now", "try again"},
	carrel.Unsupported: {http.StatusNotImplemented, "this sandbox can't be snapshotted so", "files alone may work: --files-only"},
	carrel.TimedOut:    {http.StatusGatewayTimeout, "the snapshot took too long", ""},
	carrel.Forbidden:   {http.StatusForbidden, "this sandbox may not take snapshots", ""},
	carrel.Denied:      {http.StatusForbidden, "this sandbox may not take snapshots", ""},
	carrel.Internal:    {http.StatusInternalServerError, "the snapshot failed", "the daemon's log says why"},
}

// of returns the text for an error.
func (t texts) of(err error) *problem {
	p, ok := t[carrel.KindOf(err)]
	if !ok {
		p = t[carrel.Internal]
	}
	return &p
}

func (p *problem) write(w http.ResponseWriter) { refuse(w, p.status, p.message, p.hint) }

// refuse answers with an error in the form of E2B's API.
func refuse(w http.ResponseWriter, status int, message, hint string) {
	answer(w, status, struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Hint    string `json:"hint,omitempty"`
	}{status, message, hint})
}

// answer answers with a JSON body.
func answer[T any](w http.ResponseWriter, status int, body T) {
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the caller may be gone: then nobody can be told
}
