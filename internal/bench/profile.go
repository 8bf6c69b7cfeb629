package bench

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// profileSpan is the longest that one profile takes.
const profileSpan = 20 * time.Second

// profile has the daemon write down where its processor time goes during a
// measurement, or its first twenty seconds; the function it returns waits for that.
func (s *session) profile(ctx context.Context, name string) func() {
	if s.o.Profile == "" {
		return func() {}
	}
	d, err := s.coldDaemon(ctx)
	if err != nil {
		return func() {} // the measurement will say so
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		raw, err := d.get(ctx, "/carrel/v1/debug/pprof/profile?seconds=20")
		if ctx.Err() != nil {
			return // a short measurement; the daemon stops as well
		}
		if err == nil {
			err = s.keepProfile(name, raw)
		}
		if err != nil {
			s.logf("no profile of %s: %v", name, err)
		}
	}()
	return func() {
		select {
		case <-done:
		case <-time.After(profileSpan + 5*time.Second):
		}
		cancel()
		<-done
	}
}

// keepProfile writes a profile and its top, where the Go tools are.
func (s *session) keepProfile(name string, raw []byte) error {
	file := filepath.Join(s.o.Profile, name+".pb.gz")
	if err := os.WriteFile(file, raw, 0o644); err != nil {
		return err
	}
	var top bytes.Buffer
	cmd := exec.Command("go", "tool", "pprof", "-top", "-nodecount=25", file)
	cmd.Stdout = &top
	if err := cmd.Run(); err != nil {
		s.logf("profile of %s: %s", name, file)
		return nil
	}
	s.logf("profile of %s: %s\n%s", name, file, top.String())
	return os.WriteFile(filepath.Join(s.o.Profile, name+".txt"), top.Bytes(), 0o644)
}
