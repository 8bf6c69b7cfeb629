package main

import (
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/test/escape/plan"
)

// Plain TCP and UDP to addresses.
var _ = add(map[string]func(*attempt) plan.Outcome{
	"control-tcp": func(a *attempt) plan.Outcome { return stream(plan.Echo.V4, 7000, []byte(a.mark)) },
	"control-udp": func(a *attempt) plan.Outcome { return packet(plan.Echo.V4, 7001, []byte(a.mark)) },

	"tcp4": func(a *attempt) plan.Outcome { return stream(plan.Denied.V4, 443, []byte(a.mark)) },
	"tcp6": func(a *attempt) plan.Outcome { return stream(plan.Denied.V6, 443, []byte(a.mark)) },
	"tcp-any-port": func(a *attempt) plan.Outcome {
		return each([]int{1, 21, 22, 25, 80, 443, 465, 587, 853, 993, 3128, 5432, 6379, 8080, 9001, 65535}, func(port int) plan.Outcome {
			return stream(plan.Denied.V4, port, []byte(a.mark))
		})
	},
	"tcp-allowed-address-other-port": func(a *attempt) plan.Outcome { return stream(plan.Allowed.V4, 8443, []byte(a.mark)) },
	"tcp-echo-other-port":            func(a *attempt) plan.Outcome { return stream(plan.Echo.V4, 7001, []byte(a.mark)) },
	"udp4":                           func(a *attempt) plan.Outcome { return packet(plan.Denied.V4, 5000, []byte(a.mark)) },
	"udp6":                           func(a *attempt) plan.Outcome { return packet(plan.Denied.V6, 5000, []byte(a.mark)) },
	"udp-allowed-address":            func(a *attempt) plan.Outcome { return packet(plan.Allowed.V4, 80, []byte(a.mark)) },
	"udp-unconnected":                sendFromOneSocket,
	"udp-jumbo": func(a *attempt) plan.Outcome {
		return packet(plan.Denied.V4, 5001, append(make([]byte, 50_000), a.mark...))
	},
	"udp-empty-then-data":  func(a *attempt) plan.Outcome { return packet(plan.Denied.V4, 5002, nil, []byte(a.mark)) },
	"quic4":                func(a *attempt) plan.Outcome { return packet(plan.Denied.V4, 443, quic(a.mark)) },
	"quic-allowed-address": func(a *attempt) plan.Outcome { return packet(plan.Allowed.V4, 443, quic(a.mark)) },
	"disguised6": func(a *attempt) plan.Outcome {
		return each(plan.Disguised, func(to string) plan.Outcome {
			return worst(stream(to, 443, []byte(a.mark)), packet(to, 443, []byte(a.mark)))
		})
	},
	"tunnel-protocols": func(a *attempt) plan.Outcome {
		return each([]int{500, 1194, 1701, 3478, 4500, 4789, 6081, 51820}, func(port int) plan.Outcome {
			return packet(plan.Denied.V4, port, []byte(a.mark))
		})
	},

	"unreachable-addresses": func(a *attempt) plan.Outcome {
		return each(plan.Unreachable, func(to string) plan.Outcome {
			return each([]int{80, 443, 5000}, func(port int) plan.Outcome {
				return stream(to, port, []byte("GET /"+a.mark+" HTTP/1.1\r\nHost: "+plan.Allowed.Name+"\r\n\r\n"))
			})
		})
	},
	"unreachable-udp": func(a *attempt) plan.Outcome {
		return each(plan.Unreachable, func(to string) plan.Outcome { return packet(to, 5000, []byte(a.mark)) })
	},
	"link-local": func(a *attempt) plan.Outcome {
		all := []plan.Outcome{stream("169.254.1.1", 80, []byte(a.mark)), packet("169.254.1.1", 80, []byte(a.mark))}
		for _, i := range links() {
			all = append(all, stream("fe80::1%"+i.Name, 80, []byte(a.mark)), packet("fe80::1%"+i.Name, 80, []byte(a.mark)))
		}
		return worst(all...)
	},
	"multicast": func(a *attempt) plan.Outcome {
		to := []string{"224.0.0.1", "224.0.0.251", "239.255.255.250"}
		for _, i := range links() {
			to = append(to, "ff02::1%"+i.Name, "ff02::fb%"+i.Name, "ff0e::7%"+i.Name)
		}
		return each(to, func(to string) plan.Outcome { return shout(to, 1900, []byte(a.mark)) })
	},
	"mdns": func(a *attempt) plan.Outcome {
		return shout("224.0.0.251", 5353, []byte(a.mark))
	},
	"broadcast": func(a *attempt) plan.Outcome {
		return each([]string{"255.255.255.255", "10.73.0.3"}, func(to string) plan.Outcome {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return saw(err)
			}
			defer unix.Close(fd)
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1)
			if err := unix.Sendto(fd, []byte(a.mark), 0, sockaddr(to, 5000)); err != nil {
				return saw(err)
			}
			return plan.Outcome{Saw: plan.Silent}
		})
	},
	"gateway-ports": func(a *attempt) plan.Outcome {
		var ports []int
		for p := 1; p <= 1100; p++ {
			if p != 53 {
				ports = append(ports, p)
			}
		}
		ports = append(ports, 2375, 3000, 3306, 5432, 6379, 8000, 8080, 8443, 9000, 9090, 10250, 49981, 49983, 49999, 65535)
		return worst(each([]string{driver.GatewayIPv4, driver.GatewayIPv6}, func(gw string) plan.Outcome {
			var all []plan.Outcome
			for _, p := range ports {
				all = append(all, stream(gw, p, []byte(a.mark)))
			}
			return worst(all...)
		}), shout(driver.GatewayIPv4, 67, []byte(a.mark)), shout(driver.GatewayIPv4, 5353, []byte(a.mark)))
	},
	"host-addresses": func(a *attempt) plan.Outcome { return hostly(a, a.plan.Host) },
	"daemon-doors":   func(a *attempt) plan.Outcome { return hostly(a, a.plan.Doors) },
	"metadata-service": func(a *attempt) plan.Outcome {
		// Port 80 of the first is the sandbox's own identity service. It answers, but sends nothing
		// outside.
		request := []byte("GET /latest/meta-data/" + a.mark + " HTTP/1.1\r\nHost: 169.254.169.254\r\nMetadata-Flavor: Google\r\nX-aws-ec2-metadata-token: x\r\n\r\n")
		return each([]string{"169.254.169.254", "169.254.170.2", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"},
			func(to string) plan.Outcome {
				return worst(stream(to, 80, request), stream(to, 443, request), stream(to, 8080, request))
			})
	},
	"neighbours": func(a *attempt) plan.Outcome {
		if a.plan.Neighbour == 0 {
			return plan.Outcome{Saw: plan.Unable, Detail: "there is none"}
		}
		to := []string{driver.GuestIPv4, driver.GuestIPv6, "10.73.0.3", "10.73.0.5", "10.73.0.6", driver.GatewayIPv4, driver.GatewayIPv6}
		return each(to, func(to string) plan.Outcome {
			return streamWithin(3*time.Second, to, a.plan.Neighbour, []byte("GET /"+a.mark+" HTTP/1.1\r\nHost: x\r\n\r\n"))
		})
	},
	"mptcp": func(a *attempt) plan.Outcome { return socketTo(a, unix.SOCK_STREAM, 262) },
	"sctp-dccp-udplite": func(a *attempt) plan.Outcome {
		return worst(socketTo(a, unix.SOCK_STREAM, unix.IPPROTO_SCTP), socketTo(a, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE),
			socketTo(a, unix.SOCK_DCCP, unix.IPPROTO_DCCP))
	},
})

// hostly tries the host's addresses, and the host's ports at all addresses that might mean the
// host.
func hostly(a *attempt, list []string) plan.Outcome {
	if len(list) == 0 {
		return plan.Outcome{Saw: plan.Unable, Detail: "none known"}
	}
	return each(list, func(to string) plan.Outcome {
		ap, err := netip.ParseAddrPort(to)
		if err != nil {
			return plan.Outcome{Saw: plan.Failed, Detail: err.Error()}
		}
		others := []string{ap.Addr().String(), "127.0.0.1", "::1", "0.0.0.0", driver.GatewayIPv4, driver.GatewayIPv6, "::ffff:127.0.0.1", "127.1.1.1", "2002:7f00:1::1", "64:ff9b::7f00:1"}
		if v4 := ap.Addr(); v4.Is4() {
			b := v4.As4()
			others = append(others, netip.AddrFrom16([16]byte{0x20, 0x02, b[0], b[1], b[2], b[3], 15: 1}).String(),
				netip.AddrFrom16([16]byte{1: 0x64, 2: 0xff, 3: 0x9b, 12: b[0], 13: b[1], 14: b[2], 15: b[3]}).String())
		}
		return each(others, func(h string) plan.Outcome {
			return worst(stream(h, int(ap.Port()), []byte("GET /"+a.mark+" HTTP/1.1\r\nHost: "+h+"\r\n\r\n")), packet(h, int(ap.Port()), []byte(a.mark)))
		})
	})
}

// sendFromOneSocket sends to an allowed destination and then, from the same port, to a denied one.
func sendFromOneSocket(a *attempt) plan.Outcome {
	c, err := net.ListenUDP("udp4", nil)
	if err != nil {
		return saw(err)
	}
	defer c.Close()
	send := func(to string, port int, text string) error {
		_, err := c.WriteToUDPAddrPort([]byte(text), netip.AddrPortFrom(netip.MustParseAddr(to), uint16(port)))
		return err
	}
	if err := send(plan.Echo.V4, 7001, "hello"); err != nil {
		return saw(err)
	}
	for range 3 {
		if err := send(plan.Denied.V4, 7001, a.mark); err != nil {
			return saw(err)
		}
	}
	return plan.Outcome{Saw: plan.Silent}
}

// quic returns a packet that looks like a QUIC client's first one.
func quic(mark string) []byte {
	b := []byte{0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x44, 0xb0}
	b = append(b, mark...)
	return append(b, make([]byte, 1200-len(b))...)
}

// socketTo sends the marker to Denied with a socket of any kind.
func socketTo(a *attempt, kind, protocol int) plan.Outcome {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return plan.Outcome{Saw: plan.Unable, Detail: err.Error()}
	}
	defer unix.Close(fd)
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 3})
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 3})
	if err := unix.Connect(fd, sockaddr(plan.Denied.V4, 443)); err != nil {
		return saw(err)
	}
	if _, err := unix.Write(fd, []byte(a.mark)); err != nil {
		return saw(err)
	}
	_, err = unix.Read(fd, make([]byte, 16))
	if err == syscall.EAGAIN {
		return plan.Outcome{Saw: plan.Silent}
	}
	return saw(err)
}

func sockaddr(to string, port int) unix.Sockaddr {
	ip := netip.MustParseAddr(to)
	if ip.Is4() {
		return &unix.SockaddrInet4{Port: port, Addr: ip.As4()}
	}
	return &unix.SockaddrInet6{Port: port, Addr: ip.As16()}
}

// links returns the interfaces that lead outside.
func links() []net.Interface {
	var out []net.Interface
	all, _ := net.Interfaces()
	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 {
			out = append(out, i)
		}
	}
	return out
}
