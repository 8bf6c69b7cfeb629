package system

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
	"github.com/carrel-dev/carrel/shell/vfs"
)

func which(c *tool.Call) int {
	f, ok := c.Flags("as")
	if !ok {
		return 2
	}
	status := 0
	if len(f.Args) == 0 {
		return 1
	}
	for _, name := range f.Args {
		var hits []string
		if strings.Contains(name, "/") {
			if i, err := c.FS().Stat(c.Abs(name)); err == nil && i.Mode.IsRegular() && c.FS().Access(c.Abs(name), vfs.MayExec) == nil {
				hits = []string{name}
			}
		} else {
			hits = find(c, name, c.Getenv("PATH"), f.Has('a'))
		}
		if len(hits) == 0 {
			status = 1
		}
		for _, h := range hits {
			if !f.Has('s') {
				show(c, h+"\n")
			}
		}
	}
	return status
}

func whereis(c *tool.Call) int {
	f, ok := c.Flags("bmsuf")
	if !ok {
		return 1
	}
	for _, name := range f.Args {
		show(c, name+":")
		if !f.Has('m') && !f.Has('s') || f.Has('b') {
			for _, h := range find(c, name, "/usr/bin:/usr/local/bin", true) {
				show(c, " "+h)
			}
		}
		show(c, "\n")
	}
	return 0
}

func watch(c *tool.Call) int {
	f, ok := c.Flags("+n:dtbegcpx", "interval=n", "differences=d", "no-title=t", "beep=b", "errexit=e", "chgexit=g", "color=c", "precise=p", "exec=x")
	if !ok {
		return 1
	}
	if len(f.Args) == 0 {
		return c.Errorf(1, "no command")
	}
	if _, _, ok := c.Terminal(1); !ok {
		return c.Errorf(1, "standard output is no terminal: there is nothing to redraw")
	}
	secs, err := strconv.ParseFloat(f.Value('n', "2"), 64)
	if err != nil || secs < 0.1 {
		secs = 2
	}
	every := time.Duration(min(secs, 1e6) * float64(time.Second))
	args := f.Args
	if !f.Has('x') {
		args = []string{"sh", "-c", strings.Join(f.Args, " ")}
	}
	for {
		show(c, "\x1b[H\x1b[2J")
		if !f.Has('t') {
			show(c, fmt.Sprintf("Every %.1fs: %s    %s\n\n", every.Seconds(), strings.Join(f.Args, " "), local(c).Format(time.ANSIC)))
		}
		if status := c.Run(tool.Child{Args: args}); status != 0 && f.Has('e') {
			return status
		}
		if !c.Sleep(every) || !c.Step(1) {
			return 0
		}
	}
}

func man(c *tool.Call) int {
	if len(c.Args) == 0 {
		fmt.Fprintln(c.Err, "What manual page do you want?\nFor example, try 'man man'.")
		return 1
	}
	fmt.Fprintf(c.Err, "No manual entry for %s\nThis machine has no manual pages; most programs answer --help.\n", c.Args[len(c.Args)-1])
	return 16
}

func mcookie(c *tool.Call) int {
	var b [16]byte
	c.Random(b[:])
	return show(c, hex.EncodeToString(b[:])+"\n")
}

func uuidgen(c *tool.Call) int {
	if _, ok := c.Flags("rtmsn:N:x", "random=r", "time=t", "md5=m", "sha1=s", "namespace=n", "name=N", "hex=x"); !ok {
		return 1
	}
	var b [16]byte
	c.Random(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return show(c, fmt.Sprintf("%x-%x-%x-%x-%x\n", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
}

func logger(c *tool.Call) int {
	f, ok := c.Flags("def:in:p:P:st:T", "file=f", "id=i::", "priority=p", "stderr=s", "tag=t", "no-act=\x81")
	if !ok {
		return 1
	}
	if f.Has('s') && len(f.Args) > 0 {
		fmt.Fprintf(c.Err, "<13>%s %s: %s\n", local(c).Format("Jan _2 15:04:05"), f.Value('t', c.Machine().UserName(c.UID())), strings.Join(f.Args, " "))
	}
	return 0
}

// locks are the files that flock has locked, by disk and inode.
var locks struct {
	mu   sync.Mutex
	held map[lockKey]*lock
}

type lockKey struct {
	disk *vfs.FS
	ino  uint64
}

type lock struct {
	readers int
	writer  bool
}

// tryLock takes a lock if it is free.
func tryLock(k lockKey, shared bool) bool {
	locks.mu.Lock()
	defer locks.mu.Unlock()
	if locks.held == nil {
		locks.held = map[lockKey]*lock{}
	}
	l := locks.held[k]
	if l == nil {
		l = &lock{}
		locks.held[k] = l
	}
	if l.writer || l.readers > 0 && !shared {
		return false
	}
	if shared {
		l.readers++
	} else {
		l.writer = true
	}
	return true
}

func unlock(k lockKey, shared bool) {
	locks.mu.Lock()
	defer locks.mu.Unlock()
	l := locks.held[k]
	if shared {
		l.readers--
	} else {
		l.writer = false
	}
	if l.readers == 0 && !l.writer {
		delete(locks.held, k)
	}
}

// flock locks a file while a command runs. A lock on a descriptor is accepted but has no effect,
// because a program here can't leave a lock to its caller.
func flock(c *tool.Call) int {
	f, ok := c.Flags("+c:eE:FnosuvVw:x", "shared=s", "exclusive=x", "unlock=u", "nonblock=n", "nb=n", "wait=w", "timeout=w", "close=o", "conflict-exit-code=E", "command=c", "no-fork=F", "verbose=v")
	if !ok {
		return 64
	}
	args := f.Args
	if len(args) == 0 {
		return c.Errorf(64, "requires file descriptor, file or directory")
	}
	name := args[0]
	args = args[1:]
	if len(args) > 1 && (args[0] == "-c" || args[0] == "--command") {
		args = []string{"sh", "-c", args[1]}
	} else if f.Has('c') {
		args = []string{"sh", "-c", f.Value('c', "")}
	}
	if len(args) == 0 {
		if _, err := strconv.Atoi(name); err != nil {
			return c.Errorf(64, "bad file descriptor: '%s'", name)
		}
		return 0
	}
	conflict, err := strconv.Atoi(f.Value('E', "1"))
	if err != nil {
		return c.Errorf(64, "invalid exit code: '%s'", f.Value('E', ""))
	}
	info, err := c.FS().Stat(c.Abs(name))
	if err != nil {
		file, operr := c.Open(name, vfs.ReadOnly|vfs.CreateNew, 0o666)
		if operr == nil {
			info, err = file.Stat()
			_ = file.Close() // only made
		}
		if operr != nil || err != nil {
			return c.Errorf(66, "cannot open lock file %s: %s", name, tool.ErrText(operr))
		}
	}
	k, shared := lockKey{c.FS().FS(), info.Ino}, f.Has('s')
	wait := time.Duration(-1)
	if f.Has('n') {
		wait = 0
	} else if f.Has('w') {
		if wait, err = parseDuration(f.Value('w', "")); err != nil {
			return c.Errorf(64, "invalid timeout value: '%s'", f.Value('w', ""))
		}
	}
	const every = 5 * time.Millisecond
	for spent := time.Duration(0); !tryLock(k, shared); spent += every {
		if wait >= 0 && spent >= wait {
			return conflict
		}
		if !c.Sleep(every) || !c.Step(1) {
			return 1
		}
	}
	defer unlock(k, shared)
	return c.Run(tool.Child{Args: args})
}

// refusals are programs that a simulated sandbox can't have. Each prints a message that names a
// solution.
func refusals() map[string]tool.Command {
	const promote = "move the sandbox to a tier with real programs: carrel promote ID"
	out := map[string]usage.Program{}
	add := func(reason string, names ...string) {
		for _, n := range names {
			out[n] = usage.Program{Run: func(c *tool.Call) int { return c.Errorf(1, "%s; %s", reason, promote) }, Args: "...", What: "Not in the simulated machine: " + reason + ".", Leading: true}
		}
	}
	add("the simulated machine installs no packages", "apt", "apt-get", "pip", "pip3", "npm")
	add("the simulated machine has no network of its own (curl and wget go through the sandbox's policy)", "ip", "ifconfig", "ping", "nc", "ssh", "scp", "dig", "nslookup", "host")
	add("the simulated machine has no services", "systemctl", "service")
	add("the simulated machine runs nothing by the clock", "crontab")
	return usage.Commands(out)
}
