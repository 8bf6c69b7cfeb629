package gateway

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel"
)

// The headers of E2B's routing.
const (
	headerID      = "E2b-Sandbox-Id"
	headerPort    = "E2b-Sandbox-Port"
	headerTraffic = "E2b-Traffic-Access-Token"
)

// Target is a port of a sandbox.
type Target struct {
	ID   carrel.ID
	Port uint16
}

// routeError is the error for a request that names a sandbox in a wrong way: a 400.
type routeError struct {
	ID      string // as given, for the answer
	Message string
}

func (e *routeError) Error() string { return e.Message }

// Route reads the sandbox and its port from the host and the headers. ok is false for a request to
// the control plane. An error is of kind Invalid and has E2B's text.
func Route(host string, h http.Header) (t Target, ok bool, err error) {
	id, port, ok := splitHost(host)
	if !ok {
		if len(h.Values(headerID)) > 1 || len(h.Values(headerPort)) > 1 {
			return Target{}, true, invalid("", "more than one sandbox is named")
		}
		id, port = h.Get(headerID), h.Get(headerPort)
		switch {
		case id == "" && port == "":
			return Target{}, false, nil
		case id == "":
			return Target{}, true, invalid("", "missing header: "+headerID)
		case port == "":
			port = strconv.Itoa(int(carrel.GuestPort))
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return Target{}, true, invalid(id, "Invalid sandbox port")
	}
	parsed, err := carrel.ParseID(id)
	if err != nil {
		return Target{}, true, invalid(id, "Invalid sandbox ID")
	}
	return Target{ID: parsed, Port: uint16(n)}, true, nil
}

func invalid(id, message string) error {
	const most = 64
	if len(id) > most {
		id = id[:most]
	}
	return &carrel.Error{Op: "route request", Kind: carrel.Invalid, Err: &routeError{ID: id, Message: message}}
}

// splitHost splits <port>-<id>.<domain>, in any case and with an optional port of its own. ok says
// that the first label begins with digits and a hyphen. No other host name of ours does. The caller
// checks the parts.
func splitHost(host string) (id, port string, ok bool) {
	name := strings.ToLower((&url.URL{Host: host}).Hostname())
	label, domain, dotted := strings.Cut(name, ".")
	if !dotted || domain == "" {
		return "", "", false
	}
	port, id, hyphen := strings.Cut(label, "-")
	if !hyphen || port == "" || strings.Trim(port, "0123456789") != "" {
		return "", "", false
	}
	return id, port, true
}
