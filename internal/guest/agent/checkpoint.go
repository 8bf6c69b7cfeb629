package agent

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/guest/process"
)

const (
	// checkpointLimit bounds the waiting for a checkpoint.
	checkpointLimit = time.Minute
	// maxPatterns and maxPattern bound what /init may ask to look for before each command.
	maxPatterns = 64
	maxPattern  = 1 << 10
	// maxCommand is how much of a command's line the host is told.
	maxCommand = 4 << 10
)

// errNoHost is why a guest without a host's door takes no checkpoints.
var errNoHost = errors.New("this guest has no way to ask its host")

// compilePatterns compiles CheckpointBefore; the error names the bad one.
func compilePatterns(list []string) ([]*regexp.Regexp, error) {
	if len(list) > maxPatterns {
		return nil, fmt.Errorf("checkpointBefore: %d expressions, at most %d", len(list), maxPatterns)
	}
	var out []*regexp.Regexp
	for i, text := range list {
		if len(text) > maxPattern {
			return nil, fmt.Errorf("checkpointBefore[%d]: longer than %d bytes", i, maxPattern)
		}
		re, err := regexp.Compile(text)
		if err != nil {
			return nil, fmt.Errorf("checkpointBefore[%d]: %q: %w", i, text, err)
		}
		out = append(out, re)
	}
	return out, nil
}

// commandLine is what the patterns are matched against: the line that a shell was
// asked to run, as the SDKs do it with /bin/bash -l -c, or the program with its
// arguments.
func commandLine(cfg *process.ProcessConfig) string {
	args := cfg.GetArgs()
	switch path.Base(cfg.GetCmd()) {
	case "bash", "sh", "dash", "zsh":
		for i, a := range args {
			if !strings.HasPrefix(a, "-") {
				break // a script
			}
			if strings.HasSuffix(a, "c") && !strings.HasPrefix(a, "--") && i+1 < len(args) {
				return args[i+1]
			}
		}
	}
	return strings.Join(append([]string{cfg.GetCmd()}, args...), " ")
}

// checkpointBefore asks the host for a checkpoint where the identity wants one
// before this command, and waits for it. In a copy that is restored from it the
// connection to the host is gone, or the request is interrupted by /init: there it
// fails, and the command does not start a second time.
func (a *Agent) checkpointBefore(ctx context.Context, cfg *process.ProcessConfig) *connect.Error {
	line := commandLine(cfg)
	if !a.wantsCheckpoint(line) {
		return nil
	}
	err := errNoHost
	if a.cfg.Checkpoint != nil {
		if len(line) > maxCommand {
			line = line[:maxCommand]
		}
		wait, cancel := context.WithTimeout(ctx, checkpointLimit)
		defer cancel()
		_, err = a.cfg.Checkpoint(wait, guest.CheckpointRequest{Command: strings.ToValidUTF8(line, "\uFFFD")})
		if err == nil {
			err = ctx.Err()
		}
	}
	if err == nil {
		return nil
	}
	return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("checkpoint before the command failed: %w", err))
}

// wantsCheckpoint reports whether a pattern matches a command's line.
func (a *Agent) wantsCheckpoint(line string) bool {
	a.identity.mu.RLock()
	patterns := a.identity.before
	a.identity.mu.RUnlock()
	for _, re := range patterns {
		if re.MatchString(line) {
			return true
		}
	}
	return false
}
