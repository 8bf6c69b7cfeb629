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
	// checkpointLimit bounds the wait for a checkpoint.
	checkpointLimit = time.Minute
	// maxPatterns and maxPattern bound the number and length of the patterns in an /init.
	maxPatterns = 64
	maxPattern  = 1 << 10
	// maxCommand is the most bytes of a command's line that the host gets.
	maxCommand = 4 << 10
)

// errNoHost is the reason why a guest without a way to its host takes no checkpoints.
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

// commandLine returns the text that the patterns are matched against: the line for the shell, in
// the SDKs' form /bin/bash -l -c, or else the program with its arguments.
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

// checkpointBefore asks the host for a checkpoint and waits for it, if a pattern of the identity
// matches this command. In a copy that is restored from that checkpoint, the connection to the host
// is gone, or /init interrupts the request. There it fails, and the command does not start a second
// time.
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
