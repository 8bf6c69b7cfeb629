package api

import (
	"net/http"

	"github.com/carrel-dev/carrel"
)

// sshKeyRoutes adds the endpoints for SSH keys.
func (s *Server) sshKeyRoutes(v1 string) {
	s.handle("GET"+v1+"/ssh-keys", s.listSSHKeys)
	s.handle("POST"+v1+"/ssh-keys", s.addSSHKey)
	s.handle("DELETE"+v1+"/ssh-keys/{name}", s.removeSSHKey)
}

func (s *Server) listSSHKeys(w http.ResponseWriter, r *http.Request) error {
	keys, err := s.opts.Service.SSHKeys(r.Context())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, keys)
	return nil
}

// sshKeyIn is a key that may open SSH sessions.
type sshKeyIn struct {
	Name      string      `json:"name"`
	PublicKey string      `json:"publicKey"`
	Sandboxes []carrel.ID `json:"sandboxes"`
}

func (s *Server) addSSHKey(w http.ResponseWriter, r *http.Request) error {
	var body sshKeyIn
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	key, err := s.opts.Service.AddSSHKey(r.Context(), body.Name, body.PublicKey, body.Sandboxes)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, key)
	return nil
}

func (s *Server) removeSSHKey(w http.ResponseWriter, r *http.Request) error {
	if err := s.opts.Service.RemoveSSHKey(r.Context(), r.PathValue("name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
