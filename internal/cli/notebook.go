package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/carrel-dev/carrel/client/interpreter"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// notebookCommand is "carrel notebook".
func (a codeCommands) notebookCommand() *cobra.Command {
	var f codeFlags
	c := &cobra.Command{
		Use:   "notebook [flags] {ID | -t TEMPLATE}",
		Short: "Type cells of code that run in a sandbox",
		Long: `Reads cells and runs them in the sandbox's code interpreter. A line that opens a block
or a bracket begins a cell of several lines, which an empty line ends. Ctrl-C interrupts the
cell that runs, Ctrl-D leaves. Lines that begin with % are for the notebook itself:
  %language NAME   go on in another language
  %restart         begin with an empty state
  %quit            leave`,
		Args: func(_ *cobra.Command, args []string) error {
			if want := 1 - min(len(f.template), 1); len(args) != want {
				return errors.New("give a sandbox or --template")
			}
			return f.check()
		},
		RunE: func(c *cobra.Command, args []string) error {
			return a.withInterpreter(c.Context(), f, args, func(in *interpreter.Interpreter) error {
				n := &notebook{codeCommands: a, in: in, flags: f}
				return n.loop(c.Context())
			})
		},
	}
	f.add(c)
	return c
}

// notebook is a conversation with a sandbox's code interpreter.
type notebook struct {
	codeCommands
	in    *interpreter.Interpreter
	flags codeFlags
	count int
}

// loop reads cells and runs them until the input ends.
func (n *notebook) loop(ctx context.Context) error {
	lines, restore, err := n.reader()
	if err != nil {
		return err
	}
	defer restore()
	for {
		cell, err := n.cell(lines)
		if errors.Is(err, io.EOF) && strings.TrimSpace(cell) == "" {
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		switch words := strings.Fields(cell); {
		case len(words) == 0:
		case words[0] == "%quit" || words[0] == "%exit":
			return nil
		case strings.HasPrefix(words[0], "%") && (words[0] == "%language" || words[0] == "%restart"):
			if err := n.command(ctx, words); err != nil {
				fmt.Fprintln(n.err, "carrel:", err)
			}
		default:
			if err := n.run(ctx, cell); err != nil {
				return err
			}
		}
	}
}

// run runs a cell. Ctrl-C interrupts it, and the notebook goes on.
func (n *notebook) run(ctx context.Context, cell string) error {
	runCtx, stop := signal.NotifyContext(context.WithoutCancel(ctx), os.Interrupt)
	defer stop()
	n.count++
	err := n.runCell(runCtx, n.in, n.flags, cell)
	n.code = 0 // a failed cell does not make the notebook fail
	if runCtx.Err() != nil {
		fmt.Fprintln(n.err, "interrupted")
		return nil
	}
	return err
}

// command does what a line for the notebook itself says.
func (n *notebook) command(ctx context.Context, words []string) error {
	if words[0] == "%language" {
		if len(words) != 2 {
			return errors.New("usage: %language NAME")
		}
		n.flags.language, n.flags.context = words[1], ""
		return nil
	}
	if id := n.flags.context; id != "" {
		return n.in.RestartContext(ctx, id)
	}
	all, err := n.in.Contexts(ctx)
	if err != nil {
		return err
	}
	language := n.language()
	for _, c := range all {
		if c.Language == language { // the first one is the default
			return n.in.RestartContext(ctx, c.ID)
		}
	}
	return nil // it has not begun
}

// language is the proper name of the language of the next cell.
func (n *notebook) language() string {
	switch l := n.flags.language; l {
	case "":
		return "python"
	case "js":
		return "javascript"
	case "ts":
		return "typescript"
	default:
		return l
	}
}

// cell reads a cell: one line, or several until an empty one.
func (n *notebook) cell(line func(prompt string) (string, error)) (string, error) {
	var cell strings.Builder
	prompt := fmt.Sprintf("%s [%d]: ", n.language(), n.count+1)
	for {
		text, err := line(prompt)
		if err == nil || text != "" {
			cell.WriteString(text + "\n")
		}
		if err != nil || !isOpen(cell.String(), text) {
			return cell.String(), err
		}
		prompt = strings.Repeat(" ", len(prompt)-5) + "...: "
	}
}

// isOpen reports whether a cell goes on after its last line.
func isOpen(cell, last string) bool {
	if strings.TrimSpace(last) == "" {
		return false
	}
	depth := 0
	for _, c := range cell {
		switch c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		}
	}
	end := strings.TrimRight(last, " \t")
	return depth > 0 || strings.Count(cell, "\n") > 1 && strings.TrimLeft(last, " \t") != last ||
		strings.HasSuffix(end, ":") || strings.HasSuffix(end, "\\") || strings.HasPrefix(end, "@")
}

// reader returns the function that reads a line: with an editor on a terminal, else plainly.
func (n *notebook) reader() (line func(string) (string, error), restore func(), err error) {
	if !isTerminal(n.app.in) {
		in := bufio.NewReader(n.app.in)
		return func(string) (string, error) {
			text, err := in.ReadString('\n')
			return strings.TrimRight(text, "\r\n"), err
		}, func() {}, nil
	}
	fd := int(n.app.in.Fd())
	editor := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{n.app.in, n.out}, "")
	// The terminal is raw only while a line is typed, so that a cell prints and is interrupted as
	// every program is.
	return func(prompt string) (string, error) {
		state, err := term.MakeRaw(fd)
		if err != nil {
			return "", err
		}
		defer func() { _ = term.Restore(fd, state) }()
		editor.SetPrompt(prompt)
		return editor.ReadLine()
	}, func() {}, nil
}
