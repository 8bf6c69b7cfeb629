// Package git has git, on the machine's disk.
//
// The module go-git implements objects, packs, the index and the protocol. All output for users is
// written here. go-git can reach the host in three ways, and this package uses none of them. First,
// the user's and the system's configuration: this package always gives the author, so go-git never
// reads it. Second, the transports: all are replaced. http and https go through tool.HTTP, paths
// stay on the machine's disk, ssh and git are refused. Third, osfs: only PlainOpen and similar
// functions use it. A test checks this.
package git

import (
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
)

// Commands returns the programs of this package by name.
func Commands() map[string]tool.Command { return map[string]tool.Command{"git": runGit} }

// fatal is an error that git prints after "fatal:". git then exits with status 128.
type fatal struct{ text string }

// Error implements error.
func (f *fatal) Error() string { return f.text }

func fatalf(format string, args ...any) error { return &fatal{fmt.Sprintf(format, args...)} }

// exit ends git with a status. All messages have been written.
type exit int

// Error implements error.
func (e exit) Error() string { return "" }

// git is one run.
type git struct {
	*tool.Call
	dir      string   // where it works
	settings []string // -c name=value
	gitDir   string   // --git-dir
	workTree string
	cmd      string
	args     []string
	w        io.Writer
}

// command is a subcommand. If it needs a repository, it gets one.
type command struct {
	run  func(g *git, r *repo) error
	bare bool // needs none
}

var commands map[string]command

func init() {
	commands = map[string]command{
		"init": {cmdInit, true}, "clone": {cmdClone, true}, "config": {cmdConfig, true}, "version": {cmdVersion, true}, "help": {cmdHelp, true},
		"hash-object": {cmdHashObject, true}, "ls-remote": {cmdLsRemote, true},
		"add": {run: cmdAdd}, "stage": {run: cmdAdd}, "rm": {run: cmdRm}, "mv": {run: cmdMv}, "status": {run: cmdStatus}, "commit": {run: cmdCommit},
		"log": {run: cmdLog}, "show": {run: cmdShow}, "diff": {run: cmdDiff, bare: true}, "branch": {run: cmdBranch}, "checkout": {run: cmdCheckout},
		"switch": {run: cmdSwitch}, "restore": {run: cmdRestore}, "reset": {run: cmdReset}, "merge": {run: cmdMerge}, "cherry-pick": {run: cmdPick},
		"revert": {run: cmdPick}, "rebase": {run: cmdRebase}, "stash": {run: cmdStash}, "tag": {run: cmdTag}, "remote": {run: cmdRemote},
		"fetch": {run: cmdFetch}, "pull": {run: cmdPull}, "push": {run: cmdPush}, "rev-parse": {run: cmdRevParse}, "rev-list": {run: cmdRevList},
		"ls-files": {run: cmdLsFiles}, "ls-tree": {run: cmdLsTree}, "cat-file": {run: cmdCatFile}, "describe": {run: cmdDescribe},
		"blame": {run: cmdBlame}, "annotate": {run: cmdBlame}, "grep": {run: cmdGrep}, "clean": {run: cmdClean}, "apply": {run: cmdApply, bare: true},
		"shortlog": {run: cmdShortlog}, "symbolic-ref": {run: cmdSymbolicRef}, "show-ref": {run: cmdShowRef}, "merge-base": {run: cmdMergeBase},
		"write-tree": {run: cmdWriteTree}, "update-ref": {run: cmdUpdateRef}, "check-ignore": {run: cmdCheckIgnore}, "gc": {run: cmdNothing},
		"fsck": {run: cmdNothing}, "prune": {run: cmdNothing}, "reflog": {run: cmdReflog}, "for-each-ref": {run: cmdForEachRef}, "diff-tree": {run: cmdDiffTree},
		"count-objects": {run: cmdCountObjects},
	}
}

// absent are git commands that are left out on purpose.
var absent = strings.Fields(`am archive bisect bundle cherry citool difftool fast-export fast-import filter-branch format-patch gui gitk
	instaweb lfs maintenance mergetool notes p4 range-diff request-pull rerere replace send-email sparse-checkout submodule subtree svn
	worktree daemon http-backend credential commit-tree mktree read-tree update-index pack-objects verify-commit verify-tag`)

// runGit is git.
func runGit(c *tool.Call) int {
	out := c.Buffered()
	g := &git{Call: c, dir: c.Dir(), w: out}
	err := g.main()
	status := 0
	var f *fatal
	var e exit
	switch {
	case err == nil:
	case errors.As(err, &e):
		status = int(e)
	case c.Stopped(err):
		return 1
	case errors.As(err, &f):
		_ = out.Flush() // what came before the error
		fmt.Fprintf(c.Err, "fatal: %s\n", f.text)
		status = 128
	default:
		_ = out.Flush() // what came before the error
		fmt.Fprintf(c.Err, "fatal: %s\n", tool.ErrText(err))
		status = 128
	}
	return c.Flush(out, status)
}

func (g *git) main() error {
	args := g.Args
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		a := args[0]
		args = args[1:]
		name, value, has := strings.Cut(a, "=")
		need := func() (string, error) {
			if has && strings.HasPrefix(a, "--") {
				return value, nil
			}
			if len(args) == 0 {
				return "", g.usage("no directory given for '%s' option", a)
			}
			v := args[0]
			args = args[1:]
			return v, nil
		}
		var err error
		var v string
		switch name {
		case "-C":
			if v, err = need(); err == nil && v != "" {
				g.dir = g.path(v)
				if i, serr := g.FS().Stat(g.dir); serr != nil || !i.Mode.IsDir() {
					text := "No such file or directory"
					if serr == nil {
						text = "Not a directory"
					}
					err = fatalf("cannot change to '%s': %s", v, text)
				}
			}
		case "-c":
			if v, err = need(); err == nil {
				g.settings = append(g.settings, v)
			}
		case "--git-dir":
			g.gitDir, err = need()
		case "--work-tree":
			g.workTree, err = need()
		case "--no-pager", "-P", "-p", "--paginate", "--bare", "--literal-pathspecs", "--no-optional-locks", "--no-replace-objects":
		case "--version", "-v":
			return cmdVersion(g, nil)
		case "--help", "-h":
			return cmdHelp(g, nil)
		case "--exec-path":
			fmt.Fprintln(g.w, "/usr/lib/git-core")
			return nil
		default:
			return g.usage("unknown option: %s", a)
		}
		if err != nil {
			return err
		}
	}
	if len(args) == 0 {
		_ = cmdHelp(g, nil) // as git without arguments does
		return exit(1)
	}
	g.cmd, g.args = args[0], args[1:]
	return g.dispatch(0)
}

func (g *git) usage(format string, args ...any) error {
	fmt.Fprintf(g.Err, format+"\n", args...)
	fmt.Fprint(g.Err, "usage: git [-v | --version] [-h | --help] [-C <path>] [-c <name>=<value>] <command> [<args>]\n")
	return exit(129)
}

// dispatch runs the subcommand or the alias.
func (g *git) dispatch(depth int) error {
	cmd, ok := commands[g.cmd]
	if !ok {
		if slices.Contains(absent, g.cmd) {
			return fatalf("git %s is not available on this machine", g.cmd)
		}
		r, err := g.open()
		if err != nil {
			r = nil
		}
		if alias := g.config(r).get("alias." + g.cmd); alias != "" && depth < 10 && !strings.HasPrefix(alias, "!") {
			words := strings.Fields(alias)
			g.cmd, g.args = words[0], append(words[1:], g.args...)
			return g.dispatch(depth + 1)
		}
		fmt.Fprintf(g.Err, "git: '%s' is not a git command. See 'git --help'.\n", g.cmd)
		return exit(1)
	}
	r, err := g.open()
	if err != nil && !cmd.bare {
		return err
	}
	if err != nil {
		r = nil
	}
	return cmd.run(g, r)
}

// path makes a name absolute.
func (g *git) path(name string) string {
	if strings.HasPrefix(name, "/") {
		return path.Clean(name)
	}
	return path.Join(g.dir, name)
}

func (g *git) printf(format string, args ...any) { fmt.Fprintf(g.w, format, args...) }

func (g *git) warnf(format string, args ...any) { fmt.Fprintf(g.Err, format+"\n", args...) }

// flags reads the options of a subcommand by the rules of tool.Call.Flags, but with git's error
// messages.
func (g *git) flags(short string, long ...string) (tool.Flags, error) {
	call := *g.Call
	call.Args, call.Name = g.args, "git"
	var said strings.Builder
	call.Err = &said
	f, ok := call.Flags(short, long...)
	if ok {
		return f, nil
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(said.String(), "git: "), "\n")
	switch {
	case strings.HasPrefix(text, "unrecognized option '--"):
		text = "unknown option `" + strings.Trim(text[len("unrecognized option '--"):], "'") + "'"
	case strings.HasPrefix(text, "invalid option -- '"):
		text = "unknown switch `" + strings.Trim(text[len("invalid option -- '"):], "'") + "'"
	}
	g.warnf("error: %s\nusage: git %s [<options>]", text, g.cmd)
	return f, exit(129)
}

func cmdVersion(g *git, _ *repo) error {
	g.printf("git version 2.39.5\n")
	return nil
}

func cmdHelp(g *git, _ *repo) error {
	g.printf("usage: git [-v | --version] [-h | --help] [-C <path>] [-c <name>=<value>] <command> [<args>]\n\nCommands on this machine:\n")
	var names []string
	for n := range commands {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		g.printf("   %s\n", n)
	}
	return nil
}

func cmdNothing(*git, *repo) error { return nil }
