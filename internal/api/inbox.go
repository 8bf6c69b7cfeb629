package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/openapi"
)

// inboxRoutes are the routes about connections that wait for a person.
type inboxRoutes struct{ *Server }

func (s inboxRoutes) add() {
	s.handle("GET"+ours+"/inbox", s.list)
	s.handle("POST"+ours+"/inbox/{question}", s.answer)
}

// inboxOperations describes them.
var inboxOperations = map[string]openapi.Operation{
	"GET" + ours + "/inbox": {Tag: tagDaemon, Summary: "List the connections that wait for a person's answer, the oldest first. With wait, answer when the list is another than that of revision.",
		Query:   []openapi.Parameter{openapi.String("project"), openapi.String("sandbox"), openapi.Integer("wait"), openapi.Integer("revision")},
		Answers: answers(200, carrel.InboxList{})},
	"POST" + ours + "/inbox/{question}": {Tag: tagDaemon, Summary: "Answer for a connection that waits: allow or deny, once, for an hour or for ever.",
		Body: strict(carrel.Answer{}, "answer"), Answers: answers(200, carrel.Question{})},
}

func (s inboxRoutes) list(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	opts := carrel.InboxOptions{Project: q.Get("project")}
	var err error
	if v := q.Get("sandbox"); v != "" {
		if opts.Sandbox, err = carrel.ParseID(v); err != nil {
			return err
		}
	}
	wait, err := whole(q, "wait")
	if err != nil {
		return err
	}
	opts.Wait = time.Duration(min(wait, 1<<20)) * time.Second
	if v := q.Get("revision"); v != "" {
		if opts.Revision, err = strconv.ParseInt(v, 10, 64); err != nil {
			return invalid("revision", "%q is not a whole number", clip(v))
		}
	}
	ctx, cancel := s.stopping(r.Context())
	defer cancel()
	list, err := s.opts.Inbox.Questions(ctx, opts)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

func (s inboxRoutes) answer(w http.ResponseWriter, r *http.Request) error {
	var a carrel.Answer
	if err := decodeStrict(w, r, &a, false); err != nil {
		return err
	}
	q, err := s.opts.Inbox.Answer(r.Context(), r.PathValue("question"), a)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, q)
	return nil
}
