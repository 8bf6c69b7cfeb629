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

// A blank sentry is a sentry that was started before its sandbox is known. This file is the code
// that runs in the blank sentry's own process.
//
// The blank first does the work that is the same for every sandbox: it builds its empty root, gives
// up its rights, and makes the platform with the host processes of its first two address spaces.
// Then it waits on a socket for one message, its job. Until then it holds nothing of any sandbox.
// The job holds the arguments and descriptors that other sentries get at their start. After the job
// it is a sentry like any other. When the other end closes without a job, the blank ends.

// blankArg is the start of the sentry's first argument; the number of the socket's descriptor
// follows it. blankCPUs precedes the number of processors inside.
const (
	blankArg  = "carrel-blank="
	blankCPUs = "carrel-cpus="
)

// blankID is the placeholder in a blank's last argument, where a sentry has the ID of its sandbox.
// It is as long as an ID, but no valid ID.
var blankID = strings.Repeat("_", 21)

const (
	blankSpaces = 2   // address spaces made ahead: the guest's and the first command's
	jobFirst    = 100 // number of a job's first descriptor
	maxJob      = 16 << 10
	maxJobFiles = 60
)

// blankReady is the message by which a blank says that it is waiting for its job.
var blankReady = []byte{1}

// job describes the sandbox that a blank becomes. Descriptors come with the message. The first is
// the log; the others get the numbers from jobFirst on.
type job struct {
	ID    string
	Args  []string // of gVisor's command
	Pages string   // text after pagesArg; "" without
}

// setUpRoot is what gVisor's boot command does for --setup-root.
//
//go:linkname setUpRoot gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd.setUpChroot
func setUpRoot(spec *specs.Spec, conf *config.Config, timer *timing.Timer) error

// blankBoot is gVisor's boot command with a wait in the middle. Before the wait it does the first
// steps of that command. After the wait it runs the command with arguments that say those steps are
// done: the command gives itself the same arguments when it starts itself anew.
type blankBoot struct {
	*sentrycmd.Boot
	socket, cpus int
	told         []string // the arguments
}

// takeBlank removes a blank's own arguments from the sentry's arguments. It returns nil when this
// sentry is not a blank. It runs in the sentry.
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

// prepare does the work that needs no sandbox. The order of its steps matters. The host's files
// must be read before the root is empty. All rights must be given up before any process is made in
// which programs will run.
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

// readHost reads the host's files that the boot command would read later. By then the root is
// empty, so they are read now. A missing file is skipped.
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

// enterRoot makes the empty root. A process waits there to unmount /proc, until the command closes
// the pipe to it.
func (b *blankBoot) enterRoot(conf *config.Config) error {
	if err := setUpRoot(&specs.Spec{}, conf, starttime.Timer("root")); err != nil {
		return err
	}
	_, w := sandboxsetup.ExecProcUmounter()
	// The command gets this pipe by its number and closes it. So no os.File of ours may own the
	// number: such a file would be collected later and close the number again, which may belong to
	// another file by then.
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

// makeSpaces makes the platform and its first address spaces. It gives the spaces back to the
// platform, which keeps them for the next tasks that need one.
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

// tell adds an argument for the command.
func (b *blankBoot) tell(flag, value string) { b.told = append(b.told, "--"+flag+"="+value) }

// await sends blankReady and waits for the job.
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

// placeFiles moves the files of a job to their numbers. Those numbers must be free.
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

// nameProcess writes the sandbox's ID into the process's last argument, in place. There ps and
// Sweep look for it.
func nameProcess(id string) {
	last := os.Args[len(os.Args)-1]
	if last == blankID && len(id) == len(last) {
		// Go's argument strings point to the kernel's own copy, on the stack of the first thread.
		copy(unsafe.Slice(unsafe.StringData(last), len(last)), id)
	}
}
