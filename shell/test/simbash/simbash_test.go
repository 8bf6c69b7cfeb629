// Package simbash runs the scripts of testdata in real bash with GNU's tools, and in the simulated
// machine. It compares their output, their status and the files that they leave. Package cases
// defines the format of scripts and exceptions.
//
// It is also the oracle of package golden. With -real it fails on a recording that differs from the
// real outcome. With -update it writes the recordings again. Recordings are made as root.
package simbash

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/shell/test/cases"
	"github.com/carrel-dev/carrel/shell/vfs"
)

var (
	real   = flag.Bool("real", false, "compare with the programs of this host")
	update = flag.Bool("update", false, "write what they answer to testdata/*.want")
)

// simulated makes the machines. Scripts have the rights of the user who runs the tests, as in bash.
var simulated = cases.Machine{User: vfs.Cred{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}}

// least is the least number of cases. share is the least share of equal ones.
const (
	least = 2000
	share = 0.98
)

// comparison is one run over all cases.
type comparison struct {
	root  string // a directory of the host
	known cases.Exceptions

	shellNames []string // bash's builtins and keywords, which are not programs of the host

	mu         sync.Mutex
	recordings map[string]cases.Recordings // by area
	ran, equal int
}

func TestCases(t *testing.T) {
	if !*real && !*update {
		testenv.Inapplicable(t, "package golden compares with the recordings; make sim compares with the real programs (-real)")
	}
	// A shell can't trap signals that were ignored when it started, as under nohup. Catching a
	// signal stops the inheritance.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	defer signal.Stop(caught)
	all, err := cases.ReadAll("testdata")
	if err != nil {
		t.Fatal(err)
	}
	x := newComparison(t, all)
	x.shellNames = bashNames(t)
	for _, area := range slices.Sorted(maps.Keys(x.recordings)) {
		t.Run(area, func(t *testing.T) {
			for _, c := range all {
				if c.Area == area {
					t.Run(c.Name, func(t *testing.T) { t.Parallel(); x.compare(t, c) })
				}
			}
		})
	}
	t.Logf("%d of %d cases are equal", x.equal, x.ran)
	if flagUnset("test.run") && (x.ran < least || float64(x.equal) < share*float64(x.ran)) {
		t.Errorf("%d of %d cases are equal; the bar is %d and %g %%", x.equal, x.ran, least, share*100)
	}
	if *update {
		for area, recordings := range x.recordings {
			if err := recordings.Write("testdata", area, all); err != nil {
				t.Error(err)
			}
		}
	}
}

// newComparison reads the lists and makes the directory of the real runs.
func newComparison(t *testing.T, all []cases.Case) *comparison {
	t.Helper()
	x := &comparison{recordings: map[string]cases.Recordings{}}
	var err error
	if x.known, err = cases.ReadExceptions("testdata/known.txt", all); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if x.recordings[c.Area] != nil {
			continue
		}
		if x.recordings[c.Area], err = cases.ReadRecordings("testdata", c.Area); err != nil {
			t.Fatal(err)
		}
	}
	// The path is as long as cases.Root, so that output that depends on its length equals the
	// recording.
	const digits = 1_000_000_000
	x.root = fmt.Sprintf("/tmp/simbash-%09d", 1+rand.IntN(digits-1))
	if err := os.Mkdir(x.root, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("chmod", "-R", "u+rwx", x.root).CombinedOutput(); err != nil {
			t.Logf("chmod: %v %s", err, out)
		}
		if err := os.RemoveAll(x.root); err != nil {
			t.Error(err)
		}
	})
	return x
}

// compare runs one case in bash and in the machine.
func (x *comparison) compare(t *testing.T, c cases.Case) {
	for _, program := range slices.Concat(programsOf(c.Text, x.shellNames), c.Need) {
		testenv.Need(t, "simbash", missing(program))
	}
	dir := c.Dir(x.root)
	for _, d := range []string{dir, filepath.Join(filepath.Dir(dir), "home")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ours, err := simulated.Run(t.Context(), dir, c.Text)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := runReal(t.Context(), dir, c.Text)
	if err != nil {
		t.Fatal(err)
	}
	diff := cases.Differences(ours.Ordered(), theirs.Ordered())
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ran++
	if diff == "" {
		x.equal++
	}
	switch cause, listed := x.known.Reason[c.ID()]; {
	case diff != "" && !listed:
		t.Errorf("%s\n%s", c.Text, diff)
	case diff == "" && listed && !x.known.Sometimes[c.ID()]:
		t.Errorf("is equal; take it off known.txt: %s", cause)
	}
	x.record(t, c, theirs)
}

// record makes a real outcome the recording, or fails when the recording is different. x.mu is
// held.
func (x *comparison) record(t *testing.T, c cases.Case, theirs cases.Outcome) {
	if os.Getuid() != 0 {
		return // recordings are made as root, which no file mode stops
	}
	recordings := x.recordings[c.Area]
	if x.known.Sometimes[c.ID()] {
		delete(recordings, c.Name)
		return
	}
	theirs = theirs.Recorded(x.root)
	old, recorded := recordings[c.Name]
	switch {
	case *update:
		recordings[c.Name] = theirs
	case !recorded:
		t.Error("is not recorded: run with -update")
	default:
		if diff := cases.Differences(theirs, old); diff != "" {
			t.Errorf("the real programs do not answer as recorded:\n%s\n%s", c.Text, diff)
		}
	}
}
