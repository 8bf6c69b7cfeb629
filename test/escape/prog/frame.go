package main

import (
	"encoding/binary"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/test/escape/plan"
)

// Below the sandbox's own stack: hand-made packets and frames.
var _ = add(map[string]func(*attempt) plan.Outcome{
	"icmp-echo": func(a *attempt) plan.Outcome {
		return each([]int{unix.SOCK_DGRAM, unix.SOCK_RAW}, func(kind int) plan.Outcome {
			echo := append([]byte{8, 0, 0, 0, 0, 1, 0, 1}, a.mark...)
			binary.BigEndian.PutUint16(echo[2:], checksum(echo))
			return each([]string{plan.Denied.V4, plan.Allowed.V4, driver.GatewayIPv4, plan.Echo.V4}, func(to string) plan.Outcome {
				return rawTo(kind, unix.IPPROTO_ICMP, to, echo)
			})
		})
	},
	"raw-ip-protocols": func(a *attempt) plan.Outcome {
		inner := ipv4(driver.GuestIPv4, plan.Denied.V4, unix.IPPROTO_UDP, 0, udp(driver.GuestIPv4, plan.Denied.V4, 4000, 5000, []byte(a.mark)))
		return each([]int{2, 4, 41, 47, 50, 51, 89, 94, 103, 132, 253, 255}, func(protocol int) plan.Outcome {
			payload := inner
			if protocol == 47 {
				payload = append([]byte{0, 0, 8, 0}, inner...)
			}
			return rawTo(unix.SOCK_RAW, protocol, plan.Denied.V4, payload)
		})
	},
	"frame-spoofed-udp": func(a *attempt) plan.Outcome {
		return frames(0x0800, ipv4("10.73.0.77", plan.Denied.V4, unix.IPPROTO_UDP, 0, udp("10.73.0.77", plan.Denied.V4, 4000, 5003, []byte(a.mark))),
			ipv4(plan.Echo.V4, plan.Denied.V4, unix.IPPROTO_UDP, 0, udp(plan.Echo.V4, plan.Denied.V4, 4001, 5003, []byte(a.mark))),
			ipv4(driver.GatewayIPv4, plan.Denied.V4, unix.IPPROTO_UDP, 0, udp(driver.GatewayIPv4, plan.Denied.V4, 4002, 5003, []byte(a.mark))))
	},
	"frame-spoofed-source-loopback": func(a *attempt) plan.Outcome {
		var all [][]byte
		for _, to := range []string{"127.0.0.1", "10.1.2.3", "255.255.255.255", "224.0.0.1", "0.0.0.0"} {
			for _, from := range []string{"127.0.0.1", "0.0.0.0", driver.GatewayIPv4, to} {
				all = append(all, ipv4(from, to, unix.IPPROTO_UDP, 0, udp(from, to, 4000, 5000, []byte(a.mark))))
			}
		}
		return frames(0x0800, all...)
	},
	"frame-syn-data": func(a *attempt) plan.Outcome {
		return frames(0x0800, ipv4(driver.GuestIPv4, plan.Denied.V4, unix.IPPROTO_TCP, 0, tcp(driver.GuestIPv4, plan.Denied.V4, 33333, 443, 2, []byte(a.mark))))
	},
	"frame-tcp-no-handshake": func(a *attempt) plan.Outcome {
		var all [][]byte
		for _, to := range []string{plan.Denied.V4, plan.Allowed.V4} {
			for _, flags := range []byte{0x10, 0x18, 0x11, 0x04, 0x29, 0x00, 0x3f} { // ACK, PSH, FIN, RST, Xmas, none, all
				all = append(all, ipv4(driver.GuestIPv4, to, unix.IPPROTO_TCP, 0, tcp(driver.GuestIPv4, to, 33334, 443, flags, []byte(a.mark))))
			}
		}
		return frames(0x0800, all...)
	},
	"frame-fragments": func(a *attempt) plan.Outcome {
		return frames(0x0800, fragments(a.mark, plan.Denied.V4, false)...)
	},
	"frame-overlapping-fragments": func(a *attempt) plan.Outcome {
		// The first piece has an allowed port, an overlapping one another port.
		return frames(0x0800, append(fragments(a.mark, plan.Denied.V4, true), fragments(a.mark, plan.Allowed.V4, true)...)...)
	},
	"frame-ether-types": func(a *attempt) plan.Outcome {
		var all []plan.Outcome
		for _, kind := range []uint16{0x0806, 0x8035, 0x8100, 0x88a8, 0x8847, 0x8863, 0x8864, 0x88b5, 0x88cc, 0x9000, 0x0004} {
			all = append(all, frames(kind, append(make([]byte, 32), a.mark...)))
		}
		tagged := append([]byte{0, 7, 8, 0}, ipv4(driver.GuestIPv4, plan.Denied.V4, unix.IPPROTO_UDP, 0, udp(driver.GuestIPv4, plan.Denied.V4, 1, 5000, []byte(a.mark)))...)
		return worst(append(all, frames(0x8100, tagged))...)
	},
	"frame-ipv6-extension-headers": func(a *attempt) plan.Outcome {
		u := udp(driver.GuestIPv6, plan.Denied.V6, 4000, 5004, []byte(a.mark))
		hop := append([]byte{unix.IPPROTO_UDP, 0, 1, 4, 0, 0, 0, 0}, u...)                     // hop-by-hop options
		fragment := append([]byte{unix.IPPROTO_UDP, 0, 0, 0, 0, 0, 0, 9}, u...)                // an atomic fragment
		to := netip.MustParseAddr(plan.Denied.V6).As16()                                       // by way of Allowed
		route := append(append([]byte{unix.IPPROTO_UDP, 2, 0, 1, 0, 0, 0, 0}, to[:]...), u...) // source routing
		options := append([]byte{unix.IPPROTO_UDP, 0, 0xc2, 4, 0xff, 0xff, 0xff, 0xff}, u...)  // a jumbogram that is none
		return frames(0x86dd, ipv6(plan.Denied.V6, 0, hop), ipv6(plan.Denied.V6, 44, fragment), ipv6(plan.Allowed.V6, 43, route),
			ipv6(plan.Denied.V6, 60, hop), ipv6(plan.Denied.V6, 0, options))
	},
	"source-route": func(a *attempt) plan.Outcome {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return saw(err)
		}
		defer unix.Close(fd)
		by := netip.MustParseAddr(plan.Allowed.V4).As4()
		route := append([]byte{1, 0x83, 7, 4}, by[:]...) // no-op, loose source route
		if err := unix.SetsockoptString(fd, unix.IPPROTO_IP, unix.IP_OPTIONS, string(route)); err != nil {
			return plan.Outcome{Saw: plan.Unable, Detail: err.Error()}
		}
		if err := unix.Sendto(fd, []byte(a.mark), 0, sockaddr(plan.Denied.V4, 5005)); err != nil {
			return saw(err)
		}
		return plan.Outcome{Saw: plan.Silent}
	},
	"tcp-fast-open":                 func(a *attempt) plan.Outcome { return fastOpen(plan.Denied.V4, []byte(a.mark)) },
	"tcp-fast-open-allowed-address": func(a *attempt) plan.Outcome { return fastOpen(plan.Allowed.V4, deniedHello(a.mark).bytes()) },
	"tcp-urgent": func(a *attempt) plan.Outcome {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return saw(err)
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, sockaddr(plan.Denied.V4, 443)); err != nil {
			return saw(err)
		}
		_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5})
		if err := unix.Send(fd, []byte(a.mark), 0); err != nil {
			return saw(err)
		}
		_ = unix.Send(fd, []byte("!"), unix.MSG_OOB)
		_, err = unix.Read(fd, make([]byte, 64))
		return saw(err)
	},
})

// fastOpen connects and sends in one call.
func fastOpen(to string, payload []byte) plan.Outcome {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return saw(err)
	}
	defer unix.Close(fd)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, 34 /* TCP_FASTOPEN_NO_COOKIE */, 1)
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5})
	if err := unix.Sendto(fd, payload, unix.MSG_FASTOPEN, sockaddr(to, 443)); err != nil {
		// For a kernel without fast open: the same in two calls.
		if err := unix.Connect(fd, sockaddr(to, 443)); err != nil && err != unix.EISCONN {
			return saw(err)
		}
		if err := unix.Send(fd, payload, 0); err != nil {
			return saw(err)
		}
	}
	if _, err = unix.Read(fd, make([]byte, 64)); err == unix.EAGAIN {
		return plan.Outcome{Saw: plan.Silent}
	}
	return saw(err)
}

// rawTo sends a payload in an IP protocol of its own.
func rawTo(kind, protocol int, to string, payload []byte) plan.Outcome {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return plan.Outcome{Saw: plan.Unable, Detail: err.Error()}
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, payload, 0, sockaddr(to, 0)); err != nil {
		return saw(err)
	}
	return plan.Outcome{Saw: plan.Silent}
}

// frames sends packets unchanged, past the sandbox's own stack.
func frames(etherType uint16, packets ...[]byte) plan.Outcome {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return plan.Outcome{Saw: plan.Unable, Detail: err.Error()}
	}
	defer unix.Close(fd)
	out := plan.Outcome{Saw: plan.Unable, Detail: "no interface"}
	for _, i := range links() {
		from, _ := net.ParseMAC(driver.GuestMAC)
		to, _ := net.ParseMAC(driver.GatewayMAC)
		for _, p := range packets {
			b := append(append(append([]byte{}, to...), from...), byte(etherType>>8), byte(etherType))
			err := unix.Sendto(fd, append(b, p...), 0, &unix.SockaddrLinklayer{Ifindex: i.Index, Halen: 6, Protocol: etherType>>8 | etherType<<8})
			if err != nil {
				out = saw(err)
				continue
			}
			out = plan.Outcome{Saw: plan.Silent}
		}
	}
	time.Sleep(100 * time.Millisecond) // nothing signals when the wire has judged them
	return out
}

// fragments returns a datagram to a denied port in two pieces; the second has the marker. overlap
// adds a piece that rewrites the beginning.
func fragments(mark, to string, overlap bool) [][]byte {
	u := udp(driver.GuestIPv4, to, 4000, 5006, append(make([]byte, 24), mark...))
	first, second := ipv4(driver.GuestIPv4, to, unix.IPPROTO_UDP, 0x2000, u[:24]), ipv4(driver.GuestIPv4, to, unix.IPPROTO_UDP, 3, u[24:])
	if !overlap {
		return [][]byte{second, first} // in the wrong order, too
	}
	rewritten := udp(driver.GuestIPv4, to, 4000, 7001, append(make([]byte, 24), mark...))
	return [][]byte{first, ipv4(driver.GuestIPv4, to, unix.IPPROTO_UDP, 0x2000, rewritten[:16]), second}
}

// ipv4 returns a packet; flags are the fragment field.
func ipv4(from, to string, protocol byte, flags uint16, payload []byte) []byte {
	h := make([]byte, 20)
	h[0], h[8], h[9] = 0x45, 64, protocol
	binary.BigEndian.PutUint16(h[2:], uint16(20+len(payload)))
	binary.BigEndian.PutUint16(h[4:], 0x4242)
	binary.BigEndian.PutUint16(h[6:], flags)
	src, dst := netip.MustParseAddr(from).As4(), netip.MustParseAddr(to).As4()
	copy(h[12:], src[:])
	copy(h[16:], dst[:])
	binary.BigEndian.PutUint16(h[10:], checksum(h))
	return append(h, payload...)
}

// ipv6 returns a packet from the sandbox.
func ipv6(to string, next byte, payload []byte) []byte {
	h := make([]byte, 40)
	h[0], h[6], h[7] = 0x60, next, 64
	binary.BigEndian.PutUint16(h[4:], uint16(len(payload)))
	src, dst := netip.MustParseAddr(driver.GuestIPv6).As16(), netip.MustParseAddr(to).As16()
	copy(h[8:], src[:])
	copy(h[24:], dst[:])
	return append(h, payload...)
}

func udp(from, to string, source, port uint16, payload []byte) []byte {
	u := make([]byte, 8, 8+len(payload))
	binary.BigEndian.PutUint16(u, source)
	binary.BigEndian.PutUint16(u[2:], port)
	binary.BigEndian.PutUint16(u[4:], uint16(8+len(payload)))
	u = append(u, payload...)
	binary.BigEndian.PutUint16(u[6:], checksum(append(pseudo(from, to, unix.IPPROTO_UDP, len(u)), u...)))
	return u
}

func tcp(from, to string, source, port uint16, flags byte, payload []byte) []byte {
	s := make([]byte, 20, 20+len(payload))
	binary.BigEndian.PutUint16(s, source)
	binary.BigEndian.PutUint16(s[2:], port)
	binary.BigEndian.PutUint32(s[4:], 1000)
	s[12], s[13] = 5<<4, flags
	binary.BigEndian.PutUint16(s[14:], 65535)
	s = append(s, payload...)
	binary.BigEndian.PutUint16(s[16:], checksum(append(pseudo(from, to, unix.IPPROTO_TCP, len(s)), s...)))
	return s
}

// pseudo returns the header that checksums of UDP and TCP also cover.
func pseudo(from, to string, protocol byte, n int) []byte {
	src, dst := netip.MustParseAddr(from).AsSlice(), netip.MustParseAddr(to).AsSlice()
	return append(append(append([]byte{}, src...), dst...), 0, protocol, byte(n>>8), byte(n))
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
