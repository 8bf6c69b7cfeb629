package agent

import (
	"encoding/json"
	"net"
	"net/http"

	"github.com/carrel-dev/carrel/internal/guest"
)

// maxMachine bounds the body of a machine's request, in bytes.
const maxMachine = 16 << 10

// Machine is the kernel of a sandbox that has one of its own.
type Machine interface {
	// Do does what the request says. local and remote are the ends of its connection.
	Do(req guest.MachineRequest, local, remote net.Addr) error
}

// serveMachine does what the host asks of the kernel.
func (a *Agent) serveMachine(w http.ResponseWriter, r *http.Request) {
	if !a.trusted(r) {
		writeError(w, http.StatusForbidden, r.URL.Path+" is for the host alone")
		return
	}
	if a.cfg.Machine == nil {
		writeError(w, http.StatusNotFound, "this sandbox has no kernel of its own")
		return
	}
	var req guest.MachineRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxMachine)).Decode(&req); err != nil {
		writeError(w, http.StatusBadRequest, "body: "+err.Error())
		return
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if err := a.cfg.Machine.Do(req, local, peer(r.RemoteAddr)); err != nil {
		writeError(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
}
