package box_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// socketAttacks are attacks on sockets and terminals outside.
func socketAttacks() []attack {
	return []attack{
		{name: "unix sockets", program: "unix", prepare: userSockets},
		{name: "unix sockets of the system", program: "unix", only: "root", prepare: systemSockets},
		{name: "abstract sockets", program: "unix", prepare: func(w *world) []string {
			names := []string{"@" + w.tag(), "@/tmp/.X11-unix/X" + w.tag()}
			for _, n := range names {
				listenUnix(w, "unix", n)
				listenUnix(w, "unixgram", n+"d")
				listenUnix(w, "unixpacket", n+"p")
			}
			return []string{"paths=" + strings.Join([]string{names[0], names[0] + "d", names[0] + "p", names[1]}, ":")}
		}},
		{name: "unix socket in the working directory", program: "unix", prepare: func(w *world) []string {
			listenUnix(w, "unix", w.project+"/dev.sock")
			listenUnix(w, "unixgram", w.project+"/log.sock")
			return []string{"paths=" + w.project + "/dev.sock:" + w.project + "/log.sock"}
		}},
		{name: "another socket allowed", program: "unix", flags: []string{"--socket", "{home}/allowed.sock"}, prepare: userSockets},
		{name: "ssh-agent", program: "agent", prepare: startAgent, wrap: func(w *world, cmd *exec.Cmd) {
			cmd.Env = append(cmd.Env, "SSH_AUTH_SOCK="+w.home+"/agent/"+w.tag())
		}},
		{name: "services on loopback", program: "tcp", prepare: loopbackServices},
		{name: "services on loopback, no binding", program: "tcp", prepare: loopbackServices, flags: []string{"--no-bind"}},
		{name: "services on loopback, internet allowed", program: "tcp", prepare: loopbackServices, flags: []string{"--internet"}},
		{name: "services on loopback, all names allowed", program: "tcp", prepare: loopbackServices, flags: []string{"--allow", "*.example.com"}},
		{name: "the machine's network", program: "interfaces", prepare: hostAddresses, harmed: nil},
		{name: "metadata service", program: "tcp", args: []string{"addresses=169.254.169.254:80,169.254.169.254:53"}, wrap: ownNetwork},
		{name: "metadata service, internet allowed", program: "tcp", args: []string{"addresses=169.254.169.254:80"}, flags: []string{"--internet"}, wrap: ownNetwork},
		{name: "metadata service by a name that is allowed", program: "tcp", args: []string{"addresses=m.allowed.example.com:80"}, flags: []string{"--allow", "*.allowed.example.com"}, wrap: ownNetwork},
		{name: "questions for names", program: "names", args: []string{"zone=evil.example.com", "servers=" + strings.Join(append(nameServers(), "192.0.2.53", "127.0.0.1"), ",")}, prepare: wordToCarry, wrap: ownNetwork},
		{name: "questions for names, another allowed", program: "names", flags: []string{"--allow", "*.allowed.example.com"}, args: []string{"zone=evil.example.com", "servers=" + strings.Join(append(nameServers(), "192.0.2.53", "127.0.0.1"), ",")},
			prepare: wordToCarry, wrap: ownNetwork},
		{name: "questions for names, no binding", program: "names", flags: []string{"--no-bind"}, args: []string{"zone=evil.example.com", "servers=" + strings.Join(nameServers(), ",")}, prepare: wordToCarry, wrap: ownNetwork},
		{name: "the caller's terminal", program: "terminal", prepare: callersTerminal, wrap: onTerminal, harmed: typedText},
		{name: "another terminal", program: "pts", prepare: callersTerminal, harmed: writtenText},
	}
}

// listenUnix serves a socket of the user and records its messages.
func listenUnix(w *world, network, name string) {
	w.t.Helper()
	if name[0] != '@' {
		w.mkdir(filepath.Dir(name))
	}
	if network == "unixgram" {
		c, err := net.ListenPacket(network, name)
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = c.Close() })
		go hearPackets(w, c, name)
	} else {
		l, err := net.Listen(network, name)
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = l.Close() })
		go hearConnections(w, l, name)
	}
	if name[0] != '@' {
		if err := errors.Join(os.Chmod(name, 0o666), os.Chown(name, w.uid, w.uid)); err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = os.Remove(name) })
	}
}

func hearPackets(w *world, c net.PacketConn, name string) {
	buf := make([]byte, 1000)
	for {
		n, _, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		w.hear("%s heard %q", name, buf[:n])
	}
}

func hearConnections(w *world, l net.Listener, name string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		w.hear("%s heard a connection", name)
		go func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			buf := make([]byte, 1000)
			n, _ := c.Read(buf)
			w.hear("%s heard %q", name, buf[:n])
			_, _ = c.Write([]byte("hello from outside"))
		}()
	}
}

// userSockets are sockets of a user's programs.
func userSockets(w *world) []string {
	var all []string
	for i, rel := range []string{".docker/run/docker.sock", "run/bus", ".gnupg/S.gpg-agent", "outside/app.sock", ".config/x/ipc.sock"} {
		p := filepath.Join(w.home, rel)
		listenUnix(w, []string{"unix", "unixgram", "unixpacket"}[i%3], p)
		all = append(all, p)
	}
	return []string{"paths=" + strings.Join(all, ":")}
}

// systemSockets are sockets of daemons: only root may make them.
func systemSockets(w *world) []string {
	dir := "/run/" + w.tag()
	x11 := "/tmp/.X11-unix"
	w.t.Cleanup(func() { _ = os.RemoveAll(dir); _ = os.Remove(x11) })
	if err := errors.Join(os.Mkdir(dir, 0o755), os.MkdirAll(x11, 0o777)); err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for i, p := range []string{dir + "/docker.sock", dir + "/syslog", x11 + "/X" + w.tag()} {
		network := []string{"unix", "unixgram", "unix"}[i]
		if network == "unixgram" {
			c, err := net.ListenPacket(network, p)
			if err != nil {
				w.t.Fatal(err)
			}
			w.t.Cleanup(func() { _ = c.Close() })
			go hearPackets(w, c, p)
		} else {
			l, err := net.Listen(network, p)
			if err != nil {
				w.t.Fatal(err)
			}
			w.t.Cleanup(func() { _ = l.Close() })
			go hearConnections(w, l, p)
		}
		_ = os.Chmod(p, 0o666)
		all = append(all, p)
	}
	return []string{"paths=" + strings.Join(all, ":")}
}

// startAgent starts a real ssh-agent with a key whose comment is the secret.
func startAgent(w *world) []string {
	_, err := exec.LookPath("ssh-agent")
	testenv.Need(w.t, "ssh", err)
	socket := w.home + "/agent/" + w.tag()
	w.mkdir(filepath.Dir(socket))
	cmd := w.command("ssh-agent", "-D", "-a", socket)
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	key := w.outside + "/agentkey"
	// The test runs it itself: ssh-keygen needs the user's name, and this user has none.
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", w.secret, "-f", key).CombinedOutput(); err != nil {
		w.t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Chown(key, w.uid, w.uid); err != nil {
		w.t.Fatal(err)
	}
	testenv.EventuallyNil(w.t, "the agent takes a key", func() error {
		add := w.command("ssh-add", key)
		add.Env = append(add.Env, "SSH_AUTH_SOCK="+socket)
		if r := w.run(add); r.code != 0 {
			return errors.New(r.all())
		}
		return nil
	})
	// In the files the comment is not protected.
	_, _ = os.Remove(key), os.Remove(key+".pub")
	return []string{"agent=" + socket}
}

// loopbackServices listen on the machine's own addresses.
func loopbackServices(w *world) []string {
	hosts := []string{"127.0.0.1", "::1"}
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			hosts = append(hosts, n.IP.String())
			break
		}
	}
	var addresses []string
	for _, h := range hosts {
		l, err := net.Listen("tcp", net.JoinHostPort(h, "0"))
		if err != nil {
			w.t.Logf("no service on %s: %v", h, err)
			continue
		}
		w.t.Cleanup(func() { _ = l.Close() })
		go hearConnections(w, l, l.Addr().String())
		c, err := net.ListenPacket("udp", l.Addr().String())
		if err == nil {
			w.t.Cleanup(func() { _ = c.Close() })
			go hearPackets(w, c, "udp "+l.Addr().String())
		}
		addresses = append(addresses, l.Addr().String())
		_, port, _ := net.SplitHostPort(l.Addr().String())
		if h == "127.0.0.1" {
			addresses = append(addresses, "0.0.0.0:"+port, "127.9.9.9:"+port, "[::ffff:127.0.0.1]:"+port, "localhost:"+port)
		}
	}
	return []string{"addresses=" + strings.Join(addresses, ",")}
}

// hostAddresses makes an address of this machine the secret.
func hostAddresses(w *world) []string {
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() {
			w.secret = n.IP.String()
			return nil
		}
	}
	testenv.Need(w.t, "address", errors.New("an address that is not loopback's"))
	return nil
}

// nameServers returns this machine's name servers.
func nameServers() []string {
	var all []string
	data, _ := os.ReadFile("/etc/resolv.conf")
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "nameserver" && net.ParseIP(f[1]).To4() != nil {
			all = append(all, f[1])
		}
	}
	return all
}

func wordToCarry(*world) []string { return []string{"word=carried"} }

// ownNetwork starts the command in a network namespace where the metadata service and the name
// servers belong to the test.
func ownNetwork(w *world, cmd *exec.Cmd) {
	line := append([]string{cmd.Path}, cmd.Args[1:]...)
	servers := strings.Join(append(nameServers(), "192.0.2.53"), ",")
	n := w.command(w.attack, "nethost", "servers="+servers, "run="+strings.Join(line, "\x01"))
	n.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	if w.uid != 0 {
		n.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		n.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: w.uid, HostID: w.uid, Size: 1}}
		n.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: w.uid, HostID: w.uid, Size: 1}}
		n.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE}
		if n.SysProcAttr.Credential != nil {
			n.SysProcAttr.Credential.NoSetGroups = true
		}
	}
	*cmd = *n
}

// callersTerminal opens a terminal of the user.
func callersTerminal(w *world) []string {
	master, slave, err := pty.Open()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _, _ = master.Close(), slave.Close() })
	if err := errors.Join(slave.Chown(w.uid, w.uid), slave.Chmod(0o600)); err != nil {
		w.t.Fatal(err)
	}
	w.master, w.slave = master, slave
	return []string{"terminal=" + slave.Name(), "word=" + w.tag()}
}

// onTerminal makes it the command's terminal.
func onTerminal(w *world, cmd *exec.Cmd) {
	cmd.Stdin = w.slave
	cmd.SysProcAttr.Setctty, cmd.SysProcAttr.Ctty = true, 0
}

// typedText returns input that waits in the terminal, as if a person had typed it.
func typedText(w *world) string {
	fd := int(w.slave.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if err != nil || n == 0 {
		if attr, err := unix.IoctlGetInt(fd, unix.TIOCGETD); err == nil && attr != 0 {
			return fmt.Sprint("the terminal's line discipline is ", attr)
		}
		return ""
	}
	// A read returns a line. Other lines may come first: another user's attack runs at the same
	// time and types into every terminal that it finds.
	var all []byte
	for len(all) < n {
		buf := make([]byte, n)
		m, err := unix.Read(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || m == 0 {
			break
		}
		all = append(all, buf[:m]...)
	}
	if bytes.Contains(all, []byte(w.tag())) {
		return fmt.Sprintf("typed into the terminal: %q", all)
	}
	return ""
}

// writtenText returns the text that appeared on the terminal.
func writtenText(w *world) string {
	fd := int(w.master.Fd())
	_ = unix.SetNonblock(fd, true)
	buf := make([]byte, 1000)
	n, _ := unix.Read(fd, buf)
	if n > 0 && bytes.Contains(buf[:n], []byte("mark")) {
		return fmt.Sprintf("written to the terminal: %q", buf[:n])
	}
	return ""
}
