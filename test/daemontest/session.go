package daemontest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// Session is a program in a sandbox. The test talks to its standard input, or its terminal, over
// one connection after another.
type Session struct {
	PID int

	mu  sync.Mutex
	p   carrel.Process
	out bytes.Buffer
}

// Write implements io.Writer.
func (s *Session) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

// Begin starts a program as a session.
func Begin(ctx context.Context, c carrel.Computer, cmd carrel.Command) (*Session, error) {
	s := &Session{}
	cmd.OpenStdin, cmd.Stdout, cmd.Stderr = cmd.TTY == nil, s, s
	p, err := c.Start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	s.p, s.PID = p, p.PID()
	return s, nil
}

// Attach returns the same session on another connection, or in another sandbox.
func (s *Session) Attach(ctx context.Context, c carrel.Computer) (*Session, error) {
	n := &Session{PID: s.PID}
	p, err := c.Attach(ctx, s.PID, n, n)
	if err != nil {
		return nil, fmt.Errorf("attach to %d: %w", s.PID, err)
	}
	n.p = p
	return n, nil
}

// Until waits for a complete line that contains mark, and returns it.
func (s *Session) Until(ctx context.Context, mark string) (string, error) {
	var found string
	err := testenv.Within(ctx, time.Minute, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		text := s.out.String()
		for line := range strings.Lines(text) {
			if strings.Contains(line, mark) && strings.HasSuffix(line, "\n") {
				found = strings.TrimSpace(line)
				return nil
			}
		}
		return fmt.Errorf("process %d did not say %q:\n%s", s.PID, mark, text)
	})
	return found, err
}

// Ask sends a line and returns the answer that begins with mark.
func (s *Session) Ask(ctx context.Context, line, mark string) (string, error) {
	s.mu.Lock()
	s.out.Reset()
	s.mu.Unlock()
	if _, err := s.p.Write([]byte(line + "\n")); err != nil {
		return "", fmt.Errorf("write to %d: %w", s.PID, err)
	}
	return s.Until(ctx, mark)
}
