package front

import (
	"context"

	"github.com/carrel-dev/carrel/internal/access"
	"github.com/carrel-dev/carrel/internal/sshdoor"
)

// openSSH opens the SSH door if it has an address. The session ends here, and what it does goes to the
// sandbox's node, as calls of the API do. All fronts have one host key, derived from the fleet's
// authority.
func (f *Front) openSSH(service *access.Service) error {
	if f.sshListener == nil {
		return nil
	}
	host, err := sshdoor.SeededHostKey(derived(f.authority.Key, "carrel fleet SSH host key"))
	if err != nil {
		return err
	}
	f.hostKey = sshdoor.Fingerprint(host)
	f.sshDoor = sshdoor.New(sshdoor.Options{Sandboxes: service, HostKey: host, Keys: f.sshKeys, Caller: f.callers.SSH, Journal: f.journal(), Log: f.log})
	f.undo.Add(func() { _ = f.sshDoor.Close() })
	return nil
}

// serveSSH serves SSH until ctx ends.
func (f *Front) serveSSH(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = f.sshDoor.Close() })()
	f.log.Info("ssh", "addr", f.sshListener.Addr().String(), "key", f.hostKey)
	if err := f.sshDoor.Serve(f.sshListener); err != nil {
		f.log.Error("ssh is not served any more", "err", err)
	}
}

// SSHAddr is where the front serves SSH; "" is nowhere.
func (f *Front) SSHAddr() string {
	if f.sshListener == nil {
		return ""
	}
	return f.sshListener.Addr().String()
}

// SSHHostKey is the fingerprint of the host key, the same at all fronts.
func (f *Front) SSHHostKey() string { return f.hostKey }
