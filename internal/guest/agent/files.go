package agent

import "net/http"

// filesHandler serves /files and /files/compose.
func (a *Agent) filesHandler() http.Handler { return http.NotFoundHandler() }
