package escape

import (
	"maps"
	"slices"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/test/escape/plan"
)

// allowAll lets out everything that a policy can let out.
func allowAll() carrel.Network {
	return carrel.Network{Policy: &carrel.Policy{Default: "allow", ECH: "allow"}}
}

// internet is E2B's simple switch.
func internet() carrel.Network { return carrel.Network{Internet: true} }

// denyAll lets nothing out.
func denyAll() carrel.Network { return carrel.Network{} }

// allowList allows the destinations of the controls, and the misleading names. With inspect, TLS is
// opened.
func allowList(inspect bool) carrel.Network {
	names := append(slices.Sorted(maps.Keys(plan.Rebound)), plan.Allowed.Name, plan.Quiet.Name, plan.Flip, "*."+plan.Wild)
	return carrel.Network{Policy: &carrel.Policy{Rules: []carrel.Rule{
		{Name: "names", Allow: names, Ports: []string{"80", "443"}, Inspect: inspect},
		{Name: "echo", Allow: []string{plan.Echo.V4}, Ports: []string{"7000"}, Protocol: "tcp"},
		{Name: "echo packets", Allow: []string{plan.Echo.V4}, Ports: []string{"7001"}, Protocol: "udp"},
	}}}
}
