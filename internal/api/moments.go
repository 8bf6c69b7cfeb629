package api

import (
	"net/http"
	"strconv"

	"github.com/carrel-dev/carrel"
)

// momentRoutes are the routes about snapshots, pauses and forks: E2B's and ours.
type momentRoutes struct{ *Server }

// add adds the routes of carrel.Moments below the prefix v1.
func (s momentRoutes) add(v1 string) {
	s.handle("POST"+v1+"/sandboxes/{id}/pause", s.pauseOurs)
	s.handle("POST"+v1+"/sandboxes/{id}/resume", s.resumeOurs)
	s.handle("POST"+v1+"/sandboxes/{id}/snapshots", s.snapshotOurs)
	s.handle("POST"+v1+"/sandboxes/{id}/fork", s.forkOurs)
	s.handle("POST"+v1+"/sandboxes/{id}/rollback", s.rollbackOurs)
	s.handle("POST"+v1+"/sandboxes/{id}/promote", s.promoteOurs)
	s.handle("GET"+v1+"/sandboxes/{id}/timeline", s.timelineOurs)
	s.handle("PUT"+v1+"/sandboxes/{id}/lifecycle", s.lifecycleOurs)
	s.handle("PATCH"+v1+"/sandboxes/{id}/metadata", s.metadataOurs)
	s.handle("GET"+v1+"/snapshots", s.snapshotsOurs)
	s.handle("GET"+v1+"/snapshots/{name}", s.getSnapshotOurs)
	s.handle("PATCH"+v1+"/snapshots/{name}", s.updateSnapshotOurs)
	s.handle("DELETE"+v1+"/snapshots/{name}", s.deleteSnapshotOurs)
	s.handle("GET"+v1+"/snapshots/{name}/diff", s.diffOurs)
	s.handle("GET"+v1+"/snapshots/{name}/file", s.snapshotFileOurs)
	s.handleAdmin("GET"+v1+"/snapshot-store", s.snapshotUsage)
	s.handleAdmin("POST"+v1+"/snapshot-store/gc", s.snapshotGC)
}

func (s momentRoutes) pauseOurs(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	var opts carrel.PauseOptions
	if err := decodeStrict(w, r, &opts, true); err != nil {
		return err
	}
	sb, err := s.opts.Service.Pause(r.Context(), id, opts)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, sb)
	return nil
}

// resumeIn is carrel.ResumeOptions as it arrives.
type resumeIn struct {
	carrel.ResumeOptions
	Timeout span `json:"timeout"`
}

// resumedBody is a sandbox that runs, and whether it was paused before.
type resumedBody struct {
	Sandbox carrel.Sandbox `json:"sandbox"`
	Resumed bool           `json:"resumed"`
}

func (s momentRoutes) resumeOurs(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	var body resumeIn
	if err := decodeStrict(w, r, &body, true); err != nil {
		return err
	}
	opts := body.ResumeOptions
	if opts.Timeout, err = body.Timeout.duration("timeout", s.opts.MaxTimeout); err != nil {
		return err
	}
	sb, resumed, err := s.opts.Service.Resume(r.Context(), id, opts)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, resumedBody{sb, resumed})
	return nil
}

func (s momentRoutes) snapshotOurs(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	var opts carrel.SnapshotOptions
	if err := decodeStrict(w, r, &opts, true); err != nil {
		return err
	}
	if opts.Name != "" {
		if opts.Name, err = snapshotName("name", opts.Name); err != nil {
			return err
		}
	}
	if err := checkLabel(opts.Label); err != nil {
		return err
	}
	snap, err := s.opts.Service.Snapshot(r.Context(), id, opts)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, snap)
	return nil
}

// forkIn is carrel.ForkOptions as it arrives.
type forkIn struct {
	carrel.ForkOptions
	Timeout span `json:"timeout"`
}

// forkOut is one fork, or why there is none.
type forkOut struct {
	Sandbox *carrel.Sandbox `json:"sandbox,omitempty"`
	Error   *errorBody      `json:"error,omitempty"`
}

// forksBody is what became of all forks.
type forksBody struct {
	Forks []forkOut `json:"forks"`
}

// forkOurs differs from E2B's fork in one point: no count, or 0, means one fork.
func (s momentRoutes) forkOurs(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	var body forkIn
	if err := decodeStrict(w, r, &body, true); err != nil {
		return err
	}
	opts := body.ForkOptions
	if opts.Timeout, err = body.Timeout.duration("timeout", s.opts.MaxTimeout); err != nil {
		return err
	}
	if opts.Count == 0 {
		opts.Count = 1
	}
	if err := checkForks(opts.Count, maxForks); err != nil {
		return err
	}
	if opts.At != "" {
		if _, err := carrel.ParseSnapshotID(string(opts.At)); err != nil {
			return invalid("at", "%s is not a snapshot's ID", clip(string(opts.At)))
		}
	}
	results, err := s.opts.Service.Fork(r.Context(), id, opts)
	if err != nil {
		return err
	}
	forks := make([]forkOut, len(results))
	for i, f := range results {
		if f.Err != nil {
			_, e := s.render(r, f.Err)
			forks[i].Error = &e
			continue
		}
		forks[i].Sandbox = &f.Sandbox
	}
	writeJSON(w, http.StatusCreated, forksBody{forks})
	return nil
}

// rollbackIn says to which snapshot a sandbox goes back.
type rollbackIn struct {
	To string `json:"to"`
	carrel.RollbackOptions
}

func (s momentRoutes) rollbackOurs(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	var body rollbackIn
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	to, err := snapshotID("to", body.To)
	if err != nil {
		return err
	}
	sb, err := s.opts.Service.Rollback(r.Context(), id, to, body.RollbackOptions)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, sb)
	return nil
}

func (s momentRoutes) promoteOurs(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	var body carrel.PromoteOptions
	if err := decodeStrict(w, r, &body, true); err != nil {
		return err
	}
	sb, err := s.opts.Service.Promote(r.Context(), id, body)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, sb)
	return nil
}

// snapshotID reads an ID from a field of a request.
func snapshotID(field, text string) (carrel.SnapshotID, error) {
	if text == "" {
		return "", invalid(field, "missing")
	}
	id, err := carrel.ParseSnapshotID(text)
	if err != nil {
		p := invalid(field, "%q is not a snapshot ID", clip(text))
		p.body.Hint = carrel.HintOf(err)
		return "", p
	}
	return id, nil
}

func (s momentRoutes) timelineOurs(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	t, err := s.opts.Service.Timeline(r.Context(), id)
	if err != nil {
		return err
	}
	if t.Snapshots == nil {
		t.Snapshots = []carrel.Snapshot{}
	}
	writeJSON(w, http.StatusOK, t)
	return nil
}

// snapshotPage is carrel.SnapshotPage on the wire.
type snapshotPage struct {
	Snapshots []carrel.Snapshot `json:"snapshots"`
	Next      string            `json:"next,omitempty"`
	Missing   []string          `json:"missing,omitempty"`
}

func (s momentRoutes) snapshotsOurs(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	opts := carrel.SnapshotListOptions{Project: q.Get("project")}
	var err error
	if v := q.Get("sandbox"); v != "" {
		if opts.Sandbox, err = carrel.ParseID(v); err != nil {
			return invalid("sandbox", "%q is not a sandbox ID", clip(v))
		}
	}
	if v := q.Get("name"); v != "" {
		if opts.Name, err = snapshotName("name", v); err != nil {
			return err
		}
	}
	if opts.Auto, err = boolean(q, "auto"); err != nil {
		return err
	}
	if opts.Limit, opts.Cursor, err = paging(q, "cursor", 0); err != nil {
		return err
	}
	page, err := s.opts.Service.ListSnapshots(r.Context(), opts)
	if err != nil {
		return err
	}
	if page.Snapshots == nil {
		page.Snapshots = []carrel.Snapshot{}
	}
	writeJSON(w, http.StatusOK, snapshotPage(page))
	return nil
}

func (s momentRoutes) getSnapshotOurs(w http.ResponseWriter, r *http.Request) error {
	snap, err := s.opts.Service.GetSnapshot(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, snap)
	return nil
}

// resolve finds the ID of a snapshot that a request names by ID or by name.
func (s momentRoutes) resolve(r *http.Request, idOrName string) (carrel.SnapshotID, error) {
	if id, err := carrel.ParseSnapshotID(idOrName); err == nil {
		return id, nil
	}
	snap, err := s.opts.Service.GetSnapshot(r.Context(), idOrName)
	return snap.ID, err
}

func (s momentRoutes) updateSnapshotOurs(w http.ResponseWriter, r *http.Request) error {
	var u carrel.SnapshotUpdate
	if err := decodeStrict(w, r, &u, false); err != nil {
		return err
	}
	if u.Names != nil {
		names := *u.Names
		if len(names) > maxNames {
			return invalid("names", "%d are more than %d", len(names), maxNames)
		}
		for i, name := range names {
			var err error
			if names[i], err = snapshotName("names["+strconv.Itoa(i)+"]", name); err != nil {
				return err
			}
		}
	}
	if u.Label != nil {
		if err := checkLabel(*u.Label); err != nil {
			return err
		}
	}
	id, err := s.resolve(r, r.PathValue("name"))
	if err != nil {
		return err
	}
	snap, err := s.opts.Service.UpdateSnapshot(r.Context(), id, u)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, snap)
	return nil
}

func (s momentRoutes) deleteSnapshotOurs(w http.ResponseWriter, r *http.Request) error {
	if err := s.opts.Service.DeleteSnapshot(r.Context(), r.PathValue("name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// diffOurs compares two snapshots, each given by ID or name.
func (s momentRoutes) diffOurs(w http.ResponseWriter, r *http.Request) error {
	other := r.URL.Query().Get("to")
	if other == "" {
		return invalid("to", "missing")
	}
	from, err := s.resolve(r, r.PathValue("name"))
	if err != nil {
		return err
	}
	to, err := s.resolve(r, other)
	if err != nil {
		return err
	}
	changes, err := s.opts.Service.Diff(r.Context(), from, to)
	if err != nil {
		return err
	}
	if changes == nil {
		changes = []carrel.FileChange{}
	}
	writeJSON(w, http.StatusOK, changes)
	return nil
}

// snapshotFileOurs reads one file of a snapshot, which is given by ID or name.
func (s momentRoutes) snapshotFileOurs(w http.ResponseWriter, r *http.Request) error {
	name := r.URL.Query().Get("path")
	if name == "" {
		return invalid("path", "missing")
	}
	id, err := s.resolve(r, r.PathValue("name"))
	if err != nil {
		return err
	}
	f, err := s.opts.Service.SnapshotFile(r.Context(), id, name)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, f)
	return nil
}

func (s momentRoutes) snapshotUsage(w http.ResponseWriter, r *http.Request) error {
	if s.opts.Snapshots == nil {
		return later("", "a snapshot store")
	}
	u, err := s.opts.Snapshots.Usage(r.Context())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, u)
	return nil
}

func (s momentRoutes) snapshotGC(w http.ResponseWriter, r *http.Request) error {
	if s.opts.Snapshots == nil {
		return later("", "a snapshot store")
	}
	c, err := s.opts.Snapshots.GC(r.Context())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, c)
	return nil
}
