// Package failpoint lets tests make named steps of a program fail, die or take long. Such tests
// answer questions like: what happens if the disk is full at this step, or if the daemon is killed
// there?
//
// A step calls [Hit] with its name and returns the error, if there is one. Hit does nothing until a
// test enables the point with [Enable] or [Parse]. Production never enables a point: this package
// reads no flag, file or environment variable, and only test binaries call anything but Hit. (A
// test binary may re-execute itself as a daemon and pass a spec in an environment variable of its
// own.) A point that is not enabled costs one atomic load. [Mutant] is a point that
// takes a promise out.
package failpoint

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// ErrInjected is the error of a point with the action "error".
var ErrInjected = errors.New("injected failure")

var (
	enabled atomic.Int32 // len(points), so that Hit needs no lock in production

	mu     sync.Mutex
	points = map[string]func() error{}
)

// Hit marks the step called name in the code under test. It returns nil unless a test enabled that
// point. Then it returns the result of the test's function.
func Hit(name string) error {
	if enabled.Load() == 0 {
		return nil
	}
	mu.Lock()
	fn := points[name]
	mu.Unlock()
	if fn == nil {
		return nil
	}
	return fn() // without the lock: fn may sleep or disable its own point
}

// Mutant reports whether a test took out the fix called name. It is the point "mutant."+name: code
// that keeps a promise asks it, and leaves the promise out if a test says so. Such tests show that
// the suite that checks the promise would find its absence.
func Mutant(name string) bool {
	return enabled.Load() != 0 && Hit("mutant."+name) != nil
}

// Enable makes Hit(name) call fn, and replaces an earlier function. Several goroutines may call fn
// at once. Tests only.
func Enable(name string, fn func() error) {
	mu.Lock()
	defer mu.Unlock()
	points[name] = fn
	enabled.Store(int32(len(points)))
}

// Disable makes Hit(name) return nil again; idempotent. Running calls of a function go on.
func Disable(name string) {
	mu.Lock()
	defer mu.Unlock()
	delete(points, name)
	enabled.Store(int32(len(points)))
}

// Reset disables every point.
func Reset() {
	mu.Lock()
	defer mu.Unlock()
	clear(points)
	enabled.Store(0)
}

// Parse enables the points of a spec: name=action, several separated by commas. A
// count before the action, as in "name=2*enospc", lets only so many hits act. The
// actions are
//
//	kill          SIGKILL of this process
//	enospc        an error for which errors.Is(err, syscall.ENOSPC)
//	error         an error for which errors.Is(err, ErrInjected)
//	sleep(100ms)  a pause, then nil
//
// A spec with a mistake enables nothing. Tests only.
func Parse(spec string) error {
	parsed := map[string]func() error{}
	for part := range strings.SplitSeq(spec, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		name, text, found := strings.Cut(part, "=")
		if !found || name == "" {
			return fmt.Errorf("failpoint %q: not name=action", part)
		}
		fn, err := parseAction(name, text)
		if err != nil {
			return err
		}
		parsed[name] = fn
	}
	for name, fn := range parsed {
		Enable(name, fn)
	}
	return nil
}

// parseAction turns the text after the equals sign into a function.
func parseAction(name, text string) (func() error, error) {
	var left *atomic.Int64
	if count, action, found := strings.Cut(text, "*"); found {
		n, err := strconv.ParseInt(count, 10, 32)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("failpoint %s: %q is not a count", name, count)
		}
		left, text = new(atomic.Int64), action
		left.Store(n)
	}
	act, err := actionOf(name, text)
	if err != nil || left == nil {
		return act, err
	}
	return func() error {
		if left.Add(-1) < 0 {
			return nil
		}
		return act()
	}, nil
}

// actionOf returns the function of one action's text.
func actionOf(name, text string) (func() error, error) {
	switch text {
	case "kill":
		return die, nil
	case "enospc":
		return func() error { return fmt.Errorf("failpoint %s: %w", name, syscall.ENOSPC) }, nil
	case "error":
		return func() error { return fmt.Errorf("failpoint %s: %w", name, ErrInjected) }, nil
	}
	arg, isSleep := strings.CutPrefix(text, "sleep(")
	arg, closed := strings.CutSuffix(arg, ")")
	if !isSleep || !closed {
		return nil, fmt.Errorf("failpoint %s: no action %q", name, text)
	}
	d, err := time.ParseDuration(arg)
	if err != nil || d < 0 {
		return nil, fmt.Errorf("failpoint %s: %q is not a duration", name, arg)
	}
	return func() error {
		time.Sleep(d)
		return nil
	}, nil
}

// die ends this process like a crash: no deferred function runs, and it never returns.
func die() error {
	p, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	if err := p.Kill(); err != nil {
		return err
	}
	select {} // the signal is on its way
}
