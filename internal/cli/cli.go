// Package cli is the command line: the start of the daemon, and its clients.
//
// Results go to stdout and everything else to stderr. With --json the result is one JSON document
// (or one per line for streams); fields are added and never removed. An error is one line, then a
// "hint:" line if there is one. The exit status tells the kind of error; the table is in exit.go
// and docs/cli.md.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/version"
	"github.com/spf13/cobra"
)

// app is one run of the command line: its streams and the flags that every
// command shares.
type app struct {
	in       *os.File
	out, err io.Writer

	url, key, project, dataDir string
	json                       bool

	code int // exit status of another command that ran successfully

	// open connects to the service; tests replace it.
	open func(context.Context) (carrel.Service, error)
	now  func() time.Time
}

// Main runs the command line and returns the exit status.
func Main(args []string, in *os.File, out, errw io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := &app{in: in, out: out, err: errw, now: time.Now}
	a.open = a.connect
	return a.main(ctx, args)
}

// main runs the command line.
func (a *app) main(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	c, err := root.ExecuteContextC(ctx)
	if err != nil {
		pointToHelp(c, err)
		a.report(err)
		return exitCode(err)
	}
	return a.code
}

// root builds the command tree.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "carrel",
		Short:         "The computer an AI agent runs on",
		Long:          "Carrel gives every AI agent a computer of its own: made in milliseconds, walled off from yours.",
		Version:       version.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(flagError)
	f := root.PersistentFlags()
	f.StringVar(&a.url, "url", "", "daemon's address (default: $CARREL_URL, or the local daemon's)")
	f.StringVar(&a.key, "api-key", "", "API key (default: $CARREL_API_KEY, or the local daemon's api-key file)")
	f.StringVar(&a.project, "project", "", "project to act for, with an administrator's key (default: $CARREL_PROJECT, or the key's own)")
	f.StringVar(&a.dataDir, "data-dir", "", "data directory of the local daemon (default: $CARREL_DATA_DIR, or the user's)")
	f.BoolVar(&a.json, "json", false, "print results as JSON")
	root.AddCommand(
		a.serveCommand(), podCommands{a}.podCommand(), configCommands{a}.configCommand(), a.runCommand(), a.simCommand(), a.createCommand(), a.execCommand(), a.shellCommand(), codeCommands{a}.runCodeCommand(), codeCommands{a}.notebookCommand(), a.listCommand(), a.infoCommand(),
		a.pauseCommand(), a.resumeCommand(), drainCommands{a}.drainCommand(), backupCommands{a}.backupCommand(), backupCommands{a}.restoreCommand(), a.envCommand(), snapshotCommands{a}.snapshotCommand(), a.forkCommand(), a.rollbackCommand(), a.promoteCommand(), a.timelineCommand(),
		a.diffCommand(), a.lifecycleCommand(), labelCommands{a}.labelCommand(), a.networkCommand(), a.killCommand(), processCommands{a}.psCommand(), processCommands{a}.attachCommand(), a.copyCommand(), a.logsCommand(), a.auditCommand(), a.metricsCommand(), topCommands{a}.topCommand(), a.traceCommand(), a.usageCommand(), a.poolCommand(), fsckCommands{a}.fsckCommand(), a.doctorCommand(),
		templateCommands{a}.templateCommand(), buildCommands{a}.buildCommand(), a.portForwardCommand(),
		urlCommand(a), sshCommands{a}.sshCommand(), sshCommands{a}.sshProxyCommand(),
		sshCommands{a}.sshKeyCommand(), a.caCommand(), secretCommands{a}.secretCommand(), webhookCommands{a}.webhookCommand(), inboxCommands{a}.inboxCommand(), nodeCommands{a}.nodeCommand(), a.frontCommand(),
		personCommands{a}.personCommand(), personCommands{a}.memberCommand(), personCommands{a}.orgCommand(), personCommands{a}.whoAmICommand(), loginCommands{a}.loginCommand(), loginCommands{a}.logoutCommand(),
		peopleCommands{a}.keyCommand(), peopleCommands{a}.projectCommand(), allowanceCommands{a}.quotaCommand(), allowanceCommands{a}.ceilingCommand(), allowanceCommands{a}.budgetCommand(),
		policyCommands{a}.policyCommand(), a.benchCommand(), openapiCommand(a), a.licensesCommand(),
		a.versionCommand(),
	)
	namedCommands{a}.acceptNames(root)
	completions{a}.describe(root)
	root.SetHelpCommand(a.helpCommand())
	wrapArgs(root)
	root.InitDefaultCompletionCmd()
	return root
}

// wrapArgs turns errors about arguments into usage errors, with the right exit status.
func wrapArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return argsError(c, args, err)
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		wrapArgs(sub)
	}
}

// report prints an error for a person: one line and its hint. Both may quote text from outside.
func (a *app) report(err error) {
	if errors.Is(err, context.Canceled) {
		fmt.Fprintln(a.err, "carrel: interrupted")
		return
	}
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		lines[i] = printable(line)
	}
	fmt.Fprintf(a.err, "carrel: %s\n", strings.Join(lines, "\n"))
	if hint := carrel.HintOf(err); hint != "" {
		fmt.Fprintf(a.err, "hint: %s\n", printable(hint))
	}
}
