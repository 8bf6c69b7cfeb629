package daemon

import (
	"context"
	"net"
	"path/filepath"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/sshdoor"
)

// sshDir is the directory of the SSH door's keys.
func (d *Daemon) sshDir() string { return filepath.Join(d.cfg.DataDir, "ssh") }

// openSSH opens the SSH door if it has an address.
func (d *Daemon) openSSH() (err error) {
	if d.cfg.Ingress.SSHListen == "" {
		return nil
	}
	host, err := sshdoor.HostKey(d.sshDir())
	if err != nil {
		return err
	}
	if d.sshListener, err = net.Listen("tcp", d.cfg.Ingress.SSHListen); err != nil {
		return &carrel.Error{Op: "listen", Kind: carrel.Unavailable, Field: "ssh-listen", Err: err,
			Hint: "another program has this address; choose one with --ssh-listen"}
	}
	d.own.add(d.sshListener.Addr().String()) // port 0 has become one
	d.sshDoor = sshdoor.New(sshdoor.Options{Sandboxes: d.parts.Access, HostKey: host, Keys: d.sshKeys, Caller: d.callers.SSH, Journal: d.parts.Journal(), Log: d.log})
	d.undo.Add(func() { // before the service
		_ = d.sshListener.Close()
		_ = d.sshDoor.Close()
	})
	return nil
}

// serveSSH serves SSH until ctx ends.
func (d *Daemon) serveSSH(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = d.sshDoor.Close() })()
	d.log.Info("ssh", "addr", d.sshListener.Addr().String())
	if err := d.sshDoor.Serve(d.sshListener); err != nil {
		d.log.Error("ssh is not served any more", "err", err)
	}
}
