package local_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

func open(t *testing.T, cfg carrel.Config) carrel.Service {
	t.Helper()
	s, err := carrel.Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("%v (hint: %s)", err, carrel.HintOf(err))
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestCloseLeavesNothing looks for leftovers in the temporary directory.
func TestCloseLeavesNothing(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	s := open(t, carrel.Config{})
	box, err := s.Create(t.Context(), carrel.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if box.Tier != carrel.Sim || box.State != carrel.Running {
		t.Errorf("%+v", box)
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) != 1 {
		t.Errorf("a running service has %v", left)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) != 0 {
		t.Errorf("Close left %v", left)
	}
	if _, err := s.Create(t.Context(), carrel.CreateOptions{}); carrel.KindOf(err) != carrel.Unavailable {
		t.Errorf("a closed service answered %v", err)
	}
}

func TestConfig(t *testing.T) {
	if _, err := carrel.Open(t.Context(), carrel.Config{Tier: "nope"}); carrel.KindOf(err) != carrel.Invalid || carrel.HintOf(err) == "" {
		t.Errorf("an unknown tier gave %v", err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	s := open(t, carrel.Config{DataDir: dir, Limits: carrel.Limits{DiskMB: 1}})
	box, err := s.Create(t.Context(), carrel.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if box.Limits.DiskMB != 1 || box.Limits.MemoryMB == 0 {
		t.Errorf("limits %+v", box.Limits)
	}
	pc, err := s.Computer(t.Context(), box.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pc.Files("").Write(t.Context(), "big", strings.NewReader(strings.Repeat("x", 2<<20))); carrel.KindOf(err) != carrel.Exhausted {
		t.Errorf("two megabytes on a disk of one gave %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "templates")); err != nil {
		t.Error(err)
	}
}

// TestManyAtOnce makes and uses sandboxes from many goroutines.
func TestManyAtOnce(t *testing.T) {
	s := open(t, carrel.Config{})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			box, err := s.Create(t.Context(), carrel.CreateOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			pc, err := s.Computer(t.Context(), box.ID)
			if err != nil {
				t.Error(err)
				return
			}
			res, err := pc.Run(t.Context(), carrel.Command{Shell: "echo $HOSTNAME > id; cat id"})
			if err != nil || string(res.Stdout) != string(box.ID)+"\n" {
				t.Errorf("%+v, %v", res, err)
			}
			if err := s.Kill(t.Context(), box.ID); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestRealTiers runs real programs: this test binary plays the sandbox's kernel, or builds its
// walls.
func TestRealTiers(t *testing.T) {
	testenv.Long(t, "makes the base template")
	host, err := os.ReadFile("/proc/version")
	if err != nil {
		t.Fatal(err)
	}
	for tier, ofHost := range map[carrel.Tier]bool{carrel.GVisor: false, carrel.NS: true} {
		t.Run(string(tier), func(t *testing.T) {
			s, err := carrel.Open(t.Context(), carrel.Config{Tier: tier})
			if errors.Is(err, carrel.Unsupported) {
				if carrel.HintOf(err) == "" {
					t.Errorf("%v, and no word of what to do", err)
				}
				testenv.Need(t, string(tier), err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			box, err := s.Create(t.Context(), carrel.CreateOptions{})
			if err != nil {
				t.Fatalf("%v (hint: %s)", err, carrel.HintOf(err))
			}
			if box.Tier != tier {
				t.Errorf("tier %s", box.Tier)
			}
			pc, err := s.Computer(t.Context(), box.ID)
			if err != nil {
				t.Fatal(err)
			}
			res, err := pc.Run(t.Context(), carrel.Command{Shell: "cat /proc/version"})
			if err != nil || res.ExitCode != 0 || len(res.Stdout) == 0 {
				t.Errorf("%+v %s %s, %v", res, res.Stdout, res.Stderr, err)
			}
			if (string(res.Stdout) == string(host)) != ofHost {
				t.Errorf("a sandbox of tier %s runs on the kernel %s", tier, res.Stdout)
			}
		})
	}
}
