package api

import "net/http"

// pool tells what is kept ready.
func (s *Server) pool(w http.ResponseWriter, r *http.Request) error {
	if s.opts.Pools == nil {
		return later("", "the pool of sandboxes that are kept ready")
	}
	st, err := s.opts.Pools.Pool(r.Context())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, st)
	return nil
}
