package api

import (
	"net/http"

	"github.com/carrel-dev/carrel"
)

// catalogRoutes are our own routes about what is in templates and what uses them.
type catalogRoutes struct{ *Server }

func (s catalogRoutes) add(v1 string) {
	s.handle("GET"+v1+"/templates/{name}/packages", s.packages)
	s.handle("GET"+v1+"/templates/{name}/diff", s.changes)
	s.handle("GET"+v1+"/template-store/uses", s.uses)
	s.handle("POST"+v1+"/template-store/gc", s.collect)
}

func (s catalogRoutes) packages(w http.ResponseWriter, r *http.Request) error {
	list, err := s.opts.Service.TemplatePackages(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	if list.Packages == nil {
		list.Packages = []carrel.Package{}
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

func (s catalogRoutes) changes(w http.ResponseWriter, r *http.Request) error {
	to := r.URL.Query().Get("to")
	if to == "" {
		return invalid("to", "missing")
	}
	changes, err := s.opts.Service.TemplateChanges(r.Context(), r.PathValue("name"), to)
	if err != nil {
		return err
	}
	if changes == nil {
		changes = []carrel.FileChange{}
	}
	writeJSON(w, http.StatusOK, changes)
	return nil
}

func (s catalogRoutes) uses(w http.ResponseWriter, r *http.Request) error {
	uses, err := s.opts.Service.TemplateUses(r.Context())
	if err != nil {
		return err
	}
	if uses == nil {
		uses = []carrel.TemplateUse{}
	}
	writeJSON(w, http.StatusOK, uses)
	return nil
}

func (s catalogRoutes) collect(w http.ResponseWriter, r *http.Request) error {
	var opts carrel.CollectOptions
	if err := decodeStrict(w, r, &opts, true); err != nil {
		return err
	}
	done, err := s.opts.Service.CollectTemplates(r.Context(), opts)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, done)
	return nil
}
