package api

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel"
)

// networkBody is E2B's SandboxNetworkConfig and SandboxNetworkUpdateConfig.
type networkBody struct {
	AllowOut            []string                        `json:"allowOut"`
	DenyOut             []string                        `json:"denyOut"`
	AllowPublicTraffic  *bool                           `json:"allowPublicTraffic"`
	MaskRequestHost     *string                         `json:"maskRequestHost"`
	EgressProxy         *carrel.EgressProxy             `json:"egressProxy"`
	Rules               map[string][]carrel.NetworkRule `json:"rules"`
	HTTPSPorts          []int32                         `json:"httpsPorts"`
	AllowInternetAccess *bool                           `json:"allow_internet_access"` // update only
}

// allTraffic is E2B's name for everything.
const allTraffic = "0.0.0.0/0"

// policy checks E2B's network fields and puts them into our words. When nothing
// is said, E2B's meaning is that the internet may be reached.
//
// What is allowed beats what is denied. Blocking all traffic also turns the plain
// switch off, so that IPv6 and names are meant too.
func (n *networkBody) policy(allowInternet *bool) (carrel.Network, error) {
	out := carrel.Network{Internet: allowInternet == nil || *allowInternet}
	if n == nil {
		return out, nil
	}
	if err := checkRules(n.AllowOut, n.DenyOut); err != nil {
		return out, err
	}
	if n.MaskRequestHost != nil {
		if err := checkMask(*n.MaskRequestHost); err != nil {
			return out, err
		}
		out.MaskHost = *n.MaskRequestHost
	}
	var err error
	if out.HTTPSPorts, err = checkPorts(n.HTTPSPorts); err != nil {
		return out, err
	}
	out.AllowOut, out.DenyOut, out.Rules, out.EgressProxy = n.AllowOut, n.DenyOut, n.Rules, n.EgressProxy
	out.PrivateTraffic = n.AllowPublicTraffic != nil && !*n.AllowPublicTraffic
	if slices.Contains(n.DenyOut, allTraffic) {
		out.Internet = false
	}
	return out, nil
}

// checkRules checks the two lists as E2B does: what is denied are addresses or
// blocks, what is allowed may also be names, and names need everything else to be
// denied.
func checkRules(allowOut, denyOut []string) error {
	const most = 1000
	if len(allowOut) > most || len(denyOut) > most {
		return invalid("network", "more than %d rules", most)
	}
	for _, rule := range denyOut {
		if !isAddress(rule) {
			p := tell(carrel.Invalid, "invalid denied CIDR %s", clip(rule))
			p.body.Field = "network.denyOut"
			return p
		}
	}
	names := false
	for _, rule := range allowOut {
		switch {
		case isAddress(rule):
		case isDomain(rule):
			names = true
		default:
			p := tell(carrel.Invalid, "invalid allowed address %s", clip(rule))
			p.body.Field = "network.allowOut"
			return p
		}
	}
	if names && !slices.Contains(denyOut, allTraffic) {
		p := tell(carrel.Invalid, "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to block all other traffic.")
		p.body.Field = "network.denyOut"
		return p
	}
	return nil
}

// isAddress reports whether a rule is an IP address or a block of them.
func isAddress(rule string) bool {
	if _, err := netip.ParsePrefix(rule); err == nil {
		return true
	}
	a, err := netip.ParseAddr(rule)
	return err == nil && a.Zone() == "" && !a.IsUnspecified()
}

// isDomain reports whether a rule is a DNS name, "*", or a name below "*.".
func isDomain(rule string) bool {
	name := strings.TrimPrefix(rule, "*.")
	if rule == "*" {
		return true
	}
	if name == "" || len(name) > 253 || strings.Contains(name, "/") {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(strings.ToLower(label)) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}
	_, numeric := netip.ParseAddr(name)
	return numeric != nil && strings.Trim(name, "0123456789.") != ""
}

// checkMask checks a host with an optional port, which may be E2B's ${PORT}.
func checkMask(mask string) error {
	host := mask
	if h, _, err := net.SplitHostPort(mask); err == nil {
		host = h
	} else if strings.Contains(mask, ":") {
		return tell(carrel.Invalid, "mask request host is not valid: %s", clip(mask))
	}
	for _, c := range host {
		if c > 0x7e {
			return tell(carrel.Invalid, "mask request host '%s' is not ASCII. Please use ASCII characters only.", clip(host))
		}
	}
	if !isDomain(strings.ReplaceAll(host, "${PORT}", "0")) && !isAddress(host) {
		return tell(carrel.Invalid, "mask request host is not valid: %s", clip(mask))
	}
	return nil
}

// checkPorts checks the ports whose servers speak TLS.
func checkPorts(given []int32) ([]uint16, error) {
	var ports []uint16
	for _, p := range given {
		if p < 1 || p > 65535 || p == int32(carrel.GuestPort) {
			return nil, invalid("network.httpsPorts", "%d can't be a port that speaks TLS", p)
		}
		if !slices.Contains(ports, uint16(p)) {
			ports = append(ports, uint16(p))
		}
	}
	return ports, nil
}

// network replaces the egress rules of a running sandbox; what is left out is
// cleared.
func (s *Server) network(w http.ResponseWriter, r *http.Request) error {
	sb, err := s.find(r)
	if err != nil {
		return err
	}
	var body networkBody
	if err := decode(w, r, &body, true); err != nil {
		return err
	}
	want, err := body.policy(body.AllowInternetAccess)
	if err != nil {
		return err
	}
	// An update is about egress only.
	want.PrivateTraffic, want.MaskHost, want.HTTPSPorts = sb.Network.PrivateTraffic, sb.Network.MaskHost, sb.Network.HTTPSPorts
	if _, err := s.opts.Service.SetNetwork(r.Context(), sb.ID, want); err != nil {
		return notFoundAs(sb.ID, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// networkOurs replaces all network rules of a running sandbox, in either form.
func (s *Server) networkOurs(w http.ResponseWriter, r *http.Request) error {
	sb, err := s.find(r)
	if err != nil {
		return err
	}
	var n carrel.Network
	if err := decodeStrict(w, r, &n, false); err != nil {
		return err
	}
	if sb, err = s.opts.Service.SetNetwork(r.Context(), sb.ID, n); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, sb)
	return nil
}
