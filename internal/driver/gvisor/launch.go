package gvisor

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostos"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/spawn"
	"github.com/carrel-dev/carrel/internal/trace"
)

// Names of our files in Spec.Dir.
const (
	diskFile = "disk"       // the sandbox's writes
	logFile  = "sentry.log" // the sentry's last words
)

// nobody is the sentry's uid and gid in its own user namespace.
const nobody = 65534

// sentryEnv is the sentry's whole environment. Without it Go's runtime would keep files of the
// host's control group open, to follow its limits.
const sentryEnv = "GODEBUG=containermaxprocs=0"

// launch holds everything that one sentry is started with. We own its files: the sentry gets
// copies.
type launch struct {
	spec  driver.Spec
	made  made   // names of its build and images
	saved *saved // snapshot to restore; nil for a fresh sandbox
	sock  string // path of the control socket

	files  []*os.File    // the child's descriptors beside the standard ones
	args   []arg         // of gVisor's command
	paging int           // index of the first file for takePages in files, from 1; 0 is none
	undo   cleanup.Stack // closes our copies

	sync     *os.File // readable when the sentry is ready, or dead
	guestLog *os.File // the guest's standard error
	pages    *os.File // our end of the socket for the memory's files, or nil

	// Set when it was started.
	blank bool // a blank sentry took it
	pid   int
	pidfd *os.File
	uid   int // host uid the sentry runs as
	group *cgroup.Group
}

// arg is an argument. It may end in a descriptor's number, which depends on the process that gets
// the launch.
type arg struct {
	text string
	file int // index in launch.files, from 1; 0 is none
}

// donate hands f to the sentry and tells it the number.
func (l *launch) donate(flag string, f *os.File) {
	l.files = append(l.files, f)
	l.args = append(l.args, arg{"--" + flag + "=", len(l.files)})
}

// say gives the sentry an argument.
func (l *launch) say(text string) { l.args = append(l.args, arg{text: text}) }

// numbered returns the arguments for a sentry whose files have the numbers from first on.
func (l *launch) numbered(first int) []string {
	out := make([]string, 0, len(l.args))
	for _, a := range l.args {
		if a.file > 0 {
			a.text += strconv.Itoa(first + a.file - 1)
		}
		out = append(out, a.text)
	}
	return out
}

// pagesText is the text after pagesArg.
func (l *launch) pagesText(first int) string {
	held := strconv.FormatInt(l.saved.later.Milliseconds(), 10)
	if l.saved.later == driver.WhenWanted {
		held = pagesForGood
	}
	text := strconv.Itoa(first+l.paging-1) + "," + held + ","
	if !l.saved.sameBoot {
		text += newBoot
	}
	return text
}

// own makes the launch close f when it is over.
func (l *launch) own(f *os.File, err error) (*os.File, error) {
	if err == nil {
		l.undo.Add(func() { f.Close() })
	}
	return f, err
}

// inside are the limits that hold inside. Some limits are part of the state inside, such as the
// limit on processes and the size of the disk. A restored memory brings them back.
func (l *launch) inside() carrel.Limits {
	if l.saved != nil && l.saved.memory {
		return l.saved.side.Limits
	}
	return l.spec.Limits
}

// start starts the sentry and returns after its answer on sync. blank says whether start may use a
// sentry that was started ahead. The caller closes pidfd, sync, guestLog and pages.
func (d *Driver) start(ctx context.Context, l *launch, blank bool) error {
	defer l.undo.Run()
	files := trace.Mark(ctx, "files")
	for _, step := range []func() error{l.addPages, l.addFiles, l.addStdio, l.addControl, l.addLimits} {
		if err := step(); err != nil {
			files.EndWith(err)
			return err
		}
	}
	log, err := l.own(os.OpenFile(filepath.Join(l.spec.Dir, logFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_CLOEXEC, 0o600))
	files.EndWith(err)
	if err != nil {
		return err
	}
	limits := cgroup.Limits{
		Memory: int64(l.spec.Limits.MemoryMB) << 20,
		CPUs:   l.spec.Limits.CPUs,
		Pids:   hostTasks(l.spec.Limits.Pids),
	}
	if blank && l.made.kernel.own() {
		if b := d.blanks.take(l.cpus()); b != nil {
			defer trace.Mark(ctx, "take a blank sentry").End()
			return d.give(l, b, log, limits)
		}
	}
	span := trace.Mark(ctx, "cgroup")
	l.group, err = d.groups.Create(string(l.spec.ID), limits)
	span.EndWith(err)
	if err != nil {
		return err
	}
	l.uid = d.uids.take(d.sandboxUID(l.spec.ID))
	span = trace.Mark(ctx, "start the process")
	err = d.exec(l, log)
	span.EndWith(err)
	if err != nil {
		d.uids.drop(l.uid)
		hosted.DestroyGroup(ctx, l.group)
	}
	return err
}

// fixedFlags are gVisor's own settings, the same for all sandboxes.
var fixedFlags = []string{
	"--platform=" + platformName, "--network=sandbox", "--directfs=false",
	"--overlay2=none", "--host-uds=none", "--host-fifo=none", "--net-raw=false", "--allow-suid=true",
	"--host-settings=ignore", "--ignore-cgroups=true", "--traceback=single", "--control-rpc-stop-timeout=0s",
}

// flags returns the fixed flags and --root. Sweep finds our processes by --root.
func (d *Driver) flags() []string {
	return d.flagsOf(fixedFlags)
}

// flagsOf is flags for the settings of another build.
func (d *Driver) flagsOf(fixed []string) []string {
	return append([]string{d.opts.RootArg()}, fixed...)
}

// addFiles donates the images and the file that holds the sandbox's writes.
func (l *launch) addFiles() error {
	root, err := l.own(os.Open(l.spec.Root.Image))
	if err != nil {
		return err
	}
	guest, err := l.own(os.Open(l.spec.Guest))
	if err != nil {
		return err
	}
	disk, err := l.own(os.OpenFile(filepath.Join(l.spec.Dir, diskFile), os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_CLOEXEC, 0o600))
	if err != nil {
		return err
	}
	// Map the file as executable once while it is small, so that integrity measurement never reads
	// all of it. The sentry's filter forbids the sentry to do this itself.
	pgalloc.IMAWorkAroundForMemFile(disk.Fd())
	l.donate("io-fds", root)
	l.donate("io-fds", guest)
	l.donate("gofer-filestore-fds", disk)
	confs := specutils.GoferMountConfFlags{
		{Lower: specutils.Erofs, Upper: specutils.AnonOverlay, Size: strconv.FormatInt(int64(l.inside().DiskMB)<<20, 10)},
		{Lower: specutils.Erofs, Upper: specutils.NoOverlay},
	}
	l.say("--gofer-mount-confs=" + confs.String())
	if l.saved != nil && !l.saved.memory {
		for _, f := range l.saved.files {
			l.donate("fs-restore-fds", f)
		}
	}
	return nil
}

// addPages donates the files of a memory that is to be restored, see takePages.
func (l *launch) addPages() error {
	if l.saved == nil || !l.saved.memory {
		return nil
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	l.pages = os.NewFile(uintptr(fds[0]), "pages")
	theirs, _ := l.own(os.NewFile(uintptr(fds[1]), "pages"), nil)
	l.files = append(l.files, theirs)
	l.paging = len(l.files)
	l.files = append(l.files, l.saved.files...)
	return nil
}

// addStdio donates the guest's standard streams. Its input is empty; its output is its log.
func (l *launch) addStdio() error {
	null, err := l.own(os.OpenFile(os.DevNull, os.O_RDWR|syscall.O_CLOEXEC, 0))
	if err != nil {
		return err
	}
	if l.guestLog, err = hosted.NewGuestLog(); err != nil {
		return err
	}
	l.donate("stdio-fds", null)
	l.donate("stdio-fds", null)
	l.donate("stdio-fds", l.guestLog)
	return nil
}

// addControl donates the control socket, the description, and the pipe on which the sentry reports
// that it listens.
func (l *launch) addControl() error {
	_ = os.Remove(l.sock)
	control, err := l.own(listenControl(l.sock))
	if err != nil {
		return err
	}
	spec, err := l.own(specFile(l.made.kernel, l.spec, l.inside()))
	if err != nil {
		return err
	}
	ready, w, err := os.Pipe()
	if err != nil {
		return err
	}
	l.sync = ready
	_, _ = l.own(w, nil)
	l.donate("controller-fd", control)
	l.donate("spec-fd", spec)
	l.donate("start-sync-fd", w)
	return nil
}

// addLimits tells the sentry how many processors and how much memory to show inside.
func (l *launch) addLimits() error {
	host, err := hostos.TotalSystemMemory()
	if err != nil {
		return err
	}
	memory := min(uint64(l.spec.Limits.MemoryMB)<<20, host)
	l.say("--cpu-num=" + strconv.Itoa(l.cpus()))
	l.say("--total-memory=" + strconv.FormatUint(memory, 10))
	l.say("--total-host-memory=" + strconv.FormatUint(host, 10))
	return nil
}

// leastCPUs is the least number of processors that programs inside see.
const leastCPUs = 2

// cpus is how many processors programs inside see, never fewer than two. A program that sees one
// processor leaves out locks, but needs them here: two threads of the sentry may run it.
func (l *launch) cpus() int {
	return max(leastCPUs, min(int(math.Ceil(l.spec.Limits.CPUs)), runtime.NumCPU()))
}

// exec starts the process in its namespaces and its group.
func (d *Driver) exec(l *launch, log *os.File) (err error) {
	const first = 3
	k := l.made.kernel
	args, files := []string{sentryName}, append([]*os.File{k.program.null, log}, l.files...)
	if k.own() { // another build has another filter, and compiles it itself
		args, files = d.withFilter(args, files)
	}
	if l.paging > 0 {
		args = append(args, pagesArg+l.pagesText(first))
	}
	args = slices.Concat(args, d.flagsOf(k.flags),
		[]string{"boot", "--bundle=/", "--setup-root", "--apply-caps=true"}, l.numbered(first),
		[]string{string(l.spec.ID)})
	l.pid, l.pidfd, err = d.startSentry(k, args, l.uid, l.group, files)
	return err
}

// withFilter adds the compiled system call filter to a sentry's arguments and files. files become
// the descriptors from 1 on.
func (d *Driver) withFilter(args []string, files []*os.File) ([]string, []*os.File) {
	f, err := d.filter()
	if err != nil {
		d.log.Warn("sandboxes compile their own system call filter", "err", err)
		return args, files
	}
	files = append(files, f)
	return append(args, filterArg+strconv.Itoa(len(files))), files
}

// startSentry starts a sentry. files become its descriptors from 1 on.
func (d *Driver) startSentry(k *sentryBuild, args []string, uid int, group *cgroup.Group,
	files []*os.File) (pid int, pidfd *os.File, err error) {
	if files, err = k.program.files(files...); err != nil {
		return 0, nil, err
	}
	r := spawn.Request{Args: args, Env: []string{sentryEnv}, Dir: "/", Attr: *d.namespaces(uid), Group: group.Paths()}
	if pid, pidfd, err = d.spawn(k, r, group, files); err != nil {
		return 0, nil, fmt.Errorf("start sentry: %w", err)
	}
	d.adjust(pid)
	return pid, pidfd, nil
}

// execSelf starts the process from this one. The more memory this process holds, the longer that
// takes.
func (d *Driver) execSelf(k *sentryBuild, r spawn.Request, group *cgroup.Group,
	files []*os.File) (pid int, pidfd *os.File, err error) {
	attr := &os.ProcAttr{Dir: r.Dir, Env: r.Env, Files: files, Sys: &r.Attr}
	return hosted.Start(k.program.path, r.Args, attr, group, nil)
}

// namespaces returns the attributes of a process in namespaces of its own. In its user namespace it
// is nobody; the host knows it as uid.
func (d *Driver) namespaces(uid int) *syscall.SysProcAttr {
	gid := uid
	if !d.root {
		gid = os.Getegid()
	}
	return &syscall.SysProcAttr{
		Setsid:      true,
		Cloneflags:  hosted.AllNamespaces,
		Credential:  &syscall.Credential{Uid: nobody, Gid: nobody},
		UidMappings: []syscall.SysProcIDMap{{ContainerID: nobody, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: nobody, HostID: gid, Size: 1}},
		// Only as root: it allows the process to drop the daemon's supplementary groups.
		GidMappingsEnableSetgroups: d.root,
		// The sentry needs these to build its empty root. It gives all of them up before it runs
		// anything, and they mean nothing outside its namespace. CAP_SETPCAP is not among them:
		// with it the sentry would empty the bounding set, thread by thread, in 15 ms. That set
		// matters only at an execve, which no_new_privs and the filter prevent.
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_CHROOT},
	}
}

// adjust sets limits that the sentry can't set for itself. They are only improvements, so adjust
// ignores a host that refuses one.
func (d *Driver) adjust(pid int) {
	// No core file: it would hold the sandbox's memory.
	_ = unix.Prlimit(pid, unix.RLIMIT_CORE, &unix.Rlimit{}, nil)
	if d.root {
		// The sentry locks memory for moments, to fault many pages in at once.
		inf := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
		_ = unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, &inf, nil)
	}
}
