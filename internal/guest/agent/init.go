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

// settling is the writing out of an identity, after /init has answered: a sandbox
// is made faster when the files that few look at do not hold up the answer. All
// other routes wait for it, so nobody sees the old ones.
type settling struct {
	mu   sync.Mutex
	last chan struct{} // closed when it is done; nil when there was none
}

// begin runs fn after those before it have ended.
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

// wait returns when all that was begun has ended, or ctx has.
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

// settled delays a request until the System is ready and is who it was told to
// be, but for those that ask neither.
func (a *Agent) settled(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/health", "/init", guest.LeavePath, guest.ActivityPath, guest.RefusedPath:
		default:
			if a.cfg.Setup != nil {
				a.cfg.Setup()
			}
			a.settling.wait(r.Context())
			if interruption(r.Context()) != nil && !isConnect(r.URL.Path) {
				return // cut off while it waited; Connect calls say so themselves
			}
		}
		next.ServeHTTP(w, r)
	})
}

// serveInit takes over what makes this guest a particular sandbox. The identity
// holds when it answers.
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

// identify writes the identity out, and after a restore runs the hooks. The clock and the name are the machine's, and
// a kernel may refuse to change them: the sandbox is of use without.
func (a *Agent) identify(req *guest.InitRequest, now outcome) {
	if a.cfg.Setup != nil {
		a.cfg.Setup()
	}
	name := req.Hostname
	if !now.renewed {
		name = "" // it has it since the first /init of this generation
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
	// A boot from a snapshot's files only is a restore, too, but of nothing that runs.
	if now.woken || (now.renewed && req.Generation > 0) {
		a.markGeneration(req.Generation)
	}
	if now.woken {
		a.runHooks(req)
	}
}

// checkInit refuses what later could not be used.
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

// announceDir is where E2B's templates look for what sandbox they are in; the
// same is in the environment.
const announceDir = guest.AnnounceDir

// announce writes the sandbox's and the template's ids where programs that do
// not inherit our environment find them. Their absence is an inconvenience only.
func (a *Agent) announce(req *guest.InitRequest) {
	root := User{Name: "root"}
	files := map[string]string{".E2B_SANDBOX": "true", ".E2B_SANDBOX_ID": req.SandboxID, ".E2B_TEMPLATE_ID": req.TemplateID}
	_ = a.sys.Mkdir("/run", root)
	_ = a.sys.Mkdir(announceDir, root)
	_ = a.sys.Mkdir(path.Dir(guest.GenerationFile), root) // so that programs can watch it before the first restore
	for name, value := range files {
		if value == "" {
			continue
		}
		// A snapshot may be taken at any moment, and must not hold half of one.
		if err := a.replaceFile(announceDir+"/"+name, value, root); err != nil {
			a.log.Warn("announce", "err", err)
			return
		}
	}
}

// trusted reports whether a request comes from the host's end of the link.
func (a *Agent) trusted(r *http.Request) bool { return a.cfg.Trusted(peer(r.RemoteAddr)) }

// peer turns the text of an address back into one.
func peer(remote string) net.Addr {
	if ap, err := netip.ParseAddrPort(remote); err == nil {
		return net.TCPAddrFromAddrPort(ap)
	}
	return namedAddr(remote)
}

// namedAddr is the address of a peer that is not on an IP network.
type namedAddr string

// Network implements net.Addr.
func (namedAddr) Network() string { return "other" }

// String implements net.Addr.
func (a namedAddr) String() string { return string(a) }
