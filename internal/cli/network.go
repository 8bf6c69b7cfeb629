package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// networkFlags are the command line's flags for a sandbox's network.
type networkFlags struct {
	policy      string
	allow, deny []string
	internet    bool
	private     bool
	proxy       string
}

func (n *networkFlags) add(c *cobra.Command) {
	f := c.Flags()
	n.addRules(f)
	f.BoolVar(&n.private, "private-traffic", false, "demand the sandbox's traffic token on requests to its ports")
	f.StringVar(&n.proxy, "egress-proxy", "", "send its TCP through a SOCKS5 proxy: [USER:PASSWORD@]HOST:PORT")
}

// addRules adds the flags for outgoing traffic.
func (n *networkFlags) addRules(f *pflag.FlagSet) {
	f.StringVar(&n.policy, "policy", "", "what may leave: a policy file, or the name of a preset (see carrel policy)")
	f.StringArrayVar(&n.allow, "allow", nil, "let it reach DEST: example.com, *.example.com, an address or CIDR, tcp://HOST:PORT (repeat)")
	f.StringArrayVar(&n.deny, "deny", nil, "never let it reach DEST, whatever is allowed (repeat)")
	f.BoolVar(&n.internet, "internet", false, "let it reach the internet (never this host or private networks)")
}

// network turns the flags into a carrel.Network. said reports whether any was given.
func (n *networkFlags) network() (net carrel.Network, said bool, err error) {
	net = carrel.Network{Internet: n.internet, PrivateTraffic: n.private}
	said = n.policy != "" || len(n.allow) > 0 || len(n.deny) > 0 || n.internet || n.private || n.proxy != ""
	if n.proxy != "" {
		net.EgressProxy = egressProxy(n.proxy)
	}
	if n.policy == "" && len(n.allow) == 0 && len(n.deny) == 0 {
		return net, said, nil
	}
	var p carrel.Policy
	if n.policy != "" {
		if p, err = loadPolicy(n.policy); err != nil {
			return net, said, err
		}
	}
	if n.internet {
		p.Default = "allow"
	}
	// Rules from flags are judged before the file's rules, denials first.
	var rules []carrel.Rule
	for _, list := range []struct {
		flag string
		dest []string
	}{{"--deny", n.deny}, {"--allow", n.allow}} {
		for _, d := range list.dest {
			r, err := destination(list.flag, d)
			if err != nil {
				return net, said, err
			}
			rules = append(rules, r)
		}
	}
	p.Rules = append(rules, p.Rules...)
	net.Internet, net.Policy = false, &p
	return net, said, nil
}

// loadPolicy reads a policy by its name: deny, allow, presets, or a file.
func loadPolicy(ref string) (carrel.Policy, error) {
	if err := housePresets(); err != nil {
		return carrel.Policy{}, err
	}
	return policy.Load(ref)
}

// housePresets adds the operator's own presets. The environment names them, as it does for the
// daemon.
func housePresets() error {
	if file := os.Getenv("CARREL_PRESETS"); file != "" {
		return policy.AddPresets(file)
	}
	return nil
}

// destination reads [PROTOCOL://]HOST[:PORTS] into a rule.
func destination(flag, text string) (carrel.Rule, error) {
	r := carrel.Rule{Name: flag + " " + text}
	protocol, host, ok := strings.Cut(text, "://")
	if !ok {
		protocol, host = "", text
	}
	host, ports := splitPorts(host)
	if host == "" {
		return r, usage(fmt.Errorf("%s %q names no destination", flag, text))
	}
	r.Protocol = protocol
	if ports != "" {
		r.Ports = []string{ports}
	}
	if flag == "--deny" {
		r.Deny = []string{host}
	} else {
		r.Allow = []string{host}
	}
	return r, nil
}

// splitPorts splits the ports off a destination. IPv6 addresses need brackets only with ports.
func splitPorts(host string) (string, string) {
	if inner, rest, ok := strings.Cut(strings.TrimPrefix(host, "["), "]"); ok && strings.HasPrefix(host, "[") {
		return inner, strings.TrimPrefix(rest, ":")
	}
	if strings.Count(host, ":") == 1 {
		h, p, _ := strings.Cut(host, ":")
		return h, p
	}
	return host, ""
}

// egressProxy reads [USER:PASSWORD@]HOST:PORT.
func egressProxy(text string) *carrel.EgressProxy {
	p := &carrel.EgressProxy{Address: text}
	if at := strings.LastIndexByte(text, '@'); at >= 0 {
		p.Address = text[at+1:]
		p.Username, p.Password, _ = strings.Cut(text[:at], ":")
	}
	return p
}

// tokenSpecs reads NAME=AUDIENCE pairs.
func tokenSpecs(pairs []string) (map[string]carrel.TokenSpec, error) {
	named, err := keyValues("--token", pairs)
	if err != nil || len(named) == 0 {
		return nil, err
	}
	out := make(map[string]carrel.TokenSpec, len(named))
	for name, audience := range named {
		out[name] = carrel.TokenSpec{Audience: audience}
	}
	return out, nil
}

// networkCommand is "carrel network".
func (a *app) networkCommand() *cobra.Command {
	var n networkFlags
	c := &cobra.Command{
		Use:   "network ID [flags]",
		Short: "Show or replace what may leave a running sandbox",
		Long: `Without flags it shows a sandbox's network rules. With flags it replaces all of them, at
once: open connections that the new rules forbid are cut. --deny '*' closes everything.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			net, said, err := n.network()
			if err != nil {
				return err
			}
			return a.withService(c.Context(), func(svc carrel.Service) error {
				id, err := carrel.ParseID(args[0])
				if err != nil {
					return err
				}
				var sb carrel.Sandbox
				if said {
					sb, err = svc.SetNetwork(c.Context(), id, net)
				} else {
					sb, err = svc.Get(c.Context(), id)
				}
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(sb.Network)
				}
				for _, line := range policy.Describe(sb.Network) {
					fmt.Fprintln(a.out, printable(line))
				}
				return nil
			})
		},
	}
	n.add(c)
	return c
}

// networkText describes outgoing traffic in a few words.
func networkText(n carrel.Network) string {
	text := "nothing may leave"
	switch {
	case n.Policy != nil:
		text = fmt.Sprintf("by policy: %d rules, %d presets, default %s", len(n.Policy.Rules), len(n.Policy.Presets), first(n.Policy.Default, "deny"))
	case len(n.AllowOut) > 0:
		text = fmt.Sprintf("%d destinations, else %s", len(n.AllowOut), map[bool]string{true: "the internet", false: "nothing"}[n.Internet])
	case n.Internet:
		text = "the internet"
	}
	if n.EgressProxy != nil {
		text += ", through " + n.EgressProxy.Address
	}
	return text
}
