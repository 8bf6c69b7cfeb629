package gvisor

import (
	"fmt"
	"net"
	"os"

	"gvisor.dev/gvisor/runsc/boot"

	"github.com/carrel-dev/carrel/internal/driver"
)

// networkArgs describes the guest's end of the link to the sentry. It includes the gateway's
// hardware address, so that no packet waits for a resolution.
func networkArgs(guest *os.File, mtu int) (*boot.CreateLinksAndRoutesArgs, error) {
	mac, err := net.ParseMAC(driver.GuestMAC)
	if err != nil {
		return nil, fmt.Errorf("guest MAC: %w", err)
	}
	gatewayMAC, err := net.ParseMAC(driver.GatewayMAC)
	if err != nil {
		return nil, fmt.Errorf("gateway MAC: %w", err)
	}
	addr4, gw4 := net.ParseIP(driver.GuestIPv4).To4(), net.ParseIP(driver.GatewayIPv4).To4()
	addr6, gw6 := net.ParseIP(driver.GuestIPv6), net.ParseIP(driver.GatewayIPv6)
	net4 := net.IPNet{IP: addr4.Mask(net.CIDRMask(driver.PrefixIPv4, 32)), Mask: net.CIDRMask(driver.PrefixIPv4, 32)}
	net6 := net.IPNet{IP: addr6.Mask(net.CIDRMask(driver.PrefixIPv6, 128)), Mask: net.CIDRMask(driver.PrefixIPv6, 128)}
	args := &boot.CreateLinksAndRoutesArgs{
		LoopbackLinks: []boot.LoopbackLink{boot.DefaultLoopbackLink},
		FDBasedLinks: []boot.FDBasedLink{{
			Name: "eth0", InterfaceIndex: 2, MTU: mtu,
			LinkAddress: mac,
			Addresses: []boot.IPWithPrefix{
				{Address: addr4, PrefixLen: driver.PrefixIPv4},
				{Address: addr6, PrefixLen: driver.PrefixIPv6},
			},
			Routes: []boot.Route{{Destination: net4}, {Destination: net6}},
			Neighbors: []boot.Neighbor{
				{IP: gw4, HardwareAddr: gatewayMAC},
				{IP: gw6, HardwareAddr: gatewayMAC},
			},
			NumChannels: 1,
			IsPacket:    []bool{false},
			// The socket is no packet socket of a real interface, so the sentry must not configure
			// it.
			PreConfigured: true,
			// Frames come from memory of the same machine, so their checksums need no check.
			RXChecksumOffload: true,
		}},
		Defaultv4Gateway: boot.DefaultRoute{Name: "eth0", Route: boot.Route{
			Destination: net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, Gateway: gw4,
		}},
		Defaultv6Gateway: boot.DefaultRoute{Name: "eth0", Route: boot.Route{
			Destination: net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}, Gateway: gw6,
		}},
	}
	args.FilePayload.Files = []*os.File{guest}
	return args, nil
}
