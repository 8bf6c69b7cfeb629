package daemon

import (
	"context"
	"net"
	"path/filepath"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/sshdoor"
)

// openSSH opens the keys and, when there is an address for it, the SSH door.
func (d *Daemon) openSSH() (err error) {
	dir := filepath.Join(d.cfg.DataDir, "ssh")
	if d.sshKeys, err = sshdoor.OpenKeys(dir); err != nil {
		return err
	}
	if d.cfg.Ingress.SSHListen == "" {
		return nil
	}
	host, err := sshdoor.HostKey(dir)
	if err != nil {
		return err
	}
	if d.sshListener, err = net.Listen("tcp", d.cfg.Ingress.SSHListen); err != nil {
		return &carrel.Error{Op: "listen", Kind: carrel.Unavailable, Field: "ssh-listen", Err: err,
			Hint: "another program has this address; choose one with --ssh-listen"}
	}
	d.sshDoor = sshdoor.New(sshdoor.Options{Sandboxes: d.service, HostKey: host, Keys: d.sshKeys, Log: d.log})
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
