// Command attack tries to get out of the sandbox it runs in. Package drivertest builds it, puts it
// into a sandbox and runs it there as root. It exists because shells can't make most of its system
// calls.
//
// Each attempt is one line on standard output: the attempt's name, a tab, the outcome (refused,
// worked, control), a tab, and details. "worked" says that the system let the attempt through. The
// suite decides whether that is an escape, because only it sees the host. "control" lines show that
// the tool itself works: an attempt whose control is missing proves nothing.
//
// No attempt harms a host on which it works: devices are only read, reboot is only asked to change
// the Ctrl-Alt-Del setting, SysRq only prints its help.
package main

import (
	"fmt"
	"os"
	"sort"
)

// attempts are the parts, by name; each takes its own arguments.
var attempts = map[string]func(args []string){
	"canaries": canaries,
	"environ":  environ,
	"proc":     procWrites,
	"mounts":   mounts,
	"devices":  devices,
	"sockets":  rawSockets,
	"pids":     pids,
	"syscalls": syscalls,
	"tty":      terminals,
	"unix":     unixSockets,
	"connect":  connect,
	"dns":      names,
	"listen":   listen,
	"forks":    forks,
	"memory":   memory,
	"disk":     disk,
	"files":    files,
	"witness":  witnessed,
	"echo":     echo,
	"random":   printRandom,
	"tree":     tree,
	"many":     many,
	"odd":      odd,
	"churn":    churn,
	"virtio":   virtio,
}

func main() {
	if len(os.Args) < 2 || attempts[os.Args[1]] == nil {
		var names []string
		for n := range attempts {
			names = append(names, n)
		}
		sort.Strings(names)
		fmt.Fprintln(os.Stderr, "usage: attack PART [ARGUMENT…]; parts:", names)
		os.Exit(2)
	}
	attempts[os.Args[1]](os.Args[2:])
}

func worked(name, detail string, a ...any) { report(name, "worked", detail, a...) }
func control(name, detail string, a ...any) {
	report(name, "control", detail, a...)
}

// result reports one attempt and its outcome, which follows from err.
func result(name string, err error, detail string, a ...any) {
	if err != nil {
		report(name, "refused", "%v", err)
		return
	}
	worked(name, detail, a...)
}

func report(name, outcome, detail string, a ...any) {
	fmt.Printf("%s\t%s\t%s\n", name, outcome, fmt.Sprintf(detail, a...))
}
