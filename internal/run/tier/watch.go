//go:build linux

package tier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/internal/assembly"
	"github.com/carrel-dev/carrel/internal/linux/overlay"
	"github.com/carrel-dev/carrel/internal/reexec"
)

// watcherName is the part that cleans up after a runner that was killed.
const watcherName = "carrel-run-watch"

// Parts returns the parts of this package for reexec.Run. Without them a program cleans up only in
// its next run.
func Parts() reexec.Parts { return reexec.Parts{watcherName: watch} }

// reapTime bounds the clean-up after another process.
const reapTime = time.Minute

// watch waits until its standard input ends. If a byte comes before that, there is nothing to do.
func watch() {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	if len(os.Args) != 2 {
		return
	}
	if n, _ := io.ReadFull(os.Stdin, make([]byte, 1)); n == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), reapTime)
		defer cancel()
		_ = reap(ctx, os.Args[1])
	}
}

// watcher is the runner's end of the watcher process.
type watcher struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

// startWatcher starts a process. If this process is killed, the new one removes dir, and the
// sandbox whose state is there.
func startWatcher(dir string) (*watcher, error) {
	if !reexec.Ready() {
		return nil, errors.New("this program can't start itself")
	}
	w := &watcher{cmd: exec.Command("/proc/self/exe")}
	w.cmd.Args = []string{watcherName, dir}
	w.cmd.Dir = "/"
	w.cmd.Env = []string{}
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a ctrl-c is not meant for it
	var err error
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", watcherName, err)
	}
	return w, nil
}

// Close dismisses it.
func (w *watcher) Close() {
	if w == nil {
		return
	}
	_, _ = w.in.Write([]byte{'.'})
	_ = w.in.Close()
	_ = w.cmd.Wait()
}

// reap ends what a killed runner left of its sandbox, and removes its directory. The runner's
// service has its own clean-up process, which may do the same at the same time.
func reap(ctx context.Context, dir string) error {
	assembly.ClearEnded(ctx, dir)
	return overlay.Remove(dir)
}
