package tap

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/driver"
)

// queue is the number of frames that the device keeps while the daemon is busy.
const queue = 1000

// move puts the calling thread into a new network namespace, moves the device there, and configures
// both interfaces.
func move(f *os.File, c Config) error {
	before, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer before.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return os.NewSyscallError("unshare network", err)
	}
	// Use the thread's own directory, because other threads of this process are in another
	// namespace. If /proc is of another pid namespace, this directory does not exist.
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer ns.Close()
	link, err := before.LinkByName(Interface)
	if err != nil {
		return fmt.Errorf("find %s: %w", Interface, err)
	}
	if err := before.LinkSetNsFd(link, int(ns.Fd())); err != nil {
		return fmt.Errorf("move %s: %w", Interface, err)
	}
	return configure(c)
}

// Configure brings lo and eth0 up, with addresses, routes and neighbours, in the namespace of the
// calling thread. It is for a machine that has got its eth0 in another way than by Setup.
func Configure(mtu int) error { return configure(Config{MTU: mtu}) }

// configure brings lo and eth0 up, with addresses, routes and neighbours, in the
// namespace of the calling thread.
func configure(c Config) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	if err := h.LinkSetUp(lo); err != nil {
		return fmt.Errorf("lo up: %w", err)
	}
	link, err := h.LinkByName(Interface)
	if err != nil {
		return fmt.Errorf("find %s: %w", Interface, err)
	}
	mac, err := net.ParseMAC(driver.GuestMAC)
	if err != nil {
		return err
	}
	quiet()
	for _, step := range []struct {
		name string
		err  error
	}{
		{"hardware address", h.LinkSetHardwareAddr(link, mac)},
		{"MTU", h.LinkSetMTU(link, c.MTU)},
		{"queue", h.LinkSetTxQLen(link, queue)},
		{"up", h.LinkSetUp(link)},
	} {
		if step.err != nil {
			return fmt.Errorf("%s %s: %w", Interface, step.name, step.err)
		}
	}
	return addresses(h, link.Attrs().Index)
}

// quiet stops IPv6 from giving itself a link-local address and asking for routers: the only
// neighbour is already known. A kernel without IPv6 has no such files.
func quiet() {
	for name, value := range map[string]string{"addr_gen_mode": "1", "accept_ra": "0", "router_solicitations": "0"} {
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+Interface+"/"+name, []byte(value), 0)
	}
}

// addresses gives the interface its two addresses and makes the gateway the default route. It also
// sets the gateway's hardware address, so that no packet waits for a resolution. A kernel without
// IPv6 gets only IPv4.
func addresses(h *netlink.Handle, index int) error {
	gatewayMAC, err := net.ParseMAC(driver.GatewayMAC)
	if err != nil {
		return err
	}
	for _, n := range []struct {
		family         int
		guest, gateway string
		prefix, bits   int
		all            string
	}{
		{unix.AF_INET, driver.GuestIPv4, driver.GatewayIPv4, driver.PrefixIPv4, 32, "0.0.0.0/0"},
		{unix.AF_INET6, driver.GuestIPv6, driver.GatewayIPv6, driver.PrefixIPv6, 128, "::/0"},
	} {
		if n.family == unix.AF_INET6 && !haveIPv6() {
			continue
		}
		link := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index, Name: Interface}}
		// No duplicate address detection: it would keep the address unusable for a second, and no
		// other host is on the link.
		address := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(n.guest), Mask: net.CIDRMask(n.prefix, n.bits)}, Flags: unix.IFA_F_NODAD}
		if err := h.AddrAdd(link, address); err != nil {
			return fmt.Errorf("address %s: %w", n.guest, err)
		}
		neighbour := &netlink.Neigh{LinkIndex: index, Family: n.family, State: netlink.NUD_PERMANENT,
			IP: net.ParseIP(n.gateway), HardwareAddr: gatewayMAC}
		if err := h.NeighSet(neighbour); err != nil {
			return fmt.Errorf("neighbour %s: %w", n.gateway, err)
		}
		_, all, err := net.ParseCIDR(n.all)
		if err != nil {
			return err
		}
		if err := h.RouteAdd(&netlink.Route{LinkIndex: index, Dst: all, Gw: net.ParseIP(n.gateway)}); err != nil {
			return fmt.Errorf("route by %s: %w", n.gateway, err)
		}
	}
	return nil
}

// haveIPv6 reports whether this kernel supports IPv6.
func haveIPv6() bool {
	_, err := os.Stat("/proc/net/if_inet6")
	return !errors.Is(err, fs.ErrNotExist)
}
