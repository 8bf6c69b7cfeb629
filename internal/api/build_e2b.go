package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// Builds are the parts of builds that only E2B's clients need. Package access implements it.
type Builds interface {
	// NewBuild makes a build that waits for its start.
	NewBuild(ctx context.Context, spec carrel.BuildSpec) (carrel.Build, error)
	// HasUpload reports whether the caller's project has uploaded an archive, for the builds of a
	// template.
	HasUpload(ctx context.Context, template, name string) (bool, error)
	// PutUpload keeps an archive for the builds of a template of the caller's project.
	PutUpload(ctx context.Context, template, name string, r io.Reader) error
}

// e2bBuildRoutes are E2B's routes about builds.
type e2bBuildRoutes struct{ *Server }

func (s e2bBuildRoutes) add() {
	s.handle("POST /v2/templates", s.create)
	s.handle("POST /v3/templates", s.create)
	s.handle("GET /templates/{id}/files/{hash}", s.files)
	s.handle("POST /v2/templates/{id}/builds/{build}", s.start)
	s.handle("GET /templates/{id}/builds/{build}/status", s.status)
	s.handle("GET /templates/{id}/builds/{build}/logs", s.logs)
	s.handle("POST /templates/tags", s.tag)
	s.handle("DELETE /templates/tags", s.untag)
	s.handle("GET /templates/{id}/tags", s.tags)
	s.handle("PATCH /templates/{id}", s.update)
	s.handle("PATCH /v2/templates/{id}", s.update)
}

// newTemplateBody is E2B's TemplateBuildRequestV3.
type newTemplateBody struct {
	Name          string   `json:"name,omitempty"`
	Alias         string   `json:"alias,omitempty"` // older clients
	Tags          []string `json:"tags,omitempty"`
	CPUCount      int      `json:"cpuCount,omitempty"`
	MemoryMB      int      `json:"memoryMB,omitempty"`
	MinFreeDiskMB int      `json:"minFreeDiskMb,omitempty"`
}

// newTemplateAnswer is E2B's TemplateRequestResponseV3.
type newTemplateAnswer struct {
	TemplateID string   `json:"templateID"`
	BuildID    string   `json:"buildID"`
	Names      []string `json:"names"`
	Aliases    []string `json:"aliases"`
	Tags       []string `json:"tags"`
	Public     bool     `json:"public"`
}

// builds returns the part of builds. Error: Unsupported.
func (s e2bBuildRoutes) builds() (Builds, error) {
	if s.opts.Builds == nil {
		return nil, later("", "building templates")
	}
	return s.opts.Builds, nil
}

// create makes a build that waits for its files and its start.
func (s e2bBuildRoutes) create(w http.ResponseWriter, r *http.Request) error {
	var in newTemplateBody
	if err := decode(w, r, &in, false); err != nil {
		return err
	}
	builds, err := s.builds()
	if err != nil {
		return err
	}
	if in.Name == "" {
		in.Name = in.Alias
	}
	if in.Name == "" {
		return invalid("name", "missing")
	}
	b, err := builds.NewBuild(r.Context(), carrel.BuildSpec{Name: in.Name, Tags: in.Tags,
		CPUs: float64(in.CPUCount), MemoryMB: in.MemoryMB, MinFreeDiskMB: in.MinFreeDiskMB})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusAccepted, newTemplateAnswer{TemplateID: b.TemplateID, BuildID: b.ID,
		Names: []string{b.Name}, Aliases: []string{b.Name}, Tags: b.Tags})
	return nil
}

// ofTemplate checks that the caller has a build of a template, which may not be there yet.
func (s e2bBuildRoutes) ofTemplate(r *http.Request) error {
	id := r.PathValue("id")
	all, err := s.opts.Service.ListBuilds(r.Context(), carrel.BuildListOptions{Template: id, Limit: 1})
	if err == nil && len(all) == 0 {
		_, err = s.opts.Service.GetTemplate(r.Context(), id)
		err = noTemplate(err, id)
	}
	return err
}

// uploadBody is E2B's TemplateBuildFileUpload.
type uploadBody struct {
	Present bool              `json:"present"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// files tells where to upload the files of a COPY, unless they are there.
func (s e2bBuildRoutes) files(w http.ResponseWriter, r *http.Request) error {
	builds, err := s.builds()
	if err != nil {
		return err
	}
	if err := s.ofTemplate(r); err != nil {
		return err
	}
	hash := r.PathValue("hash")
	has, err := builds.HasUpload(r.Context(), r.PathValue("id"), hash)
	if err != nil {
		return err
	}
	out := uploadBody{Present: has}
	// The URL is there all the same: a client may want to replace the files.
	out.URL = baseURL(r) + s.uploadKey.path(permission{Project: carrel.CallerOf(r.Context()).Project,
		Template: r.PathValue("id"), Hash: hash}, time.Now())
	writeJSON(w, http.StatusCreated, out)
	return nil
}

// startBuildBody is E2B's TemplateBuildStartV2.
type startBuildBody struct {
	FromImage         string                      `json:"fromImage,omitempty"`
	FromTemplate      string                      `json:"fromTemplate,omitempty"`
	FromImageRegistry *carrel.RegistryCredentials `json:"fromImageRegistry,omitempty"`
	Force             bool                        `json:"force,omitempty"`
	Steps             []carrel.BuildInstruction   `json:"steps,omitempty"`
	StartCmd          string                      `json:"startCmd,omitempty"`
	ReadyCmd          string                      `json:"readyCmd,omitempty"`
}

// start begins a build.
func (s e2bBuildRoutes) start(w http.ResponseWriter, r *http.Request) error {
	var in startBuildBody
	if err := decode(w, r, &in, false); err != nil {
		return err
	}
	b, err := s.build(r)
	if err != nil {
		return err
	}
	spec := carrel.BuildSpec{ID: b.ID, FromImage: in.FromImage, FromTemplate: in.FromTemplate,
		NoCache: in.Force, Instructions: in.Steps,
		Start: in.StartCmd, Ready: in.ReadyCmd}
	if in.FromImageRegistry != nil {
		spec.Registries = map[string]carrel.RegistryCredentials{"": *in.FromImageRegistry}
	}
	if spec.FromImage == "" && spec.FromTemplate == "" {
		return invalid("fromImage", "missing, and fromTemplate too")
	}
	if _, err := s.opts.Service.StartBuild(r.Context(), spec); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// build finds the build of a path.
func (s e2bBuildRoutes) build(r *http.Request) (carrel.Build, error) {
	b, err := s.opts.Service.GetBuild(r.Context(), r.PathValue("build"))
	if err == nil && b.TemplateID != r.PathValue("id") {
		err = &carrel.Error{Op: "get build", Kind: carrel.NotFound, Field: "buildID",
			Err: fmt.Errorf("template %s has no such build", clip(r.PathValue("id")))}
	}
	return b, err
}

// buildLogBody is E2B's BuildLogEntry.
type buildLogBody struct {
	Timestamp time.Time `json:"timestamp"`
	Level     string    `json:"level"`
	Message   string    `json:"message"`
	Step      string    `json:"step,omitempty"`
}

// buildReasonBody is E2B's BuildStatusReason.
type buildReasonBody struct {
	Message    string         `json:"message"`
	Step       string         `json:"step,omitempty"`
	LogEntries []buildLogBody `json:"logEntries"`
}

// buildStatusBody is E2B's TemplateBuildInfo.
type buildStatusBody struct {
	TemplateID string           `json:"templateID"`
	BuildID    string           `json:"buildID"`
	Status     string           `json:"status"`
	Logs       []string         `json:"logs"`
	LogEntries []buildLogBody   `json:"logEntries"`
	Reason     *buildReasonBody `json:"reason,omitempty"`
}

// maxBuildLogs bounds the lines of one answer.
const maxBuildLogs = 100

// status tells a build's state and the next lines of its log.
func (s e2bBuildRoutes) status(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	offset, err := wholeNumber(q.Get("logsOffset"), "logsOffset")
	if err != nil {
		return err
	}
	opts, err := buildLogOptions(q)
	if err != nil {
		return err
	}
	opts.Offset = offset
	// The state first: the lines are then at least those before it.
	b, err := s.build(r)
	if err != nil {
		return err
	}
	logs, err := s.lines(r, b.ID, opts)
	if err != nil {
		return err
	}
	out := buildStatusBody{TemplateID: b.TemplateID, BuildID: b.ID, Status: e2bState(b.State),
		Logs: []string{}, LogEntries: logs}
	if b.Reason != nil {
		out.Reason = &buildReasonBody{Message: b.Reason.Message, Step: b.Reason.Step,
			LogEntries: []buildLogBody{}}
		if b.Reason.Hint != "" {
			out.Reason.Message += " (" + b.Reason.Hint + ")"
		}
	}
	if b.State == carrel.BuildCancelled {
		out.Reason = &buildReasonBody{Message: "the build was cancelled", LogEntries: []buildLogBody{}}
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// e2bState is a build's state in E2B's words.
func e2bState(s carrel.BuildState) string {
	if s == carrel.BuildCancelled {
		return string(carrel.BuildError)
	}
	return string(s)
}

// buildLogOptions reads the bounds of an answer and the lowest level.
func buildLogOptions(q url.Values) (opts carrel.BuildLogOptions, err error) {
	if opts.Limit, err = wholeNumber(q.Get("limit"), "limit"); err != nil {
		return opts, err
	}
	if opts.Limit == 0 || opts.Limit > maxBuildLogs {
		opts.Limit = maxBuildLogs
	}
	opts.MinLevel = q.Get("level")
	return opts, oneOf(q, "level", logLevels...)
}

// oneOf checks a parameter that may be missing.
func oneOf(q url.Values, name string, values ...string) error {
	if v := q.Get(name); v != "" && !slices.Contains(values, v) {
		return invalid(name, "%q is not one of %s", clip(v), strings.Join(values, ", "))
	}
	return nil
}

// lines reads lines of a build's log.
func (s e2bBuildRoutes) lines(r *http.Request, id string,
	opts carrel.BuildLogOptions) ([]buildLogBody, error) {
	out := []buildLogBody{}
	for l, err := range s.opts.Service.BuildLogs(r.Context(), id, opts) {
		if err != nil {
			return nil, err
		}
		out = append(out, buildLogBody{Timestamp: l.Time, Level: l.Level, Message: l.Message,
			Step: l.Step})
	}
	return out, nil
}

// buildLogsBody is E2B's TemplateBuildLogsResponse.
type buildLogsBody struct {
	Logs []buildLogBody `json:"logs"`
}

// logs reads a build's log from a time on, in either direction.
func (s e2bBuildRoutes) logs(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	cursor, err := wholeNumber(q.Get("cursor"), "cursor")
	if err != nil {
		return err
	}
	opts, err := buildLogOptions(q)
	for _, bad := range []error{err, oneOf(q, "direction", "forward", "backward"),
		oneOf(q, "source", "temporary", "persistent")} {
		if bad != nil {
			return bad
		}
	}
	b, err := s.build(r)
	if err != nil {
		return err
	}
	limit := opts.Limit
	opts.Limit = 0
	back := q.Get("direction") == "backward"
	var all []buildLogBody
	for l, err := range s.opts.Service.BuildLogs(r.Context(), b.ID, opts) {
		if err != nil {
			return err
		}
		at := l.Time.UnixMilli()
		if cursor > 0 && (back && at >= int64(cursor) || !back && at < int64(cursor)) {
			continue
		}
		all = append(all, buildLogBody{Timestamp: l.Time, Level: l.Level, Message: l.Message,
			Step: l.Step})
		if !back && len(all) == limit {
			break
		}
	}
	out := []buildLogBody{}
	if back {
		for i := len(all) - 1; i >= 0 && len(out) < limit; i-- {
			out = append(out, all[i])
		}
	} else {
		out = append(out, all...)
	}
	writeJSON(w, http.StatusOK, buildLogsBody{out})
	return nil
}

// taggedBody is E2B's AssignedTemplateTags.
type taggedBody struct {
	BuildID string   `json:"buildID"`
	Tags    []string `json:"tags"`
}

func (s e2bBuildRoutes) tag(w http.ResponseWriter, r *http.Request) error {
	var in tagIn
	if err := decode(w, r, &in, false); err != nil {
		return err
	}
	t, err := s.opts.Service.TagTemplate(r.Context(), in.Target, in.Tags)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, taggedBody{t.BuildID, in.Tags})
	return nil
}

func (s e2bBuildRoutes) untag(w http.ResponseWriter, r *http.Request) error {
	var in untagIn
	if err := decode(w, r, &in, false); err != nil {
		return err
	}
	if err := s.opts.Service.UntagTemplate(r.Context(), in.Name, in.Tags); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// tagBody is E2B's TemplateTag.
type tagBody struct {
	Tag       string    `json:"tag"`
	BuildID   string    `json:"buildID"`
	CreatedAt time.Time `json:"createdAt"`
}

func (s e2bBuildRoutes) tags(w http.ResponseWriter, r *http.Request) error {
	all, err := s.opts.Service.TemplateTags(r.Context(), r.PathValue("id"))
	if err := noTemplate(err, r.PathValue("id")); err != nil {
		return err
	}
	out := make([]tagBody, len(all))
	for i, t := range all {
		out[i] = tagBody{t.Tag, t.BuildID, t.Created.UTC()}
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// updateTemplateBody is E2B's TemplateUpdateRequest.
type updateTemplateBody struct {
	Public *bool `json:"public,omitempty"`
}

// namesBody is E2B's TemplateUpdateResponse.
type namesBody struct {
	Names []string `json:"names"`
}

func (s e2bBuildRoutes) update(w http.ResponseWriter, r *http.Request) error {
	var in updateTemplateBody
	if err := decode(w, r, &in, true); err != nil {
		return err
	}
	id := r.PathValue("id")
	t, err := s.opts.Service.GetTemplate(r.Context(), id)
	if err := noTemplate(err, id); err != nil {
		return err
	}
	if in.Public != nil && *in.Public != t.Public {
		if t, err = s.opts.Service.UpdateTemplate(r.Context(), id,
			carrel.TemplateUpdate{Public: in.Public}); err != nil {
			return err
		}
	}
	writeJSON(w, http.StatusOK, namesBody{[]string{t.Name}})
	return nil
}

// baseURL is the address that a request used to reach this daemon.
func baseURL(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}
