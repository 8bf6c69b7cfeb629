package api

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// Teams counts the sandboxes of the caller's project. Package access implements it.
type Teams interface {
	// ProjectMetrics returns the counts between two times, oldest first. A zero time is no bound.
	ProjectMetrics(ctx context.Context, from, to time.Time) ([]carrel.ProjectMetric, error)
}

// teamRoutes are E2B's routes about teams. A project is a team there.
type teamRoutes struct{ *Server }

func (s teamRoutes) add() {
	s.handle("GET /teams", s.teams)
	s.handle("GET /teams/{team}/metrics", s.metrics)
	s.handle("GET /teams/{team}/metrics/max", s.most)
}

// teamBody is E2B's Team.
type teamBody struct {
	TeamID    string `json:"teamID"`
	Name      string `json:"name"`
	APIKey    string `json:"apiKey"`
	IsDefault bool   `json:"isDefault"`
}

// teamMetricBody is E2B's TeamMetric.
type teamMetricBody struct {
	Timestamp           time.Time `json:"timestamp"`
	TimestampUnix       int64     `json:"timestampUnix"`
	ConcurrentSandboxes int       `json:"concurrentSandboxes"`
	SandboxStartRate    float64   `json:"sandboxStartRate"`
}

// maxTeamMetricBody is E2B's MaxTeamMetric.
type maxTeamMetricBody struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	Value         float64   `json:"value"`
}

// teams answers with the only team: the project of the key. E2B's CLI wants to pick one.
func (s teamRoutes) teams(w http.ResponseWriter, r *http.Request) error {
	c := carrel.CallerOf(r.Context())
	if c.Person != "" {
		return s.ownTeams(w, r)
	}
	project := c.Project
	name := project
	if project == carrel.DefaultProject {
		name = "carrel"
	}
	writeJSON(w, http.StatusOK, []teamBody{{
		TeamID: carrel.TeamID(project), Name: name, APIKey: s.opts.Callers.Shown(r),
		IsDefault: true,
	}})
	return nil
}

// ownTeams answers a person with all its projects.
func (s teamRoutes) ownTeams(w http.ResponseWriter, r *http.Request) error {
	all, err := s.opts.People.Projects(r.Context())
	if err != nil {
		return err
	}
	out := []teamBody{}
	for _, p := range all {
		out = append(out, teamBody{TeamID: p.ID, Name: p.Name, APIKey: s.opts.Callers.Shown(r),
			IsDefault: len(out) == 0})
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// ownTeam checks that a text names the caller's own team: by its ID, or by the project's name.
func ownTeam(r *http.Request, field, team string) error {
	project := carrel.CallerOf(r.Context()).Project
	if strings.EqualFold(team, carrel.TeamID(project)) || team == project {
		return nil
	}
	p := tell(carrel.Forbidden, "%s: this key is not for the team %q", field, clip(team))
	p.body.Field = field
	p.body.Hint = "GET /teams tells the key's own team; for E2B's CLI, unset E2B_PROJECT_ID and E2B_TEAM_ID"
	return p
}

// window reads the times between which a request asks for counts.
func window(q url.Values) (from, to time.Time, err error) {
	if from, err = unixTime(q, "start", time.Second); err != nil {
		return from, to, err
	}
	if to, err = unixTime(q, "end", time.Second); err != nil {
		return from, to, err
	}
	if !from.IsZero() && !to.IsZero() && from.After(to) {
		err = invalid("start", "start time cannot be after end time")
	}
	return from, to, err
}

// counts reads the counts that a request asks for.
func (s teamRoutes) counts(r *http.Request) ([]carrel.ProjectMetric, error) {
	from, to, err := window(r.URL.Query())
	if err != nil {
		return nil, err
	}
	if err := ownTeam(r, "teamID", r.PathValue("team")); err != nil {
		return nil, err
	}
	if s.opts.Teams == nil {
		return nil, later("", "the metrics of a team")
	}
	return s.opts.Teams.ProjectMetrics(r.Context(), from, to)
}

func (s teamRoutes) metrics(w http.ResponseWriter, r *http.Request) error {
	all, err := s.counts(r)
	if err != nil {
		return err
	}
	out := make([]teamMetricBody, len(all))
	for i, m := range all {
		out[i] = teamMetricBody{m.Time.UTC(), m.Time.Unix(), m.Running, m.StartRate}
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// teamMetrics are the metrics whose maximum can be asked for.
var teamMetrics = []string{"concurrent_sandboxes", "sandbox_start_rate"}

// most answers with the greatest value of one metric. Without any count, that is 0 now.
func (s teamRoutes) most(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	if _, _, err := window(q); err != nil {
		return err
	}
	if q.Get("metric") == "" {
		return invalid("metric", "missing: one of %s", strings.Join(teamMetrics, ", "))
	}
	if err := oneOf(q, "metric", teamMetrics...); err != nil {
		return err
	}
	all, err := s.counts(r)
	if err != nil {
		return err
	}
	best := maxTeamMetricBody{Timestamp: time.Now().UTC()}
	for _, m := range all {
		v := float64(m.Running)
		if q.Get("metric") == teamMetrics[1] {
			v = m.StartRate
		}
		if v > best.Value {
			best.Value, best.Timestamp = v, m.Time.UTC()
		}
	}
	best.TimestampUnix = best.Timestamp.Unix()
	writeJSON(w, http.StatusOK, best)
	return nil
}
