package assembly

import (
	"fmt"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/access"
)

// hostService returns the function that tells the wire whether a sandbox may reach a port on this
// machine's loopback, or nil if no sandbox may. The wire asks only about ports that the sandbox's
// policy opens.
func (a *Assembly) hostService() func(carrel.ID, uint16) error {
	if a.opts.HostServices == access.HostNobody {
		return nil
	}
	return func(_ carrel.ID, port uint16) error {
		if a.opts.OwnPort != nil && a.opts.OwnPort(port) {
			return fmt.Errorf("port %d is the daemon's own: no sandbox reaches it", port)
		}
		return nil
	}
}
