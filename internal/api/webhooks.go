package api

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/openapi"
)

// webhookRoutes are the routes about events and webhooks: E2B's, and ours for deliveries.
type webhookRoutes struct{ *Server }

func (s webhookRoutes) add() {
	s.handle("GET /events/sandboxes", s.lifecycleEvents)
	s.handle("GET /events/sandboxes/{id}", s.lifecycleEvents)
	s.handle("GET /events/webhooks", s.list)
	s.handle("POST /events/webhooks", s.create)
	s.handle("GET /events/webhooks/{webhook}", s.one)
	s.handle("PATCH /events/webhooks/{webhook}", s.update)
	s.handle("DELETE /events/webhooks/{webhook}", s.remove)
	s.handle("GET"+ours+"/lifecycle-events", s.lifecycleEvents)
	s.handle("GET"+ours+"/webhooks", s.list)
	s.handle("POST"+ours+"/webhooks", s.createOurs)
	s.handle("GET"+ours+"/webhooks/{webhook}", s.one)
	s.handle("PATCH"+ours+"/webhooks/{webhook}", s.updateOurs)
	s.handle("DELETE"+ours+"/webhooks/{webhook}", s.removeOurs)
	s.handle("GET"+ours+"/webhooks/{webhook}/deliveries", s.deliveries)
	s.handle("POST"+ours+"/webhooks/{webhook}/replay", s.replay)
}

var (
	eventQuery = []openapi.Parameter{openapi.Integer("offset"), openapi.Integer("limit"), openapi.Boolean("orderAsc"),
		openapi.String("types")}

	// webhookOperations describes them.
	webhookOperations = map[string]openapi.Operation{
		"GET /events/sandboxes": {Tag: tagE2B, Summary: "List what happened to the project's sandboxes in the last seven days, the newest first.",
			Query: eventQuery, Answers: answers(200, []carrel.LifecycleEvent{})},
		"GET /events/sandboxes/{id}": {Tag: tagE2B, Summary: "List what happened to one sandbox, also after its end.",
			Query: eventQuery, Answers: answers(200, []carrel.LifecycleEvent{})},
		"GET /events/webhooks": {Tag: tagE2B, Summary: "List the project's webhooks.", Answers: answers(200, []carrel.Webhook{})},
		"POST /events/webhooks": {Tag: tagE2B, Summary: "Make a webhook. It gets each event from now on, at least once.",
			Body: loose(carrel.NewWebhook{}, "name", "url", "events"), Answers: answers(201, carrel.Webhook{})},
		"GET /events/webhooks/{webhook}": {Tag: tagE2B, Summary: "Tell everything about a webhook but its secret.",
			Answers: answers(200, carrel.Webhook{})},
		"PATCH /events/webhooks/{webhook}": {Tag: tagE2B, Summary: "Change a webhook.",
			Body: loose(carrel.WebhookUpdate{}), Answers: answers(200, carrel.Webhook{})},
		"DELETE /events/webhooks/{webhook}": {Tag: tagE2B, Summary: "Remove a webhook.", Answers: answers(200, removedBody{})},
		"GET" + ours + "/lifecycle-events": {Tag: tagDaemon, Summary: "List what happened to the project's sandboxes in the last seven days, in E2B's form.",
			Query:   append([]openapi.Parameter{openapi.String("sandbox")}, eventQuery...),
			Answers: answers(200, []carrel.LifecycleEvent{})},
		"GET" + ours + "/webhooks": {Tag: tagDaemon, Summary: "List the project's webhooks.", Answers: answers(200, []carrel.Webhook{})},
		"POST" + ours + "/webhooks": {Tag: tagDaemon, Summary: "Make a webhook. It gets each event from now on, at least once.",
			Body: strict(carrel.NewWebhook{}, "name", "url", "events"), Answers: answers(201, carrel.Webhook{})},
		"GET" + ours + "/webhooks/{webhook}": {Tag: tagDaemon, Summary: "Tell everything about a webhook but its secret.",
			Answers: answers(200, carrel.Webhook{})},
		"PATCH" + ours + "/webhooks/{webhook}": {Tag: tagDaemon, Summary: "Change a webhook.",
			Body: strict(carrel.WebhookUpdate{}), Answers: answers(200, carrel.Webhook{})},
		"DELETE" + ours + "/webhooks/{webhook}": {Tag: tagDaemon, Summary: "Remove a webhook.", Answers: nothing()},
		"GET" + ours + "/webhooks/{webhook}/deliveries": {Tag: tagDaemon, Summary: "List what waits for a webhook, what was given up and what was delivered lately.",
			Query:   []openapi.Parameter{openapi.OneOf("state", carrel.DeliveryPending, carrel.DeliveryDone, carrel.DeliveryDead), openapi.Integer("limit")},
			Answers: answers(200, []carrel.Delivery{})},
		"POST" + ours + "/webhooks/{webhook}/replay": {Tag: tagDaemon, Summary: "Send events to a webhook again.",
			Body: strict(replayBody{}), Answers: answers(202, carrel.Replayed{})},
	}
)

// removedBody is the answer to a removal, which is not empty at E2B.
type removedBody struct {
	ID string `json:"id"`
}

// whole reads a whole number from a query; 0 if it is not there.
func whole(q url.Values, name string) (int, error) {
	v := q.Get(name)
	if v == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		return 0, invalid(name, "%q is not a whole number", clip(v))
	}
	return n, nil
}

func (s webhookRoutes) lifecycleEvents(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	opts := carrel.LifecycleOptions{Types: q["types"]}
	var err error
	if r.PathValue("id") != "" {
		opts.Sandbox, err = pathID(r)
	} else if v := q.Get("sandbox"); v != "" {
		opts.Sandbox, err = carrel.ParseID(v)
	}
	if err != nil {
		return err
	}
	if opts.Offset, err = whole(q, "offset"); err != nil {
		return err
	}
	if opts.Limit, err = whole(q, "limit"); err != nil {
		return err
	}
	if q.Get("limit") != "" && opts.Limit == 0 {
		return invalid("limit", "0 is not between 1 and 100")
	}
	if opts.OldestFirst, err = boolean(q, "orderAsc"); err != nil {
		return err
	}
	events, err := s.opts.Webhooks.LifecycleEvents(r.Context(), opts)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, events)
	return nil
}

func (s webhookRoutes) list(w http.ResponseWriter, r *http.Request) error {
	all, err := s.opts.Webhooks.ListWebhooks(r.Context())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, all)
	return nil
}

func (s webhookRoutes) create(w http.ResponseWriter, r *http.Request) error {
	var body carrel.NewWebhook
	if err := decode(w, r, &body, false); err != nil {
		return err
	}
	return s.made(w, r, body)
}

func (s webhookRoutes) createOurs(w http.ResponseWriter, r *http.Request) error {
	var body carrel.NewWebhook
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	return s.made(w, r, body)
}

func (s webhookRoutes) made(w http.ResponseWriter, r *http.Request, n carrel.NewWebhook) error {
	k, err := s.opts.Webhooks.CreateWebhook(r.Context(), n)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, k)
	return nil
}

func (s webhookRoutes) one(w http.ResponseWriter, r *http.Request) error {
	k, err := s.opts.Webhooks.GetWebhook(r.Context(), r.PathValue("webhook"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, k)
	return nil
}

func (s webhookRoutes) update(w http.ResponseWriter, r *http.Request) error {
	var body carrel.WebhookUpdate
	if err := decode(w, r, &body, false); err != nil {
		return err
	}
	return s.changed(w, r, body)
}

func (s webhookRoutes) updateOurs(w http.ResponseWriter, r *http.Request) error {
	var body carrel.WebhookUpdate
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	return s.changed(w, r, body)
}

func (s webhookRoutes) changed(w http.ResponseWriter, r *http.Request, u carrel.WebhookUpdate) error {
	k, err := s.opts.Webhooks.UpdateWebhook(r.Context(), r.PathValue("webhook"), u)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, k)
	return nil
}

func (s webhookRoutes) removeOurs(w http.ResponseWriter, r *http.Request) error {
	if err := s.opts.Webhooks.DeleteWebhook(r.Context(), r.PathValue("webhook")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s webhookRoutes) remove(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("webhook")
	if err := s.opts.Webhooks.DeleteWebhook(r.Context(), id); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, removedBody{id})
	return nil
}

func (s webhookRoutes) deliveries(w http.ResponseWriter, r *http.Request) error {
	opts := carrel.DeliveryOptions{State: r.URL.Query().Get("state")}
	err := oneOf(r.URL.Query(), "state", carrel.DeliveryPending, carrel.DeliveryDone, carrel.DeliveryDead)
	if err != nil {
		return err
	}
	if opts.Limit, err = whole(r.URL.Query(), "limit"); err != nil {
		return err
	}
	all, err := s.opts.Webhooks.Deliveries(r.Context(), r.PathValue("webhook"), opts)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, all)
	return nil
}

// replayBody is carrel.ReplayOptions as it is sent.
type replayBody struct {
	Events []string `json:"events"`
	Dead   bool     `json:"dead"`
	Since  instant  `json:"since"`
}

func (s webhookRoutes) replay(w http.ResponseWriter, r *http.Request) error {
	var body replayBody
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	since, err := body.Since.time("since")
	if err != nil {
		return err
	}
	n, err := s.opts.Webhooks.Replay(r.Context(), r.PathValue("webhook"),
		carrel.ReplayOptions{Events: body.Events, Dead: body.Dead, Since: since})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusAccepted, n)
	return nil
}
