package api

import (
	"errors"
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
	DNSServers          []string                        `json:"dnsServers"`
	AllowInternetAccess *bool                           `json:"allow_internet_access"` // update only
}

// allTraffic is E2B's name for everything.
const allTraffic = "0.0.0.0/0"

// network converts E2B's network fields. The service checks them. Without any fields, E2B's meaning
// is that the internet is allowed.
//
// Allowed destinations win over denied ones. To block all traffic also turns the plain switch off,
// so that IPv6 and names are blocked too.
func (n *networkBody) network(allowInternet *bool) (carrel.Network, error) {
	out := carrel.Network{Internet: allowInternet == nil || *allowInternet}
	if n == nil {
		return out, nil
	}
	if n.MaskRequestHost != nil {
		if out.MaskHost = *n.MaskRequestHost; out.MaskHost == "" { // which in our words is none
			return out, invalid("network.maskRequestHost", "mask request host is not valid: it is empty")
		}
	}
	for _, p := range n.HTTPSPorts {
		if int32(uint16(p)) != p { // our words have no such port
			return out, invalid("network.httpsPorts", "%d can't be a port that speaks TLS", p)
		}
		if !slices.Contains(out.HTTPSPorts, uint16(p)) {
			out.HTTPSPorts = append(out.HTTPSPorts, uint16(p))
		}
	}
	servers, err := n.dnsServers()
	if err != nil {
		return out, err
	}
	n.AllowOut = slices.Concat(n.AllowOut, servers)
	out.AllowOut, out.DenyOut, out.Rules, out.EgressProxy = n.AllowOut, n.DenyOut, n.Rules, n.EgressProxy
	out.PrivateTraffic = n.AllowPublicTraffic != nil && !*n.AllowPublicTraffic
	if slices.Contains(n.DenyOut, allTraffic) {
		out.Internet = false
	}
	return out, nil
}

// dnsServers checks the servers that are to be reachable where names are allowed, and returns them
// if they are. The sandbox's own resolver is the daemon, which needs none of them.
func (n *networkBody) dnsServers() ([]string, error) {
	const most = 10
	if len(n.DNSServers) > most {
		return nil, invalid("network.dnsServers", "%d are more than %d", len(n.DNSServers), most)
	}
	for _, text := range n.DNSServers {
		if a, err := netip.ParseAddr(text); err != nil || !a.Is4() {
			return nil, invalid("network.dnsServers", "%q is not an IPv4 address", clip(text))
		}
	}
	named := slices.ContainsFunc(n.AllowOut, func(text string) bool {
		_, aerr := netip.ParseAddr(text)
		_, perr := netip.ParsePrefix(text)
		return aerr != nil && perr != nil
	})
	if !named {
		return nil, nil
	}
	return n.DNSServers, nil
}

// networkError converts an error about network rules to E2B's words. Its field has the name in
// E2B's requests, and one of E2B's own texts stands alone. Other errors stay unchanged.
func networkError(err error) error {
	ce, ok := errors.AsType[*carrel.Error](err)
	if !ok || ce.Kind != carrel.Invalid || ce.Err == nil {
		return err
	}
	root := ce.Field
	if i := strings.IndexAny(root, ".["); i >= 0 {
		root = root[:i]
	}
	switch root {
	case "allowOut", "denyOut", "maskHost":
		if root == "maskHost" {
			root = "maskRequestHost"
		}
		p := tell(carrel.Invalid, "%v", ce.Err)
		p.body.Field, p.body.Hint = "network."+root, ce.Hint
		return p
	case "rules", "egressProxy", "httpsPorts":
		renamed := *ce
		renamed.Field = "network." + ce.Field
		return &renamed
	}
	return err
}

// network replaces the egress rules of a running sandbox. Missing fields are cleared.
func (s *Server) network(w http.ResponseWriter, r *http.Request) error {
	sb, err := s.find(r)
	if err != nil {
		return err
	}
	var body networkBody
	if err := decode(w, r, &body, true); err != nil {
		return err
	}
	want, err := body.network(body.AllowInternetAccess)
	if err != nil {
		return err
	}
	// An update changes only the egress rules.
	want.PrivateTraffic, want.MaskHost, want.HTTPSPorts = sb.Network.PrivateTraffic, sb.Network.MaskHost, sb.Network.HTTPSPorts
	if _, err := s.opts.Service.SetNetwork(r.Context(), sb.ID, want); err != nil {
		return networkError(notFoundAs(sb.ID, err))
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// networkOurs replaces all network rules of a running sandbox, in E2B's form or ours.
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
