package api

import "net/http"

// prometheus is GET /metrics, and also GET /carrel/v1/metrics. It answers with the daemon's figures
// in a format of Prometheus. A scraper sends the API key as a bearer token.
func (s *Server) prometheus(w http.ResponseWriter, r *http.Request) error {
	if s.opts.Metrics == nil {
		return later("", "metrics of the daemon")
	}
	s.opts.Metrics.ServeHTTP(w, r)
	return nil
}
