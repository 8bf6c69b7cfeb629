package api

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/http"
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

// teamBody is E2B's Team.
type teamBody struct {
	TeamID    string `json:"teamID"`
	Name      string `json:"name"`
	APIKey    string `json:"apiKey"`
	IsDefault bool   `json:"isDefault"`
}

func (s templateRoutes) toTemplate(t carrel.Template) templateBody {
	return templateBody{
		TemplateID: t.LastingID(), BuildID: cmp.Or(t.Build, buildID(t)), BuildStatus: "ready",
		BuildCount: 1,
		Names:      []string{t.Name}, Aliases: []string{t.Name}, Public: t.Public,
		CPUCount:    cpuCount(cmp.Or(t.Limits.CPUs, s.opts.Limits.CPUs)),
		MemoryMB:    cmp.Or(t.Limits.MemoryMB, s.opts.Limits.MemoryMB),
		DiskSizeMB:  cmp.Or(t.Limits.DiskMB, s.opts.Limits.DiskMB),
		EnvdVersion: carrel.EnvdVersion, CreatedAt: t.Created.UTC(), UpdatedAt: t.Created.UTC(),
	}
}

// buildID makes a UUID from the fixed properties of a template. Each template has one build, and
// E2B's clients want an ID for it.
func buildID(t carrel.Template) string {
	h := sha256.Sum256([]byte(t.ID + "\x00" + t.Digest + "\x00" + t.Created.UTC().Format(time.RFC3339Nano)))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80 // version 8 (our own), variant of RFC 9562
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

func (s templateRoutes) templates(w http.ResponseWriter, r *http.Request) error {
	all, err := s.opts.Service.ListTemplates(r.Context())
	if err != nil {
		return err
	}
	out := make([]templateBody, len(all))
	for i, t := range all {
		out[i] = s.toTemplate(t)
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// findTemplate returns the template that a text names.
func (s templateRoutes) findTemplate(r *http.Request, text string) (carrel.Template, error) {
	t, err := s.opts.Service.GetTemplate(r.Context(), text)
	return t, noTemplate(err, text)
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

func (s templateRoutes) template(w http.ResponseWriter, r *http.Request) error {
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
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (s templateRoutes) templateAlias(w http.ResponseWriter, r *http.Request) error {
	t, err := s.findTemplate(r, r.PathValue("alias"))
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
	if kind := carrel.KindOf(err); kind == carrel.NotFound || kind == carrel.Unsupported { // where no snapshots are kept
		err = s.opts.Service.DeleteSnapshot(r.Context(), text)
	}
	if err := noTemplate(err, text); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// teams answers with the only team: the holder of the key. E2B's CLI wants to pick one.
func (s templateRoutes) teams(w http.ResponseWriter, r *http.Request) error {
	writeJSON(w, http.StatusOK, []teamBody{{
		TeamID: "00000000-0000-8000-8000-000000000001", Name: "carrel", APIKey: s.opts.Callers.Shown(r), IsDefault: true,
	}})
	return nil
}
