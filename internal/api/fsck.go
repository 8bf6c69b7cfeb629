package api

import (
	"net/http"

	"github.com/carrel-dev/carrel"
)

// unclaimed lists everything that has no record.
func (s *Server) unclaimed(w http.ResponseWriter, r *http.Request) error {
	list, err := s.opts.Service.Unclaimed(r.Context())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, append([]carrel.Unclaimed{}, list...))
	return nil
}

// reclaim makes the record of a snapshot again.
func (s *Server) reclaim(w http.ResponseWriter, r *http.Request) error {
	if err := s.opts.Service.Reclaim(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// discard removes a thing that has no record.
func (s *Server) discard(w http.ResponseWriter, r *http.Request) error {
	if err := s.opts.Service.Discard(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
