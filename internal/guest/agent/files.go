package agent

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// filesHandler serves /files and /files/compose.
func (a *Agent) filesHandler() http.Handler {
	f := &fileService{a: a}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /files", f.download)
	mux.HandleFunc("POST /files", f.upload)
	mux.HandleFunc("POST /files/compose", f.compose)
	for _, path := range []string{"/files", "/files/compose"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			allow := "POST"
			if path == "/files" {
				allow = "GET, HEAD, POST"
			}
			w.Header().Set("Allow", allow)
			writeError(w, http.StatusMethodNotAllowed, fmt.Sprintf("method %s is not allowed here, only %s", r.Method, allow))
		})
	}
	return mux
}

// fileService serves file contents over plain HTTP. Its errors have envd's statuses and texts,
// except for invalid paths, where envd reports an error of its own.
type fileService struct {
	a       *Agent
	buffers buffers
}

// fileQuery is the query of /files.
type fileQuery struct {
	path      string
	hasPath   bool
	username  string
	signature string
	signed    bool
	expires   *int64
}

// parseFileQuery reads the query and checks its form.
func parseFileQuery(raw string) (*fileQuery, error) {
	v, err := url.ParseQuery(raw)
	if err != nil {
		return nil, fmt.Errorf("invalid query: %w", err)
	}
	q := &fileQuery{
		path: v.Get("path"), hasPath: v.Has("path"),
		username:  v.Get("username"),
		signature: v.Get("signature"), signed: v.Has("signature"),
	}
	if v.Has("signature_expiration") {
		n, err := strconv.ParseInt(v.Get("signature_expiration"), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("signature_expiration is not a number of seconds: %q", v.Get("signature_expiration"))
		}
		q.expires = &n
	}
	return q, nil
}

// begin checks a request for /files and finds its account. If it reports false, it has written the
// answer.
func (f *fileService) begin(w http.ResponseWriter, r *http.Request, op string) (q *fileQuery, u User, ok bool) {
	q, err := parseFileQuery(r.URL.RawQuery)
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return nil, User{}, false
	}
	if err := f.a.mayTransfer(r, q, op); err != nil {
		writeError(w, http.StatusUnauthorized, err.Error())
		return nil, User{}, false
	}
	u, ok = f.account(w, q.username)
	return q, u, ok
}

// account finds the user of a request. If it reports false, it has written the answer.
func (f *fileService) account(w http.ResponseWriter, name string) (User, bool) {
	if name == "" {
		name = f.a.defaultUser()
	}
	if name == "" {
		writeError(w, http.StatusBadRequest, "username not provided")
		return User{}, false
	}
	u, err := f.a.sys.User(name)
	if err != nil {
		shown := strings.ToValidUTF8(name, "\uFFFD")
		writeError(w, http.StatusUnauthorized, fmt.Sprintf("error looking up user '%s': user: unknown user %s", shown, shown))
		return User{}, false
	}
	return u, true
}
