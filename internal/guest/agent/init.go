package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"
	"sync"

	"github.com/carrel-dev/carrel/internal/guest"
)

// maxInit bounds the body of /init: environments are small.
const maxInit = 1 << 20

// settling is the writing of identity files after /init has answered. Few programs look at these
// files, so /init does not wait for them, and a sandbox starts faster. All other routes do wait, so
// no client sees the old files.
type settling struct {
	mu   sync.Mutex
	last chan struct{} // closed when the last one is done; nil if there was none
}

// begin runs fn after the functions before it have ended.
func (s *settling) begin(spawn func(func()), fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, done := s.last, make(chan struct{})
	s.last = done
	spawn(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		fn()
	})
}

// wait returns when all functions have ended, or ctx has.
func (s *settling) wait(ctx context.Context) {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	if last == nil {
		return
	}
	select {
	case <-last:
	case <-ctx.Done():
	}
}

// settled delays a request until the System is ready and the identity is written. Routes that need
// neither do not wait.
func (a *Agent) settled(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/health", "/init", guest.LeavePath, guest.ActivityPath, guest.RefusedPath, guest.MachinePath:
		default:
			if a.cfg.Setup != nil {
				a.cfg.Setup()
			}
			a.settling.wait(r.Context())
			if interruption(r.Context()) != nil && !isConnect(r.URL.Path) {
				return // cut off while it waited; Connect calls return that themselves
			}
		}
		next.ServeHTTP(w, r)
	})
}

// serveInit takes over the identity of one sandbox. The identity is in force when it answers.
func (a *Agent) serveInit(w http.ResponseWriter, r *http.Request) {
	if !a.trusted(r) {
		writeError(w, http.StatusForbidden, "/init is for the host alone")
		return
	}
	a.cfg.Phases.End("first request")
	var req initialisation
	body := http.MaxBytesReader(w, r.Body, maxInit)
	if err := json.NewDecoder(body).Decode(&req.InitRequest); err != nil && !errors.Is(err, io.EOF) {
		code := http.StatusBadRequest
		if tooBig := (*http.MaxBytesError)(nil); errors.As(err, &tooBig) {
			code = http.StatusRequestEntityTooLarge
		}
		writeError(w, code, "body: "+err.Error())
		return
	}
	err := checkInit(&req.InitRequest)
	if err == nil {
		req.before, err = compilePatterns(req.CheckpointBefore)
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	a.adopt(r, &req)
	w.Header().Set("Cache-Control", "no-store")
	if phases := a.cfg.Phases.Take(); phases != "" {
		w.Header().Set(guest.PhasesHeader, phases)
	}
	w.WriteHeader(http.StatusNoContent)
}

// identify writes the identity to the System, and runs the hooks after a restore. A kernel may
// refuse to change the clock and the host name; the sandbox is useful without that.
func (a *Agent) identify(req *guest.InitRequest, now outcome) {
	if a.cfg.Setup != nil {
		a.cfg.Setup()
	}
	name := req.Hostname
	if !now.renewed {
		name = "" // the first /init of this generation has set it
	}
	if err := a.sys.Identify(name, req.Timestamp); err != nil {
		a.log.Warn("identify", "err", err)
	}
	if req.Authority != "" {
		a.trustAuthority(req.Authority)
	}
	if !a.cfg.Announce || !now.renewed && !now.woken {
		return
	}
	a.announce(req)
	// A boot from a snapshot's files is a restore, too, but nothing was running.
	if now.woken || (now.renewed && req.Generation > 0) {
		a.markGeneration(req.Generation)
	}
	if now.woken {
		a.runHooks(req)
	}
}

// checkInit refuses values that could not be used later.
func checkInit(req *guest.InitRequest) error {
	for k, v := range req.EnvVars {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return fmt.Errorf("envVars: bad variable name %q", k)
		}
		if strings.ContainsRune(v, 0) {
			return fmt.Errorf("envVars.%s: contains a NUL byte", k)
		}
	}
	if strings.ContainsAny(req.Hostname, "/\x00\n\t ") || len(req.Hostname) > 64 {
		return fmt.Errorf("hostname: %q is not a host name", req.Hostname)
	}
	if strings.ContainsRune(req.DefaultWorkdir, 0) {
		return errors.New("defaultWorkdir: contains a NUL byte")
	}
	return checkAuthority(req.Authority)
}

// announceDir holds the sandbox's ids, where E2B's templates look for them. The environment holds
// them too.
const announceDir = guest.AnnounceDir

// announce writes the ids of the sandbox and the template to files, for programs that do not
// inherit our environment. If that fails, it is only inconvenient.
func (a *Agent) announce(req *guest.InitRequest) {
	root := User{Name: "root"}
	files := map[string]string{".E2B_SANDBOX": "true", ".E2B_SANDBOX_ID": req.SandboxID, ".E2B_TEMPLATE_ID": req.TemplateID}
	_ = a.sys.Mkdir("/run", root)
	_ = a.sys.Mkdir(announceDir, root)
	_ = a.sys.Mkdir(path.Dir(guest.GenerationFile), root) // programs can watch it before the first restore
	for name, value := range files {
		if value == "" {
			continue
		}
		// A snapshot may be taken at any moment and must not hold half a file.
		if err := a.replaceFile(announceDir+"/"+name, value, root); err != nil {
			a.log.Warn("announce", "err", err)
			return
		}
	}
}

// trusted reports whether a request comes from the host's end of the link.
func (a *Agent) trusted(r *http.Request) bool { return a.cfg.Trusted(peer(r.RemoteAddr)) }

// peer turns the text of an address back into an address.
func peer(remote string) net.Addr {
	if ap, err := netip.ParseAddrPort(remote); err == nil {
		return net.TCPAddrFromAddrPort(ap)
	}
	return namedAddr(remote)
}

// namedAddr is the address of a peer outside IP networks.
type namedAddr string

// Network implements net.Addr.
func (namedAddr) Network() string { return "other" }

// String implements net.Addr.
func (a namedAddr) String() string { return string(a) }
