package oshost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The account that everything runs as unless a request says otherwise.
const (
	sandboxUser = "user"
	sandboxUID  = 1000
	sandboxHome = "/home/user"
)

// Setup makes the root filesystem of a sandbox fit to work in, whatever image it
// came from: kernel filesystems, temporary directories, the accounts root and
// user, names. What is there stays as it is. All parts are tried; the error tells
// which failed.
func (s *System) Setup(nameServer string) error {
	return errors.Join(
		mountKernel(),
		makeDirs(),
		makeAccounts("/"),
		s.makeHome(),
		makeSudo("/"),
		s.makeApt("/"),
		makeGuestCommand("/"),
		makeNames(nameServer),
	)
}

// mountKernel mounts what programs expect of a kernel, where the sandbox's
// builder has not done so.
func mountKernel() error {
	var errs []error
	for _, m := range []struct {
		source, dir, kind, probe string
		flags                    uintptr
		data                     string
	}{
		{"proc", "/proc", "proc", "/proc/self", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"devtmpfs", "/dev", "devtmpfs", "/dev/null", unix.MS_NOSUID, ""},
		{"devpts", "/dev/pts", "devpts", "/dev/pts/ptmx", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"},
		{"tmpfs", "/dev/shm", "tmpfs", "/dev/shm", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	} {
		if exists(m.probe) {
			continue
		}
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := unix.Mount(m.source, m.dir, m.kind, m.flags, m.data); err != nil {
			errs = append(errs, fmt.Errorf("mount %s: %w", m.dir, err))
		}
	}
	for link, target := range map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1",
		"/dev/stderr": "/proc/self/fd/2", "/dev/ptmx": "pts/ptmx",
	} {
		if !exists(link) {
			if err := os.Symlink(target, link); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// makeDirs makes the directories that programs write to without asking.
func makeDirs() error {
	var errs []error
	for _, d := range []struct {
		name string
		mode fs.FileMode
	}{
		{"/etc", 0o755}, {"/root", 0o700}, {"/home", 0o755}, {"/run", 0o755}, {"/var", 0o755},
		{"/tmp", 0o777 | fs.ModeSticky}, {"/var/tmp", 0o777 | fs.ModeSticky},
	} {
		info, err := os.Stat(d.name)
		if err == nil && (d.mode&fs.ModeSticky == 0 || info.Mode()&(fs.ModePerm|fs.ModeSticky) == d.mode) {
			continue
		}
		if err != nil {
			err = os.MkdirAll(d.name, 0o755)
		}
		if err == nil {
			err = os.Chmod(d.name, d.mode) // the umask does not count here
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// makeAccounts adds root and user to the account files below root, if they are
// not there.
func makeAccounts(root string) error {
	shell := "/bin/sh"
	if exists(filepath.Join(root, "bin/bash")) {
		shell = "/bin/bash"
	}
	uid := sandboxUID
	passwd, _ := os.ReadFile(filepath.Join(root, passwdFile)) // absent: all is added
	var ids []string
	eachLine(passwd, 7, func(f []string) { ids = append(ids, f[2]) })
	for slices.Contains(ids, fmt.Sprint(uid)) {
		uid++ // the image's own account has 1000, and another name
	}
	group, _ := os.ReadFile(filepath.Join(root, groupFile))
	gid := sandboxUID
	var gids []string
	eachLine(group, 4, func(f []string) { gids = append(gids, f[2]) })
	for slices.Contains(gids, fmt.Sprint(gid)) {
		gid++
	}
	eachLine(group, 4, func(f []string) {
		if f[0] == sandboxUser {
			_, _ = fmt.Sscan(f[2], &gid) // a group of that name: it is the user's
		}
	})
	return errors.Join(
		addLine(filepath.Join(root, passwdFile), "root:x:0:0:root:/root:"+shell, 0o644),
		addLine(filepath.Join(root, passwdFile), fmt.Sprintf("%s:x:%d:%d::%s:%s", sandboxUser, uid, gid, sandboxHome, shell), 0o644),
		addLine(filepath.Join(root, groupFile), "root:x:0:", 0o644),
		addLine(filepath.Join(root, groupFile), fmt.Sprintf("%s:x:%d:", sandboxUser, gid), 0o644),
		addShadow(filepath.Join(root, "/etc/shadow")),
	)
}

// addLine adds a line to an account file unless one for the same name is there.
func addLine(file, line string, mode fs.FileMode) error {
	name, _, _ := strings.Cut(line, ":")
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for l := range strings.Lines(string(old)) {
		if strings.HasPrefix(l, name+":") {
			return nil
		}
	}
	if len(old) > 0 && old[len(old)-1] != '\n' {
		old = append(old, '\n')
	}
	return os.WriteFile(file, append(old, line+"\n"...), mode)
}

// addShadow gives user an account without a password where passwords are kept:
// without a line there PAM refuses even the password-less sudo.
func addShadow(file string) error {
	if !exists(file) {
		return nil
	}
	return addLine(file, sandboxUser+":*:19000:0:99999:7:::", 0o640)
}

// makeHome makes the home of user, with the files a new account gets.
func (s *System) makeHome() error {
	a := &accounts{}
	a.refresh()
	u, ok := a.users[sandboxUser]
	if !ok {
		return fmt.Errorf("account %s: %w", sandboxUser, fs.ErrNotExist)
	}
	u = s.possible(u)
	if exists(u.Home) {
		return nil
	}
	if err := os.MkdirAll(u.Home, 0o755); err != nil {
		return err
	}
	skeleton, _ := filepath.Glob("/etc/skel/.[a-z]*") // the pattern is good
	for _, from := range skeleton {
		data, err := os.ReadFile(from)
		if err != nil {
			continue // a directory, or not for us
		}
		to := filepath.Join(u.Home, filepath.Base(from))
		if os.WriteFile(to, data, 0o644) == nil {
			_ = os.Chown(to, int(u.UID), int(u.GID)) // the directory's own chown below tells of trouble
		}
	}
	return os.Chown(u.Home, int(u.UID), int(u.GID))
}

// makeApt has apt download as root where there is nobody else: it would refuse to work otherwise.
func (s *System) makeApt(root string) error {
	const other = 42 // _apt, or any other account
	dir := filepath.Join(root, "etc/apt/apt.conf.d")
	file := filepath.Join(dir, "00carrel-one-user")
	if s.uids.has(other) || !exists(filepath.Join(root, "usr/bin/apt-get")) || exists(file) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte("APT::Sandbox::User \"root\";\n"), 0o644)
}

// ownSudo is the guest's sudo, beside the guest itself.
const ownSudo = "/.carrel/sudo"

// makeSudo lets user become root without a password: the sandbox is the wall, not
// the account. An image without a sudo gets a link to the guest's, which knows
// that rule by itself. The rule is written down all the same, for a sudo that is
// installed later; sudoers itself is not, that package brings its own.
func makeSudo(root string) error {
	has, own := findSudo(root)
	if !has {
		if !exists(filepath.Join(root, ownSudo)) {
			return nil
		}
		linkSudo(root)
	}
	if !has || own {
		_ = writeSudoers(root, false) // on a root that is read-only there will be no other sudo
		return nil
	}
	return writeSudoers(root, true)
}

// ownGuest is this very program.
const ownGuest = "/.carrel/guest"

// makeGuestCommand puts carrel-guest on the PATH, for "carrel-guest checkpoint". An
// image's own file of that name stays, and on a root that is read-only there is no
// such command.
func makeGuestCommand(root string) error {
	dir := filepath.Join(root, "usr/local/bin")
	link := filepath.Join(dir, "carrel-guest")
	if _, err := os.Lstat(link); err == nil || !exists(filepath.Join(root, ownGuest)) {
		return nil
	}
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.Symlink(ownGuest, link)
	}
	if errors.Is(err, unix.EROFS) {
		return nil
	}
	return err
}

// findSudo reports whether there is a sudo below root, and whether it is ours.
func findSudo(root string) (has, own bool) {
	for _, dir := range []string{"usr/bin", "bin", "usr/local/bin"} {
		file := filepath.Join(root, dir, "sudo")
		if target, err := os.Readlink(file); err == nil && target == ownSudo {
			return true, true // whether or not it leads somewhere now
		}
		if _, err := exec.LookPath(file); err == nil {
			return true, false
		}
	}
	return false, false
}

// linkSudo makes the link where programs look. It may not work, on a root that is
// read-only or has something else of that name: then there is no sudo, as before.
func linkSudo(root string) {
	dir := filepath.Join(root, "usr/bin")
	if os.MkdirAll(dir, 0o755) != nil || os.Symlink(ownSudo, filepath.Join(dir, "sudo")) != nil {
		_ = os.Symlink(ownSudo, filepath.Join(root, "bin/sudo"))
	}
}

// writeSudoers writes down that user may do anything, and whole sudoers when asked
// to and there are none.
func writeSudoers(root string, whole bool) error {
	dir := filepath.Join(root, "etc/sudoers.d")
	file := filepath.Join(dir, "carrel-user")
	if exists(file) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	main := filepath.Join(root, "etc/sudoers")
	if whole && !exists(main) {
		text := "Defaults env_reset\nroot ALL=(ALL:ALL) ALL\n@includedir /etc/sudoers.d\n"
		if err := os.WriteFile(main, []byte(text), 0o440); err != nil {
			return err
		}
	}
	return os.WriteFile(file, []byte(sandboxUser+" ALL=(ALL:ALL) NOPASSWD: ALL\n"), 0o440)
}

// makeNames writes the files that turn names into addresses.
func makeNames(nameServer string) error {
	var errs []error
	if nameServer != "" && empty("/etc/resolv.conf") {
		_ = os.Remove("/etc/resolv.conf") // often a link into a /run that is not there
		errs = append(errs, os.WriteFile("/etc/resolv.conf", []byte("nameserver "+nameServer+"\n"), 0o644))
	}
	if empty("/etc/hosts") {
		errs = append(errs, os.WriteFile("/etc/hosts", []byte(hostsHead), 0o644))
	}
	if empty("/etc/hostname") {
		if name, err := os.Hostname(); err == nil && name != "" {
			errs = append(errs, nameInFiles(name))
		}
	}
	return errors.Join(errs...)
}

// exists reports whether a name leads to something.
func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// empty reports whether a file has nothing in it, or is not there.
func empty(name string) bool {
	data, err := os.ReadFile(name)
	return err != nil || strings.TrimSpace(string(data)) == ""
}

// killGrace is how long processes may tidy up at the end.
const killGrace = 500 * time.Millisecond

// KillAll ends every other process on the machine. It is for process 1, whose
// end is the sandbox's.
func KillAll() {
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGKILL} {
		deadline := time.Now().Add(killGrace)
		for syscall.Kill(-1, sig) == nil && time.Now().Before(deadline) {
			time.Sleep(killGrace / 50)
		}
	}
}
