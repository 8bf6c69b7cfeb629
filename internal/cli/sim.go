package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"

	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/run/simshell"
)

// simFlags are the flags of "carrel sim" as given.
type simFlags struct {
	root           string
	write          bool
	mounts         []string
	network        networkFlags
	env            []string
	seed           uint64
	memory, output int
	timeout        time.Duration
}

// simCommand is "carrel sim".
func (a *app) simCommand() *cobra.Command {
	var f simFlags
	var o simshell.Options
	c := &cobra.Command{
		Use:   "sim [flags] [FILE [ARG…]]",
		Short: "Run a script in a simulated shell that has no computer behind it",
		Long: `Runs a bash script, or a session, in a simulated machine in this process: a shell, the usual
programs and a disk in memory, and no system call behind them. With --root the machine sees a
directory; what is written there stays in memory unless --write is given. It reaches no
network until you say otherwise. The exit status is the script's.`,
		Example: `  carrel sim -c 'echo hello | tr a-z A-Z'
  carrel sim --root . -c 'grep -rn TODO --include=*.go | wc -l'
  carrel sim --allow api.example.com -c 'curl -s https://api.example.com/v1 | jq .name'
  carrel sim --mcp 'npx -y some-mcp-server' -c 'search --query carrel | jq .'
  carrel sim script.sh one two
  carrel sim`,
		RunE: func(c *cobra.Command, args []string) error {
			if !c.Flags().Changed("command") && len(args) > 0 && args[0] != "-" {
				o.File, args = args[0], args[1:]
			} else if len(args) > 0 && args[0] == "-" {
				args = args[1:]
			}
			if c.Flags().Changed("command") && o.Script == "" {
				o.Script = ":"
			}
			o.Args = args
			if err := f.fill(c, &o); err != nil {
				return err
			}
			o.In, o.Out, o.Err = a.in, a.out, a.err
			o.Denied = func(d carrel.Decision) {
				line, _ := strings.CutSuffix(guest.RefusalLine(d), " See "+guest.DeniedFile) // there is no such file here
				fmt.Fprintln(a.err, line)
			}
			// The machine runs in this process, so the collector must work before garbage reaches
			// the machine's limits.
			debug.SetMemoryLimit(o.Limits.Memory + int64(o.DiskMB)<<20)
			code, err := simshell.Run(c.Context(), o)
			if err != nil {
				return ownFailure{err}
			}
			a.code = code
			return nil
		},
	}
	fl := c.Flags()
	fl.SetInterspersed(false)
	fl.StringVarP(&o.Script, "command", "c", "", "the script to run")
	fl.StringVar(&f.root, "root", "", "a directory that the machine sees as /work, and works in; changes stay in memory")
	fl.BoolVar(&f.write, "write", false, "make the changes below --root")
	fl.StringArrayVar(&f.mounts, "mount", nil, "SOURCE:TARGET[:ro|:rw|:cow]: another directory that it sees (cow: changes stay in memory)")
	f.network.addRules(fl)
	fl.StringArrayVarP(&f.env, "env", "e", nil, "NAME=VALUE, or NAME for its value here")
	fl.StringVar(&o.Dir, "workdir", "", "the directory to start in")
	fl.Uint64Var(&f.seed, "seed", 0, "be deterministic: clock, random numbers and process numbers follow from this")
	fl.IntVar(&f.memory, "memory", 512, "MiB that its programs may hold, and as much again its disk")
	fl.IntVar(&f.output, "output", 256, "MiB that it may write to its streams")
	fl.DurationVar(&f.timeout, "timeout", 0, "end it after so long")
	fl.StringArrayVar(&o.Servers, "mcp", nil, "a command that starts an MCP server, whose tools become programs; it runs on this host")
	fl.StringVar(&o.Rules, "mcp-rules", "", "a file of rules for what those tools may be called with")
	fl.StringVar(&o.Table, "wire-table", "", "")
	_ = fl.MarkHidden("wire-table") // a made-up internet for tests
	return c
}

// fill turns the flags into options.
func (f *simFlags) fill(c *cobra.Command, o *simshell.Options) error {
	bad := func(flag string, err error) error {
		return &carrel.Error{Op: "read flags", Kind: carrel.Invalid, Field: "--" + flag, Err: err}
	}
	if f.root != "" {
		mode := simshell.Overlay
		if f.write {
			mode = simshell.Write
		}
		o.Mounts = append(o.Mounts, simshell.Mount{Source: f.root, Target: "/work", Mode: mode})
	} else if f.write {
		return bad("write", fmt.Errorf("it says what becomes of changes below --root, which is not given"))
	}
	for _, text := range f.mounts {
		m, err := parseMount(text)
		if err != nil {
			return bad("mount", err)
		}
		o.Mounts = append(o.Mounts, m)
	}
	for _, kv := range f.env {
		name, _, given := strings.Cut(kv, "=")
		if name == "" {
			return bad("env", fmt.Errorf("%q has no name", kv))
		}
		if !given {
			kv += "=" + os.Getenv(name)
		}
		o.Env = append(o.Env, kv)
	}
	if o.Rules != "" && len(o.Servers) == 0 {
		return bad("mcp-rules", fmt.Errorf("it says what tools may be called with, and no --mcp gives any"))
	}
	if f.memory <= 0 || f.output <= 0 || f.timeout < 0 {
		return bad("memory, --output, --timeout", fmt.Errorf("they must be above nothing"))
	}
	o.Limits.Memory, o.Limits.Output, o.Limits.Wall, o.Limits.Procs = int64(f.memory)<<20, int64(f.output)<<20, f.timeout, 1000
	o.DiskMB = f.memory
	if c.Flags().Changed("seed") {
		o.Seed = &f.seed
	}
	if o.Dir != "" && !filepath.IsAbs(o.Dir) {
		return bad("workdir", fmt.Errorf("%q is not absolute", o.Dir))
	}
	network, said, err := f.network.network()
	if err != nil || !said {
		return err
	}
	if network.Policy == nil {
		network.Policy = &carrel.Policy{Default: "allow"} // --internet alone
	}
	o.Policy = network.Policy
	return nil
}

// parseMount reads SOURCE:TARGET[:MODE].
func parseMount(text string) (simshell.Mount, error) {
	parts := strings.Split(text, ":")
	mode := simshell.ReadOnly
	if len(parts) == 3 {
		switch parts[2] {
		case "ro":
		case "rw":
			mode = simshell.Write
		case "cow":
			mode = simshell.Overlay
		default:
			return simshell.Mount{}, fmt.Errorf("%q: the mode is ro, rw or cow", text)
		}
	}
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || !strings.HasPrefix(parts[1], "/") {
		return simshell.Mount{}, fmt.Errorf("%q is not SOURCE:TARGET[:ro|:rw|:cow] with an absolute target", text)
	}
	return simshell.Mount{Source: parts[0], Target: parts[1], Mode: mode}, nil
}
