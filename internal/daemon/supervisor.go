package daemon

import (
	"fmt"
	"net"

	"github.com/coreos/go-systemd/v22/activation"
	notify "github.com/coreos/go-systemd/v22/daemon"

	"github.com/carrel-dev/carrel"
)

// activated returns the listener that a supervisor opened before it started this process, by
// systemd's socket protocol (sd_listen_fds(3)). It returns nil if there is none. It clears the
// variables of this protocol, so that no program that this one starts takes the descriptor for its
// own.
//
// More than one socket, or one that is no stream, is refused. The daemon has one port, and would
// silently ignore the others.
func activated() (net.Listener, error) {
	passed, err := activation.Listeners()
	if err != nil || len(passed) == 0 {
		return nil, err
	}
	if len(passed) == 1 && passed[0] != nil {
		return passed[0], nil
	}
	for _, l := range passed {
		if l != nil {
			_ = l.Close()
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

// tellStopping tells the supervisor that the daemon is stopping.
func (d *Daemon) tellStopping() {
	d.tell(notify.SdNotifyStopping + "\nSTATUS=Finishing requests. Sandboxes run on.")
}

func (d *Daemon) tell(state string) {
	if _, err := notify.SdNotify(false, state); err != nil {
		d.log.Warn("tell the supervisor", "err", err)
	}
}
