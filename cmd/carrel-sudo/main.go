// Command carrel-sudo is sudo for sandboxes whose image has none; its rules are in package sudo. It
// is set-uid root inside the sandbox. It is in the guest's read-only image, and no host executes it
// with that bit.
//
// It replaces itself with the command, so that signals, the terminal and the exit code are the
// command's own.
package main

import (
	"errors"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/guest/sudo"
	"github.com/carrel-dev/carrel/internal/version"
)

func main() {
	var args []string
	if len(os.Args) > 0 { // a caller can omit even the name
		args = os.Args[1:]
	}
	os.Exit(run(args))
}

// run does the requested action and returns an exit code, unless it has become the command.
func run(args []string) int {
	if why := powerless(); why != "" {
		say(os.Stderr, "sudo: "+why+"\n")
		return 1
	}
	r, err := sudo.Parse(args)
	if err != nil {
		if err.Error() != "" {
			say(os.Stderr, "sudo: "+err.Error()+"\n")
		}
		say(os.Stderr, sudo.Usage)
		return 1
	}
	switch r.Mode {
	case sudo.Help:
		say(os.Stdout, "sudo - execute a command as another user\n\n"+sudo.Usage)
		return 0
	case sudo.Version:
		say(os.Stdout, "Sudo version 1.9 (carrel "+version.Version+")\n")
		return 0
	case sudo.Forget:
		return 0
	}
	accounts, err := readAccounts()
	if err != nil {
		return fail(err)
	}
	host, _ := os.Hostname() // only to be shown
	caller := sudo.Caller{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Env: os.Environ()}
	from, err := sudo.Authorize(r, caller, accounts, host)
	if err != nil {
		return fail(err)
	}
	switch {
	case r.Mode == sudo.Validate:
		return 0
	case r.Mode == sudo.List && len(r.Command) == 0:
		say(os.Stdout, sudo.Allowed(from.Name, host))
		return 0
	case r.Mode == sudo.List:
		file := sudo.Look(r.Command[0], runnable)
		if file == "" {
			return 1
		}
		say(os.Stdout, strings.Join(append([]string{file}, r.Command[1:]...), " ")+"\n")
		return 0
	}
	cmd, err := sudo.Plan(r, caller, from, accounts, runnable)
	if err == nil {
		err = execute(cmd)
	}
	if err != nil {
		return fail(err)
	}
	return 0 // in the background
}

// say writes a text. It ignores errors, because nobody could be told.
func say(to io.Writer, text string) { _, _ = io.WriteString(to, text) }

// fail says what is wrong.
func fail(err error) int {
	say(os.Stderr, err.Error()+"\n")
	return 1
}

// powerless returns the reason why this process can't become another user, "" if it can.
func powerless() string {
	if os.Geteuid() == 0 {
		return ""
	}
	if set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err == nil && set == 1 {
		return `The "no new privileges" flag is set, which prevents sudo from running as root.`
	}
	return "effective uid is not 0, is /usr/bin/sudo on a file system with the 'nosuid' option set or an NFS file system without root privileges?"
}

// readAccounts reads the account files. Without them only root is known.
func readAccounts() (*sudo.Accounts, error) {
	var data [2][]byte
	for i, name := range []string{"/etc/passwd", "/etc/group"} {
		var err error
		if data[i], err = os.ReadFile(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, errors.New("sudo: " + err.Error())
		}
	}
	return sudo.NewAccounts(data[0], data[1]), nil
}

// runnable reports whether there is a program at a path. Root may run a file if anybody may.
func runnable(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// execute becomes the command's user and then the command. It returns only with an error, or if the
// command runs in the background.
func execute(c sudo.Command) error {
	if err := become(c); err != nil {
		return errors.New("sudo: unable to change to the new user: " + err.Error())
	}
	syscall.Umask(syscall.Umask(0o077) | 0o022)
	if c.Dir != "" {
		if err := os.Chdir(c.Dir); err != nil {
			say(os.Stderr, "sudo: unable to change directory to "+c.Dir+": "+reason(err)+"\n")
		}
	}
	err := start(c)
	if errors.Is(err, syscall.ENOEXEC) { // a script whose first line names no interpreter
		c.Path, c.Args = "/bin/sh", append([]string{"sh", c.Path}, c.Args[1:]...)
		err = start(c)
	}
	if err != nil {
		return errors.New("sudo: unable to execute " + c.Path + ": " + reason(err))
	}
	return nil
}

// start executes the command in place of this process, or beside it.
func start(c sudo.Command) error {
	if !c.Background {
		return syscall.Exec(c.Path, c.Args, c.Env)
	}
	_, err := syscall.ForkExec(c.Path, c.Args, &syscall.ProcAttr{Env: c.Env, Files: []uintptr{0, 1, 2}})
	return err
}

// become changes this process's identity to the command's. Groups come first, because that needs
// root; the user comes last. It checks the result, and does not rely on the lack of an error.
func become(c sudo.Command) error {
	groups := make([]int, len(c.Groups))
	for i, g := range c.Groups {
		groups[i] = int(g)
	}
	uid, gid := int(c.UID), int(c.GID)
	if err := syscall.Setgroups(groups); err != nil && !groupsFixed() {
		return err
	}
	if err := syscall.Setresgid(gid, gid, gid); err != nil {
		return err
	}
	if err := syscall.Setresuid(uid, uid, uid); err != nil {
		return err
	}
	r, e, s := unix.Getresuid()
	rg, eg, sg := unix.Getresgid()
	if r != uid || e != uid || s != uid || rg != gid || eg != gid || sg != gid {
		return syscall.EPERM
	}
	return nil
}

// groupsFixed reports whether even root may not set groups here, see user_namespaces(7). Then
// nobody has groups that could be lost or kept.
func groupsFixed() bool {
	text, err := os.ReadFile("/proc/self/setgroups")
	return err == nil && strings.TrimSpace(string(text)) == "deny"
}

// reason returns an error without the call and the path, in the C library's words.
func reason(err error) string {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return err.Error()
	}
	text := errno.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}
