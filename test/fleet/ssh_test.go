package fleet

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// sshKeys adds a project's SSH key at the first front, and uses it at both: for the project's sandbox
// on its node, and not for another's. Then it is removed.
func (f *fleetOf) sshKeys(project *client.Client, own, foreign carrel.ID) {
	t := f.t
	t.Helper()
	ctx := t.Context()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	line := string(ssh.MarshalAuthorizedKey(signer.PublicKey()))
	hosts := map[string]bool{}
	run := func(front int, id carrel.ID, command string) (string, error) {
		conn, err := ssh.Dial("tcp", f.fronts[front].SSHAddr(), &ssh.ClientConfig{User: string(id), Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)},
			HostKeyCallback: hostKeys(hosts), Timeout: 20 * time.Second})
		if err != nil {
			return "", err
		}
		defer conn.Close()
		s, err := conn.NewSession()
		if err != nil {
			return "", err
		}
		defer s.Close()
		out, err := s.Output(command)
		return strings.TrimSpace(string(out)), err
	}
	if _, err := run(0, own, "true"); err == nil {
		t.Error("a key that nobody added opens a sandbox")
	}
	if _, err := project.AddSSHKey(ctx, "laptop", line, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := project.AddSSHKey(ctx, "again", line, nil); carrel.KindOf(err) != carrel.AlreadyExists {
		t.Errorf("the same key again: %v", err)
	}
	for i := range f.fronts {
		testenv.EventuallyNil(t, "the key opens the sandbox at each front", func() error {
			out, err := run(i, own, fmt.Sprintf("echo front %d | tee -a /tmp/ssh", i))
			if err == nil && out != fmt.Sprint("front ", i) {
				err = fmt.Errorf("%q", out)
			}
			return err
		})
		if out, err := run(i, foreign, "true"); err == nil {
			t.Errorf("front %d: another project's sandbox: %q", i, out)
		}
	}
	if out, err := run(0, own, "sort -u /tmp/ssh | wc -l"); err != nil || out != "2" {
		t.Errorf("%q %v: both fronts lead to one sandbox", out, err)
	}
	if len(hosts) != 1 || !hosts[f.fronts[0].SSHHostKey()] {
		t.Errorf("the fronts' host keys: %v", hosts)
	}
	if err := project.RemoveSSHKey(ctx, "laptop"); err != nil {
		t.Fatal(err)
	}
	testenv.EventuallyNil(t, "a removed key opens nothing", func() error {
		if _, err := run(1, own, "true"); err == nil {
			return errors.New("it does")
		}
		return nil
	})
	if err := project.RemoveSSHKey(ctx, "laptop"); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("a key that is gone: %v", err)
	}
}

// hostKeys notes the host keys that are seen.
func hostKeys(seen map[string]bool) ssh.HostKeyCallback {
	return func(_ string, _ net.Addr, k ssh.PublicKey) error {
		seen[ssh.FingerprintSHA256(k)] = true
		return nil
	}
}
