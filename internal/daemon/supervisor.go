package daemon

import (
	"fmt"
	"net"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	notify "github.com/coreos/go-systemd/v22/daemon"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/keeper"
)

// given are the files that a supervisor passed to this process, by systemd's socket protocol
// (sd_listen_fds(3)): the listener, and what the supervisor stored for an earlier daemon.
type given struct {
	store   *keeper.Supervisor // nil without a supervisor
	sockets []*os.File
}

// takeGiven takes the files over. It clears the variables of this protocol, so that no program that
// this one starts takes a descriptor for its own.
func takeGiven() given {
	g := given{sockets: activation.Files(true)}
	if at := os.Getenv("NOTIFY_SOCKET"); at != "" {
		g.store, g.sockets = keeper.NewSupervisor(at, g.sockets)
	}
	return g
}

// close closes the files that nobody took.
func (g *given) close() {
	for _, f := range g.sockets {
		_ = f.Close()
	}
	g.sockets = nil
	if g.store != nil {
		_ = g.store.Close()
	}
}

// listener returns the listener that a supervisor opened before it started this process. It returns
// nil if there is none.
//
// More than one socket, or one that is no stream, is refused. The daemon has one port, and would
// silently ignore the others.
func (g *given) listener() (net.Listener, error) {
	passed := g.sockets
	if len(passed) == 0 {
		return nil, nil
	}
	if len(passed) == 1 {
		if l, err := net.FileListener(passed[0]); err == nil {
			return l, nil // a copy
		}
	}
	return nil, &carrel.Error{Op: "listen", Kind: carrel.Invalid, Field: "listen",
		Err:  fmt.Errorf("the supervisor passed %d sockets; the daemon takes one, a stream", len(passed)),
		Hint: "let carrel.socket have one ListenStream= line"}
}

// tellReady tells the supervisor that requests are served. If no supervisor asked for that, this
// and tellStopping do nothing.
func (d *Daemon) tellReady() {
	d.tell(notify.SdNotifyReady + "\nSTATUS=Serving at " + d.url)
}

// patience is for how long the supervisor is asked to wait at a time.
const patience = 2 * time.Minute

// tellBusy asks the supervisor to wait longer for the start.
func (d *Daemon) tellBusy(what string, wait time.Duration) {
	d.tell(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d\nSTATUS=%s", wait.Microseconds(), what))
}

// tellStopping tells the supervisor that the daemon is stopping.
func (d *Daemon) tellStopping() {
	d.tell(notify.SdNotifyStopping + "\nSTATUS=Finishing requests. Sandboxes run on.")
}

func (d *Daemon) tell(state string) {
	if _, err := notify.SdNotify(false, state); err != nil {
		d.log.Warn("tell the supervisor", "err", err)
	}
}
