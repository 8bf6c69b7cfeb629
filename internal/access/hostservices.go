package access

import (
	"errors"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// HostServices says which callers may let their sandboxes reach services on this machine's own
// loopback (policy.HostName). Such services trust every local program. A caller that may make
// sandboxes is not meant to reach them. The zero value allows nobody.
type HostServices int

// The values.
const (
	HostNobody HostServices = iota
	HostAdmins              // an administrator that acts for no other project
	HostAll
)

// mayOpenHost decides whether a caller may have a network that opens services of this machine.
func (s *Service) mayOpenHost(op string, c carrel.Caller, n carrel.Network) error {
	if !policy.OpensHost(n) || s.opts.HostServices == HostAll || s.opts.HostServices == HostAdmins && c.Role == carrel.RoleAdmin {
		return nil
	}
	e := &carrel.Error{Op: op, Kind: carrel.Forbidden, Field: "policy.rules",
		Err: errors.New("this daemon opens no services of its host to sandboxes"), Hint: "whoever runs it can start it with --allow-host-services own, or all"}
	if s.opts.HostServices == HostAdmins {
		e.Err = errors.New("this daemon opens services of its host with its own API key alone")
		e.Hint = "whoever runs it can start it with --allow-host-services all"
	}
	return e
}
