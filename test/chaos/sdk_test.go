package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/carrel-dev/carrel"
)

// venv is where test/sdk installs the Python SDK; both use the same one.
const venv = "../sdk/python/.venv"

var installOnce sync.Once

// python returns the interpreter that has the SDK, and installs the SDK if it is not there yet.
func (t *trial) python() string {
	installOnce.Do(func() {
		if found, _ := filepath.Glob(venv + "/lib/*/site-packages/e2b"); len(found) > 0 {
			return
		}
		for _, args := range [][]string{{"python3", "-m", "venv", venv},
			{venv + "/bin/pip", "install", "--quiet", "-r", "../sdk/python/requirements.txt"}} {
			if _, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
				return
			}
		}
	})
	if found, _ := filepath.Glob(venv + "/lib/*/site-packages/e2b"); len(found) == 0 {
		t.skip("E2B's Python SDK is not installed and can't be")
	}
	return t.must(filepath.Abs(venv + "/bin/python"))
}

// sdkLine is a line of python/ops.py.
type sdkLine struct {
	Ask, Done, Failed, ID, File, Sum, Snapshot string
}

// sdkTrial kills the daemon while programs with E2B's Python SDK work.
func sdkTrial(t *trial) {
	python := t.python()
	d := t.serve(setup{base: true})
	for round := range 2 {
		t.calm.Store(true)
		var wg sync.WaitGroup
		for i := range 2 {
			cmd := exec.Command(python, "python/ops.py", fmt.Sprint(t.seed*100+uint64(round*10+i)))
			cmd.Env = append(os.Environ(), "E2B_API_URL="+d.url, "E2B_SANDBOX_URL="+d.url,
				"E2B_API_KEY="+d.key)
			cmd.Stderr = os.Stderr
			in, err := cmd.StdinPipe()
			t.check(err)
			out, err := cmd.StdoutPipe()
			t.check(err)
			t.check(cmd.Start())
			t.later(func() { _ = in.Close(); _ = cmd.Process.Kill() })
			wg.Go(func() { t.follow(bufio.NewScanner(out)); _ = in.Close(); _ = cmd.Wait() })
		}
		t.busy(20 + t.rng.IntN(30))
		t.calm.Store(false)
		d.kill9()
		t.faults++
		wg.Wait()
		if err := d.start(); err != nil {
			t.fatalf("it does not start after a kill: %v", err)
		}
		t.verify(d.svc, afterKill)
	}
	t.finish(d)
}

// follow writes what a program with the SDK says into the journal.
func (t *trial) follow(lines *bufio.Scanner) {
	asked := sdkLine{}
	for lines.Scan() {
		var l sdkLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.violate("the program with the SDK says %q", lines.Text())
			return
		}
		t.j.mu.Lock()
		b := t.j.boxes[carrel.ID(l.ID)]
		t.j.mu.Unlock()
		switch {
		case l.Failed != "":
			if t.calm.Load() && !strings.Contains(l.Failed, "429") && !strings.Contains(l.Failed, "503") {
				t.violate("%s %s by the SDK failed without a fault: %s", asked.Ask, asked.ID, l.Failed)
			}
			return
		case l.Ask != "":
			asked = l
			t.asked(l, b)
		default:
			t.ops.Add(1)
			t.answered(l, asked, b)
		}
	}
}

// asked notes an operation of the SDK that has no answer yet.
func (t *trial) asked(l sdkLine, b *box) {
	switch l.Ask {
	case "create":
		t.j.expect(1, 0)
	case "snapshot":
		t.j.expect(0, 1)
	case "write":
		b.doubt, b.file, b.sum = inWrite, l.File, l.Sum
	default:
		b.doubt = doubt(l.Ask)
		b.memo = true
	}
}

// answered notes the answer to it.
func (t *trial) answered(l, asked sdkLine, b *box) {
	switch l.Done {
	case "create":
		t.j.expect(-1, 0)
		t.j.addBox(&box{id: carrel.ID(l.ID), tier: carrel.GVisor,
			content: content{files: map[string]string{}}})
		return
	case "snapshot":
		t.j.expect(0, -1)
		id, _, _ := strings.Cut(l.Snapshot, ":")
		t.j.addSnap(&snap{id: carrel.SnapshotID(id), of: b.id, tier: b.tier, memory: true,
			content: b.clone()})
		return
	case "write":
		b.files[asked.File] = asked.Sum
	case "pause":
		b.paused = true
	case "resume":
		b.paused = false
	case "kill":
		b.dead = true
	}
	b.doubt = none
}
