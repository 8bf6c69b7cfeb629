package api

import (
	"net/http"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/openapi"
)

// movementRoutes are the routes about sandboxes and templates that go from one machine to another.
// They are for administrators.
type movementRoutes struct{ *Server }

func (s movementRoutes) add() {
	s.handleAdmin("POST"+ours+"/movement/sandboxes/{id}/passport", s.publish)
	s.handleAdmin("POST"+ours+"/movement/sandboxes", s.adopt)
	s.handleAdmin("DELETE"+ours+"/movement/sandboxes/{id}", s.release)
	s.handleAdmin("POST"+ours+"/movement/templates/{name}/passport", s.publishTemplate)
	s.handleAdmin("POST"+ours+"/movement/templates", s.adoptTemplate)
}

// movementOperations describes them.
var movementOperations = map[string]openapi.Operation{
	"POST" + ours + "/movement/sandboxes/{id}/passport": {Tag: tagDaemon, Summary: "Put a paused sandbox, or a sandbox as it was at a snapshot, into the shared snapshot store, and get its passport. The passport holds the sandbox's secrets. Administrators only.",
		Answers: answers(200, carrel.Passport{})},
	"POST" + ours + "/movement/sandboxes": {Tag: tagDaemon, Summary: "Take over the sandbox of a passport. It is then paused here. Administrators only.",
		Body: strict(carrel.Passport{}, "version", "sandboxID", "project", "snapshotID", "needs", "images", "state", "sum"), Answers: answers(201, carrel.Sandbox{})},
	"DELETE" + ours + "/movement/sandboxes/{id}": {Tag: tagDaemon, Summary: "Forget a sandbox that another machine has now. What is in the shared store stays. Administrators only.",
		Answers: nothing()},
	"POST" + ours + "/movement/templates/{name}/passport": {Tag: tagDaemon, Summary: "Put a template into the shared snapshot store, and get its passport. Administrators only.",
		Answers: answers(200, carrel.TemplatePassport{})},
	"POST" + ours + "/movement/templates": {Tag: tagDaemon, Summary: "Take over the template of a passport. Administrators only.",
		Body: strict(carrel.TemplatePassport{}, "version", "template", "sum"), Answers: answers(201, carrel.Template{})},
}

func (s movementRoutes) publish(w http.ResponseWriter, r *http.Request) error {
	p, err := s.opts.Movement.Publish(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, p)
	return nil
}

func (s movementRoutes) adopt(w http.ResponseWriter, r *http.Request) error {
	var p carrel.Passport
	if err := decodeStrict(w, r, &p, false); err != nil {
		return err
	}
	sb, err := s.opts.Movement.Adopt(r.Context(), p)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, sb)
	return nil
}

func (s movementRoutes) release(w http.ResponseWriter, r *http.Request) error {
	if err := s.opts.Movement.Release(r.Context(), carrel.ID(r.PathValue("id"))); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s movementRoutes) publishTemplate(w http.ResponseWriter, r *http.Request) error {
	p, err := s.opts.Movement.PublishTemplate(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, p)
	return nil
}

func (s movementRoutes) adoptTemplate(w http.ResponseWriter, r *http.Request) error {
	var p carrel.TemplatePassport
	if err := decodeStrict(w, r, &p, false); err != nil {
		return err
	}
	t, err := s.opts.Movement.AdoptTemplate(r.Context(), p)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, t)
	return nil
}
