package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/sshdoor"
	"github.com/spf13/cobra"
)

// sshCommands are the commands about SSH and its keys.
type sshCommands struct{ *app }

// sshSuffix is the end of sandboxes' names for ssh, so that one stanza serves all of them.
const sshSuffix = ".carrel"

// sshCommand is "carrel ssh".
func (a sshCommands) sshCommand() *cobra.Command {
	f := execFlags{interactive: true}
	var config bool
	c := &cobra.Command{
		Use:   "ssh [flags] ID [--] [COMMAND…]",
		Short: "Open a shell in a sandbox, or run a line in its shell, as ssh does",
		Long: `Opens an interactive shell; with a COMMAND, its words are joined and run by the
shell, as ssh does. It needs no keys and no SSH server: it goes through the API.

For ssh, scp, sftp, rsync and editors themselves, put what --config prints into
~/.ssh/config, once; then  ssh ID.carrel  and  ssh USER@ID.carrel  work.`,
		Args: func(c *cobra.Command, args []string) error {
			if config {
				return cobra.NoArgs(c, args)
			}
			return cobra.MinimumNArgs(1)(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if config {
				return a.sshConfig()
			}
			line := args[1:]
			if len(line) > 0 && line[0] == "--" {
				line = line[1:]
			}
			program := []string{"/bin/bash", "-c", strings.Join(line, " ")}
			if len(line) == 0 {
				f.tty = f.tty || isTerminal(a.in)
				program = []string{"/bin/bash", "-l"}
				if f.tty {
					program = []string{"/bin/bash", "-i", "-l"}
				}
			}
			return a.exec(c.Context(), args[0], program, f)
		},
	}
	fl := c.Flags()
	fl.SetInterspersed(false)
	fl.BoolVar(&config, "config", false, "print the stanza for ~/.ssh/config")
	fl.BoolVarP(&f.tty, "tty", "t", false, "run the command on a terminal of its own")
	addExecFlags(c, &f)
	return c
}

// sshConfig prints a stanza for ssh_config. The connection is a pipe to a process of the same user.
// So a host key proves nothing, and it is new each time.
func (a sshCommands) sshConfig() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	command := []string{shellQuote(self)}
	if a.url != "" {
		command = append(command, "--url", shellQuote(a.url))
	}
	if a.dataDir != "" {
		dir, err := filepath.Abs(a.dataDir)
		if err != nil {
			return err
		}
		command = append(command, "--data-dir", shellQuote(dir))
	}
	proxy := strings.ReplaceAll(strings.Join(command, " "), "%", "%%") + " ssh-proxy %h"
	stanza := fmt.Sprintf("Host *%s\n  ProxyCommand %s\n  User %s\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n",
		sshSuffix, proxy, sshdoor.DefaultUser)
	if a.json {
		return a.printJSON(map[string]string{"config": stanza})
	}
	_, err = io.WriteString(a.out, stanza)
	return err
}

// shellQuote quotes a text as one word for sh.
func shellQuote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-:@") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// sshProxyCommand is "carrel ssh-proxy".
func (a sshCommands) sshProxyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ssh-proxy ID",
		Short: "Speak SSH on standard input and output, for ssh's ProxyCommand",
		Long: `Is an SSH server for one connection, on standard input and output, that leads to
one sandbox through the API. It asks for no key: whoever starts it has the API's.
See carrel ssh --config.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := carrel.ParseID(strings.TrimSuffix(args[0], sshSuffix))
			if err != nil {
				return err
			}
			return a.withService(c.Context(), func(svc carrel.Service) error { return a.sshProxy(c.Context(), svc, id) })
		},
	}
}

// sshProxy serves the only connection.
func (a sshCommands) sshProxy(ctx context.Context, svc carrel.Service, id carrel.ID) error {
	if _, err := svc.Get(ctx, id); err != nil {
		return err
	}
	key, err := sshdoor.NewHostKey()
	if err != nil {
		return err
	}
	door := sshdoor.New(sshdoor.Options{Sandboxes: waking{svc}, HostKey: key, Only: id})
	defer context.AfterFunc(ctx, func() { _ = a.in.Close() })()
	door.ServeConn(stdio{in: a.in, out: a.out})
	return door.Close()
}

// waking opens computers like the other commands: it wakes paused sandboxes.
type waking struct{ carrel.Service }

// Computer implements sshdoor.Sandboxes.
func (w waking) Computer(ctx context.Context, id carrel.ID) (carrel.Computer, error) {
	return computer(ctx, w.Service, id)
}

// stdio is standard input and output as a connection.
type stdio struct {
	in  *os.File
	out io.Writer
}

// Read implements net.Conn.
func (s stdio) Read(p []byte) (int, error) { return s.in.Read(p) }

// Write implements net.Conn.
func (s stdio) Write(p []byte) (int, error) { return s.out.Write(p) }

// Close implements net.Conn.
func (s stdio) Close() error { return s.in.Close() }

// LocalAddr implements net.Conn.
func (stdio) LocalAddr() net.Addr { return stdioAddr{} }

// RemoteAddr implements net.Conn.
func (stdio) RemoteAddr() net.Addr { return stdioAddr{} }

// SetDeadline implements net.Conn. A pipe has no deadlines.
func (stdio) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (stdio) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (stdio) SetWriteDeadline(time.Time) error { return nil }

// stdioAddr is where a pipe is.
type stdioAddr struct{}

// Network implements net.Addr.
func (stdioAddr) Network() string { return "stdio" }

// String implements net.Addr.
func (stdioAddr) String() string { return "stdio" }
