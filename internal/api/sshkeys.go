package api

import (
	"net/http"

	"github.com/carrel-dev/carrel"
)

// SSHKeys keeps the public keys that may open SSH sessions.
type SSHKeys interface {
	List() []carrel.SSHKey
	Add(name, publicKey string, sandboxes []carrel.ID) (carrel.SSHKey, error)
	Remove(name string) error
}

// sshKeyRoutes adds the keys' endpoints.
func (s *Server) sshKeyRoutes(v1 string) {
	if s.opts.SSHKeys == nil {
		return
	}
	s.handle("GET"+v1+"/ssh-keys", func(w http.ResponseWriter, _ *http.Request) error {
		writeJSON(w, http.StatusOK, s.opts.SSHKeys.List())
		return nil
	})
	s.handle("POST"+v1+"/ssh-keys", func(w http.ResponseWriter, r *http.Request) error {
		var body struct {
			Name      string      `json:"name"`
			PublicKey string      `json:"publicKey"`
			Sandboxes []carrel.ID `json:"sandboxes"`
		}
		if err := decodeStrict(w, r, &body, false); err != nil {
			return err
		}
		key, err := s.opts.SSHKeys.Add(body.Name, body.PublicKey, body.Sandboxes)
		if err != nil {
			return err
		}
		writeJSON(w, http.StatusCreated, key)
		return nil
	})
	s.handle("DELETE"+v1+"/ssh-keys/{name}", func(w http.ResponseWriter, r *http.Request) error {
		if err := s.opts.SSHKeys.Remove(r.PathValue("name")); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	})
}
