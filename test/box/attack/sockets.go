package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

var _ = register(map[string]func(target){
	"unix": unixSockets, "agent": sshAgent, "tcp": tcp, "names": names, "interfaces": interfaces, "terminal": terminal, "pts": otherTerminals,
})

// unixSockets sends a mark to each of the sockets "paths", which may be abstract ("@…"), by every
// call that can do it.
func unixSockets(t target) {
	for i, p := range strings.Split(t["paths"], ":") {
		names := []string{p}
		if !strings.HasPrefix(p, "@") {
			link := filepath.Join(t["project"], fmt.Sprintf("socket%d", i))
			_ = os.Symlink(p, link)
			names = append(names, link, "/proc/self/root"+p)
			if fd, err := unix.Open(p, unix.O_PATH, 0); err == nil {
				names = append(names, fmt.Sprintf("/proc/self/fd/%d", fd))
			}
			if os.Chdir(filepath.Dir(p)) == nil {
				names = append(names, filepath.Base(p))
			}
		}
		for _, name := range names {
			for how, kind := range map[string]int{"stream": unix.SOCK_STREAM, "seqpacket": unix.SOCK_SEQPACKET, "dgram": unix.SOCK_DGRAM} {
				fd, err := unix.Socket(unix.AF_UNIX, kind, 0)
				if err == nil {
					_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 2})
					if err = unix.Connect(fd, &unix.SockaddrUnix{Name: name}); err == nil {
						_, err = unix.Write(fd, []byte("mark "+how+" "+name))
					}
					_ = unix.Close(fd)
				}
				fmt.Println(how, name, err)
			}
			send(name, "sendto", func() (int, error) { return unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0) })
			send(name, "socketpair", func() (int, error) {
				p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
				return p[0], err
			})
			send(name, "raw unix", func() (int, error) { return unix.Socket(unix.AF_UNIX, unix.SOCK_RAW, 0) })
			send(name, "fast open", func() (int, error) { return unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0) })
		}
		_ = os.Chdir(t["project"])
	}
}

// send sends a message to a name without connecting.
func send(name, how string, make func() (int, error)) {
	fd, err := make()
	if err == nil {
		to := &unix.SockaddrUnix{Name: name}
		_ = unix.SetNonblock(fd, true)
		err = unix.Sendto(fd, []byte("mark "+how+" "+name), 0, to)
		if err != nil {
			_, err = unix.SendmsgN(fd, []byte("mark message "+how+" "+name), nil, to, 0)
		}
		_ = unix.Close(fd)
	}
	fmt.Println(how, name, err)
}

// sshAgent asks an agent for its keys.
func sshAgent(t target) {
	for _, p := range []string{os.Getenv("SSH_AUTH_SOCK"), t["agent"]} {
		c, err := net.Dial("unix", p)
		if err != nil {
			fmt.Println("no agent:", err)
			continue
		}
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = c.Write([]byte{0, 0, 0, 1, 11})
		buf := make([]byte, 4096)
		n, err := c.Read(buf)
		show("agent", buf[:n], err)
	}
}

// tcp sends a mark to each of "addresses", by connections and packets.
func tcp(t target) {
	for _, a := range strings.Split(t["addresses"], ",") {
		c, err := net.DialTimeout("tcp", a, 2*time.Second)
		if err == nil {
			_, err = io.WriteString(c, "mark tcp\n")
			_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
			buf := make([]byte, 100)
			n, _ := c.Read(buf)
			fmt.Printf("answer %q\n", buf[:n])
			_ = c.Close()
		}
		fmt.Println("tcp", a, err)
		if c, err = net.Dial("udp", a); err == nil {
			_, err = io.WriteString(c, "mark udp\n")
		}
		fmt.Println("udp", a, err)
		// The first packet may carry data.
		if host, port, err := net.SplitHostPort(a); err == nil && net.ParseIP(host).To4() != nil {
			fd, _ := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
			to := &unix.SockaddrInet4{Addr: [4]byte(net.ParseIP(host).To4())}
			_, _ = fmt.Sscan(port, &to.Port)
			_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 1})
			fmt.Println("fast open", unix.Sendto(fd, []byte("mark fast open\n"), unix.MSG_FASTOPEN, to))
			_ = unix.Close(fd)
		}
	}
}

// names sends "word" to name servers inside questions.
func names(t target) {
	r := &net.Resolver{PreferGo: true}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	ips, err := r.LookupHost(ctx, t["word"]+"."+t["zone"])
	fmt.Println("resolver", ips, err)
	question := []byte{0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for label := range strings.SplitSeq("direct-"+t["word"]+"."+t["zone"], ".") {
		question = append(append(question, byte(len(label))), label...)
	}
	question = append(question, 0, 0, 1, 0, 1)
	for _, server := range strings.Split(t["servers"], ",") {
		c, err := net.DialTimeout("udp", net.JoinHostPort(server, "53"), time.Second)
		if err == nil {
			_, err = c.Write(question)
			_ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
			buf := make([]byte, 512)
			n, rerr := c.Read(buf)
			fmt.Println("answer", n, rerr)
		}
		fmt.Println("question to", server, err)
	}
}

// interfaces prints information about the machine's network.
func interfaces(target) {
	all, _ := net.InterfaceAddrs()
	fmt.Println("addresses", all)
	for _, p := range []string{"/proc/net/tcp", "/proc/net/unix", "/proc/net/arp", "/proc/net/route", "/sys/class/net", "/proc/self/net/dev", "/proc/1/net/tcp"} {
		data, err := os.ReadFile(p)
		show(p, data, err)
		entries, _ := os.ReadDir(p)
		fmt.Println(p, entries)
	}
}

// terminal types into the caller's terminal, for the shell to run it afterwards. In a box it tries
// other terminals, too. Without one it would reach those of people who work on this machine.
func terminal(t target) {
	files, names := []int{0, 1, 2}, []string{"/dev/tty", t["terminal"]}
	if t["boxed"] != "" {
		names = append(names, "/dev/console", "/dev/pts/0", "/dev/pts/1")
	}
	for _, p := range names {
		if fd, err := unix.Open(p, unix.O_RDWR|unix.O_NOCTTY, 0); err == nil {
			files = append(files, fd)
		}
	}
	for _, fd := range files {
		for _, request := range []uint{unix.TIOCSTI, 0x100000000 | unix.TIOCSTI} {
			for _, c := range []byte(t["word"] + "\n") {
				_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(unsafe.Pointer(&c)))
				if e != 0 {
					fmt.Println("no TIOCSTI:", fd, e)
					break
				}
			}
		}
		selection := [2]byte{2, 'x'} // 3, "paste the selection", types it
		_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCLINUX, uintptr(unsafe.Pointer(&selection)))
		fmt.Println("TIOCLINUX", fd, e)
		var line int32 = 2
		_, _, e = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSETD, uintptr(unsafe.Pointer(&line)))
		fmt.Println("TIOCSETD", fd, e)
		_, _, e = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCCONS, 0)
		fmt.Println("TIOCCONS", fd, e)
	}
}

// otherTerminals writes to a terminal of the same user that does not belong to this program.
func otherTerminals(t target) {
	fd, err := unix.Open(t["terminal"], unix.O_RDWR|unix.O_NOCTTY, 0)
	if err == nil {
		_, err = unix.Write(fd, []byte("mark\n"))
	}
	fmt.Println("write to", t["terminal"], err)
}
