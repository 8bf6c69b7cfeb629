package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe" // also for go:linkname

	"github.com/google/subcommands"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/cpuid"
	"gvisor.dev/gvisor/pkg/gomaxprocs"
	"gvisor.dev/gvisor/pkg/ring0"
	"gvisor.dev/gvisor/pkg/sentry/hostmm"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/pkg/sentry/usage"
	"gvisor.dev/gvisor/pkg/timing"
	"gvisor.dev/gvisor/runsc/cmd/sandboxsetup"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/flag"
	"gvisor.dev/gvisor/runsc/starttime"

	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// A blank sentry is one that was started before there is a sandbox for it, the side of it that is the process itself. It does what a
// sentry does first and what is the same for all: it builds its empty root, gives up its rights, makes the platform
// and the host processes of its first two address spaces. Then it waits, with a socket and nothing else of anybody's, for
// one message, its job, which holds what other sentries are started with: the arguments and the descriptors. From there on it is
// a sentry like any other. Without a job, when the other end closes, it ends.

// blankArg precedes the number of the socket's descriptor, as the sentry's first argument, and blankCPUs the number of processors inside.
const (
	blankArg  = "carrel-blank="
	blankCPUs = "carrel-cpus="
)

// blankID stands in a blank's last argument where a sentry has the ID of its sandbox. It is as long, and no ID.
var blankID = strings.Repeat("_", 21)

const (
	blankSpaces = 2   // address spaces made ahead: the guest's and the first command's
	jobFirst    = 100 // the number of a job's first file
	maxJob      = 16 << 10
	maxJobFiles = 60
)

// blankReady is what a blank says when it waits.
var blankReady = []byte{1}

// job is what a blank is to become. The first file that comes with it is the log; the others get the numbers from jobFirst on.
type job struct {
	ID    string
	Args  []string // of gVisor's command
	Pages string   // what pagesArg precedes; "" without
}

// setUpRoot is what gVisor's boot command does for --setup-root.
//
//go:linkname setUpRoot gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd.setUpChroot
func setUpRoot(spec *specs.Spec, conf *config.Config, timer *timing.Timer) error

// blankBoot is gVisor's boot command with a wait in the middle. What it does before is what that command does first; the command is then
// told that it was done, by the arguments with which it would tell itself when it starts itself anew.
type blankBoot struct {
	*sentrycmd.Boot
	socket, cpus int
	told         []string // the arguments
}

// takeBlank, in the sentry, takes the arguments of a blank out of the others; nil where it is none.
func takeBlank() *blankBoot {
	b := &blankBoot{Boot: new(sentrycmd.Boot)}
	for prefix, number := range map[string]*int{blankArg: &b.socket, blankCPUs: &b.cpus} {
		for i, arg := range os.Args {
			if text, ok := strings.CutPrefix(arg, prefix); ok {
				*number, _ = strconv.Atoi(text)
				os.Args = append(os.Args[:i:i], os.Args[i+1:]...)
				break
			}
		}
	}
	if b.socket < 3 {
		return nil
	}
	return b
}

// Execute implements util.SubCommand.
func (b *blankBoot) Execute(ctx context.Context, _ *flag.FlagSet, args ...any) subcommands.ExitStatus {
	fail := func(err error) subcommands.ExitStatus {
		os.Stderr.WriteString("blank sentry: " + err.Error())
		os.Exit(1)
		return subcommands.ExitFailure
	}
	if err := b.prepare(args[0].(*config.Config)); err != nil {
		return fail(err)
	}
	j, err := b.await()
	if err != nil {
		return fail(err)
	}
	go started()
	if j.Pages != "" {
		servePages(j.Pages, true)
	}
	f := flag.NewFlagSet(b.Name(), flag.ContinueOnError)
	b.SetFlags(f)
	if err := f.Parse(slices.Concat([]string{"--bundle=/"}, b.told, j.Args, []string{j.ID})); err != nil {
		return fail(err)
	}
	return b.Boot.Execute(ctx, f, args...)
}

// prepare does what needs no sandbox. Its steps can't change places: what the command reads of the host's files must be read
// before the root is empty, and no process that programs will run in may be made before all rights are given up.
func (b *blankBoot) prepare(conf *config.Config) error {
	if config.CgoEnabled {
		return errors.New("a build with cgo can't give up its rights by itself")
	}
	cpuid.Initialize()
	ring0.InitDefault()
	for _, step := range []func(*config.Config) error{b.readHost, b.enterRoot, b.giveUpRights, b.makeSpaces} {
		if err := step(conf); err != nil {
			return err
		}
	}
	runtime.GC()
	return nil
}

// readHost reads what the command would read itself, but for the root that is empty by then. A file that is not there is
// nothing to tell.
func (b *blankBoot) readHost(conf *config.Config) error {
	if text, err := os.ReadFile("/sys/devices/virtual/dmi/id/product_name"); err == nil {
		b.tell("product-name", strings.TrimSpace(string(text)))
	}
	if !conf.AppHugePages {
		return nil
	}
	for flag, name := range map[string]string{"host-thp-shmem-enabled": "shmem_enabled", "host-thp-defrag": "defrag"} {
		if text, err := hostmm.ReadTransparentHugepageEnum(name); err == nil {
			b.tell(flag, text)
		}
	}
	return nil
}

// enterRoot makes the empty root. A process waits there to unmount /proc, until the command closes the pipe to it.
func (b *blankBoot) enterRoot(conf *config.Config) error {
	if err := setUpRoot(&specs.Spec{}, conf, starttime.Timer("root")); err != nil {
		return err
	}
	_, w := sandboxsetup.ExecProcUmounter()
	// The command knows it by its number. Whose number it is must be nobody's but the command's, which closes it: a file of ours would
	// close it once more when it is collected, and then the number is another's.
	umount, err := unix.FcntlInt(w.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	b.tell("proc-mount-sync-fd", strconv.Itoa(umount))
	return w.Close()
}

// giveUpRights takes all capabilities from all threads.
func (b *blankBoot) giveUpRights(*config.Config) error {
	if err := sandboxsetup.ApplyCapsAllThreads(&specs.LinuxCapabilities{}, starttime.Timer("rights")); err != nil {
		return fmt.Errorf("give up all rights: %w", err)
	}
	return usage.Init()
}

// makeSpaces makes the platform, and with it the first address spaces: they are given back to it, and it keeps them for those who
// need one next.
func (b *blankBoot) makeSpaces(conf *config.Config) error {
	gomaxprocs.SetBase(b.cpus) // the platform wants to know
	c, err := platform.Lookup(conf.Platform)
	if err != nil {
		return err
	}
	p, err := c.New(platform.Options{
		ApplicationCores: b.cpus, StartupTimer: starttime.Timer("platform"),
		DisableSyscallPatching: conf.SystrapDisableSyscallPatching, DisableFastPath: conf.SystrapDisableFastPath,
	})
	if err != nil {
		return err
	}
	var spaces [blankSpaces]platform.AddressSpace
	for i := range spaces {
		if spaces[i], err = p.NewAddressSpace(); err != nil {
			return err
		}
	}
	for _, s := range spaces {
		s.Release()
	}
	madeAhead.Store(p.(*sandboxPlatform))
	return nil
}

// tell adds an argument of the command.
func (b *blankBoot) tell(flag, value string) { b.told = append(b.told, "--"+flag+"="+value) }

// await says that it waits, and waits for the job.
func (b *blankBoot) await() (*job, error) {
	if err := unix.Sendmsg(b.socket, blankReady, nil, nil, unix.MSG_NOSIGNAL); err != nil {
		os.Exit(0) // nobody is there any more
	}
	buf, oob := make([]byte, maxJob), make([]byte, unix.CmsgSpace(4*maxJobFiles))
	var n, m, flags int
	var err error
	for {
		if n, m, flags, _, err = unix.Recvmsg(b.socket, buf, oob, unix.MSG_CMSG_CLOEXEC); err != unix.EINTR {
			break
		}
	}
	if err != nil || n == 0 {
		os.Exit(0)
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		return nil, errors.New("the job is too long")
	}
	_ = unix.Close(b.socket) // there is one job
	files, err := proc.Rights(oob[:m])
	if err != nil {
		return nil, err
	}
	var j job
	if err := json.Unmarshal(buf[:n], &j); err != nil {
		return nil, err
	}
	if err := placeFiles(files); err != nil {
		return nil, err
	}
	nameProcess(j.ID)
	return &j, nil
}

// placeFiles gives the files of a job their numbers, at which nothing else may be.
func placeFiles(files []int) error {
	for i, fd := range files {
		to := jobFirst + i - 1
		if i == 0 {
			to = 2 // the log
		} else if _, err := unix.FcntlInt(uintptr(to), unix.F_GETFD, 0); err != unix.EBADF {
			return fmt.Errorf("descriptor %d is in use", to)
		}
		if err := unix.Dup3(fd, to, 0); err != nil {
			return os.NewSyscallError("dup3", err)
		}
		_ = unix.Close(fd)
	}
	return nil
}

// nameProcess writes the sandbox's ID where ps, and Sweep, look for it: into the last argument that the process was started with.
func nameProcess(id string) {
	last := os.Args[len(os.Args)-1]
	if last == blankID && len(id) == len(last) {
		// Go's strings of the arguments are the kernel's own, on the stack of the first thread.
		copy(unsafe.Slice(unsafe.StringData(last), len(last)), id)
	}
}
