package chaos

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// otherBuild is a build with another version and another sentry.
var otherBuild struct {
	once sync.Once
	dir  string
	err  error
}

// another compiles the other build, once for all trials.
func (t *trial) another() string {
	o := &otherBuild
	o.once.Do(func() {
		if o.dir, o.err = os.MkdirTemp("", "carrel-chaos-build-"); o.err == nil {
			o.err = compileOther(o.dir)
		}
	})
	t.check(o.err)
	return filepath.Join(o.dir, "carrel")
}

// compileOther compiles the sentry and the program that carries it into a directory.
func compileOther(dir string) error {
	const module = "github.com/carrel-dev/carrel/"
	flags := "-s -w -X " + module + "internal/version.Version=chaos -X " + module +
		"internal/driver/gvisor.mark=chaos"
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	assets := filepath.Join(root, "internal/driver/gvisor/sentrybin/assets")
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(assets, "carrel-sentry.zst"): in("packed.zst"),
		filepath.Join(assets, "carrel-sentry.sum"): in("packed.sum"),
	}})
	if err == nil {
		err = os.WriteFile(in("overlay.json"), overlay, 0o600)
	}
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"build", "-trimpath", "-ldflags", flags, "-o", in("carrel-sentry"), "./cmd/carrel-sentry"},
		{"run", "./internal/tools/pack", "-o", in("packed"), in("carrel-sentry")},
		{"build", "-trimpath", "-ldflags", flags, "-overlay", in("overlay.json"), "-o", in("carrel"),
			"./cmd/carrel"},
	} {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return errors.Join(err, errors.New(string(out)))
		}
	}
	return nil
}

// buildsTrial goes up to another build and down again, the daemon stopped or killed. Nothing is
// stranded: what ran runs on, and what was paused is resumed by the kernel that saved it.
func buildsTrial(t *trial) {
	bins := []string{t.another(), builtBinary()}
	d := t.serve(setup{})
	t.populate(d)
	for i := range 3 {
		t.calm.Store(true)
		stop := t.work(d, 2)
		t.busy(5 + t.rng.IntN(15))
		t.calm.Store(false)
		if t.rng.IntN(2) == 0 {
			d.kill9()
		} else {
			d.terminate()
		}
		stop()
		d.bin = bins[i%2]
		t.faults++
		if err := d.start(); err != nil {
			t.fatalf("the other build does not start: %v", err)
		}
		t.verify(d.svc, afterKill)
		if len(t.violations) > 0 {
			return
		}
	}
	t.finish(d)
}
