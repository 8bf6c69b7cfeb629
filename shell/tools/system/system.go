// Package system has programs about the machine, its processes, time and users: ps, date, env, timeout, …
//
// Where the simulated machine has nothing that a program could work on (a network of its own, services, packages), the
// program says so and names the remedy.
package system

import (
	"maps"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// Commands returns the programs of this package by name.
func Commands() map[string]tool.Command {
	all := usage.Commands(map[string]usage.Program{
		"date":     {Run: date, Args: "[OPTION]... [+FORMAT]", What: "Display date and time in the given FORMAT."},
		"cal":      {Run: cal, Args: "[options] [[[day] month] year]", What: "Display a calendar."},
		"ncal":     {Run: cal, Args: "[options] [[month] year]", What: "Display a calendar."},
		"sleep":    {Run: sleep, Args: "NUMBER[SUFFIX]...", What: "Pause for NUMBER seconds."},
		"timeout":  {Run: timeout, Args: "[OPTION] DURATION COMMAND [ARG]...", What: "Start COMMAND, and kill it if still running after DURATION.", Leading: true},
		"time":     {Run: timeCommand, Args: "[-apvV] [-f format] [-o file] command [arg...]", What: "Run a program and say how long it took.", Leading: true},
		"env":      {Run: env, Args: "[OPTION]... [-] [NAME=VALUE]... [COMMAND [ARG]...]", What: "Set each NAME to VALUE in the environment and run COMMAND.", Leading: true},
		"printenv": {Run: printenv, Args: "[OPTION]... [VARIABLE]...", What: "Print the values of the specified environment VARIABLE(s)."},
		"nohup":    {Run: nohup, Args: "COMMAND [ARG]...", What: "Run COMMAND, ignoring hangup signals.", Leading: true},
		"nice":     {Run: wrapper("n:", "adjustment=n"), Args: "[OPTION] [COMMAND [ARG]...]", What: "Run COMMAND with an adjusted niceness, which this machine has none of.", Leading: true},
		"ionice":   {Run: wrapper("c:n:t", "class=c", "classdata=n", "ignore=t"), Args: "[options] <command>", What: "Run COMMAND; this machine schedules no input or output.", Leading: true},
		"chrt":     {Run: wrapper("bfior:", "batch=b", "fifo=f", "idle=i", "other=o", "rr=r:"), Args: "[options] <prio> <command>", What: "Run COMMAND.", Leading: true},
		"setsid":   {Run: wrapper("cfw", "ctty=c", "fork=f", "wait=w"), Args: "[options] <program> [arguments ...]", What: "Run a program in a new session.", Leading: true},
		"stdbuf":   {Run: wrapper("i:o:e:", "input=i", "output=o", "error=e"), Args: "OPTION... COMMAND", What: "Run COMMAND, with modified buffering operations for its standard streams.", Leading: true},
		"sudo":     {Run: sudo, Args: "[-u user] command", What: "Run a command as another user.", Leading: true},
		"su":       {Run: su, Args: "[options] [-] [user]", What: "Run a shell as another user.", Leading: true},
		"id":       {Run: id, Args: "[OPTION]... [USER]...", What: "Print user and group information."},
		"whoami":   {Run: whoami, Args: "[OPTION]...", What: "Print the user name associated with the current effective user ID."},
		"groups":   {Run: groups, Args: "[OPTION]... [USERNAME]...", What: "Print group memberships."},
		"logname":  {Run: logname, Args: "[OPTION]", What: "Print the name of the current user."},
		"who":      {Run: who, Args: "[OPTION]...", What: "Print who is logged in: nobody."},
		"users":    {Run: who, Args: "[OPTION]...", What: "Print who is logged in: nobody."},
		"w":        {Run: w, Args: "[options]", What: "Print who is logged in and what they are doing."},
		"uname":    {Run: uname, Args: "[OPTION]...", What: "Print certain system information."},
		"arch":     {Run: func(c *tool.Call) int { return show(c, "x86_64\n") }, Args: "[OPTION]...", What: "Print machine architecture."},
		"hostname": {Run: hostname, Args: "[options] [name]", What: "Show or set the system's host name."},
		"nproc":    {Run: nproc, Args: "[OPTION]...", What: "Print the number of processing units."},
		"uptime":   {Run: uptime, Args: "[options]", What: "Tell how long the system has been running."},
		"free":     {Run: free, Args: "[options]", What: "Display amount of free and used memory in the system."},
		"lscpu":    {Run: lscpu, Args: "[options]", What: "Display information about the CPU architecture."},
		"getconf":  {Run: getconf, Args: "[-v specification] variable_name [pathname]", What: "Query system configuration variables."},
		"locale":   {Run: locale, Args: "[OPTION...] NAME", What: "Get locale-specific information."},
		"tty":      {Run: tty, Args: "[OPTION]...", What: "Print the file name of the terminal connected to standard input."},
		"clear":    {Run: clearScreen, Args: "[options]", What: "Clear the terminal screen."},
		"reset":    {Run: clearScreen, Args: "[options]", What: "Reset the terminal."},
		"tput":     {Run: tput, Args: "[-T term] capname [parameters]", What: "Query the terminal's capabilities."},
		"sync":     {Run: func(*tool.Call) int { return 0 }, Args: "[OPTION] [FILE]...", What: "Synchronize cached writes, of which this machine has none."},
		"ps":       {Run: ps, Args: "[options]", What: "Report a snapshot of the current processes."},
		"top":      {Run: top, Args: "-b [-n number]", What: "Display processes."},
		"pgrep":    {Run: pgrep, Args: "[options] <pattern>", What: "Look up processes."},
		"pkill":    {Run: pgrep, Args: "[options] <pattern>", What: "Signal processes."},
		"pidof":    {Run: pidof, Args: "[options] [program...]", What: "Find the process ID of a running program."},
		"killall":  {Run: killall, Args: "[options] name ...", What: "Kill processes by name."},
		"which":    {Run: which, Args: "[-as] program ...", What: "Locate a command."},
		"whereis":  {Run: whereis, Args: "[options] name...", What: "Locate the binary of a command."},
		"watch":    {Run: watch, Args: "[options] command", What: "Execute a program periodically, showing output fullscreen.", Leading: true},
		"man":      {Run: man, Args: "page", What: "There are no manual pages in this machine."},
		"getopt":   {Run: getopt, Args: "[options] [--] optstring parameters", What: "Parse command options.", Leading: true},
		"mcookie":  {Run: mcookie, Args: "[options]", What: "Generate a random 128-bit number."},
		"uuidgen":  {Run: uuidgen, Args: "[options]", What: "Create a new UUID value."},
		"logger":   {Run: logger, Args: "[options] [message]", What: "Enter messages into the system log, which this machine has none of."},
		"flock":    {Run: flock, Args: "[options] <file> <command> [<argument>...]", What: "Manage file locks.", Leading: true},
	})
	maps.Copy(all, refusals())
	return all
}
