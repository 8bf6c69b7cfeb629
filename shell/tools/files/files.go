// Package files has programs for files and directories: ls, cp, find, diff, patch and others, with
// the options, the messages and the exit statuses of GNU's.
//
// Trees are walked without recursion, so that a deep tree can't exhaust Go's stack. Every visited
// entry is paid for. Requests for things that the simulated machine does not have (block devices,
// security labels, remote machines) are refused with a message.
package files

import (
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
)

// Commands returns the programs of this package by name.
func Commands() map[string]tool.Command {
	all := map[string]tool.Command{
		"ls": ls, "dir": ls, "vdir": ls, "cp": cp, "mv": mv, "install": install, "rm": rm, "mkdir": mkdir, "rmdir": rmdir, "ln": ln, "touch": touch,
		"chmod": chmod, "chown": chown, "chgrp": chown, "stat": stat, "xargs": xargs, "tree": tree, "du": du, "df": df,
		"file": file, "realpath": realpath, "readlink": readlink, "basename": basename, "dirname": dirname, "pathchk": pathchk,
		"mktemp": mktemp, "truncate": truncate, "dd": dd, "link": link, "unlink": unlink, "mkfifo": mkfifo, "mknod": mknod,
		"shred": shred, "cmp": cmp, "diff": diff, "patch": patch, "rsync": rsync,
	}
	for name, run := range all {
		all[name] = withHelp(run)
	}
	all["find"] = find
	return all
}

// usages are the first lines of --help.
var usages = map[string]string{
	"ls": "[OPTION]... [FILE]...", "dir": "[OPTION]... [FILE]...", "vdir": "[OPTION]... [FILE]...", "cp": "[OPTION]... [-T] SOURCE DEST",
	"mv": "[OPTION]... [-T] SOURCE DEST", "install": "[OPTION]... [-T] SOURCE DEST", "rm": "[OPTION]... [FILE]...",
	"mkdir": "[OPTION]... DIRECTORY...", "rmdir": "[OPTION]... DIRECTORY...", "ln": "[OPTION]... [-T] TARGET LINK_NAME",
	"touch": "[OPTION]... FILE...", "chmod": "[OPTION]... MODE[,MODE]... FILE...", "chown": "[OPTION]... [OWNER][:[GROUP]] FILE...",
	"chgrp": "[OPTION]... GROUP FILE...", "stat": "[OPTION]... FILE...", "xargs": "[OPTION]... COMMAND [INITIAL-ARGS]...",
	"tree": "[OPTION]... [DIRECTORY]...", "du": "[OPTION]... [FILE]...", "df": "[OPTION]... [FILE]...", "file": "[OPTION...] [FILE...]",
	"realpath": "[OPTION]... FILE...", "readlink": "[OPTION]... FILE...", "basename": "NAME [SUFFIX]", "dirname": "[OPTION] NAME...",
	"pathchk": "[OPTION]... NAME...", "mktemp": "[OPTION]... [TEMPLATE]", "truncate": "OPTION... FILE...", "dd": "[OPERAND]...",
	"link": "FILE1 FILE2", "unlink": "FILE", "mkfifo": "[OPTION]... NAME...", "mknod": "[OPTION]... NAME TYPE [MAJOR MINOR]",
	"shred": "[OPTION]... FILE...", "cmp": "[OPTION]... FILE1 [FILE2 [SKIP1 [SKIP2]]]", "diff": "[OPTION]... FILES", "rsync": "[OPTION]... SRC [SRC]... DEST",
}

// withHelp handles --help and --version before a program sees its arguments.
func withHelp(run tool.Command) tool.Command {
	return func(c *tool.Call) int {
		for _, a := range c.Args {
			switch {
			case a == "--":
				return run(c)
			case a == "--help":
				_, _ = c.Out.Write([]byte("Usage: " + c.Base() + " " + usages[c.Base()] + "\n"))
				return 0
			case a == "--version":
				_, _ = c.Out.Write([]byte(c.Base() + " (Carrel) 1.0, after the GNU program of that name\n"))
				return 0
			case c.Base() == "xargs" && !strings.HasPrefix(a, "-"):
				return run(c) // later options belong to the command
			}
		}
		return run(c)
	}
}
