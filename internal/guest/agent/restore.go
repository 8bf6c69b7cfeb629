package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/internal/guest"
)

const (
	// hookLimit is how long one hook may run.
	hookLimit = 10 * time.Second
	// hookOutput is how much of a failed hook's output is logged.
	hookOutput = 2 << 10
)

// adopt takes over an identity. The first one after a restore also ends every earlier request and
// connection, except the one that carries it. This happens before anything is served under the new
// identity.
func (a *Agent) adopt(r *http.Request, ini *initialisation) {
	a.admission.Lock()
	defer a.admission.Unlock()
	now := a.identity.apply(ini)
	if !now.adopted {
		return
	}
	if now.woken {
		for _, x := range a.exchanges.all() {
			x.interrupt(errRestored)
		}
		a.conns.dropOthers(r.Context())
	}
	a.settling.begin(a.spawn, func() { a.identify(&ini.InitRequest, now) })
}

// markGeneration writes the number of this copy to a file. Programs read it to avoid doing the same
// work in two copies of a snapshot.
func (a *Agent) markGeneration(generation int) {
	root := User{Name: "root"}
	_ = a.sys.Mkdir("/run", root)                           // they are there, or the
	_ = a.sys.Mkdir(path.Dir(guest.GenerationFile), root)   // files below say why not
	now := time.Now().UTC().Format(time.RFC3339Nano) + "\n" // after Identify has set the clock
	for _, f := range []struct{ name, text string }{
		{guest.RestoredFile, now}, {guest.GenerationFile, strconv.Itoa(generation) + "\n"},
	} {
		if err := a.replaceFile(f.name, f.text, root); err != nil {
			a.log.Warn("mark generation", "err", err)
		}
	}
}

// replaceFile writes a file that no reader ever sees half written.
func (a *Agent) replaceFile(name, text string, u User) error {
	tmp := name + ".new"
	f, err := a.sys.Create(tmp, u)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return a.sys.Rename(tmp, name)
}

// runHooks runs the owner's hooks in a restored copy, before the first command. A hook that fails
// is only a warning: the sandbox is useful without it.
func (a *Agent) runHooks(req *guest.InitRequest) {
	entries, err := a.sys.ReadDir(guest.HookDir)
	if err != nil {
		return // nobody wants anything
	}
	slices.SortFunc(entries, func(x, y Entry) int { return strings.Compare(x.Path, y.Path) })
	root, err := a.sys.User("root")
	if err != nil {
		root = User{Name: "root", Home: "/root", Shell: "/bin/sh"}
	}
	env := a.environment(root, map[string]string{
		"CARREL_GENERATION": strconv.Itoa(req.Generation), "CARREL_SANDBOX_ID": req.SandboxID}, false)
	for _, e := range entries {
		if a.ctx.Err() != nil {
			return
		}
		if e, err := a.sys.Stat(e.Path); err != nil || !e.Mode.IsRegular() || e.Mode&0o111 == 0 {
			continue
		}
		if err := a.runHook(Cmd{Path: e.Path, Env: env, Dir: "/", User: root}); err != nil {
			a.log.Warn("hook after restore", "path", e.Path, "err", err)
		}
	}
}

// hookDrain is how long to wait for a hook's output after its end.
const hookDrain = 200 * time.Millisecond

// runHook runs one hook to its end, or to its time limit.
func (a *Agent) runHook(cmd Cmd) error {
	proc, err := a.sys.Start(cmd)
	if err != nil {
		return err
	}
	var out head
	var readers sync.WaitGroup
	for _, r := range []io.Reader{proc.Stdout(), proc.Stderr()} {
		readers.Add(1)
		a.spawn(func() { // ends with Release, even if the hook left processes
			defer readers.Done()
			_, _ = io.Copy(&out, r)
		})
	}
	kill := func() { _ = proc.Signal(9) } // it may have ended by itself
	over, cancel := context.WithCancel(context.Background())
	limit := a.uptime.afterFunc(hookLimit, func() { cancel(); kill() })
	stop := context.AfterFunc(a.ctx, kill)
	exit := proc.Wait()
	stop()
	limit.stop()
	late := over.Err() != nil
	cancel()
	drained := make(chan struct{})
	a.spawn(func() { defer close(drained); readers.Wait() })
	select {
	case <-drained:
	case <-time.After(hookDrain): // a process that the hook left holds its output
	}
	proc.Release()
	<-drained
	switch {
	case late:
		return fmt.Errorf("killed after %v; it wrote: %q", hookLimit, out.text())
	case exit.ErrorMsg != "":
		return fmt.Errorf("%s; it wrote: %q", exit.ErrorMsg, out.text())
	}
	return nil
}

// head keeps the beginning of the data written to it.
type head struct {
	mu   sync.Mutex
	data []byte
}

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.data = append(h.data, p[:min(len(p), hookOutput-len(h.data))]...)
	return len(p), nil
}

func (h *head) text() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.data)
}
