package seatbelt

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/internal/settings"
)

// network writes the rules for the network. The loopback belongs to the machine, not to the box,
// and all its servers are there. So only named ports are open on it.
func (w *writer) network() {
	b := w.box
	w.comment("network")
	everything := b.Host || everywhere(b)
	switch {
	case everything:
		w.rule("allow", "network-outbound", `(remote ip "*:*")`)
		w.text.WriteString(resolving)
		if !b.Host {
			w.rule("deny", "network-outbound", `(remote ip "localhost:*")`)
		}
	case b.Closed:
	case w.options.Proxy != 0:
		w.rule("allow", "network-outbound", fmt.Sprintf(`(remote ip "localhost:%d")`, w.options.Proxy))
	default:
		w.fail(unsupported("--allow", "Seatbelt knows no host names: of a network it can close all, or nothing",
			"leave the network closed, or open it with --internet"))
	}
	if b.Bind {
		where := "localhost"
		if b.Host {
			where = "*"
		}
		w.rule("allow", "network-bind network-inbound", `(local ip "`+where+`:*")`)
	}
	for _, p := range b.Publish {
		w.publish(p)
	}
	w.sockets()
}

// resolving are the rules for looking up names and checking certificates.
const resolving = `(allow network-outbound
  (literal "/private/var/run/mDNSResponder"))
(allow mach-lookup
  (global-name "com.apple.networkd")
  (global-name "com.apple.ocspd")
  (global-name "com.apple.SystemConfiguration.configd")
  (global-name "com.apple.SystemConfiguration.DNSConfiguration")
  (global-name "com.apple.trustd.agent"))
`

// everywhere reports whether a box's policy allows every destination.
func everywhere(b *settings.Box) bool {
	return !b.Closed && b.Policy.Default == "allow" && len(b.Policy.Rules) == 0
}

// publish opens one port, [ADDRESS:]PORT[:INSIDE], for listening and for connections from inside.
func (w *writer) publish(text string) {
	where, port, err := published(text)
	if err != nil {
		w.fail(unsupported("--publish", err.Error(), "on macOS a box's ports are the machine's own: --publish PORT"))
		return
	}
	w.rule("allow", "network-bind network-inbound", fmt.Sprintf(`(local ip "%s:%d")`, where, port))
	w.rule("allow", "network-outbound", fmt.Sprintf(`(remote ip "localhost:%d")`, port))
}

// published reads a port to publish.
func published(text string) (where string, port uint16, err error) {
	address, ports := "", text
	if strings.HasPrefix(text, "[") { // [::1]:8080
		end := strings.IndexByte(text, ']')
		if end < 0 || !strings.HasPrefix(text[end:], "]:") {
			return "", 0, fmt.Errorf("%q is no port", text)
		}
		address, ports = text[1:end], text[end+2:]
	} else if first, more, ok := strings.Cut(text, ":"); ok && strings.Trim(first, "0123456789") != "" {
		address, ports = first, more
	}
	parts := strings.Split(ports, ":")
	n, err := strconv.ParseUint(parts[0], 10, 16)
	if err != nil || n == 0 || len(parts) > 2 {
		return "", 0, fmt.Errorf("%q is no port", text)
	}
	if len(parts) == 2 && parts[1] != parts[0] {
		return "", 0, fmt.Errorf("%s: a port can't have another number outside", text)
	}
	where = "localhost"
	if ip, err := netip.ParseAddr(address); address != "" && address != "localhost" && (err != nil || !ip.IsLoopback()) {
		where = "*" // the only other address that Seatbelt knows
	}
	return where, uint16(n), nil
}

// sockets writes the rules for Unix sockets.
func (w *writer) sockets() {
	t := w.options.Temp
	if t == "" && len(w.box.Sockets) == 0 {
		return
	}
	w.rule("allow", "system-socket", "(socket-domain AF_UNIX)")
	if slices.Contains(w.box.Sockets, "*") {
		w.rule("allow", "network-bind", "(local unix-socket)")
		w.rule("allow", "network-outbound", "(remote unix-socket)")
		return
	}
	for _, s := range w.box.Sockets {
		w.rule("allow", "network-outbound", w.literal(w.real(s)))
	}
	if t != "" {
		t = w.real(t)
		w.rule("allow", "network-bind", "(local unix-socket "+w.subpath(t)+")")
		w.rule("allow", "network-outbound", "(remote unix-socket "+w.subpath(t)+")")
	}
}
