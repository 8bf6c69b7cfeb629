package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client/interpreter"
	"github.com/spf13/cobra"
)

// codeTimeout is the life of a sandbox that run-code makes for itself.
const codeTimeout = time.Hour

// codeCommands are the commands of the code interpreter.
type codeCommands struct{ *app }

// codeFlags are the flags of run-code and notebook.
type codeFlags struct {
	template, language, context string
	envs                        []string
	pictures                    pictures
}

// add registers the flags.
func (f *codeFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVarP(&f.template, "template", "t", "", "make a sandbox of this template, and end it afterwards")
	fl.StringVarP(&f.language, "language", "l", "", "python, javascript, typescript, bash or another one that the image has (default python)")
	fl.StringVar(&f.context, "context", "", "ID of the context (default: the language's own)")
	fl.StringArrayVarP(&f.envs, "env", "e", nil, "KEY=VALUE, for this cell only (repeat)")
	fl.StringVar(&f.pictures.how, "pictures", "auto", "how to show pictures: kitty, iterm, sixel, files or auto (what the terminal shows, else files)")
	fl.StringVar(&f.pictures.dir, "pictures-dir", ".", "directory for pictures that become files")
}

// runCodeCommand is "carrel run-code".
func (a codeCommands) runCodeCommand() *cobra.Command {
	var f codeFlags
	c := &cobra.Command{
		Use:   "run-code [flags] {ID | -t TEMPLATE} {CODE | -}",
		Short: "Run a cell of code in a sandbox, with its variables kept",
		Long: `Runs a cell in the sandbox's code interpreter: what it prints, the value of its last
expression, and what it displays. Variables stay for the next cell. "-" reads the code from
standard input. The exit status is 1 if the code failed. In a sandbox where the interpreter
does not run yet, it is started. With --json, each line is what E2B's protocol says.`,
		Args: func(_ *cobra.Command, args []string) error {
			if want := 2 - min(len(f.template), 1); len(args) != want {
				return errors.New("give a sandbox or --template, and one cell of code (or -)")
			}
			return f.check()
		},
		RunE: func(c *cobra.Command, args []string) error {
			code := args[len(args)-1]
			if code == "-" {
				raw, err := io.ReadAll(a.in)
				if err != nil {
					return err
				}
				code = string(raw)
			}
			return a.withInterpreter(c.Context(), f, args[:len(args)-1],
				func(in *interpreter.Interpreter) error {
					return a.runCell(c.Context(), in, f, code)
				})
		},
	}
	f.add(c)
	return c
}

// check checks the flags that no service looks at.
func (f *codeFlags) check() error {
	if f.context != "" && f.language != "" {
		return errors.New("--context, --language: only one of them may be given")
	}
	if _, err := keyValues("--env", f.envs); err != nil {
		return err
	}
	return f.pictures.check()
}

// withInterpreter calls fn with the code interpreter of the sandbox in args, or of one of its own.
func (a codeCommands) withInterpreter(ctx context.Context, f codeFlags, args []string,
	fn func(*interpreter.Interpreter) error) error {
	return a.withService(ctx, func(svc carrel.Service) error {
		var sb carrel.Sandbox
		var err error
		if f.template != "" {
			sb, err = svc.Create(ctx, carrel.CreateOptions{Template: f.template, Timeout: codeTimeout})
		} else {
			var id carrel.ID
			if id, err = carrel.ParseID(args[0]); err == nil {
				sb, err = svc.Get(ctx, id)
			}
		}
		if err != nil {
			return err
		}
		if f.template != "" {
			defer func() { _ = svc.Kill(context.WithoutCancel(ctx), sb.ID) }() // it ends by itself, too
		}
		comp, err := computer(ctx, svc, sb.ID)
		if err != nil {
			return err
		}
		in := interpreter.New(comp, sb.AccessToken)
		defer in.Close()
		if err := in.Start(ctx); err != nil {
			return err
		}
		return fn(in)
	})
}

// runCell runs a cell and shows what it does.
func (a codeCommands) runCell(ctx context.Context, in *interpreter.Interpreter, f codeFlags,
	code string) error {
	env, err := keyValues("--env", f.envs)
	if err != nil {
		return err
	}
	var failed error
	e, err := in.Run(ctx, interpreter.Cell{Code: code, Context: f.context, Language: f.language,
		Env: env}, func(o interpreter.Output) {
		if err := a.show(o, f.pictures); err != nil && failed == nil {
			failed = err
		}
	})
	if e.Failure != nil {
		a.code = 1
	}
	return errors.Join(err, failed)
}

// show shows one output.
func (a codeCommands) show(o interpreter.Output, p pictures) error {
	if a.json {
		return json.NewEncoder(a.out).Encode(jsonOutput(o))
	}
	switch {
	case o.Failure != nil:
		text := o.Failure.Traceback
		if text == "" {
			text = o.Failure.Name + ": " + o.Failure.Value
		}
		fmt.Fprintln(a.err, strings.TrimRight(text, "\n"))
	case o.Result != nil:
		return a.showResult(*o.Result, p)
	default:
		fmt.Fprint(a.out, o.Stdout)
		fmt.Fprint(a.err, o.Stderr)
	}
	return nil
}

// jsonOutput is an output for --json.
func jsonOutput(o interpreter.Output) any {
	switch {
	case o.Failure != nil:
		return map[string]any{"type": "error", "error": o.Failure}
	case o.Result != nil:
		return map[string]any{"type": "result", "result": o.Result}
	case o.Stderr != "":
		return map[string]any{"type": "stderr", "text": o.Stderr}
	}
	return map[string]any{"type": "stdout", "text": o.Stdout}
}

// showResult shows a value: as a picture if it has one, otherwise as text.
func (a codeCommands) showResult(r interpreter.Result, p pictures) error {
	for _, pic := range []picture{{"png", r.PNG}, {"jpg", r.JPEG}, {"svg", []byte(r.SVG)},
		{"pdf", r.PDF}} {
		if len(pic.data) > 0 {
			return p.show(a.out, a.err, pic, isTerminal(a.out))
		}
	}
	for _, text := range []string{r.Text, r.Markdown, r.LaTeX, r.HTML, string(r.JSON), r.JavaScript} {
		if text != "" {
			_, err := fmt.Fprintln(a.out, text)
			return err
		}
	}
	return nil
}
