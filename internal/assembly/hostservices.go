package assembly

import (
	"fmt"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/access"
)

// hostService is the wire's question whether a sandbox may reach a port on this machine's loopback;
// nil where none may. That the sandbox's policy opens the port was judged before.
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
