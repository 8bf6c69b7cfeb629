package agent

import (
	"encoding/json"
	"net/http"
)

// routes builds the handler of the whole protocol.
func (a *Agent) routes() http.Handler {
	mux := http.NewServeMux()
	path, h := a.filesystemHandler()
	mux.Handle(path, h)
	files := a.filesHandler()
	mux.Handle("/files", files)
	mux.Handle("/files/compose", files)
	return mux
}

// writeError answers with envd's error body.
func writeError(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(struct { // the client may be gone: nobody is left to tell
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{code, message})
}
