package api

import (
	"net/http"

	"github.com/carrel-dev/carrel"
)

// later is the honest answer for what E2B has and this build does not.
func later(field, what string) *problem {
	p := tell(carrel.Unsupported, "%s is not supported yet", what)
	if field != "" {
		p.body.Message = field + ": " + p.body.Message
	}
	p.body.Field = field
	p.body.Hint = "this build of Carrel can't do it; leave it out, or use a later version"
	return p
}

// laterRoutes answers the endpoints whose feature is still to come. Those about a
// sandbox first say whether there is one, since the SDKs tell the cases apart.
func (s *Server) laterRoutes() {
	for pattern, what := range map[string]string{
		"POST /sandboxes/{id}/pause":     "pausing sandboxes",
		"POST /sandboxes/{id}/snapshots": "snapshots of sandboxes",
		"POST /sandboxes/{id}/fork":      "forking sandboxes",
	} {
		s.handle(pattern, func(_ http.ResponseWriter, r *http.Request) error {
			if _, err := s.find(r); err != nil {
				return err
			}
			return later("", what)
		})
	}
	s.handle("POST /sandboxes/{id}/resume", s.resume)
	s.handle("GET /snapshots", emptyList)
	for _, pattern := range []string{
		"POST /templates", "POST /v2/templates", "POST /v3/templates",
		"POST /templates/{id}", "PATCH /templates/{id}", "PATCH /v2/templates/{id}",
		"POST /templates/{id}/builds/{build}", "POST /v2/templates/{id}/builds/{build}",
		"GET /templates/{id}/{rest...}", // a build's status and logs, files, tags
		"POST /templates/tags", "DELETE /templates/tags",
	} {
		s.handle(pattern, func(http.ResponseWriter, *http.Request) error {
			p := later("", "building templates through the API")
			p.body.Hint = "import or pull one instead: carrel template import NAME PATH, carrel template pull NAME IMAGE"
			return p
		})
	}
	for pattern, what := range map[string]string{
		"/volumes": "volumes", "/volumes/": "volumes", "/volumecontent/": "volumes",
		"/secrets": "secrets", "/secrets/": "secrets",
		"/teams/{team}/": "team metrics",
	} {
		s.handle(pattern, func(http.ResponseWriter, *http.Request) error { return later("", what) })
	}
}

// resume is E2B's deprecated way to wake a sandbox. One that runs is a conflict,
// and none can be paused yet.
func (s *Server) resume(_ http.ResponseWriter, r *http.Request) error {
	sb, err := s.find(r)
	if err != nil {
		return err
	}
	if sb.State == carrel.Running {
		return tell(carrel.Conflict, "Sandbox %q is already running", sb.ID)
	}
	return later("", "resuming sandboxes")
}

// emptyList answers with no elements: there are none of these.
func emptyList(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, []struct{}{})
	return nil
}
