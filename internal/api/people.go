package api

import (
	"net/http"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// peopleRoutes are our routes about projects and keys.
type peopleRoutes struct{ *Server }

func (s peopleRoutes) add() {
	const v1 = " /carrel/v1"
	s.handle("GET"+v1+"/projects", s.projects)
	s.handle("POST"+v1+"/projects", s.createProject)
	s.handle("GET"+v1+"/projects/{name}", s.project)
	s.handle("DELETE"+v1+"/projects/{name}", s.deleteProject)
	s.handle("GET"+v1+"/keys", s.keys)
	s.handle("POST"+v1+"/keys", s.createKey)
	s.handle("GET"+v1+"/keys/{key}", s.key)
	s.handle("PATCH"+v1+"/keys/{key}", s.updateKey)
	s.handle("POST"+v1+"/keys/{key}/rotate", s.rotateKey)
	s.handle("DELETE"+v1+"/keys/{key}", s.revokeKey)
}

func (s peopleRoutes) projects(w http.ResponseWriter, r *http.Request) error {
	all, err := s.opts.People.Projects(r.Context())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, all)
	return nil
}

func (s peopleRoutes) project(w http.ResponseWriter, r *http.Request) error {
	p, err := s.opts.People.GetProject(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, p)
	return nil
}

// projectIn names a new project.
type projectIn struct {
	Name string `json:"name"`
}

func (s peopleRoutes) createProject(w http.ResponseWriter, r *http.Request) error {
	var body projectIn
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	p, err := s.opts.People.CreateProject(r.Context(), body.Name)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, p)
	return nil
}

func (s peopleRoutes) deleteProject(w http.ResponseWriter, r *http.Request) error {
	if err := s.opts.People.DeleteProject(r.Context(), r.PathValue("name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s peopleRoutes) keys(w http.ResponseWriter, r *http.Request) error {
	all, err := s.opts.People.Keys(r.Context())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, all)
	return nil
}

func (s peopleRoutes) key(w http.ResponseWriter, r *http.Request) error {
	k, err := s.opts.People.GetKey(r.Context(), r.PathValue("key"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, k)
	return nil
}

// newKeyIn is carrel.NewKey.
type newKeyIn struct {
	Name    string          `json:"name"`
	Project string          `json:"project"`
	Scope   carrel.KeyScope `json:"scope"`
	Expires instant         `json:"expires"`
	Token   bool            `json:"token"`
	Quota   *limitsIn       `json:"quota"`
	Ceiling *boundsIn       `json:"ceiling"`
}

// keyUpdateIn is carrel.KeyUpdate.
type keyUpdateIn struct {
	Name    *string `json:"name"`
	Expires instant `json:"expires"`
}

func (s peopleRoutes) createKey(w http.ResponseWriter, r *http.Request) error {
	var body newKeyIn
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	n := carrel.NewKey{Name: body.Name, Project: body.Project, Scope: body.Scope, Token: body.Token}
	var err error
	if n.Expires, err = body.Expires.time("expires"); err != nil {
		return err
	}
	if body.Quota != nil {
		q := body.Quota.quota()
		n.Quota = &q
	}
	if body.Ceiling != nil {
		c, err := body.Ceiling.ceiling()
		if err != nil {
			return err
		}
		n.Ceiling = &c
	}
	k, err := s.opts.People.CreateKey(r.Context(), n)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, k)
	return nil
}

func (s peopleRoutes) updateKey(w http.ResponseWriter, r *http.Request) error {
	var body keyUpdateIn
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	u := carrel.KeyUpdate{Name: body.Name}
	if body.Expires != nil {
		at, err := body.Expires.time("expires")
		if err != nil {
			return err
		}
		u.Expires = &at
	}
	k, err := s.opts.People.UpdateKey(r.Context(), r.PathValue("key"), u)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, k)
	return nil
}

// rotateIn says how long the old secret works beside the new one.
type rotateIn struct {
	Overlap span `json:"overlap"`
}

func (s peopleRoutes) rotateKey(w http.ResponseWriter, r *http.Request) error {
	var body rotateIn
	if err := decodeStrict(w, r, &body, true); err != nil {
		return err
	}
	overlap, err := body.Overlap.duration("overlap", 0)
	if err != nil {
		return err
	}
	k, err := s.opts.People.RotateKey(r.Context(), r.PathValue("key"), overlap)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, k)
	return nil
}

func (s peopleRoutes) revokeKey(w http.ResponseWriter, r *http.Request) error {
	if err := s.opts.People.RevokeKey(r.Context(), r.PathValue("key")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// e2bKeyRoutes are E2B's routes about API keys and access tokens.
type e2bKeyRoutes struct{ *Server }

func (s e2bKeyRoutes) add() {
	s.handle("GET /api-keys", s.list)
	s.handle("POST /api-keys", s.create)
	s.handle("PATCH /api-keys/{apiKeyID}", s.rename)
	s.handle("DELETE /api-keys/{apiKeyID}", s.revoke)
	s.handle("POST /access-tokens", s.createToken)
	s.handle("DELETE /access-tokens/{accessTokenID}", s.revokeToken)
}

// maskBody is E2B's IdentifierMaskingDetails.
type maskBody struct {
	Prefix            string `json:"prefix"`
	ValueLength       int    `json:"valueLength"`
	MaskedValuePrefix string `json:"maskedValuePrefix"`
	MaskedValueSuffix string `json:"maskedValueSuffix"`
}

// secretLength is how many letters of a secret follow its prefix.
const secretLength = 40

// toMask turns a mask such as "e2b_a1…4f2c" into E2B's form.
func toMask(mask string) maskBody {
	at := strings.LastIndex(mask, "_") + 1
	first, last, _ := strings.Cut(mask[at:], "…")
	return maskBody{mask[:at], secretLength, first, last}
}

// teamUserBody is E2B's TeamUser.
type teamUserBody struct {
	ID    string `json:"id"`
	Email string `json:"email"`
}

// keyBody is E2B's TeamAPIKey.
type keyBody struct {
	ID        string        `json:"id"`
	Name      string        `json:"name"`
	Mask      maskBody      `json:"mask"`
	CreatedAt time.Time     `json:"createdAt"`
	CreatedBy *teamUserBody `json:"createdBy"`
	LastUsed  *time.Time    `json:"lastUsed"`
}

// createdKeyBody is E2B's CreatedTeamAPIKey.
type createdKeyBody struct {
	keyBody
	Key string `json:"key"`
}

// tokenBody is E2B's CreatedAccessToken.
type tokenBody struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Token     string    `json:"token"`
	Mask      maskBody  `json:"mask"`
	CreatedAt time.Time `json:"createdAt"`
}

// keyNameBody is E2B's NewTeamAPIKey, UpdateTeamAPIKey and NewAccessToken.
type keyNameBody struct {
	Name string `json:"name"`
}

func toKey(k carrel.APIKey) keyBody {
	b := keyBody{ID: k.ID, Name: k.Name, Mask: toMask(k.Mask), CreatedAt: k.Created}
	if !k.LastUsed.IsZero() {
		b.LastUsed = &k.LastUsed
	}
	return b
}

// list answers with the working keys of the caller's project, also to an administrator: E2B's
// clients ask about one team.
func (s e2bKeyRoutes) list(w http.ResponseWriter, r *http.Request) error {
	all, err := s.opts.People.Keys(r.Context())
	if err != nil {
		return err
	}
	out, now := []keyBody{}, time.Now()
	for _, k := range all {
		if !k.Token && k.Project == carrel.CallerOf(r.Context()).Project && k.Works(now) {
			out = append(out, toKey(k))
		}
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// issue makes a key that the body names. It may run sandboxes.
func (s e2bKeyRoutes) issue(w http.ResponseWriter, r *http.Request, token bool) (carrel.IssuedKey, error) {
	var body keyNameBody
	if err := decode(w, r, &body, false); err != nil {
		return carrel.IssuedKey{}, err
	}
	return s.opts.People.CreateKey(r.Context(), carrel.NewKey{Name: body.Name, Token: token})
}

func (s e2bKeyRoutes) create(w http.ResponseWriter, r *http.Request) error {
	k, err := s.issue(w, r, false)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, createdKeyBody{toKey(k.APIKey), k.Secret})
	return nil
}

func (s e2bKeyRoutes) createToken(w http.ResponseWriter, r *http.Request) error {
	k, err := s.issue(w, r, true)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, tokenBody{k.ID, k.Name, k.Secret, toMask(k.Mask), k.Created})
	return nil
}

// kind checks that an ID is of a key, or of an access token.
func (s e2bKeyRoutes) kind(r *http.Request, id string, token bool) error {
	k, err := s.opts.People.GetKey(r.Context(), id)
	if err == nil && k.ID == id && k.Token == token {
		return nil
	}
	if err != nil && carrel.KindOf(err) != carrel.NotFound {
		return err
	}
	return tell(carrel.NotFound, "there is no such key: %q", clip(id))
}

func (s e2bKeyRoutes) rename(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("apiKeyID")
	var body keyNameBody
	if err := decode(w, r, &body, false); err != nil {
		return err
	}
	if err := s.kind(r, id, false); err != nil {
		return err
	}
	if _, err := s.opts.People.UpdateKey(r.Context(), id, carrel.KeyUpdate{Name: &body.Name}); err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

func (s e2bKeyRoutes) revoke(w http.ResponseWriter, r *http.Request) error {
	return s.end(w, r, r.PathValue("apiKeyID"), false)
}

func (s e2bKeyRoutes) revokeToken(w http.ResponseWriter, r *http.Request) error {
	return s.end(w, r, r.PathValue("accessTokenID"), true)
}

func (s e2bKeyRoutes) end(w http.ResponseWriter, r *http.Request, id string, token bool) error {
	if err := s.kind(r, id, token); err != nil {
		return err
	}
	if err := s.opts.People.RevokeKey(r.Context(), id); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
