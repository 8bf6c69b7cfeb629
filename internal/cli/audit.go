package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
)

// auditCommand is "carrel audit".
func (a *app) auditCommand() *cobra.Command {
	var (
		opts            carrel.AuditOptions
		allowed, denied bool
		since, until    string
	)
	c := &cobra.Command{
		Use:   "audit [ID]",
		Short: "Show what sandboxes tried to reach and what became of it",
		Long: "Show what sandboxes tried to reach, and what the policy decided: one line for each connection, request or question for a name, " +
			"oldest first. Sandboxes that are gone are found by their ID. The commands below are about the audit trail: what callers did.",
		Example: "  carrel audit --denied --since 1h\n  carrel audit -f ID\n  carrel audit --host '*.example.com' --json",
		Args:    cobra.MaximumNArgs(1),
	}
	t := trailCommands{a}
	c.AddCommand(t.listCommand(), t.exportCommand(), t.verifyCommand())
	f := c.Flags()
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		if len(args) > 0 {
			if opts.ID, err = carrel.ParseID(args[0]); err != nil {
				return err
			}
		}
		if allowed && denied {
			return usage(errors.New("give --allowed or --denied"))
		}
		if allowed || denied {
			opts.Allowed = &allowed
		}
		if opts.Since, err = a.moment("since", since); err != nil {
			return err
		}
		if opts.Until, err = a.moment("until", until); err != nil {
			return err
		}
		if opts.Limit < 0 {
			return usage(fmt.Errorf("--limit %d is less than nothing", opts.Limit))
		}
		if opts.Follow && since == "" && !f.Changed("limit") {
			opts.Limit = followedPast
		}
		return a.withService(c.Context(), func(svc carrel.Service) error { return a.audit(c.Context(), svc, opts) })
	}
	f.BoolVar(&denied, "denied", false, "only what was refused")
	f.BoolVar(&allowed, "allowed", false, "only what was let through")
	f.StringVar(&opts.Host, "host", "", "only this name, *.name, address or CIDR")
	f.StringVar(&since, "since", "", "only from this time on: 1h, 2026-03-01, 2026-03-01T12:00:00Z")
	f.StringVar(&until, "until", "", "only before this time")
	f.StringVar(&opts.Rule, "rule", "", "only what a rule decided that has this in its text")
	f.StringVar(&opts.Secret, "secret", "", "only what this secret or token was put into")
	f.IntVarP(&opts.Limit, "limit", "n", 0, "the newest so many (default 1000; with --follow 10)")
	f.BoolVarP(&opts.Follow, "follow", "f", false, "go on with what happens from now")
	return c
}

const (
	// followedPast is how many past decisions -f shows first, as tail does.
	followedPast = 10
	// auditDefault is the service's default limit.
	auditDefault = 1000
)

// moment reads a time: how long ago, a date, or a complete time. Without a zone it is local.
func (a *app) moment(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return a.now().Add(-d), nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 15); err == nil {
			return a.now().AddDate(0, 0, -int(n)), nil
		}
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usage(fmt.Errorf("--%s %q is no time: give 1h, 2d, 2026-03-01 or 2026-03-01T12:00:00Z", flag, text))
}

// audit prints decisions as they arrive.
func (a *app) audit(ctx context.Context, svc carrel.Service, opts carrel.AuditOptions) error {
	p := auditPrinter{arrow: "→", oneSandbox: opts.ID != "", color: isTerminal(a.out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	if plainTerminal(os.Getenv) {
		p.arrow = "->"
	}
	n := 0
	for d, err := range svc.Audit(ctx, opts) {
		if err != nil {
			return err
		}
		n++
		if a.json {
			err = a.printJSON(d)
		} else {
			_, err = fmt.Fprintln(a.out, p.line(d))
		}
		if err != nil {
			return err
		}
	}
	if n == auditDefault && opts.Limit == 0 && !opts.Follow {
		fmt.Fprintf(a.err, "these are the newest %d; -n shows more\n", n)
	}
	return nil
}

// auditPrinter writes decisions for people.
type auditPrinter struct {
	arrow      string // between a name and its address
	oneSandbox bool   // don't repeat the sandbox's ID on each line
	color      bool
}

// line writes a decision on one line: time, sandbox, verdict, destination and reason.
func (p auditPrinter) line(d carrel.Decision) string {
	parts := []string{d.Time.UTC().Format("2006-01-02T15:04:05.000Z")}
	if !p.oneSandbox {
		parts = append(parts, pad(visible(string(d.ID)), 21))
	}
	parts = append(parts, p.verdict(d.Allowed), pad(visible(d.Protocol), 5), p.target(d))
	if d.Method != "" {
		parts = append(parts, strings.TrimRight(visible(d.Method)+" "+visible(d.Path), " "))
	}
	if d.Status != 0 {
		parts = append(parts, strconv.Itoa(d.Status))
	}
	if d.Sent != 0 || d.Received != 0 {
		parts = append(parts, bytesText(d.Sent)+" out, "+bytesText(d.Received)+" in")
	}
	if d.Duration != 0 {
		to := time.Millisecond
		if d.Duration < 10*to {
			to = time.Microsecond
		}
		parts = append(parts, d.Duration.Round(to).String())
	}
	if d.Process != "" {
		parts = append(parts, "by "+visible(d.Process))
	}
	if len(d.Secrets) > 0 {
		parts = append(parts, "with "+visible(strings.Join(d.Secrets, ", ")))
	}
	why := visible(d.Rule)
	if d.Reason != "" {
		why += ": " + visible(d.Reason)
	}
	if d.Repeats > 0 && !strings.HasSuffix(d.Reason, "more like it") {
		why += fmt.Sprintf("; %d more like it", d.Repeats)
	}
	return strings.Join(append(parts, why), "  ")
}

// verdict returns the decision. Both words take the same number of cells.
func (p auditPrinter) verdict(allowed bool) string {
	const green, red = "\x1b[32m", "\x1b[1;31m"
	text, color := "denied ", red
	if allowed {
		text, color = "allowed", green
	}
	if !p.color {
		return text
	}
	return color + text + reset
}

// target returns the destination: name, address and port.
func (p auditPrinter) target(d carrel.Decision) string {
	name, addr := visible(d.Name), visible(d.Address)
	if d.Port != 0 {
		port := strconv.Itoa(int(d.Port))
		if addr == "" {
			return net.JoinHostPort(name, port)
		}
		addr = net.JoinHostPort(addr, port)
	}
	switch {
	case name == "" && addr == "":
		return "-"
	case name == "":
		return addr
	case addr == "":
		return name
	}
	return name + p.arrow + addr
}

// visible escapes unprintable characters in a sandbox's text, so that a person sees them and they
// can't control the terminal.
func visible(s string) string {
	if s == printable(s) {
		return s
	}
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
