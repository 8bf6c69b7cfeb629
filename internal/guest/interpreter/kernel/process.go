package kernel

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// stallTime is how long a sink may block before the process is stopped.
	stallTime = 50 * time.Millisecond
	// moreLikelyKilled is added to the score by which the system chooses a process when memory runs
	// out. The kernel shall die, not the interpreter.
	moreLikelyKilled = 500
	// maxTail is how much of a process's own stderr is kept for an error message.
	maxTail = 2 << 10
)

// process is a kernel's process, the leader of a process group.
type process struct {
	cmd    *exec.Cmd
	dir    string // its own directory, removed with it
	done   chan struct{}
	tail   *tail
	mu     sync.Mutex
	reason string
	// verdict is why we end it, if we do.
	verdict string
}

// start starts the command in a process group of its own. dir is removed after the process's end.
func start(cmd *exec.Cmd, dir string) (*process, error) {
	p := &process{cmd: cmd, dir: dir, done: make(chan struct{}), tail: &tail{}}
	cmd.SysProcAttr = attributes()
	if cmd.Stdout == nil {
		cmd.Stdout = p.tail
	}
	if cmd.Stderr == nil {
		cmd.Stderr = p.tail
	}
	// A child that outlives the process may keep the pipes open.
	cmd.WaitDelay = 100 * time.Millisecond
	if err := cmd.Start(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	score := []byte(strconv.Itoa(moreLikelyKilled))
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), score, 0) // best effort
	go p.wait()
	return p, nil
}

// wait waits for the process and ends what it left in its group.
func (p *process) wait() {
	_ = p.cmd.Wait() // the state says it
	p.kill()
	p.mu.Lock()
	p.reason = cmp.Or(p.verdict, reason(p.cmd.ProcessState))
	p.mu.Unlock()
	_ = os.RemoveAll(p.dir)
	close(p.done)
}

// reason says in words how a process ended.
func reason(s *os.ProcessState) string {
	ws, ok := s.Sys().(syscall.WaitStatus)
	switch {
	case !ok:
		return s.String()
	case ws.Signaled() && ws.Signal() == syscall.SIGKILL:
		return "it was killed (signal 9), as happens when the sandbox's memory is used up"
	case ws.Signaled():
		return fmt.Sprintf("it was ended by signal %d (%v)", int(ws.Signal()), ws.Signal())
	}
	return fmt.Sprintf("it exited with status %d", ws.ExitStatus())
}

func (p *process) Done() <-chan struct{} { return p.done }

func (p *process) PID() int { return p.cmd.Process.Pid }

func (p *process) Reason() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reason
}

// kill kills the process group.
func (p *process) kill() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }

// condemn ends a process that is of no use, and says why.
func (p *process) condemn(why string) {
	p.mu.Lock()
	p.verdict = why
	p.mu.Unlock()
	p.Close()
}

// Close kills the process group and waits for the process.
func (p *process) Close() {
	p.kill()
	<-p.done
}

// Interrupt sends the process group what Ctrl-C sends.
func (p *process) Interrupt() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT) }

// stalled calls block. If that takes long, the process stands still meanwhile.
func (p *process) stalled(block func() error) error {
	var mu sync.Mutex
	over, stopped := false, false
	t := time.AfterFunc(stallTime, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			stopped = p.signal(syscall.SIGSTOP)
		}
	})
	err := block()
	t.Stop()
	mu.Lock()
	defer mu.Unlock()
	if over = true; stopped {
		p.signal(syscall.SIGCONT)
	}
	return err
}

// signal sends the leader a signal.
func (p *process) signal(s syscall.Signal) bool {
	return p.cmd.Process.Signal(s) == nil
}

// failure is the error of a process that ended before it was ready.
func (p *process) failure(language string) error {
	return fmt.Errorf("the %s kernel did not start: %s%s", language, p.Reason(), p.tail)
}

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b[max(0, len(b)-maxTail):]...)
	if over := len(t.buf) - maxTail; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(b), nil
}

// String returns the text after a colon, or nothing.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := strings.TrimSpace(string(bytes.ToValidUTF8(t.buf, nil))); s != "" {
		return ": " + s
	}
	return ""
}
