package cli

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/spf13/cobra"
)

// inboxCommands are the commands about connections that wait for a person.
type inboxCommands struct{ *app }

// inboxCommand is "carrel inbox".
func (a inboxCommands) inboxCommand() *cobra.Command {
	var watch bool
	var opts carrel.InboxOptions
	var sandbox string
	c := &cobra.Command{
		Use: "inbox", Short: "Answer for connections that a policy holds until a person says yes or no", Args: cobra.NoArgs,
		Long: `Lists the connections that wait for a person. They met a rule with "ask" in their sandbox's
policy. With --watch it asks here, one after the other, as they come: y is yes once, n is no once,
hour is yes for an hour, always is a rule of the sandbox's policy, never is a rule that denies.`,
		Example: "  carrel inbox\n  carrel inbox --watch\n  carrel inbox allow q0123 --for hour",
		RunE: func(c *cobra.Command, _ []string) error {
			opts.Sandbox = carrel.ID(sandbox)
			return a.withInbox(c.Context(), func(in carrel.Inbox) error {
				if watch {
					return a.watch(c.Context(), in, opts)
				}
				list, err := in.Questions(c.Context(), opts)
				if err != nil {
					return err
				}
				return a.printQuestions(list)
			})
		},
	}
	c.Flags().BoolVarP(&watch, "watch", "w", false, "ask on this terminal as connections come")
	c.Flags().StringVar(&sandbox, "sandbox", "", "only this sandbox's")
	c.AddCommand(a.answerCommand(carrel.AnswerAllow, "Say yes to a connection that waits"),
		a.answerCommand(carrel.AnswerDeny, "Say no to a connection that waits"))
	return c
}

// withInbox runs fn with the daemon's inbox.
func (a inboxCommands) withInbox(ctx context.Context, fn func(carrel.Inbox) error) error {
	return a.withService(ctx, func(svc carrel.Service) error {
		switch s := svc.(type) {
		case *client.Client:
			return fn(s.Inbox())
		case carrel.Inbox:
			return fn(s)
		}
		return fn(carrel.NoInbox{})
	})
}

func (a inboxCommands) printQuestions(list carrel.InboxList) error {
	if a.json {
		return a.printJSON(list)
	}
	rows := [][]string{}
	for _, q := range list.Questions {
		rows = append(rows, []string{q.ID, string(q.Sandbox), askedOf(q), q.Rule, q.Process, strconv.Itoa(q.Waiting),
			time.Until(q.Until).Round(time.Second).String()})
	}
	return a.table([]string{"ID", "SANDBOX", "WANTS", "RULE", "PROGRAM", "WAITING", "LEFT"}, rows)
}

// askedOf says what a yes is for.
func askedOf(q carrel.Question) string {
	at := q.Protocol + "://" + net.JoinHostPort(q.Host, strconv.Itoa(int(q.Port))) + q.Path
	if q.Method != "" {
		at = q.Method + " " + at
	}
	return at
}

func (a inboxCommands) answerCommand(answer, short string) *cobra.Command {
	var length string
	c := &cobra.Command{
		Use: answer + " QUESTION", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withInbox(c.Context(), func(in carrel.Inbox) error {
				q, err := in.Answer(c.Context(), args[0], carrel.Answer{Answer: answer, For: length})
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(q)
				}
				fmt.Fprintf(a.err, "%s: %s\n", answer, printable(askedOf(q)))
				return nil
			})
		},
	}
	c.Flags().StringVar(&length, "for", carrel.ForOnce, "once (what waits now), hour, or always (a rule of the sandbox's policy)")
	return c
}

// watchAnswers are the answers on a terminal.
var watchAnswers = map[string]carrel.Answer{
	"y": {Answer: carrel.AnswerAllow, For: carrel.ForOnce}, "yes": {Answer: carrel.AnswerAllow, For: carrel.ForOnce},
	"n": {Answer: carrel.AnswerDeny, For: carrel.ForOnce}, "no": {Answer: carrel.AnswerDeny, For: carrel.ForOnce},
	"hour":   {Answer: carrel.AnswerAllow, For: carrel.ForHour},
	"always": {Answer: carrel.AnswerAllow, For: carrel.ForAlways},
	"never":  {Answer: carrel.AnswerDeny, For: carrel.ForAlways},
}

// watch asks about each question once, until the input or ctx ends.
func (a inboxCommands) watch(ctx context.Context, in carrel.Inbox, opts carrel.InboxOptions) error {
	lines := bufio.NewScanner(a.in)
	asked := map[string]bool{}
	for ctx.Err() == nil {
		list, err := in.Questions(ctx, opts)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		for _, q := range list.Questions {
			if asked[q.ID] {
				continue
			}
			asked[q.ID] = true
			if more, err := a.askHere(ctx, in, q, lines); err != nil || !more {
				return err
			}
		}
		opts.Wait, opts.Revision = 30*time.Second, list.Revision
	}
	return nil
}

// askHere asks about one question. It reports false when the input has ended.
func (a inboxCommands) askHere(ctx context.Context, in carrel.Inbox, q carrel.Question, lines *bufio.Scanner) (more bool, err error) {
	program := ""
	if q.Process != "" {
		program = " by " + q.Process
	}
	for {
		fmt.Fprintf(a.err, "%s\n  sandbox %s%s, %s, %v left [y/n/hour/always/never] ", printable(askedOf(q)), q.Sandbox,
			printable(program), printable(q.Rule), time.Until(q.Until).Round(time.Second))
		if !lines.Scan() {
			return false, lines.Err()
		}
		answer, ok := watchAnswers[strings.ToLower(strings.TrimSpace(lines.Text()))]
		if !ok {
			fmt.Fprintln(a.err, "write y, n, hour, always or never")
			continue
		}
		if _, err := in.Answer(ctx, q.ID, answer); err != nil {
			a.report(err) // it may have ended, or somebody else was faster
		}
		return true, nil
	}
}
