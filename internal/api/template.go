package api

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// templateRoutes are the routes about templates.
type templateRoutes struct{ *Server }

// templateBody is E2B's Template.
type templateBody struct {
	TemplateID    string    `json:"templateID"`
	BuildID       string    `json:"buildID"`
	BuildStatus   string    `json:"buildStatus"`
	BuildCount    int       `json:"buildCount"`
	Names         []string  `json:"names"`
	Aliases       []string  `json:"aliases"`
	Public        bool      `json:"public"`
	CPUCount      int       `json:"cpuCount"`
	MemoryMB      int       `json:"memoryMB"`
	DiskSizeMB    int       `json:"diskSizeMB"`
	EnvdVersion   string    `json:"envdVersion"`
	CreatedAt     time.Time `json:"createdAt"`
	UpdatedAt     time.Time `json:"updatedAt"`
	CreatedBy     *string   `json:"createdBy"`
	LastSpawnedAt *string   `json:"lastSpawnedAt"`
	SpawnCount    int       `json:"spawnCount"`
}

// buildBody is E2B's TemplateBuild.
type buildBody struct {
	BuildID     string     `json:"buildID"`
	Status      string     `json:"status"`
	CPUCount    int        `json:"cpuCount"`
	MemoryMB    int        `json:"memoryMB"`
	DiskSizeMB  int        `json:"diskSizeMB"`
	EnvdVersion string     `json:"envdVersion"`
	CreatedAt   time.Time  `json:"createdAt"`
	UpdatedAt   time.Time  `json:"updatedAt"`
	FinishedAt  *time.Time `json:"finishedAt,omitempty"`
}

// templateDetail is E2B's TemplateWithBuilds.
type templateDetail struct {
	templateBody
	Builds []buildBody `json:"builds"`
}

// aliasBody is E2B's TemplateAliasResponse.
type aliasBody struct {
	TemplateID string `json:"templateID"`
	Public     bool   `json:"public"`
}

func (s templateRoutes) toTemplate(t carrel.Template) templateBody {
	return templateBody{
		TemplateID: t.LastingID(), BuildID: t.BuildID(), BuildStatus: "ready",
		BuildCount: 1,
		Names:      []string{t.Name}, Aliases: []string{t.Name}, Public: t.Public,
		CPUCount:    cpuCount(cmp.Or(t.Limits.CPUs, s.opts.Limits.CPUs)),
		MemoryMB:    cmp.Or(t.Limits.MemoryMB, s.opts.Limits.MemoryMB),
		DiskSizeMB:  cmp.Or(t.Limits.DiskMB, s.opts.Limits.DiskMB),
		EnvdVersion: carrel.EnvdVersion, CreatedAt: t.Created.UTC(), UpdatedAt: t.Created.UTC(),
	}
}

// templates is E2B's first list: all at once.
func (s templateRoutes) templates(w http.ResponseWriter, r *http.Request) error {
	if team := r.URL.Query().Get("teamID"); team != "" {
		if err := ownTeam(r, "teamID", team); err != nil {
			return err
		}
	}
	all, err := s.opts.Service.ListTemplates(r.Context())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, s.toTemplates(all))
	return nil
}

func (s templateRoutes) toTemplates(all []carrel.Template) []templateBody {
	out := make([]templateBody, len(all))
	for i, t := range all {
		out[i] = s.toTemplate(t)
	}
	return out
}

// builtIn lists the templates that every daemon has, by ID.
func (s templateRoutes) builtIn(w http.ResponseWriter, r *http.Request) error {
	all, err := s.opts.Service.ListTemplates(r.Context())
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(slices.Clone(all), func(t carrel.Template) bool { return !t.BuiltIn })
	slices.SortFunc(all, func(x, y carrel.Template) int {
		return strings.Compare(x.LastingID(),
			y.LastingID())
	})
	writeJSON(w, http.StatusOK, s.toTemplates(all))
	return nil
}

// templatePages is E2B's second list: the newest first, page by page. A token says after which
// template the next page begins. That one may be gone by then.
func (s templateRoutes) templatePages(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	limit, token, err := paging(q, "nextToken", 1)
	if err != nil {
		return err
	}
	if team := q.Get("teamID"); team != "" {
		if err := ownTeam(r, "teamID", team); err != nil {
			return err
		}
	}
	all, err := s.opts.Service.ListTemplates(r.Context())
	if err != nil {
		return err
	}
	newestFirst := func(x, y carrel.Template) int {
		return cmp.Or(y.Created.Compare(x.Created), strings.Compare(x.ID, y.ID))
	}
	all = slices.SortedFunc(slices.Values(all), newestFirst)
	if token != "" {
		at, id, ok := strings.Cut(token, "_")
		nano, err := strconv.ParseInt(at, 10, 64)
		if !ok || err != nil {
			return invalid("nextToken", "%q is not a token of this list", clip(token))
		}
		last := carrel.Template{Created: time.Unix(0, nano), ID: id}
		all = slices.DeleteFunc(all, func(t carrel.Template) bool {
			return newestFirst(t,
				last) <= 0
		})
	}
	if len(all) > limit {
		all = all[:limit]
		last := all[limit-1]
		w.Header().Set("X-Next-Token", strconv.FormatInt(last.Created.UnixNano(), 10)+"_"+last.ID)
	}
	writeJSON(w, http.StatusOK, s.toTemplates(all))
	return nil
}

// findTemplate returns the template that a text names. One that has no default tag is described by
// its newest tag.
func (s templateRoutes) findTemplate(r *http.Request, text string) (carrel.Template, error) {
	t, err := s.opts.Service.GetTemplate(r.Context(), text)
	if carrel.KindOf(err) == carrel.NotFound {
		if tags := s.tagsAlone(r, text); len(tags) > 0 {
			t, err = s.opts.Service.GetTemplate(r.Context(), tags[0].TemplateID+":"+tags[0].Tag)
		}
	}
	return t, noTemplate(err, text)
}

// tagsAlone returns the tags of a template that has no default tag, the newest first.
func (s templateRoutes) tagsAlone(r *http.Request, text string) []carrel.TemplateTag {
	tags, err := s.opts.Service.TemplateTags(r.Context(), text)
	if err != nil { // no such template
		return nil
	}
	slices.SortStableFunc(tags, func(x, y carrel.TemplateTag) int { return y.Created.Compare(x.Created) })
	return tags
}

// noTemplate gives E2B's text to an error about a name that nothing has. An invalid name counts as
// such a name.
func noTemplate(err error, text string) error {
	switch carrel.KindOf(err) {
	case carrel.NotFound, carrel.Invalid:
		return templateNotFound(text)
	}
	return err
}

// buildPage cuts a template's builds. A token is the ID of the last build on the page before.
func buildPage(w http.ResponseWriter, all []buildBody, limit int, token string) ([]buildBody,
	error) {
	if token != "" {
		i := slices.IndexFunc(all, func(b buildBody) bool { return b.BuildID == token })
		if i < 0 {
			return nil, invalid("nextToken", "%q is not a token of this list", clip(token))
		}
		all = all[i+1:]
	}
	if len(all) > limit {
		all = all[:limit]
		w.Header().Set("X-Next-Token", all[limit-1].BuildID)
	}
	return all, nil
}

func (s templateRoutes) template(w http.ResponseWriter, r *http.Request) error {
	limit, token, err := paging(r.URL.Query(), "nextToken", 1)
	if err != nil {
		return err
	}
	t, err := s.findTemplate(r, r.PathValue("id"))
	if err != nil {
		return err
	}
	b := s.toTemplate(t)
	one := buildBody{
		BuildID: b.BuildID, Status: b.BuildStatus, CPUCount: b.CPUCount, MemoryMB: b.MemoryMB, DiskSizeMB: b.DiskSizeMB,
		EnvdVersion: b.EnvdVersion, CreatedAt: b.CreatedAt, UpdatedAt: b.UpdatedAt,
		FinishedAt: &b.UpdatedAt,
	}
	out := templateDetail{b, []buildBody{}}
	if t.Of != "" {
		all, err := s.opts.Service.ListBuilds(r.Context(), carrel.BuildListOptions{Template: t.Of})
		if err != nil {
			return err
		}
		for _, build := range all {
			next := one
			next.BuildID, next.Status, next.CreatedAt, next.UpdatedAt, next.FinishedAt = build.ID,
				e2bState(build.State), build.Created, build.Created, nil
			if build.State.Final() {
				next.UpdatedAt, next.FinishedAt = build.Ended, &build.Ended
			}
			out.Builds = append(out.Builds, next)
		}
		out.BuildCount = max(len(all), 1)
	}
	if len(out.Builds) == 0 {
		out.Builds = append(out.Builds, one)
	}
	if out.Builds, err = buildPage(w, out.Builds, limit, token); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (s templateRoutes) templateAlias(w http.ResponseWriter, r *http.Request) error {
	alias := r.PathValue("alias")
	t, err := s.findTemplate(r, alias)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, aliasBody{t.LastingID(), t.Public})
	return nil
}

// deleteTemplate removes the template or the snapshot that the text names. E2B has one set of names
// for both, and so has create. The template comes first, as in create (see carrel.TemplateRef).
func (s templateRoutes) deleteTemplate(w http.ResponseWriter, r *http.Request) error {
	text := r.PathValue("id")
	err := s.opts.Service.DeleteTemplate(r.Context(), text)
	if carrel.KindOf(err) == carrel.NotFound {
		if tags := s.tagsAlone(r, text); len(tags) > 0 {
			var names []string
			for _, t := range tags {
				names = append(names, t.Tag)
			}
			err = s.opts.Service.UntagTemplate(r.Context(), text, names)
		}
	}
	if kind := carrel.KindOf(err); kind == carrel.NotFound || kind == carrel.Unsupported { // where no snapshots are kept
		err = s.opts.Service.DeleteSnapshot(r.Context(), text)
	}
	if err := noTemplate(err, text); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
