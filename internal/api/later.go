package api

import (
	"net/http"

	"github.com/carrel-dev/carrel"
)

// later is the error for a feature of E2B that this build does not have.
func later(field, what string) *problem {
	p := tell(carrel.Unsupported, "%s is not supported yet", what)
	if field != "" {
		p.body.Message = field + ": " + p.body.Message
	}
	p.body.Field = field
	p.body.Hint = "this build of Carrel can't do it; leave it out, or use a later version"
	return p
}

// laterPatterns are the endpoints whose feature is still to come, and what that is.
func laterPatterns() map[string]string {
	const volumes = "mounting volumes"
	all := map[string]string{"/volumes": volumes, "/volumes/": volumes, "/volumecontent/": volumes}
	for _, pattern := range []string{
		"POST /templates", "POST /templates/{id}", "POST /templates/{id}/builds/{build}",
	} {
		all[pattern] = building
	}
	return all
}

// building is what some of them are about: E2B's first way to build, in which the client sends an
// image to a registry of E2B's.
const building = "building templates by E2B's first API"

// laterRoutes answers the endpoints whose feature is still to come.
func (s *Server) laterRoutes() {
	for pattern, what := range laterPatterns() {
		s.handle(pattern, func(http.ResponseWriter, *http.Request) error {
			p := later("", what)
			if what == building {
				p.body.Hint = "use POST /v3/templates, as E2B's SDKs do since 2.0"
			}
			return p
		})
	}
}
