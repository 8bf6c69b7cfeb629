package oshost

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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

// accountFile is one of the files that hold accounts, read once and written once, if at all.
type accountFile struct {
	name    string
	mode    uint32 // of one that is made
	text    []byte
	changed bool
	err     error // why there is no text, but for a file that is not there
}

// openAccountFile reads a file of accounts.
func openAccountFile(name string, mode uint32) *accountFile {
	f := &accountFile{name: name, mode: mode}
	f.text, f.err = readPlain(name)
	if errors.Is(f.err, fs.ErrNotExist) {
		f.err = nil
	}
	return f
}

// has reports whether there is a line for a name.
func (f *accountFile) has(name string) bool {
	for l := range bytes.Lines(f.text) {
		if bytes.HasPrefix(l, []byte(name+":")) {
			return true
		}
	}
	return false
}

// add adds a line unless one for the same name is there.
func (f *accountFile) add(line string) {
	if name, _, _ := strings.Cut(line, ":"); f.has(name) {
		return
	}
	if len(f.text) > 0 && f.text[len(f.text)-1] != '\n' {
		f.text = append(f.text, '\n')
	}
	f.text = append(f.text, line+"\n"...)
	f.changed = true
}

// save writes what was added.
func (f *accountFile) save() error {
	if f.err != nil || !f.changed {
		return f.err
	}
	return writePlain(f.name, string(f.text), f.mode)
}

// freeID returns the first id from sandboxUID on that no line has in its third field.
func (f *accountFile) freeID(fields int) int {
	var taken []string
	eachLine(f.text, fields, func(f []string) { taken = append(taken, f[2]) })
	id := sandboxUID
	for slices.Contains(taken, strconv.Itoa(id)) {
		id++ // the image's own account has it, and another name
	}
	return id
}

// makeAccounts adds root and user to the account files below root, if they are
// not there.
func makeAccounts(root string) error {
	passwd, group := openAccountFile(filepath.Join(root, passwdFile), 0o644), openAccountFile(filepath.Join(root, groupFile), 0o644)
	if !passwd.has("root") || !passwd.has(sandboxUser) {
		shell := "/bin/sh"
		if exists(filepath.Join(root, "bin/bash")) {
			shell = "/bin/bash"
		}
		gid := group.freeID(4)
		eachLine(group.text, 4, func(f []string) {
			if f[0] == sandboxUser {
				_, _ = fmt.Sscan(f[2], &gid) // a group of that name: it is the user's
			}
		})
		uid := passwd.freeID(7)
		passwd.add("root:x:0:0:root:/root:" + shell)
		passwd.add(fmt.Sprintf("%s:x:%d:%d::%s:%s", sandboxUser, uid, gid, sandboxHome, shell))
	}
	group.add("root:x:0:")
	if !group.has(sandboxUser) {
		group.add(fmt.Sprintf("%s:x:%d:", sandboxUser, group.freeID(4)))
	}
	return errors.Join(passwd.save(), group.save(), addShadow(filepath.Join(root, "/etc/shadow")))
}

// addShadow gives user an account without a password where passwords are kept:
// without a line there PAM refuses even the password-less sudo.
func addShadow(file string) error {
	f := openAccountFile(file, 0o640)
	if len(f.text) == 0 && f.err == nil && !exists(file) {
		return nil
	}
	f.add(sandboxUser + ":*:19000:0:99999:7:::")
	return f.save()
}

// makeHome makes the home of user, with the files a new account gets.
func (s *System) makeHome() error {
	a := &s.accounts
	a.mu.Lock()
	a.refresh()
	u, ok := a.users[sandboxUser]
	a.mu.Unlock()
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
	if !exists(filepath.Join(root, ownGuest)) {
		return nil
	}
	err := linkIn(dir, "carrel-guest", ownGuest)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.EROFS) {
		return nil
	}
	return err
}

// linkIn makes a link in a directory.
func linkIn(dir, name, target string) error {
	return within(dir, 0o755, func() error { return os.Symlink(target, filepath.Join(dir, name)) })
}

// within does something in a directory, which is made only if it turns out to be missing: mostly it is there, and
// nobody has to look.
func within(dir string, mode fs.FileMode, do func() error) error {
	err := do()
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return err
	}
	return do()
}

// findSudo reports whether there is a sudo below root, and whether it is ours.
func findSudo(root string) (has, own bool) {
	for _, dir := range []string{"usr/bin", "bin", "usr/local/bin"} {
		file := filepath.Join(root, dir, "sudo")
		switch target, err := os.Readlink(file); {
		case err == nil && target == ownSudo:
			return true, true // whether or not it leads somewhere now
		case errors.Is(err, fs.ErrNotExist):
			continue
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
	if linkIn(dir, "sudo", ownSudo) != nil {
		_ = os.Symlink(ownSudo, filepath.Join(root, "bin/sudo"))
	}
}

// writeSudoers writes down that user may do anything, and whole sudoers when asked
// to and there are none.
func writeSudoers(root string, whole bool) error {
	dir := filepath.Join(root, "etc/sudoers.d")
	main := filepath.Join(root, "etc/sudoers")
	file := filepath.Join(dir, "carrel-user")
	if exists(file) {
		return nil
	}
	return within(dir, 0o750, func() error {
		if whole && !exists(main) {
			text := "Defaults env_reset\nroot ALL=(ALL:ALL) ALL\n@includedir /etc/sudoers.d\n"
			if err := writePlain(main, text, 0o440); err != nil {
				return err
			}
		}
		return writePlain(file, sandboxUser+" ALL=(ALL:ALL) NOPASSWD: ALL\n", 0o440)
	})
}

// makeNames writes the files that turn names into addresses.
func makeNames(nameServer string) error {
	var errs []error
	if nameServer != "" && empty("/etc/resolv.conf") {
		_ = os.Remove("/etc/resolv.conf") // often a link into a /run that is not there
		errs = append(errs, writePlain("/etc/resolv.conf", "nameserver "+nameServer+"\n", 0o644))
	}
	if empty("/etc/hosts") {
		errs = append(errs, writePlain("/etc/hosts", hostsHead, 0o644))
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
	data, err := readPlain(name)
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
