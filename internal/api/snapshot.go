package api

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/carrel-dev/carrel"
)

// snapshotBody is E2B's SnapshotInfo. Its ID is the snapshot's name, if it has one. A name always
// means the snapshot that has it at the time. Otherwise it is the snapshot's own ID.
type snapshotBody struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
}

func toSnapshot(snap carrel.Snapshot) snapshotBody {
	b := snapshotBody{SnapshotID: string(snap.ID), Names: make([]string, len(snap.Names))}
	for i, name := range snap.Names {
		if !strings.Contains(name, ":") {
			name += ":default" // E2B's names have a tag
		}
		b.Names[i] = name
	}
	if len(b.Names) > 0 {
		b.SnapshotID = b.Names[0]
	}
	return b
}

// newSnapshotBody is E2B's body of a new snapshot.
type newSnapshotBody struct {
	Name   *string `json:"name"`
	Memory *bool   `json:"memory"` // of the newest SDKs: false keeps the files only
}

// takeSnapshot is E2B's route for taking a snapshot.
func (s momentRoutes) takeSnapshot(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	var body newSnapshotBody
	if err := decode(w, r, &body, true); err != nil {
		return err
	}
	opts := carrel.SnapshotOptions{FilesOnly: body.Memory != nil && !*body.Memory}
	if body.Name != nil {
		if opts.Name, err = snapshotName("name", *body.Name); err != nil {
			return err
		}
	}
	snap, err := s.opts.Service.Snapshot(r.Context(), id, opts)
	if err != nil {
		return notFoundAs(id, err)
	}
	writeJSON(w, http.StatusCreated, toSnapshot(snap))
	return nil
}

// snapshots is E2B's list: the requested snapshots, newest first.
func (s momentRoutes) snapshots(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	opts := carrel.SnapshotListOptions{Limit: maxPage}
	if v := q.Get("sandboxID"); v != "" {
		short, _, _ := strings.Cut(v, "-")
		id, err := carrel.ParseID(short)
		if err != nil {
			return invalid("sandboxID", "%q is not a sandbox ID", clip(v))
		}
		opts.Sandbox = id
	}
	var err error
	if opts.Limit, opts.Cursor, err = paging(q, "nextToken", 1); err != nil {
		return err
	}
	if v := q.Get("name"); v != "" {
		if id, err := carrel.ParseSnapshotID(strings.TrimSuffix(v, ":default")); err == nil {
			return s.oneSnapshot(w, r, id, opts.Sandbox)
		}
		if opts.Name, err = snapshotName("name", v); err != nil {
			return err
		}
	}
	page, err := s.opts.Service.ListSnapshots(r.Context(), opts)
	if err != nil {
		return err
	}
	out := make([]snapshotBody, len(page.Snapshots))
	for i, snap := range page.Snapshots {
		out[i] = toSnapshot(snap)
	}
	if page.Next != "" {
		w.Header().Set("X-Next-Token", page.Next)
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// oneSnapshot is the list filtered by an ID. The filter by name may hold an ID.
func (s momentRoutes) oneSnapshot(w http.ResponseWriter, r *http.Request, id carrel.SnapshotID, of carrel.ID) error {
	out := []snapshotBody{}
	snap, err := s.opts.Service.GetSnapshot(r.Context(), string(id))
	switch {
	case carrel.KindOf(err) == carrel.NotFound:
	case err != nil:
		return err
	case of == "" || snap.Sandbox == of:
		out = append(out, toSnapshot(snap))
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// paging reads a page's limit, which is at least least, and its cursor.
func paging(q url.Values, cursor string, least int) (limit int, next string, err error) {
	limit, next = maxPage, q.Get(cursor)
	if v := q.Get("limit"); v != "" {
		if limit, err = strconv.Atoi(v); err != nil || limit < least || limit > maxPage {
			return 0, "", invalid("limit", "%q is not a whole number from %d to %d", clip(v), least, maxPage)
		}
	}
	if len(next) > 1024 {
		return 0, "", invalid(cursor, "longer than 1024 characters")
	}
	return limit, next, nil
}

const (
	maxName  = 128
	maxNames = 32
	maxLabel = 256
)

// snapshotName checks a name of the form name or name:tag, and removes E2B's default tag. The
// service checks its characters.
func snapshotName(field, text string) (string, error) {
	name, tag, tagged := strings.Cut(text, ":")
	switch {
	case len(text) > maxName:
		return "", invalid(field, "longer than %d characters", maxName)
	case name == "" || (tagged && tag == "") || strings.Contains(tag, ":"):
		return "", invalid(field, "%q is not of the form name or name:tag", clip(text))
	case strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c >= 0x7f }):
		return "", invalid(field, "%q has a character that no name has", clip(text))
	case tag == "default" || tag == "latest":
		text = name
	}
	if _, err := carrel.ParseSnapshotID(name); err == nil {
		return "", invalid(field, "%q has the form of a snapshot's ID", clip(text))
	}
	return text, nil
}

// checkLabel bounds a snapshot's label.
func checkLabel(label string) error {
	switch {
	case utf8.RuneCountInString(label) > maxLabel:
		return invalid("label", "longer than %d characters", maxLabel)
	case !utf8.ValidString(label) || strings.ContainsFunc(label, unicode.IsControl):
		return invalid("label", "has a control character")
	}
	return nil
}
