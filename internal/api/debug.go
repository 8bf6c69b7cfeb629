package api

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"runtime/pprof"
	"strconv"
	"time"

	"github.com/carrel-dev/carrel"
)

// longestProfile bounds the time of one CPU profile.
const longestProfile = 5 * time.Minute

// debugProfile answers with a profile of this daemon in pprof's format. "profile" is its processor
// time over ?seconds=N. The others (heap, allocs, goroutine, mutex, block, threadcreate) show the
// present state, after a collection with ?gc=1, as text with ?debug=1.
//
// A profile contains function names and sizes, and nothing about a sandbox. But it costs time, so
// only clients on this machine get one, whatever their key.
func (s *Server) debugProfile(w http.ResponseWriter, r *http.Request) error {
	if !fromHere(r) {
		p := tell(carrel.Forbidden, "profiles are given to this machine only")
		p.body.Hint = "ask from the machine that the daemon runs on, by a loopback address"
		return p
	}
	name := r.PathValue("profile")
	var out bytes.Buffer
	if name == "profile" {
		if err := s.cpuProfile(r, &out); err != nil {
			return err
		}
	} else {
		p := pprof.Lookup(name)
		if p == nil {
			return tell(carrel.NotFound, "there is no profile %q", clip(name))
		}
		if r.URL.Query().Get("gc") != "" {
			runtime.GC() // what is left is used
		}
		level := 0
		if r.URL.Query().Get("debug") != "" {
			level = 1
		}
		if err := p.WriteTo(&out, level); err != nil {
			return err
		}
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(out.Len()))
	_, err := out.WriteTo(w)
	return err
}

// cpuProfile samples for the requested time, or until the client leaves or the daemon stops. Only
// one can run at a time.
func (s *Server) cpuProfile(r *http.Request, out *bytes.Buffer) error {
	span := 30 * time.Second
	if text := r.URL.Query().Get("seconds"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || time.Duration(n)*time.Second > longestProfile {
			return invalid("seconds", "%q is not a number from 1 to %.0f", clip(text), longestProfile.Seconds())
		}
		span = time.Duration(n) * time.Second
	}
	if err := pprof.StartCPUProfile(out); err != nil {
		return &carrel.Error{Op: "profile", Kind: carrel.Conflict, Err: errors.New("another CPU profile is being taken"), Hint: "wait until it has ended"}
	}
	defer pprof.StopCPUProfile()
	select {
	case <-time.After(span):
		pprof.StopCPUProfile() // writes the rest
		return nil
	case <-s.opts.Done:
		return &carrel.Error{Op: "profile", Kind: carrel.Unavailable, Err: errors.New("the daemon is stopping")}
	case <-r.Context().Done():
		return fmt.Errorf("profile: %w", r.Context().Err())
	}
}

// fromHere reports whether a request came over loopback from a client on this machine, and not
// through a proxy on this machine.
func fromHere(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback() && r.Header.Get("X-Forwarded-For") == "" && r.Header.Get("Forwarded") == ""
}
