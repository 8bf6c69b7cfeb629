package api

import (
	"net/http"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/openapi"
)

// nodeRoutes are the routes about the nodes of a fleet.
type nodeRoutes struct{ *Server }

func (s nodeRoutes) add() {
	s.handle("GET"+ours+"/nodes", s.list)
	s.handle("POST"+ours+"/nodes/{node}/drain", s.drain)
	s.handle("DELETE"+ours+"/nodes/{node}/drain", s.undrain)
	s.handle("DELETE"+ours+"/nodes/{node}", s.remove)
}

// nodeList is the body of a list of nodes.
type nodeList struct {
	Nodes []carrel.Node `json:"nodes"`
}

// nodeOperations describes them.
var nodeOperations = map[string]openapi.Operation{
	"GET" + ours + "/nodes": {Tag: tagDaemon, Summary: "List the nodes of a fleet. Only a front has any.",
		Answers: answers(200, nodeList{})},
	"POST" + ours + "/nodes/{node}/drain": {Tag: tagDaemon, Summary: "Keep new sandboxes away from a node, and move its sandboxes to others. The answer comes when each has moved or could not.",
		Answers: answers(200, carrel.Drained{})},
	"DELETE" + ours + "/nodes/{node}/drain": {Tag: tagDaemon, Summary: "Let a node get new sandboxes again.",
		Answers: answers(204, nil)},
	"DELETE" + ours + "/nodes/{node}": {Tag: tagDaemon, Summary: "Forget a node whose daemon has stopped for good. With force, sandboxes that nobody could take over are given up.",
		Query: []openapi.Parameter{openapi.Boolean("force")}, Answers: answers(204, nil)},
}

func (s nodeRoutes) list(w http.ResponseWriter, r *http.Request) error {
	list, err := s.opts.Nodes.Nodes(r.Context())
	if err != nil {
		return err
	}
	if list == nil {
		list = []carrel.Node{}
	}
	writeJSON(w, http.StatusOK, nodeList{list})
	return nil
}

func (s nodeRoutes) drain(w http.ResponseWriter, r *http.Request) error {
	got, err := s.opts.Nodes.DrainNode(r.Context(), r.PathValue("node"))
	if err != nil {
		return err
	}
	if got.Moved == nil {
		got.Moved = []carrel.ID{}
	}
	writeJSON(w, http.StatusOK, got)
	return nil
}

func (s nodeRoutes) undrain(w http.ResponseWriter, r *http.Request) error {
	if err := s.opts.Nodes.UndrainNode(r.Context(), r.PathValue("node")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s nodeRoutes) remove(w http.ResponseWriter, r *http.Request) error {
	force, err := boolean(r.URL.Query(), "force")
	if err != nil {
		return err
	}
	if err := s.opts.Nodes.RemoveNode(r.Context(), r.PathValue("node"), force); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
