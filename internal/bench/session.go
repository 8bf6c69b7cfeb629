package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/cleanup"
)

// session is one run of the bench. Things that measurements share are made when the first one needs
// them.
type session struct {
	o       Options
	results results
	undo    cleanup.Stack

	dir     string
	cold    *daemon           // makes no sandboxes ahead
	flags   string            // the output of "carrel serve --help"
	tools   map[string]string // programs that were built or found, "" for unavailable ones
	stocked *stock            // runsc as it comes
	runced  *stock            // and runc

	profiling *profiling // nil unless profiles are taken
}

func (s *session) close() { s.undo.Run() }

// logf reports progress to a person.
func (s *session) logf(format string, args ...any) {
	fmt.Fprintf(s.o.Log, "bench: "+format+"\n", args...)
}

// scratch returns a directory for this run.
func (s *session) scratch() (string, error) {
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "carrel-bench-")
		if err != nil {
			return "", err
		}
		s.dir = dir
		s.undo.Add(func() { _ = os.RemoveAll(dir) })
	}
	return s.dir, nil
}

// coldDaemon returns the daemon for all measurements without sandboxes made ahead.
func (s *session) coldDaemon(ctx context.Context) (*daemon, error) {
	if s.cold == nil {
		d, err := s.daemon(ctx)
		if err != nil {
			return nil, err
		}
		s.cold = d
		s.undo.Add(d.stop)
	}
	s.profileOf(ctx, s.cold)
	return s.cold, nil
}

// daemon starts another daemon, with no pool unless the arguments set one.
func (s *session) daemon(ctx context.Context, more ...string) (*daemon, error) {
	if s.serveHas(ctx, "--warm") {
		more = append([]string{"--warm", "0"}, more...)
	}
	d, err := startDaemon(ctx, s.o, more...)
	if err == nil {
		s.profileOf(ctx, d)
	}
	return d, err
}

// serveHas reports whether the binary's serve command has a flag.
func (s *session) serveHas(ctx context.Context, flag string) bool {
	if s.flags == "" {
		out, err := exec.CommandContext(ctx, s.o.Carrel, "serve", "--help").CombinedOutput()
		if err != nil {
			return false
		}
		s.flags = string(out)
	}
	return strings.Contains(s.flags, flag+" ")
}

// built returns a program of this module. If the source is here, it builds the program. Otherwise
// it takes the one next to the measured binary, or in the PATH.
func (s *session) built(ctx context.Context, name string) (string, error) {
	if path, ok := s.tools[name]; ok {
		if path == "" {
			return "", errMissing(name)
		}
		return path, nil
	}
	if s.tools == nil {
		s.tools = map[string]string{}
	}
	path, err := s.build(ctx, name)
	s.tools[name] = path
	return path, err
}

func (s *session) build(ctx context.Context, name string) (string, error) {
	dir, err := s.scratch()
	if err != nil {
		return "", err
	}
	return build(ctx, filepath.Join(dir, name), name)
}

// build builds ./bench/NAME if the source is here; otherwise it finds the program elsewhere.
func build(ctx context.Context, target, name string) (string, error) {
	if _, err := os.Stat(filepath.Join("bench", name, "main.go")); err != nil {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
		return "", errMissing(name)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", target, "./bench/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %v: %s", name, err, out)
	}
	return target, nil
}

// errMissing returns the error for a program of ours that can be built only from its source.
func errMissing(name string) error {
	return &carrel.Error{Op: "bench", Kind: carrel.Unsupported, Err: fmt.Errorf("%s is not here and can't be built", name),
		Hint: "run make bench in the source tree, where ./bench/" + name + " is"}
}
