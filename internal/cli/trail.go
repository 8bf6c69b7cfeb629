package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/audit"
	"github.com/carrel-dev/carrel/internal/ledger/trail"
)

// trailCommands are the commands about the audit trail: what callers did.
type trailCommands struct{ *app }

// onTrail runs fn with the daemon's audit trail.
func (a trailCommands) onTrail(ctx context.Context, fn func(carrel.Trails) error) error {
	return a.withService(ctx, func(svc carrel.Service) error {
		c, ok := svc.(*client.Client)
		if !ok {
			return &carrel.Error{Op: "read audit trail", Kind: carrel.Unsupported, Err: errors.New("only a daemon has an audit trail")}
		}
		return fn(c)
	})
}

// selection adds the flags that select records.
func (a trailCommands) selection(c *cobra.Command, o *carrel.TrailOptions) (finish func() error) {
	var since, until string
	f := c.Flags()
	f.StringVar(&o.Key, "key", "", "only what was done with this key: its name or ID")
	f.StringVar(&o.Kind, "kind", "", "only one kind: read, change, enter, refuse, or one of the trail's own records")
	f.StringVar(&o.Op, "op", "", "only operations with this in their names, such as fork")
	f.StringVar(&o.Target, "target", "", "only what was about this sandbox, snapshot, key, …")
	f.StringVar(&o.Project, "of", "", "only what was done in this project")
	f.StringVar(&since, "since", "", "only from this time on: 1h, 2026-03-01, 2026-03-01T12:00:00Z")
	f.StringVar(&until, "until", "", "only before this time")
	return func() (err error) {
		if o.Since, err = a.moment("since", since); err != nil {
			return err
		}
		o.Until, err = a.moment("until", until)
		return err
	}
}

func (a trailCommands) listCommand() *cobra.Command {
	var o carrel.TrailOptions
	c := &cobra.Command{
		Use: "ls", Short: "Show who did what: one line for each record of the audit trail", Args: cobra.NoArgs,
		Example: "  carrel audit ls --since 1h\n  carrel audit ls --kind refuse\n  carrel audit ls --target ID --json",
	}
	finish := a.selection(c, &o)
	c.Flags().IntVarP(&o.Limit, "limit", "n", 0, "the newest so many (default 1000)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if o.Limit < 0 {
			return usage(fmt.Errorf("--limit %d is less than nothing", o.Limit))
		}
		if err := finish(); err != nil {
			return err
		}
		return a.onTrail(c.Context(), func(t carrel.Trails) error {
			for r, err := range t.Trail(c.Context(), o) {
				if err != nil {
					return err
				}
				if a.json {
					_, err = fmt.Fprintf(a.out, "%s\n", r.Line)
				} else {
					_, err = fmt.Fprintln(a.out, trailLine(r))
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return c
}

// trailLine writes a record for people.
func trailLine(r carrel.TrailRecord) string {
	who := r.Key
	if r.Project != "" && who != "" {
		who = r.Project + "/" + who
	}
	parts := []string{r.Time.UTC().Format("2006-01-02T15:04:05.000Z"), pad(r.Kind, 6), pad(visible(who), 20), visible(r.Op)}
	if r.Target != "" {
		parts = append(parts, visible(r.Target))
	}
	if r.Status != 0 {
		parts = append(parts, strconv.Itoa(r.Status))
	}
	if r.From != "" {
		parts = append(parts, "from "+visible(r.From))
	}
	if r.Repeats > 0 {
		parts = append(parts, fmt.Sprintf("%d more since %s", r.Repeats, r.Since.UTC().Format("15:04:05")))
	}
	switch r.Kind {
	case carrel.TrailEgress:
		parts = append(parts, fmt.Sprintf("decisions %d to %d of the wire", r.First, r.Last))
	case carrel.TrailCut:
		parts = append(parts, fmt.Sprintf("records up to %d were removed", r.Last))
	}
	if r.Text != "" {
		parts = append(parts, visible(r.Text))
	}
	return strings.Join(parts, "  ")
}

func (a trailCommands) exportCommand() *cobra.Command {
	o := carrel.TrailOptions{Limit: -1}
	c := &cobra.Command{
		Use: "export", Short: "Write the whole audit trail as JSON lines, as the daemon wrote them", Args: cobra.NoArgs,
		Long: `Writes the records as the daemon wrote them, so that carrel audit verify FILE can check
them elsewhere. A selection can be read, and not be verified. To go on with a file that you
have, give the number of its last record: --after.`,
		Example: "  carrel audit export > trail.jsonl\n  carrel audit verify trail.jsonl --public-key key.pub",
	}
	finish := a.selection(c, &o)
	c.Flags().Int64Var(&o.After, "after", 0, "only records after this number")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := finish(); err != nil {
			return err
		}
		return a.onTrail(c.Context(), func(t carrel.Trails) error {
			for r, err := range t.Trail(c.Context(), o) {
				if err != nil {
					return err
				}
				if _, err := fmt.Fprintf(a.out, "%s\n", r.Line); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return c
}

// errTampered ends a verification that found something.
var errTampered = errors.New("the audit trail is not as the daemon wrote it")

func (a trailCommands) verifyCommand() *cobra.Command {
	var dir, public string
	var anchors []string
	c := &cobra.Command{
		Use: "verify [FILE]", Short: "Check that nobody changed, removed or reordered what the audit trail says", Args: cobra.MaximumNArgs(1),
		Long: `Asks the daemon to check its audit trail: the chain of hashes, the signatures, and the
digests of the log of sandboxes' traffic. With --dir it checks a data directory itself, with
no daemon, and with FILE an export. It says which record is changed, missing or misplaced,
and exits with 1 if there is one.

The check can't see that a whole trail was put back to an earlier state. For that, keep the
number and the hash of the newest record elsewhere, and give them: --anchor NUMBER:HASH.`,
		Example: "  carrel audit verify\n  carrel audit verify --dir /var/lib/carrel --anchor 4711:9f86d0…",
	}
	f := c.Flags()
	f.StringVar(&dir, "dir", "", "check this data directory, without asking a daemon")
	f.StringVar(&public, "public-key", "", "file of the public key (default: trail/key.pub in the data directory)")
	f.StringArrayVar(&anchors, "anchor", nil, "NUMBER:HASH of a record, as it was once seen (repeat)")
	c.RunE = func(c *cobra.Command, args []string) error {
		r, err := a.verified(c.Context(), args, dir, public, anchors)
		if err != nil {
			return err
		}
		if a.json {
			err = a.printJSON(r)
		} else {
			err = printReport(a.out, r)
		}
		if err == nil && !r.OK {
			err = &carrel.Error{Op: "verify audit trail", Kind: carrel.Conflict, Err: errTampered}
		}
		return err
	}
	return c
}

// verified checks what the arguments name.
func (a trailCommands) verified(ctx context.Context, args []string, dir, public string, anchors []string) (r carrel.TrailReport, err error) {
	var o trail.VerifyOptions
	for _, text := range anchors {
		number, hash, ok := strings.Cut(text, ":")
		seq, err := strconv.ParseInt(number, 10, 64)
		if !ok || err != nil || seq <= 0 {
			return r, usage(fmt.Errorf("--anchor %q is not NUMBER:HASH", text))
		}
		if o.Anchors == nil {
			o.Anchors = map[int64]string{}
		}
		o.Anchors[seq] = strings.ToLower(hash)
	}
	if public != "" {
		if o.Key, err = trail.ReadPublicKey(public); err != nil {
			return r, &carrel.Error{Op: "read public key", Kind: carrel.Invalid, Field: "public-key", Err: err}
		}
	}
	switch {
	case len(args) > 0 && dir != "":
		return r, usage(errors.New("give FILE or --dir"))
	case len(args) > 0:
		in, err := os.Open(args[0])
		if err != nil {
			return r, &carrel.Error{Op: "read export", Kind: carrel.NotFound, Err: err}
		}
		defer in.Close()
		return trail.VerifyLines(ctx, in, o)
	case dir != "":
		o.Lines = func(ctx context.Context, fn func(int64, []byte) error) error {
			return audit.Lines(ctx, filepath.Join(dir, "audit"), 0, fn)
		}
		return trail.Verify(ctx, filepath.Join(dir, "trail"), o)
	case public != "" || len(anchors) > 0:
		return r, usage(errors.New("--public-key and --anchor need FILE or --dir: what a daemon says of itself proves nothing"))
	}
	err = a.onTrail(ctx, func(t carrel.Trails) (err error) { r, err = t.VerifyTrail(ctx); return err })
	return r, err
}

// printReport writes what a verification found.
func printReport(out io.Writer, r carrel.TrailReport) error {
	var b strings.Builder
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "%s: %s\n", p.What, visible(p.Text))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", visible(n))
	}
	if r.OK {
		fmt.Fprintf(&b, "whole: records %d to %d, and %d decisions of the wire\n", r.First, r.Last, r.Egress)
	}
	fmt.Fprintf(&b, "newest: %d:%s\nkey: %s\n", r.Last, r.Head, r.Key)
	_, err := io.WriteString(out, b.String())
	return err
}
