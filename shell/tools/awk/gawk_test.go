package awk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// randomPrograms is the number of programs that TestLikeGawk writes. AWK_PROGRAMS=6000 makes more,
// and AWK_SEED=7 makes others.
const randomPrograms = 300

// TestLikeGawk writes random programs, runs them here and in the real gawk, and compares the
// outcomes.
func TestLikeGawk(t *testing.T) {
	testenv.Need(t, "gawk", noGawk())
	count, seed := setting(t, "AWK_PROGRAMS", randomPrograms), setting(t, "AWK_SEED", 1)
	failures := 0
	for i := range count {
		w := &author{Rand: rand.New(rand.NewPCG(uint64(seed), uint64(i)))}
		program, input := w.program(), w.text()
		if strings.Contains(program, "IGNORECASE") || strings.Contains(program, "gsub(") {
			// With IGNORECASE, gawk sorts letters outside ASCII before all others, and its gsub
			// finds empty matches inside them.
			program, input = strings.ReplaceAll(program, "é", "E"), strings.ReplaceAll(input, "é", "E")
		}
		got, want := ours(t, input, program), gawk(t, input, program)
		if got.out == want.out && got.status == want.status || excused(want) || strings.Contains(got.errs, "over the") {
			// A text may grow with every record. TestBudget tests that.
			continue
		}
		t.Errorf("program %d of seed %d:\n%s\ninput %q\nours   %v\ngawk's %v", i, seed, program, input, got, want)
		if failures++; failures == 10 {
			t.Fatal("and perhaps more")
		}
	}
}

// TestKnownDifferences compares fixed programs with the real gawk. Each shows a place in which this
// awk, or others, once did otherwise.
func TestKnownDifferences(t *testing.T) {
	testenv.Need(t, "gawk", noGawk())
	for _, program := range []string{
		// An empty expression separates as an empty text does, where it is split's.
		`{ print split($0, a, //), a[1], a[2] }`,
		`{ print split($0, a, @//), a[1]; r = @//; print split($0, b, r), b[1] }`,
		`{ print split($0, a, //, seps), length(seps) }`,
		`{ print split("", a, //), length(a) }`,
		// Paragraphs separate a record's fields by newlines, and not those of split.
		`BEGIN { RS = ""; FS = ":"; print split("a:b\nc:d", a), length(a[2]) }`,
		`BEGIN { RS = ""; FS = ":" } { print NF, split($0, a) }`,
		// The target of getline is evaluated when there is no record, too.
		`BEGIN { while (("echo 1" | getline a[++c]) > 0) n++; print n, c, length(a) }`,
		`BEGIN { r = (getline a[++c] < "/no/such/file"); print r, c, length(a) }`,
		`END { r = (getline a[++c]); print r, c, length(a) }`,
		`BEGIN { x = "old"; while (("true" | getline x) > 0); print x }`,
		// What a command gave is an operand of a sum.
		`BEGIN { a = ("echo B" | getline x + 1); print a, x }`,
		`BEGIN { a = ("echo C" | getline x - 2); print a, x }`,
		`BEGIN { a = "echo 5" | getline y * 3 - 1; print a, y }`,
		// Standard input has a name once it is read.
		`BEGIN { print FILENAME } { print FILENAME } END { print FILENAME }`,
		`BEGIN { getline; print FILENAME }`,
	} {
		if got, want := ours(t, "aé c\n", program), gawk(t, "aé c\n", program); got.out != want.out || got.status != want.status {
			t.Errorf("%s\nours   %v\ngawk's %v", program, got, want)
		}
	}
}

// TestSeparatorInPieces: what ends a record is found whole where the input is read in pieces.
func TestSeparatorInPieces(t *testing.T) {
	for _, piece := range []int{512, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10} {
		for before := piece - 5; before <= piece; before++ {
			got := ours(t, strings.Repeat("a", before)+"1xyzb\n", `BEGIN { RS = "1(xyz)?" } { print length($0), substr($0, length($0) - 1, 1) }`)
			if want := fmt.Sprintf("%d a\n2 b\n", before); got.out != want {
				t.Errorf("after %d bytes: %q, want %q", before, got.out, want)
			}
		}
	}
}

// gawkFaults are messages of gawk in cases where gawk is wrong or its manual leaves the behaviour
// open. A program with such a message is not compared.
var gawkFaults = []string{
	"internal error",                  // it crashed
	"array `(null)'",                  // length(t) of an untyped parameter that was passed to a call before
	"error: division by",              // gawk computes constants before the program runs, even unused ones
	"attempt to use scalar parameter", // an untyped parameter becomes a scalar when it is passed on
}

// excused reports whether gawk wrote one of gawkFaults, or a part of a character. It writes the
// latter when it prints freed memory.
func excused(o outcome) bool {
	return !utf8.ValidString(o.out) || slices.ContainsFunc(gawkFaults, func(fault string) bool { return strings.Contains(o.errs, fault) })
}

// noGawk returns an error if there is no gawk to compare with.
func noGawk() error {
	out, err := exec.Command("gawk", "--version").Output()
	if err == nil && !strings.HasPrefix(string(out), "GNU Awk 5.") {
		err = errors.New("gawk is not GNU Awk 5")
	}
	return err
}

// setting reads a number from the environment.
func setting(t *testing.T, name string, other int) int {
	s := os.Getenv(name)
	if s == "" {
		return other
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// gawk runs the real one.
func gawk(t *testing.T, input, program string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "gawk", "--", program)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "TZ=UTC"}
	cmd.Stdin = strings.NewReader(input)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return outcome{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// outcome is the result of a program.
type outcome struct {
	out, errs string
	status    int
}

func (o outcome) String() string { return fmt.Sprintf("%d %q, said %q", o.status, o.out, o.errs) }
