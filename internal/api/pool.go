package api

import "net/http"

// pool answers with the status of the pool.
func (s *Server) pool(w http.ResponseWriter, r *http.Request) error {
	st, err := s.opts.Service.Pool(r.Context())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, st)
	return nil
}
