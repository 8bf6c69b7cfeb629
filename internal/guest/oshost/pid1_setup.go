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

// The account that everything runs as unless a request names another.
const (
	sandboxUser = "user"
	sandboxUID  = 1000
	sandboxHome = "/home/user"
)

// Setup prepares the root filesystem of a sandbox for work, whatever image it came from: kernel
// filesystems, temporary directories, the accounts root and user, names. Existing files stay as
// they are. It tries all parts; the error says which failed.
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

// mountKernel mounts the kernel filesystems that programs expect, if the sandbox's builder has not
// done so.
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

// makeDirs makes the directories that programs expect to be writable.
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

// accountFile is one of the files with accounts. It is read once, and written at most once.
type accountFile struct {
	name    string
	mode    uint32 // of one that is made
	text    []byte
	changed bool
	err     error // why there is no text; nil for a missing file
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

// add adds a line unless the file has one for the same name.
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

// freeID returns the first id from sandboxUID on that is not in the third field of any line.
func (f *accountFile) freeID(fields int) int {
	var taken []string
	eachLine(f.text, fields, func(f []string) { taken = append(taken, f[2]) })
	id := sandboxUID
	for slices.Contains(taken, strconv.Itoa(id)) {
		id++ // an account of the image has it, under another name
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
				_, _ = fmt.Sscan(f[2], &gid) // a group of that name exists: use it
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

// addShadow adds a line without a password for user to the shadow file. Without a line there PAM
// refuses even sudo without a password.
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
			_ = os.Chown(to, int(u.UID), int(u.GID)) // the directory's own chown below returns the error
		}
	}
	return os.Chown(u.Home, int(u.UID), int(u.GID))
}

// makeApt makes apt download as root if no other account exists. Otherwise apt would refuse to
// work.
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

// makeSudo lets user become root without a password: the wall is the sandbox, not the account. An
// image without a sudo gets a link to the guest's sudo, which has that rule built in. The rule is
// also written to a file, for a sudo that is installed later. The file sudoers itself is not
// written, because that package brings its own.
func makeSudo(root string) error {
	has, own := findSudo(root)
	if !has {
		if !exists(filepath.Join(root, ownSudo)) {
			return nil
		}
		linkSudo(root)
	}
	if !has || own {
		_ = writeSudoers(root, false) // on a read-only root no other sudo will be installed
		return nil
	}
	return writeSudoers(root, true)
}

// ownGuest is this very program.
const ownGuest = "/.carrel/guest"

// makeGuestCommand puts carrel-guest on the PATH, for "carrel-guest checkpoint". It keeps a file of
// that name in the image. On a read-only root there is no such command.
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

// within does something in a directory. It makes the directory only if that fails because it is
// missing. Mostly it exists, so nothing checks for it first.
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
			return true, true // even if its target is missing now
		case errors.Is(err, fs.ErrNotExist):
			continue
		}
		if _, err := exec.LookPath(file); err == nil {
			return true, false
		}
	}
	return false, false
}

// linkSudo makes the link where programs look. It may fail on a read-only root, or if another file
// has the name. Then there is no sudo, as before.
func linkSudo(root string) {
	dir := filepath.Join(root, "usr/bin")
	if linkIn(dir, "sudo", ownSudo) != nil {
		_ = os.Symlink(ownSudo, filepath.Join(root, "bin/sudo"))
	}
}

// writeSudoers writes the rule that user may do anything. With whole it also writes sudoers, if
// there is none.
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
		_ = os.Remove("/etc/resolv.conf") // often a link into a /run that does not exist
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

// exists reports whether a name, or its target, exists.
func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// empty reports whether a file is empty or missing.
func empty(name string) bool {
	data, err := readPlain(name)
	return err != nil || strings.TrimSpace(string(data)) == ""
}

// killGrace is how long processes may clean up at the end.
const killGrace = 500 * time.Millisecond

// KillAll ends every other process on the machine. It is for process 1: its end is the end of the
// sandbox.
func KillAll() {
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGKILL} {
		deadline := time.Now().Add(killGrace)
		for syscall.Kill(-1, sig) == nil && time.Now().Before(deadline) {
			time.Sleep(killGrace / 50)
		}
	}
}
