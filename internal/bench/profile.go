package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
)

// profileSpan is the length of one profile, in seconds.
const profileSpan = 10

// profiling is the running measurement whose daemons are profiled.
type profiling struct {
	name string
	all  sync.WaitGroup
	seen map[*daemon]bool
}

// profile makes the daemons of a measurement write CPU profiles. Each covers the first seconds
// after the daemon comes into use. The returned function waits for that.
func (s *session) profile(name string) func() {
	if s.o.Profile == "" {
		return func() {}
	}
	s.profiling = &profiling{name: name, seen: map[*daemon]bool{}}
	return s.profiling.all.Wait
}

// profileOf begins the profile of one daemon.
func (s *session) profileOf(ctx context.Context, d *daemon) {
	p := s.profiling
	if p == nil || p.seen[d] {
		return
	}
	p.seen[d] = true
	name := p.name
	if n := len(p.seen); n > 1 {
		name += "-" + strconv.Itoa(n)
	}
	p.all.Go(func() {
		raw, err := d.get(ctx, fmt.Sprintf("/carrel/v1/debug/pprof/profile?seconds=%d", profileSpan))
		if err == nil {
			err = s.keepProfile(name, raw)
		}
		if err != nil {
			s.logf("no profile of %s: %v", name, err)
		}
	})
}

// keepProfile writes a profile and, if the Go tools are there, its top.
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
	s.logf("profile of %s: %s", name, file)
	return os.WriteFile(filepath.Join(s.o.Profile, name+".txt"), top.Bytes(), 0o644)
}
