// Package system has programs about the machine, its processes, time and users: ps, date, env,
// timeout, …
//
// Some programs need things that the simulated machine does not have: its own network, services,
// packages. They say so and name a solution.
package system

import (
	"maps"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// Commands returns the programs of this package by name.
func Commands() map[string]tool.Command {
	all := usage.Commands(map[string]usage.Program{
		"date":     {Run: date, Args: "[OPTION]... [+FORMAT]", What: "Tells the time, now or as -d says, in the form that +FORMAT describes."},
		"cal":      {Run: cal, Args: "[options] [[[day] month] year]", What: "Prints a month or a year as a calendar."},
		"ncal":     {Run: cal, Args: "[options] [[month] year]", What: "Prints a month or a year as a calendar."},
		"sleep":    {Run: sleep, Args: "NUMBER[SUFFIX]...", What: "Waits; s, m, h and d after a number are units."},
		"timeout":  {Run: timeout, Args: "[OPTION] DURATION COMMAND [ARG]...", What: "Runs a command for so long at most, and then ends it with a signal.", Leading: true},
		"time":     {Run: timeCommand, Args: "[-apvV] [-f format] [-o file] command [arg...]", What: "Runs a command and tells what time it took.", Leading: true},
		"env":      {Run: env, Args: "[OPTION]... [-] [NAME=VALUE]... [COMMAND [ARG]...]", What: "Changes variables for one command, or prints them when there is none.", Leading: true},
		"printenv": {Run: printenv, Args: "[OPTION]... [VARIABLE]...", What: "Prints variables: those that are named, or all with their names."},
		"nohup":    {Run: nohup, Args: "COMMAND [ARG]...", What: "Runs a command that lives on when the terminal goes.", Leading: true},
		"nice":     {Run: wrapper("n:", "adjustment=n"), Args: "[OPTION] [COMMAND [ARG]...]", What: "Runs a command; priorities do nothing in this machine.", Leading: true},
		"ionice":   {Run: wrapper("c:n:t", "class=c", "classdata=n", "ignore=t"), Args: "[options] <command>", What: "Runs a command; this machine schedules no input or output.", Leading: true},
		"chrt":     {Run: wrapper("bfior:", "batch=b", "fifo=f", "idle=i", "other=o", "rr=r:"), Args: "[options] <prio> <command>", What: "Runs a command; this machine has one way to schedule.", Leading: true},
		"setsid":   {Run: wrapper("cfw", "ctty=c", "fork=f", "wait=w"), Args: "[options] <program> [arguments ...]", What: "Runs a command as the leader of a session of its own.", Leading: true},
		"stdbuf":   {Run: wrapper("i:o:e:", "input=i", "output=o", "error=e"), Args: "OPTION... COMMAND", What: "Runs a command; how it buffers its streams stays as it is.", Leading: true},
		"sudo":     {Run: sudo, Args: "[-u user] command", What: "Runs a command in the name of root or, with -u, of somebody else.", Leading: true},
		"su":       {Run: su, Args: "[options] [-] [user]", What: "Starts a shell in the name of root or of the user that is given.", Leading: true},
		"id":       {Run: id, Args: "[OPTION]... [USER]...", What: "Tells the numbers and names of a user and the groups."},
		"whoami":   {Run: whoami, Args: "[OPTION]...", What: "Prints under which user's name it runs."},
		"groups":   {Run: groups, Args: "[OPTION]... [USERNAME]...", What: "Lists the groups that users are in."},
		"logname":  {Run: logname, Args: "[OPTION]", What: "Prints who logged in."},
		"who":      {Run: who, Args: "[OPTION]...", What: "Lists sessions, of which this machine has none."},
		"users":    {Run: who, Args: "[OPTION]...", What: "Lists who has a session, which in this machine is nobody."},
		"w":        {Run: w, Args: "[options]", What: "Shows sessions and what runs in them."},
		"uname":    {Run: uname, Args: "[OPTION]...", What: "Tells the names and versions of kernel and machine."},
		"arch":     {Run: func(c *tool.Call) int { return show(c, "x86_64\n") }, Args: "[OPTION]...", What: "Prints the kind of processor: the same as uname -m."},
		"hostname": {Run: hostname, Args: "[options] [name]", What: "Prints or changes the name of the machine."},
		"nproc":    {Run: nproc, Args: "[OPTION]...", What: "Tells how many processors a program can use."},
		"uptime":   {Run: uptime, Args: "[options]", What: "Tells when the machine began, and how busy it is."},
		"free":     {Run: free, Args: "[options]", What: "Shows the machine's memory: all, taken and left."},
		"lscpu":    {Run: lscpu, Args: "[options]", What: "Describes the processors."},
		"getconf":  {Run: getconf, Args: "[-v specification] variable_name [pathname]", What: "Prints limits and other fixed values of the system by name."},
		"locale":   {Run: locale, Args: "[OPTION...] NAME", What: "Prints which language settings are in force, or what they say about a name."},
		"tty":      {Run: tty, Args: "[OPTION]...", What: "Prints which terminal its input is, if it is one."},
		"clear":    {Run: clearScreen, Args: "[options]", What: "Empties the screen."},
		"reset":    {Run: clearScreen, Args: "[options]", What: "Brings the terminal back into order."},
		"tput":     {Run: tput, Args: "[-T term] capname [parameters]", What: "Prints what makes the terminal do something, or a fact about it."},
		"sync":     {Run: func(*tool.Call) int { return 0 }, Args: "[OPTION] [FILE]...", What: "Does nothing: this machine keeps no writes back."},
		"ps":       {Run: ps, Args: "[options]", What: "Lists processes as they are at this moment."},
		"top":      {Run: top, Args: "-b [-n number]", What: "Lists processes with the machine's load; it needs -b here."},
		"pgrep":    {Run: pgrep, Args: "[options] <pattern>", What: "Finds processes whose names match and prints their numbers."},
		"pkill":    {Run: pgrep, Args: "[options] <pattern>", What: "Finds processes whose names match and sends them a signal."},
		"pidof":    {Run: pidof, Args: "[options] [program...]", What: "Prints the numbers of the processes that run a program."},
		"killall":  {Run: killall, Args: "[options] name ...", What: "Sends a signal to all processes of a name."},
		"which":    {Run: which, Args: "[-as] program ...", What: "Says which file a command's name leads to."},
		"whereis":  {Run: whereis, Args: "[options] name...", What: "Says where a program's files are."},
		"watch":    {Run: watch, Args: "[options] command", What: "Runs a command again and again and shows its latest output.", Leading: true},
		"man":      {Run: man, Args: "page", What: "Says that there are no manual pages here."},
		"getopt":   {Run: getopt, Args: "[options] [--] optstring parameters", What: "Puts a script's options in order, so that a loop can read them.", Leading: true},
		"mcookie":  {Run: mcookie, Args: "[options]", What: "Prints 128 random bits in hexadecimal."},
		"uuidgen":  {Run: uuidgen, Args: "[options]", What: "Prints a fresh UUID: random, or made of the time or a name."},
		"logger":   {Run: logger, Args: "[options] [message]", What: "Takes a message for the system's log, which this machine does not keep."},
		"flock":    {Run: flock, Args: "[options] <file> <command> [<argument>...]", What: "Runs a command while it holds the lock of a file.", Leading: true},
	})
	maps.Copy(all, refusals())
	return all
}
