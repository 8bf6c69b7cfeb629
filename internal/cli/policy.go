package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/spf13/cobra"
)

// policyCommands are the commands about policies.
type policyCommands struct{ *app }

// policyCommand is "carrel policy …".
func (a policyCommands) policyCommand() *cobra.Command {
	c := &cobra.Command{Use: "policy", Short: "Read, check and try policies: what may leave a sandbox", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(a.policyTestCommand(), a.policyCheckCommand(), a.policyShowCommand(), a.policyLearnCommand(), a.policyPresetsCommand(), a.policySchemaCommand())
	return c
}

// policyTestCommand is "carrel policy test".
func (a policyCommands) policyTestCommand() *cobra.Command {
	var ref, sandbox, address string
	c := &cobra.Command{
		Use:   "test [--policy FILE|PRESET | --sandbox ID] 'METHOD URL'|'tcp HOST:PORT'|'udp HOST:PORT'|'tls HOST:PORT'|'dns NAME'",
		Short: "Say whether a policy lets something out, which rule decides and why",
		Long: "Say whether a policy lets something out, which rule decides and why. Nothing is connected to and no name is looked up. " +
			"The exit status is 0 for what is allowed and 4 for what is denied.",
		Example: "  carrel policy test --policy policy.yaml 'GET https://api.example.com/v1/x'\n" +
			"  carrel policy test --policy github,llm 'tcp 203.0.113.9:22'\n  carrel policy test --sandbox ID dns example.com",
		Args: cobra.RangeArgs(1, 2),
	}
	f := c.Flags()
	f.StringVar(&ref, "policy", "", "a policy file, presets (github,llm), deny or allow")
	f.StringVar(&sandbox, "sandbox", "", "the rules that this sandbox has now")
	f.StringVar(&address, "address", "", "judge as if the host had this address")
	c.RunE = func(c *cobra.Command, args []string) error {
		var at netip.Addr
		if address != "" {
			var err error
			if at, err = netip.ParseAddr(address); err != nil {
				return usage(fmt.Errorf("--address %s is no address", address))
			}
		}
		p, err := a.policyOf(c.Context(), ref, sandbox)
		if err != nil {
			return err
		}
		x, err := policy.Explain(p, strings.Join(args, " "), at)
		if err != nil {
			return err
		}
		return a.printExplanation(x)
	}
	return c
}

// policyOf returns the policy that the flags name.
func (a policyCommands) policyOf(ctx context.Context, ref, sandbox string) (*policy.Policy, error) {
	switch {
	case (ref == "") == (sandbox == ""):
		return nil, usage(errors.New("give --policy or --sandbox"))
	case ref != "":
		p, err := loadPolicy(ref)
		if err != nil {
			return nil, err
		}
		return policy.Compile(carrel.Network{Policy: &p})
	}
	n, err := a.networkOf(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	return policy.Compile(n)
}

// networkOf returns the network of a sandbox.
func (a policyCommands) networkOf(ctx context.Context, sandbox string) (n carrel.Network, err error) {
	id, err := carrel.ParseID(sandbox)
	if err != nil {
		return n, err
	}
	err = a.withService(ctx, func(svc carrel.Service) error {
		sb, err := svc.Get(ctx, id)
		n = sb.Network
		return err
	})
	return n, err
}

// printExplanation prints a verdict and the steps to it. A denial is an error, with its exit
// status.
func (a policyCommands) printExplanation(x policy.Explanation) error {
	if a.json {
		if err := a.printJSON(x); err != nil {
			return err
		}
		if !x.Allowed {
			a.code = exitCodes[carrel.Denied]
		}
		return nil
	}
	rows := make([][]string, 0, len(x.Steps))
	for _, s := range x.Steps {
		rows = append(rows, []string{s.Step, s.Verdict, s.Rule, s.What})
	}
	if err := a.table([]string{"STEP", "VERDICT", "RULE", "WHAT"}, rows); err != nil {
		return err
	}
	if x.Inject != "" {
		fmt.Fprintln(a.out, printable(x.Inject))
	}
	for _, n := range x.Notes {
		fmt.Fprintln(a.err, "note: "+printable(n))
	}
	if x.Asked {
		return &carrel.Error{Kind: carrel.Denied, Err: fmt.Errorf("held (%s): %s", x.Rule, x.Reason),
			Hint: "a person answers with: carrel inbox"}
	}
	if !x.Allowed {
		return &carrel.Error{Kind: carrel.Denied, Err: fmt.Errorf("denied (%s): %s", x.Rule, x.Reason), Hint: x.Hint}
	}
	fmt.Fprintf(a.out, "allowed (%s)\n", printable(x.Rule))
	return nil
}

// policyCheckCommand is "carrel policy check".
func (a policyCommands) policyCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "check FILE…",
		Short:   "Check policy files, and say what they mean",
		Example: "  carrel policy check policy.yaml\n  carrel policy check - < policy.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var first error
			for _, name := range args {
				if err := a.checkPolicy(name); err != nil {
					if first != nil {
						a.report(first)
					}
					first = err
				}
			}
			return first
		},
	}
}

// checkPolicy checks one file and prints its meaning.
func (a policyCommands) checkPolicy(name string) error {
	p, err := a.readPolicy(name)
	if err != nil {
		return err
	}
	ready, err := policy.Compile(carrel.Network{Policy: &p})
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(struct {
			File   string        `json:"file"`
			Policy carrel.Policy `json:"policy"`
			Words  []string      `json:"words"`
		}{name, p, ready.Words()})
	}
	return a.printWords(name+":", ready)
}

// readPolicy reads a file like Load; "-" is standard input.
func (a policyCommands) readPolicy(name string) (carrel.Policy, error) {
	if name != "-" {
		if _, err := os.Stat(name); err != nil {
			return carrel.Policy{}, &carrel.Error{Op: "read policy", Kind: carrel.NotFound, Err: err}
		}
		if !strings.ContainsRune(name, os.PathSeparator) {
			name = "./" + name // means the file, not a preset of that name
		}
		return loadPolicy(name)
	}
	const most = 1<<20 + 1 // more is refused
	data, err := io.ReadAll(io.LimitReader(a.in, most))
	if err != nil {
		return carrel.Policy{}, err
	}
	return policy.Parse("standard input", data)
}

// printWords prints the meaning of a policy.
func (a policyCommands) printWords(heading string, p *policy.Policy) error {
	fmt.Fprintln(a.out, printable(heading))
	for _, line := range p.Words() {
		fmt.Fprintln(a.out, "  "+printable(line))
	}
	return nil
}

// policyShowCommand is "carrel policy show".
func (a policyCommands) policyShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show the rules that a sandbox has now, in words; with --json as they were given", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			n, err := a.networkOf(c.Context(), args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(n)
			}
			for _, line := range policy.Describe(n) {
				fmt.Fprintln(a.out, printable(line))
			}
			return nil
		},
	}
}

// policyPresetsCommand is "carrel policy presets".
func (a policyCommands) policyPresetsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "presets [NAME]", Short: "List the lists of rules that have a name, or show one", Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := housePresets(); err != nil {
				return err
			}
			if len(args) > 0 {
				return a.showPreset(args[0])
			}
			if a.json {
				return a.printJSON(policy.Presets())
			}
			var rows [][]string
			for _, p := range policy.Presets() {
				rows = append(rows, []string{p.Name, p.Description})
			}
			return a.table([]string{"NAME", "WHAT FOR"}, rows)
		},
	}
}

func (a policyCommands) showPreset(name string) error {
	for _, p := range policy.Presets() {
		if p.Name != name {
			continue
		}
		if a.json {
			return a.printJSON(p)
		}
		ready, err := policy.Compile(carrel.Network{Policy: &carrel.Policy{Presets: []string{name}}})
		if err != nil {
			return err
		}
		return a.printWords(p.Description+":", ready)
	}
	return &carrel.Error{Kind: carrel.NotFound, Err: fmt.Errorf("there is no preset %s", name), Hint: "list them with: carrel policy presets"}
}

// policySchemaCommand is "carrel policy schema".
func (a policyCommands) policySchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of policy files, for editors", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := a.out.Write(policy.Schema())
			return err
		},
	}
}
