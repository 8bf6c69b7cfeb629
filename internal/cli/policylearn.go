package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/spf13/cobra"
)

// mostLearned is how many decisions one policy is learned from: the newest ones.
const mostLearned = 1_000_000

// policyLearnCommand is "carrel policy learn".
func (a policyCommands) policyLearnCommand() *cobra.Command {
	var (
		o            policy.LearnOptions
		since, until string
		output       string
	)
	c := &cobra.Command{
		Use:   "learn ID",
		Short: "Write the smallest policy that allows what a sandbox did",
		Long: "Write the smallest policy that allows again what a sandbox did, from the log of its traffic. Let it work once with a policy that " +
			"allows everything and looks into it (rules: [{allow: [\"*\"], inspect: true}]). Read the result before you use it: a program that " +
			"knows that it is watched decides what is learned. Sandboxes that are gone are found by their ID.",
		Example: "  carrel policy learn ID -o policy.yaml\n  carrel policy learn --hosts --since 1h ID\n  carrel policy learn --denied ID",
		Args:    cobra.ExactArgs(1),
	}
	f := c.Flags()
	f.BoolVar(&o.Denied, "denied", false, "take in what was refused, too")
	f.BoolVar(&o.Hosts, "hosts", false, "only hosts and ports, no methods and paths")
	f.StringVar(&since, "since", "", "only from this time on: 1h, 2026-03-01, 2026-03-01T12:00:00Z")
	f.StringVar(&until, "until", "", "only before this time")
	f.StringVarP(&output, "output", "o", "", "write the policy into this file, which must not exist")
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := carrel.ParseID(args[0])
		if err != nil {
			return err
		}
		opts := carrel.AuditOptions{ID: id, Limit: mostLearned}
		for _, t := range []struct {
			flag, text string
			into       *time.Time
		}{{"since", since, &opts.Since}, {"until", until, &opts.Until}} {
			if *t.into, err = a.moment(t.flag, t.text); err != nil {
				return err
			}
		}
		return a.withService(c.Context(), func(svc carrel.Service) error {
			learned, err := learnPolicy(c.Context(), svc, opts, o)
			if err != nil {
				return err
			}
			return a.writeLearned(learned, output)
		})
	}
	return c
}

// learnPolicy learns from the log of a sandbox's traffic.
func learnPolicy(ctx context.Context, svc carrel.Service, opts carrel.AuditOptions,
	o policy.LearnOptions) (policy.Learned, error) {
	sb, err := svc.Get(ctx, opts.ID)
	switch {
	case carrel.KindOf(err) == carrel.NotFound: // it is gone, and so are its injections
	case err != nil:
		return policy.Learned{}, err
	case sb.Network.Policy != nil:
		o.Inject = sb.Network.Policy.Inject
	}
	l := policy.NewLearner(o)
	seen := 0
	for d, err := range svc.Audit(ctx, opts) {
		if err != nil {
			return policy.Learned{}, err
		}
		l.Add(d)
		seen++
	}
	if seen == 0 {
		return policy.Learned{}, &carrel.Error{Op: "learn policy", Kind: carrel.NotFound, ID: opts.ID,
			Err:  fmt.Errorf("the log has nothing about %s in this time", opts.ID),
			Hint: "look at it with: carrel audit " + string(opts.ID)}
	}
	out := l.Learned()
	if seen == mostLearned {
		out.Notes = append(out.Notes, fmt.Sprintf("learned from the newest %d decisions alone: --since and "+
			"--until select others", seen))
	}
	return out, nil
}

// writeLearned prints a learned policy, or writes it into a new file.
func (a policyCommands) writeLearned(learned policy.Learned, name string) error {
	text, err := learned.YAML()
	if err != nil {
		return err
	}
	switch {
	case name != "":
		err = writeNew(name, text)
	case a.json:
		return a.printJSON(learned)
	default:
		_, err = a.out.Write(text)
	}
	if err != nil {
		return err
	}
	for _, note := range learned.Notes {
		fmt.Fprintln(a.err, "note: "+printable(note))
	}
	return nil
}

// writeNew writes a file that does not exist yet.
func writeNew(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if os.IsExist(err) {
		return &carrel.Error{Op: "write policy", Kind: carrel.Conflict, Field: "output", Err: err,
			Hint: "give another name, or remove it first"}
	}
	if err != nil {
		return err
	}
	if _, err := f.Write(text); err != nil {
		_ = f.Close()
		_ = os.Remove(name)
		return err
	}
	return f.Close()
}
