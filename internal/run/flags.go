package run

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/settings"
)

// Options are the flags of "carrel run".
type Options struct {
	allow, deny, read, noRead, write, noWrite []string
	env, profiles, publish, sockets           []string
	protect, unprotect                        []string
	policy, settingsFile, tier, command       string
	memory, fileSize, tmpSize, copyMax        string
	cpus                                      float64
	pids, openFiles                           int
	timeout                                   time.Duration
	overlay, apply, noBind, internet, host    bool
	light, trust, noSettings                  bool
	diff, report, table                       string
	dryRun, explain, quiet                    bool
	// JSON prints the output of --dry-run and --explain as JSON.
	JSON  bool
	given func(name string) bool
}

// AddFlags defines the flags in fs and returns the Options that they set.
func AddFlags(fs *pflag.FlagSet) *Options {
	o := &Options{given: fs.Changed}
	fs.SetInterspersed(false) // everything after the command belongs to it
	list := func(p *[]string, name, usage string) { fs.StringArrayVar(p, name, nil, usage+" (repeat)") }
	list(&o.allow, "allow", "let it reach DEST: example.com, *.example.com, an address or CIDR, tcp://HOST:PORT")
	list(&o.deny, "deny", "never let it reach DEST, whatever is allowed")
	fs.BoolVar(&o.internet, "internet", false, "let it reach the internet (never this host or private networks)")
	fs.BoolVar(&o.host, "host-network", false, "no network wall at all")
	fs.StringVar(&o.policy, "policy", "", "what may leave: a policy file, or names of presets (see carrel policy)")
	list(&o.publish, "publish", "make a port inside reachable: [ADDRESS:]PORT[:INSIDE]")
	list(&o.sockets, "socket", "let it connect to the Unix socket PATH outside")
	fs.BoolVar(&o.noBind, "no-bind", false, "no listening on ports")
	list(&o.read, "read", "let it read PATH")
	list(&o.noRead, "no-read", "keep it from reading PATH or GLOB")
	list(&o.write, "write", "let it write PATH")
	list(&o.noWrite, "no-write", "keep it from writing PATH or GLOB")
	list(&o.protect, "protect", "never write NAME, whatever directory it is in")
	list(&o.unprotect, "unprotect", "let it write a protected NAME, such as .git/config")
	list(&o.env, "env", "NAME keeps a variable that is stripped otherwise, NAME=VALUE sets one, NAME- strips one")
	list(&o.profiles, "profile", "settings for a tool (see --profile help)")
	fs.StringVar(&o.settingsFile, "settings", "", "a settings file: ours, or sandbox-runtime's as it is")
	fs.BoolVar(&o.noSettings, "no-settings", false, "read neither the user's settings nor the project's")
	fs.BoolVar(&o.trust, "trust", false, "trust the project's .carrel.yaml as it is now, from now on")
	fs.StringVar(&o.tier, "tier", "", "how strong the wall is: ns (default), gvisor or sim")
	fs.StringVar(&o.copyMax, "copy-max", "", "with --tier gvisor or sim: how much of the working directory may be copied (default 1G, sim 256M)")
	fs.BoolVar(&o.light, "light", false, "without namespaces: Landlock and a system call filter alone")
	fs.Float64Var(&o.cpus, "cpu", 0, "processors it may use, such as 1.5")
	fs.StringVar(&o.memory, "memory", "", "memory it may use, such as 512M or 2G")
	fs.IntVar(&o.pids, "pids", 0, "processes and threads it may have")
	fs.IntVar(&o.openFiles, "open-files", 0, "files each process may have open")
	fs.StringVar(&o.fileSize, "file-size", "", "how big a file it writes may get")
	fs.StringVar(&o.tmpSize, "tmp-size", "", "how big its private /tmp may get (default 1G)")
	fs.DurationVar(&o.timeout, "timeout", 0, "end it after this time, such as 90s (exit status 124)")
	fs.BoolVar(&o.overlay, "overlay", false, "keep its changes apart: afterwards they are thrown away, unless --apply")
	fs.StringVar(&o.diff, "diff", "", "with --overlay: afterwards write the changes as a diff to FILE (default standard output)")
	fs.Lookup("diff").NoOptDefVal = "-"
	fs.BoolVar(&o.apply, "apply", false, "with --overlay: afterwards carry the changes out")
	fs.StringVarP(&o.command, "command", "c", "", "run a line of shell")
	fs.BoolVar(&o.dryRun, "dry-run", false, "say what the box would be like, and run nothing")
	fs.BoolVar(&o.explain, "explain", false, "the same, with where each decision came from")
	fs.StringVar(&o.report, "report", "", "write what was refused to FILE, as JSON")
	fs.BoolVarP(&o.quiet, "quiet", "q", false, "say nothing of what was refused")
	fs.StringVar(&o.table, "wire-table", "", "names and addresses of a made-up internet, for tests")
	return o
}

// layer turns the flags into settings.
func (o *Options) layer() (s settings.Settings, err error) {
	s.Profiles, s.Tier = o.profiles, o.tier
	s.Read = settings.PathRules{Allow: o.read, Deny: o.noRead}
	s.Write = settings.PathRules{Allow: o.write, Deny: o.noWrite, Protect: o.protect, Unprotect: o.unprotect}
	s.Network = settings.NetworkRules{Allow: o.allow, Deny: o.deny, PolicyRef: o.policy, Sockets: o.sockets, Publish: o.publish, Host: o.host}
	if o.internet {
		s.Network.Policy = &carrel.Policy{Default: "allow"}
	}
	if o.noBind {
		no := false
		s.Network.Bind = &no
	}
	if o.overlay || o.apply || o.diff != "" {
		yes := true
		s.Overlay = &yes
	}
	if o.light {
		s.Walls = "light"
	}
	if s.Env, err = environment(o.env); err != nil {
		return s, err
	}
	s.Limits, err = o.limits()
	return s, err
}

// environment reads the --env flags.
func environment(flags []string) (e settings.EnvRules, err error) {
	for _, f := range flags {
		name, value, set := strings.Cut(f, "=")
		switch stripped := strings.TrimSuffix(name, "-"); {
		case name == "" || strings.ContainsRune(f, 0):
			return e, invalid("--env", fmt.Errorf("%q names no variable", f))
		case set:
			if e.Set == nil {
				e.Set = map[string]string{}
			}
			e.Set[name] = value
		case stripped != name:
			e.Strip = append(e.Strip, stripped)
		default:
			e.Pass = append(e.Pass, name)
		}
	}
	return e, nil
}

// copyLimit reads --copy-max.
func (o *Options) copyLimit(b *settings.Box) (int64, error) {
	if !o.given("copy-max") {
		return 0, nil
	}
	if b.Tier == "" || b.Tier == carrel.NS {
		return 0, invalid("--copy-max", errors.New("only --tier gvisor and --tier sim work on a copy"))
	}
	mb, err := settings.ParseSize(o.copyMax)
	if err == nil && mb == 0 {
		err = errors.New("it must be larger than 0")
	}
	if err != nil {
		return 0, invalid("--copy-max", err)
	}
	return int64(mb) << 20, nil
}

// limits reads the flags for limits.
func (o *Options) limits() (l settings.Limits, err error) {
	for _, f := range []struct {
		name, text string
		to         **int
	}{{"memory", o.memory, &l.MemoryMB}, {"file-size", o.fileSize, &l.FileMB}, {"tmp-size", o.tmpSize, &l.TmpMB}} {
		if !o.given(f.name) {
			continue
		}
		mb, err := settings.ParseSize(f.text)
		if err != nil {
			return l, invalid("--"+f.name, err)
		}
		*f.to = &mb
	}
	for _, f := range []struct {
		name  string
		value int
		to    **int
	}{{"pids", o.pids, &l.Pids}, {"open-files", o.openFiles, &l.OpenFiles}} {
		if o.given(f.name) {
			if f.value < 1 {
				return l, invalid("--"+f.name, fmt.Errorf("%d is not positive", f.value))
			}
			*f.to = &f.value
		}
	}
	if o.given("cpu") {
		if !(o.cpus > 0) || math.IsInf(o.cpus, 0) {
			return l, invalid("--cpu", fmt.Errorf("%v is not positive", o.cpus))
		}
		l.CPUs = &o.cpus
	}
	if o.given("timeout") {
		if o.timeout <= 0 {
			return l, invalid("--timeout", fmt.Errorf("%v is not positive", o.timeout))
		}
		l.Timeout = &o.timeout
	}
	return l, nil
}

// args returns the command line to run.
func (o *Options) args(rest []string) ([]string, error) {
	if o.command != "" || o.given("command") {
		shell := []string{"bash", "-c", o.command}
		if len(rest) > 0 {
			shell = append(shell, rest...)
		}
		return shell, nil
	}
	if len(rest) == 0 || rest[0] == "" {
		return nil, invalid("command", errors.New("no command to run: carrel run [flags] -- COMMAND [ARG…]"))
	}
	return rest, nil
}

// invalid returns an error about one flag.
func invalid(field string, err error) error {
	return &carrel.Error{Op: "run", Kind: carrel.Invalid, Field: field, Err: err, Hint: "see carrel run --help"}
}
