package local

import (
	"os"
	"path/filepath"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/audit"
	"github.com/carrel-dev/carrel/internal/driver/sim"
	"github.com/carrel-dev/carrel/internal/hostdoor"
	"github.com/carrel-dev/carrel/internal/pki"
	"github.com/carrel-dev/carrel/internal/service"
	"github.com/carrel-dev/carrel/internal/vault"
	"github.com/carrel-dev/carrel/internal/wire"
)

// outside is what leads out of sandboxes, and what goes with it.
type outside struct {
	links     *wire.Wire
	authority *pki.CA
	vault     *vault.Vault
	log       *audit.Log
	service   service.Late
}

// inside makes a simulated sandbox's end of its link.
func inside(fd *os.File, mtu int) (sim.Inside, error) { return wire.NewInside(fd, mtu) }

// openOutside makes the wire. Secrets are kept in data, the rest lives as long as
// the service.
func (o *opened) openOutside(data, run string, door *hostdoor.Late) (*outside, error) {
	out := &outside{}
	var err error
	if out.authority, err = pki.New("Carrel wire"); err != nil {
		return nil, &carrel.Error{Op: "open", Kind: carrel.Internal, Err: err}
	}
	if out.vault, err = vault.Open(filepath.Join(data, "secrets"), vault.Options{}); err != nil {
		return nil, err
	}
	if out.log, err = audit.Open(filepath.Join(run, "audit"), audit.Options{}); err != nil {
		return nil, err
	}
	o.closing(out.log.Close)
	out.links = wire.New(wire.Options{
		Local: door.ServeConn, Authority: out.authority, Audit: out.service.Owned(out.log.Write),
		Credentials: &out.service, Refused: out.service.Refused, Egress: out.service.Egress,
	})
	o.closing(out.links.Close)
	return out, nil
}
