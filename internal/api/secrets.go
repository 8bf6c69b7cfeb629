package api

import (
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// secretRoutes are the secrets, in E2B's form and in ours. No answer has a value.
func (s *Server) secretRoutes() {
	const v1 = " /carrel/v1"
	s.handle("GET /secrets", s.withSecrets(s.listSecrets))
	s.handle("POST /secrets", s.withSecrets(s.createSecret))
	s.handle("GET /secrets/{secretID}", s.withSecrets(s.getSecret))
	s.handle("POST /secrets/{secretID}", s.withSecrets(s.updateSecret))
	s.handle("DELETE /secrets/{secretID}", s.withSecrets(s.deleteSecret))
	s.handle("GET"+v1+"/secrets", s.withSecrets(s.listSecretsOurs))
	s.handle("POST"+v1+"/secrets", s.withSecrets(s.createSecretOurs))
	s.handle("GET"+v1+"/secrets/{secret}", s.withSecrets(s.getSecretOurs))
	s.handle("PUT"+v1+"/secrets/{secret}", s.withSecrets(s.updateSecretOurs))
	s.handle("DELETE"+v1+"/secrets/{secret}", s.withSecrets(s.deleteSecretOurs))
	s.handle("POST"+v1+"/secret-store/rekey", s.withSecrets(s.rekeySecrets))
}

// Rekeyer is an optional part of Options.Secrets: it seals all secrets anew under
// another key, a random one for nil.
type Rekeyer interface {
	RekeySecrets(ctx context.Context, key []byte) error
}

// rekeySecrets changes the key that secrets are sealed with.
func (s *Server) rekeySecrets(w http.ResponseWriter, r *http.Request) error {
	rekeyer, ok := s.opts.Secrets.(Rekeyer)
	if !ok {
		return later("", "changing the key of secrets")
	}
	var body struct {
		Key []byte `json:"key"`
	}
	if err := decodeStrict(w, r, &body, true); err != nil {
		return err
	}
	if err := rekeyer.RekeySecrets(r.Context(), body.Key); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// withSecrets answers 501 where nothing keeps secrets.
func (s *Server) withSecrets(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if s.opts.Secrets == nil {
			return later("", "secrets")
		}
		return h(w, r)
	}
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

// newSecretBody is E2B's NewSecret. A runtime marker, as E2B's documentation has it, is
// what is put in: the value.
type newSecretBody struct {
	Name     string            `json:"name"`
	Value    string            `json:"value"`
	Metadata map[string]string `json:"metadata"`
}

// secretUpdateBody is E2B's SecretUpdate, and ours.
type secretUpdateBody struct {
	Value    string            `json:"value"`
	Metadata map[string]string `json:"metadata"` // nil leaves what there is
}

func (s *Server) createSecret(w http.ResponseWriter, r *http.Request) error {
	var body newSecretBody
	if err := decode(w, r, &body, false); err != nil {
		return err
	}
	got, err := s.opts.Secrets.CreateSecret(r.Context(), carrel.NewSecret{Name: body.Name, Value: body.Value, Metadata: body.Metadata})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, toSecret(got))
	return nil
}

func (s *Server) updateSecret(w http.ResponseWriter, r *http.Request) error {
	var body secretUpdateBody
	if err := decode(w, r, &body, false); err != nil {
		return err
	}
	got, err := s.opts.Secrets.UpdateSecret(r.Context(), r.PathValue("secretID"), body.Value, body.Metadata)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, toSecret(got))
	return nil
}

func (s *Server) getSecret(w http.ResponseWriter, r *http.Request) error {
	got, err := s.opts.Secrets.GetSecret(r.Context(), r.PathValue("secretID"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, toSecret(got))
	return nil
}

func (s *Server) deleteSecret(w http.ResponseWriter, r *http.Request) error {
	if err := s.opts.Secrets.DeleteSecret(r.Context(), r.PathValue("secretID")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// listSecrets is E2B's list, page by page. A page's cursor is the name it ended with, so that
// what comes and goes meanwhile moves nothing.
func (s *Server) listSecrets(w http.ResponseWriter, r *http.Request) error {
	limit, cursor, err := paging(r.URL.Query(), "nextToken", 1)
	if err != nil {
		return err
	}
	after, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return invalid("nextToken", "%q is not one of ours", clip(cursor))
	}
	all, err := s.opts.Secrets.ListSecrets(r.Context())
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

func (s *Server) listSecretsOurs(w http.ResponseWriter, r *http.Request) error {
	all, err := s.opts.Secrets.ListSecrets(r.Context())
	if err != nil {
		return err
	}
	if all == nil {
		all = []carrel.Secret{}
	}
	writeJSON(w, http.StatusOK, all)
	return nil
}

func (s *Server) createSecretOurs(w http.ResponseWriter, r *http.Request) error {
	var body carrel.NewSecret
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	got, err := s.opts.Secrets.CreateSecret(r.Context(), body)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, got)
	return nil
}

func (s *Server) getSecretOurs(w http.ResponseWriter, r *http.Request) error {
	got, err := s.opts.Secrets.GetSecret(r.Context(), r.PathValue("secret"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, got)
	return nil
}

func (s *Server) updateSecretOurs(w http.ResponseWriter, r *http.Request) error {
	var body secretUpdateBody
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	got, err := s.opts.Secrets.UpdateSecret(r.Context(), r.PathValue("secret"), body.Value, body.Metadata)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, got)
	return nil
}

func (s *Server) deleteSecretOurs(w http.ResponseWriter, r *http.Request) error {
	if err := s.opts.Secrets.DeleteSecret(r.Context(), r.PathValue("secret")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
