package net

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
)

// sshSite is an SSH server. One key may fetch from the repositories below root; sshSite returns
// that key.
func sshSite(t *testing.T, l net.Listener, root string) (key string) {
	t.Helper()
	_, hostKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromSigner(hostKey)
	if err != nil {
		t.Fatal(err)
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	allowed, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
		if string(k.Marshal()) != string(allowed.Marshal()) {
			return nil, io.EOF
		}
		return nil, nil
	}}
	config.AddHostKey(signer)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { defer c.Close(); serveSSH(c, config, root) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return string(pem.EncodeToMemory(block))
}

func serveSSH(c net.Conn, config *ssh.ServerConfig, root string) {
	_, channels, requests, err := ssh.NewServerConn(c, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for n := range channels {
		ch, requests, err := n.Accept()
		if err != nil {
			return
		}
		for r := range requests {
			ok := r.Type == "exec"
			_ = r.Reply(ok, nil)
			if !ok {
				continue
			}
			var p struct{ Command string }
			_ = ssh.Unmarshal(r.Payload, &p)
			repository := strings.Trim(strings.TrimPrefix(p.Command, "git-upload-pack "), "'/")
			cmd := exec.Command("git", "-c", "safe.directory=*", "upload-pack", filepath.Join(root, filepath.Base(repository)))
			cmd.Stdout, cmd.Stderr = ch, ch.Stderr()
			code := byte(0)
			// Use a pipe: with cmd.Stdin, Wait would also wait for the end of the input.
			in, err := cmd.StdinPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err == nil {
				go func() { _, _ = io.Copy(in, ch); _ = in.Close() }()
				err = cmd.Wait()
			}
			if err != nil {
				code = 1
			}
			_, _ = ch.SendRequest("exit-status", false, []byte{0, 0, 0, code})
			_ = ch.Close()
		}
	}
}
