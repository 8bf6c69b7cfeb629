// Package golden runs the scripts of package simbash in the simulated machine. It compares the
// outcomes with recorded outcomes of the real programs. It needs no program of the host.
//
// Its machines are deterministic, except for the cases in unseeded.txt. In them a sleep takes no
// time, and a failure can be reproduced.
package golden

import (
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/shell/test/cases"
	"github.com/carrel-dev/carrel/shell/tools/script/quickjs"
)

// testdata is the directory of the cases. It belongs to the test that compares them with the real
// programs.
const testdata = "../simbash/testdata"

// seed is the seed of the deterministic machines.
var seed uint64 = 1

// seeded runs nearly all cases. unseeded runs the cases that need a real clock.
var seeded, unseeded = &cases.Machine{Seed: &seed}, &cases.Machine{}

// lists are the exceptions.
type lists struct{ known, unseeded cases.Exceptions }

func TestRecorded(t *testing.T) {
	all, err := cases.ReadAll(testdata)
	if err != nil {
		t.Fatal(err)
	}
	var except lists
	if except.known, err = cases.ReadExceptions(testdata+"/known.txt", all); err != nil {
		t.Fatal(err)
	}
	if except.unseeded, err = cases.ReadExceptions(testdata+"/unseeded.txt", all); err != nil {
		t.Fatal(err)
	}
	areas := map[string][]cases.Case{}
	left := 0
	for _, c := range all {
		if except.known.Sometimes[c.ID()] {
			left++
			continue
		}
		areas[c.Area] = append(areas[c.Area], c)
	}
	for area, list := range areas {
		recordings, err := cases.ReadRecordings(testdata, area)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(area, func(t *testing.T) {
			t.Parallel()
			for _, c := range list {
				t.Run(c.Name, func(t *testing.T) {
					t.Parallel()
					check(t, c, recordings, except)
				})
			}
			if len(recordings) > len(list) {
				t.Errorf("%d recordings of %d cases: go test ./shell/test/simbash -update drops the others",
					len(recordings), len(list))
			}
		})
	}
	t.Logf("%d cases; %d more are left out, whose answers belong to the host or the moment (known.txt)",
		len(all)-left, left)
}

// check runs a case and compares it with its recording.
func check(t *testing.T, c cases.Case, recordings cases.Recordings, except lists) {
	want, ok := recordings[c.Name]
	if !ok {
		t.Fatal("is not recorded: go test ./shell/test/simbash -update, where the real programs are")
	}
	if strings.Contains(c.Text, "node") {
		testenv.Need(t, "quickjs", quickjs.Missing())
	}
	machine := seeded
	if _, clock := except.unseeded.Reason[c.ID()]; clock {
		machine = unseeded
	}
	got, err := machine.Run(t.Context(), c.Dir(cases.Root), c.Text)
	if err != nil {
		t.Fatal(err)
	}
	diff := cases.Differences(got.Recorded(cases.Root), want)
	switch cause, listed := except.known.Reason[c.ID()]; {
	case diff != "" && !listed:
		t.Errorf("%s\n%s", c.Text, diff)
	case diff == "" && listed:
		t.Errorf("is equal; take it off known.txt: %s", cause)
	}
}
