package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

var _ = register(map[string]func(target){"nethost": nethost})

// metadata is the address where machines in clouds get their secrets.
const metadata = "169.254.169.254"

// nethost is a small model of a machine's network, in a network namespace that the test made. Its
// loopback has the metadata address and the name servers of /etc/resolv.conf, and it prints what
// they receive. It runs "run", whose words are separated by "\x01".
func nethost(t target) {
	runtime.LockOSThread()
	for i, a := range append(strings.Split(t["servers"], ","), metadata, "127.0.0.1") {
		name := fmt.Sprintf("lo:%d", i)
		if a == "127.0.0.1" {
			name = "lo"
		}
		if err := address(name, a); err != nil {
			fmt.Println("nethost:", a, err)
		}
	}
	if err := up(); err != nil {
		panic(err)
	}
	dns, err := net.ListenPacket("udp4", "0.0.0.0:53")
	if err != nil {
		panic(err)
	}
	go answerNames(dns)
	web, err := net.Listen("tcp4", "0.0.0.0:80")
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			c, err := web.Accept()
			if err != nil {
				return
			}
			fmt.Println("HARM heard a connection at", c.LocalAddr())
			_ = c.Close()
		}
	}()
	// The program in "run" gets none of the rights that made this network.
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	words := strings.Split(t["run"], "\x01")
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	fmt.Println("nethost:", cmd.Run())
	time.Sleep(50 * time.Millisecond)
	os.Exit(0) // the "end" is that of what ran
}

// address adds an address to the loopback.
func address(name, ip string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := r.SetInet4Addr(net.ParseIP(ip).To4()); err != nil {
		return err
	}
	return unix.IoctlIfreq(fd, unix.SIOCSIFADDR, r)
}

// up starts loopback.
func up() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}

// answerNames answers every name with the metadata address, and prints the name.
func answerNames(c net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		if n < 17 {
			continue
		}
		name, end := "", 12
		for end < n && buf[end] != 0 && end+1+int(buf[end]) < n {
			name += string(buf[end+1:end+1+int(buf[end])]) + "."
			end += 1 + int(buf[end])
		}
		fmt.Println("ASKED", strings.ToLower(name)) // some resolvers choose case at random
		if end += 5; end > n {
			continue
		}
		answer := append([]byte{buf[0], buf[1], 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0}, buf[12:end]...)
		if buf[end-3] != 1 { // only A
			answer[7] = 0
		} else {
			answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 169, 254, 169, 254)
		}
		_, _ = c.WriteTo(answer, from)
	}
}
