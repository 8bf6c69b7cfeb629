package policy

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel"
)

// Checks for the parts of a network other than its rules: the proxy for TCP, and the way in which
// requests from outside reach the sandbox's servers.

// checkProxy checks a SOCKS5 proxy's address and credentials.
func checkProxy(e *carrel.EgressProxy) *fault {
	const at = "egressProxy"
	if e == nil {
		return nil
	}
	host, port, err := net.SplitHostPort(e.Address)
	if err != nil {
		return faultf(at+".address", "", "%s is not host:port", clip(e.Address))
	}
	if !isPort(port) {
		return faultf(at+".address", "", "%s has no port from 1 to 65535", clip(e.Address))
	}
	if _, err := netip.ParseAddr(host); err != nil {
		if _, err := parseName(host); err != nil {
			return faultf(at+".address", "", "%s", err)
		}
	}
	switch {
	case len(e.Username) > 255:
		return faultf(at+".username", "", "longer than 255 bytes")
	case len(e.Password) > 255:
		return faultf(at+".password", "", "longer than 255 bytes")
	case e.Password != "" && e.Username == "":
		return faultf(at+".password", "", "a password needs a username")
	}
	return nil
}

// maskPort is E2B's placeholder for the port of a request.
const maskPort = "${PORT}"

// checkMask checks a host, with or without a port. Host and port may each contain maskPort. ""
// means no host.
func checkMask(mask string) *fault {
	const at = "maskHost"
	if mask == "" {
		return nil
	}
	text := strings.ReplaceAll(mask, maskPort, "1")
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = text, ""
		if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
			host = text[1 : len(text)-1]
		}
	}
	if !isASCII(host) {
		return faultf(at, "", "mask request host '%s' is not ASCII. Please use ASCII characters only.", bare(host))
	}
	if !isHost(host) || port != "" && !isPort(port) {
		return faultf(at, "", "mask request host is not valid: %s", bare(mask))
	}
	return nil
}

// isHost reports whether a text is a valid name or address of a host.
func isHost(s string) bool {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Zone() == "" && !a.IsUnspecified()
	}
	_, err := parseName(s)
	return err == nil
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// checkHTTPSPorts checks the ports whose servers speak TLS. The guest's own port does not.
func checkHTTPSPorts(ports []uint16) *fault {
	for _, no := range []uint16{0, carrel.GuestPort} {
		if slices.Contains(ports, no) {
			return faultf("httpsPorts", "", "%d can't be a port that speaks TLS", no)
		}
	}
	return nil
}
