package api

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// secretRoutes are the routes about secrets.
type secretRoutes struct{ *Server }

// add adds the routes of secrets, in E2B's form and in ours. No answer contains a value.
func (s secretRoutes) add() {
	const v1 = " /carrel/v1"
	s.handle("GET /secrets", s.listSecrets)
	s.handle("POST /secrets", s.createSecret)
	s.handle("GET /secrets/{secretID}", s.getSecret)
	s.handle("POST /secrets/{secretID}", s.updateSecret)
	s.handle("DELETE /secrets/{secretID}", s.deleteSecret)
	s.handle("GET"+v1+"/secrets", s.listSecretsOurs)
	s.handle("POST"+v1+"/secrets", s.createSecretOurs)
	s.handle("GET"+v1+"/secrets/{secret}", s.getSecretOurs)
	s.handle("PUT"+v1+"/secrets/{secret}", s.updateSecretOurs)
	s.handle("DELETE"+v1+"/secrets/{secret}", s.deleteSecretOurs)
	s.handleAdmin("POST"+v1+"/secret-store/rekey", s.rekeySecrets)
}

// rekeyIn is the key that secrets are to be sealed with from now on; none is a random one.
type rekeyIn struct {
	Key []byte `json:"key"`
}

// rekeySecrets changes the key that secrets are sealed with.
func (s secretRoutes) rekeySecrets(w http.ResponseWriter, r *http.Request) error {
	if s.opts.Rekey == nil {
		return later("", "changing the key of secrets")
	}
	var body rekeyIn
	if err := decodeStrict(w, r, &body, true); err != nil {
		return err
	}
	if err := s.opts.Rekey(body.Key); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// secretBody is E2B's Secret.
type secretBody struct {
	SecretID       string            `json:"secretID"`
	Name           string            `json:"name"`
	CurrentVersion int               `json:"currentVersion"`
	Metadata       map[string]string `json:"metadata"`
	CreatedAt      time.Time         `json:"createdAt"`
	UpdatedAt      time.Time         `json:"updatedAt"`
}

func toSecret(s carrel.Secret) secretBody {
	if s.Metadata == nil {
		s.Metadata = map[string]string{} // always there, as at E2B
	}
	return secretBody{s.ID, s.Name, s.Version, s.Metadata, s.Created, s.Updated}
}

// newSecretBody is E2B's NewSecret. In E2B's documentation, a runtime marker stands for the text
// put into requests: the value.
type newSecretBody struct {
	Name     string            `json:"name"`
	Value    string            `json:"value"`
	Metadata map[string]string `json:"metadata"`
}

// secretUpdateBody is the body of E2B's SecretUpdate, and of ours.
type secretUpdateBody struct {
	Value    string            `json:"value"`
	Metadata map[string]string `json:"metadata"` // nil leaves what there is
}

func (s secretRoutes) createSecret(w http.ResponseWriter, r *http.Request) error {
	var body newSecretBody
	if err := decode(w, r, &body, false); err != nil {
		return err
	}
	got, err := s.opts.Service.CreateSecret(r.Context(), carrel.NewSecret{Name: body.Name, Value: body.Value, Metadata: body.Metadata})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, toSecret(got))
	return nil
}

func (s secretRoutes) updateSecret(w http.ResponseWriter, r *http.Request) error {
	var body secretUpdateBody
	if err := decode(w, r, &body, false); err != nil {
		return err
	}
	got, err := s.opts.Service.UpdateSecret(r.Context(), r.PathValue("secretID"), body.Value, body.Metadata)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, toSecret(got))
	return nil
}

func (s secretRoutes) getSecret(w http.ResponseWriter, r *http.Request) error {
	got, err := s.opts.Service.GetSecret(r.Context(), r.PathValue("secretID"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, toSecret(got))
	return nil
}

func (s secretRoutes) deleteSecret(w http.ResponseWriter, r *http.Request) error {
	if err := s.opts.Service.DeleteSecret(r.Context(), r.PathValue("secretID")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// listSecrets is E2B's list, page by page. A page's cursor is its last name, so that secrets that
// come and go between two pages shift nothing.
func (s secretRoutes) listSecrets(w http.ResponseWriter, r *http.Request) error {
	limit, cursor, err := paging(r.URL.Query(), "nextToken", 1)
	if err != nil {
		return err
	}
	after, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return invalid("nextToken", "%q is not one of ours", clip(cursor))
	}
	all, err := s.opts.Service.ListSecrets(r.Context())
	if err != nil {
		return err
	}
	from, found := slices.BinarySearchFunc(all, string(after), func(s carrel.Secret, name string) int { return strings.Compare(s.Name, name) })
	if found {
		from++
	}
	page := all[from:]
	if len(page) > limit {
		page = page[:limit]
		w.Header().Set("X-Next-Token", base64.RawURLEncoding.EncodeToString([]byte(page[limit-1].Name)))
	}
	out := make([]secretBody, len(page))
	for i, secret := range page {
		out[i] = toSecret(secret)
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (s secretRoutes) listSecretsOurs(w http.ResponseWriter, r *http.Request) error {
	all, err := s.opts.Service.ListSecrets(r.Context())
	if err != nil {
		return err
	}
	if all == nil {
		all = []carrel.Secret{}
	}
	writeJSON(w, http.StatusOK, all)
	return nil
}

func (s secretRoutes) createSecretOurs(w http.ResponseWriter, r *http.Request) error {
	var body carrel.NewSecret
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	got, err := s.opts.Service.CreateSecret(r.Context(), body)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, got)
	return nil
}

func (s secretRoutes) getSecretOurs(w http.ResponseWriter, r *http.Request) error {
	got, err := s.opts.Service.GetSecret(r.Context(), r.PathValue("secret"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, got)
	return nil
}

func (s secretRoutes) updateSecretOurs(w http.ResponseWriter, r *http.Request) error {
	var body secretUpdateBody
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	got, err := s.opts.Service.UpdateSecret(r.Context(), r.PathValue("secret"), body.Value, body.Metadata)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, got)
	return nil
}

func (s secretRoutes) deleteSecretOurs(w http.ResponseWriter, r *http.Request) error {
	if err := s.opts.Service.DeleteSecret(r.Context(), r.PathValue("secret")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
