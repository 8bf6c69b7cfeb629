package cli

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/carrel-dev/carrel"
	"github.com/creack/pty"
)

var update = flag.Bool("update", false, "write the drawings of this run to testdata")

// grow makes a timeline from the numbers of parents: the n-th snapshot (from 1) came after the
// parents[n-1]-th; 0 is none.
func grow(head int, parents ...int) carrel.Timeline {
	tl := carrel.Timeline{Sandbox: boxID, Size: int64(len(parents)) * 5 << 20}
	if head > 0 {
		tl.Head = snapID(head)
	}
	for i, p := range parents {
		s := carrel.Snapshot{ID: snapID(i + 1), Sandbox: boxID, Created: noon.Add(time.Duration(i-len(parents)) * 7 * time.Minute),
			Cause: carrel.CauseRequest, Memory: true, Size: 50 << 20, New: int64(i+1) << 19}
		if p > 0 {
			s.Parent = snapID(p)
		}
		tl.Snapshots = append(tl.Snapshots, s)
	}
	return tl
}

// forks adds count forks to the n-th snapshot.
func forks(tl carrel.Timeline, n, count int) carrel.Timeline {
	if tl.Forks == nil {
		tl.Forks = map[carrel.SnapshotID][]carrel.ID{}
	}
	for i := range count {
		tl.Forks[snapID(n)] = append(tl.Forks[snapID(n)], carrel.ID(fmt.Sprintf("ifork%03d%013d", n, i)))
	}
	return tl
}

// shapes are the timelines with drawings in testdata/timeline.
func shapes() map[string]carrel.Timeline {
	straight := make([]int, 200)
	for i := range straight {
		straight[i] = i
	}
	causes := grow(9, 0, 1, 2, 3, 4, 5, 6, 7, 8)
	for i, c := range []carrel.Cause{carrel.CauseRequest, carrel.CausePause, carrel.CauseTimeout, carrel.CauseIdle, carrel.CauseFork, carrel.CauseInterval,
		carrel.CauseCommand, carrel.CauseGuest, carrel.CauseRollback} {
		causes.Snapshots[i].Cause = c
		causes.Snapshots[i].Memory = i%3 != 0
	}
	causes.Snapshots[6].Detail = "npm install && rm -rf node_modules/.cache # a long line that goes on and on and on"
	causes.Snapshots[7].Detail = "from inside"
	causes.Snapshots[0].Names, causes.Snapshots[0].Label = []string{"warm:v1", "base"}, `after "setup"`
	causes.Snapshots[8].Detail = string(snapID(2)) // where the rollback went
	causes.Snapshots[8].New, causes.Snapshots[8].Created = -1, noon
	causes.Snapshots[0].Created = noon.Add(-75 * time.Hour)
	causes.Snapshots[1].Created = noon.Add(-5 * time.Hour)

	inherited := grow(3, 0, 1, 2)
	inherited.Snapshots[0].Sandbox, inherited.Snapshots[1].Sandbox = forkID, forkID

	wide := grow(4, 0, 1, 1, 3)
	wide.Snapshots[0].Label = "安装之后 日本語 한국어"
	wide.Snapshots[1].Label = "👩‍👩‍👧 family 🎉 é́́́́́́́́"
	wide.Snapshots[2].Label = strings.Repeat("wide ", 60)
	wide.Snapshots[3].Label = "tab\there"

	hostile := grow(3, 0, 1, 2)
	hostile.Snapshots[0].Label = "\x1b[2J\x1b]0;title\x07\x1b[31mred\r\n○ s9999999  fake \x9b1m \u009b"
	hostile.Snapshots[1].Label = `x"  ← head  "you are here \`
	hostile.Snapshots[1].Names = []string{"a]  ← head [", "\u202eesrever\u2066"}
	hostile.Snapshots[2].Cause, hostile.Snapshots[2].Detail = carrel.CauseCommand, "bash -c 'printf \"\\e[0m\"'\n\x00\u2028next\ufeff\xff"

	orphans := grow(5, 0, 9, 2, 8, 4)
	circles := grow(3, 3, 1, 2, 4, 6, 5)
	twice := grow(2, 0, 1)
	twice.Snapshots = append(twice.Snapshots, twice.Snapshots...)
	alike := grow(2, 0, 1)
	alike.Snapshots[1].ID, alike.Head = alike.Snapshots[0].ID[:13]+"xxxxxxxx", alike.Snapshots[0].ID[:13]+"xxxxxxxx"
	ownFork := forks(grow(2, 0, 1), 2, 2)
	ownFork.Forks[snapID(2)] = append(ownFork.Forks[snapID(2)], boxID)

	return map[string]carrel.Timeline{
		"none":               {Sandbox: boxID},
		"one":                grow(1, 0),
		"linear":             grow(5, 0, 1, 2, 3, 4),
		"linear-200":         grow(200, straight...),
		"rolled-back":        grow(2, 0, 1, 2, 3),
		"branch-at-head":     grow(3, 0, 1, 2, 3, 3),
		"branch-behind":      grow(6, 0, 1, 2, 3, 2, 5),
		"rolled-back-often":  grow(9, 0, 1, 2, 1, 4, 5, 4, 1, 8),
		"nested":             grow(10, 0, 1, 2, 3, 4, 4, 3, 2, 1, 1),
		"head-in-the-middle": grow(3, 0, 1, 2, 3, 4, 2, 6),
		"forks":              forks(forks(grow(3, 0, 1, 2), 1, 1), 3, 2),
		"forks-on-a-branch":  forks(forks(grow(4, 0, 1, 2, 1), 3, 3), 2, 1),
		"forks-many":         forks(grow(2, 0, 1), 1, 50),
		"forks-own":          ownFork,
		"causes":             causes,
		"inherited":          inherited,
		"wide":               wide,
		"hostile":            hostile,
		"orphans":            orphans,
		"circles":            circles,
		"twice":              twice,
		"alike":              alike,
		"head-gone":          grow(9, 0, 1),
		"no-head":            grow(0, 0, 1),
	}
}

func testPen(ascii bool) pen {
	p := pen{now: noon, ascii: ascii, width: math.MaxInt, glyphs: unicodeGlyphs}
	if ascii {
		p.glyphs = asciiGlyphs
	}
	return p
}

// TestDrawings compares drawings with those in testdata/timeline.
func TestDrawings(t *testing.T) {
	for name, tl := range shapes() {
		t.Run(name, func(t *testing.T) {
			sb := carrel.Sandbox{ID: boxID, State: carrel.Running}
			if name == "branch-at-head" {
				sb.State = carrel.Paused
			}
			got := testPen(false).timeline(tl, sb)
			if name != "linear-200" {
				got += "\n" + testPen(true).timeline(tl, sb)
			}
			file := filepath.Join("testdata", "timeline", name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestDrawingsHold checks properties that every drawing must have.
func TestDrawingsHold(t *testing.T) {
	for name, tl := range shapes() {
		sb := carrel.Sandbox{ID: boxID, State: carrel.Running}
		for _, width := range []int{1, 20, 40, 80, math.MaxInt} {
			for _, ascii := range []bool{false, true} {
				for _, color := range []bool{false, true} {
					p := testPen(ascii)
					p.width, p.color = width, color
					got := p.timeline(tl, sb)
					bare := got
					for _, code := range []string{faint, title, vivid, reset} {
						bare = strings.ReplaceAll(bare, code, "")
					}
					if !color && bare != got {
						t.Errorf("%s: colours without being asked", name)
					}
					if strings.ContainsFunc(bare, func(r rune) bool {
						return r != '\n' && (r < ' ' || (r >= 0x7f && r < 0xa0) || strings.ContainsRune("\u202e\u2066\u2028\ufeff", r) || (ascii && r > 0x7f))
					}) || !utf8.ValidString(bare) {
						t.Errorf("%s: what no terminal should see in %q", name, bare)
					}
					drawing, _, _ := strings.Cut(bare, "\n\n"+plural(len(tl.Snapshots), "snapshot")+",")
					for line := range strings.Lines(drawing) {
						if n := cells(strings.TrimSuffix(line, "\n")); n > max(width, 3) {
							t.Errorf("%s: %d cells where there are %d: %q", name, n, width, line)
						}
					}
					if width == math.MaxInt {
						holdsAll(t, name, bare, tl)
					}
				}
			}
		}
	}
}

// holdsAll checks that each snapshot has one line, after its parent's, and that the present appears
// once.
func holdsAll(t *testing.T, name, drawing string, tl carrel.Timeline) {
	t.Helper()
	n := shortIDs(tl.Snapshots)
	lines := strings.Split(drawing, "\n")
	at := map[carrel.SnapshotID]int{}
	for _, s := range tl.Snapshots {
		found := 0
		for i, line := range lines {
			if slices.Contains(strings.Fields(cut(line, 40, "")), short(s.ID, n)) {
				at[s.ID] = i
				found++
			}
		}
		if found != 1 {
			t.Errorf("%s: %s is there %d times in\n%s", name, s.ID, found, drawing)
		}
	}
	for _, s := range tl.Snapshots {
		if p, ok := at[s.Parent]; ok && p > at[s.ID] && name != "circles" {
			t.Errorf("%s: %s stands before its parent in\n%s", name, s.ID, drawing)
		}
	}
	present := 0
	for _, line := range lines {
		if strings.HasSuffix(line, "◎ you are here") || strings.HasSuffix(line, "@ you are here") {
			present++
		}
	}
	if present != 1 {
		t.Errorf("%s: the present is there %d times in\n%s", name, present, drawing)
	}
}

// TestStraightIsStraight shows that without a rollback nothing is indented, whatever the length.
func TestStraightIsStraight(t *testing.T) {
	parents := make([]int, 3000)
	for i := range parents {
		parents[i] = i
	}
	got := testPen(false).timeline(grow(3000, parents...), carrel.Sandbox{State: carrel.Running})
	for line := range strings.Lines(got) {
		if strings.ContainsAny(line, "│├╰┆") {
			t.Fatalf("indented: %s", line)
		}
	}
}

// TestTimelineCommand checks the command itself: streams, --json and the locale.
func TestTimelineCommand(t *testing.T) {
	f := past(2)
	got := f.run(t, "timeline", string(boxID))
	if got.code != 0 || got.err != "" || !strings.Contains(got.out, "● s0000002") || strings.Contains(got.out, "\x1b") {
		t.Errorf("%v", got)
	}
	if got = f.run(t, "timeline", string(boxID), "--ascii"); !strings.Contains(got.out, "* s0000002") {
		t.Errorf("%v", got)
	}
	got = f.run(t, "--json", "timeline", string(boxID))
	if !strings.HasPrefix(got.out, `{"sandbox":"`+string(boxID)+`","head":"`+string(snapID(2))+`","snapshots":[{"id":"`+string(snapID(1))+`"`) {
		t.Errorf("%v", got)
	}
	none := past(0)
	none.box.Snapshot = ""
	if got = none.run(t, "timeline", string(boxID)); got.out != "◎ you are here\n" || !strings.Contains(got.err, "carrel snapshot "+string(boxID)) {
		t.Errorf("%v", got)
	}
	if got = none.run(t, "--json", "timeline", string(boxID)); !strings.Contains(got.out, `"snapshots":[]`) || got.err != "" {
		t.Errorf("%v", got)
	}
	if got = f.run(t, "timeline", string(noID)); got.code != 3 {
		t.Errorf("%v", got)
	}
}

func TestPlainTerminal(t *testing.T) {
	for _, c := range []struct {
		env   map[string]string
		plain bool
	}{
		{nil, true},
		{map[string]string{"LANG": "C"}, true},
		{map[string]string{"LANG": "de_DE.UTF-8"}, false},
		{map[string]string{"LANG": "de_DE.utf8"}, false},
		{map[string]string{"LANG": "de_DE.UTF-8", "LC_ALL": "C"}, true},
		{map[string]string{"LANG": "C", "LC_CTYPE": "C.UTF-8"}, false},
		{map[string]string{"LANG": "C.UTF-8", "TERM": "dumb"}, true},
	} {
		if got := plainTerminal(func(k string) string { return c.env[k] }); got != c.plain {
			t.Errorf("%v: %v", c.env, got)
		}
	}
}

// FuzzPrintable shows that no output of printable or quoted moves a terminal's cursor, and that cut
// keeps to its width.
func FuzzPrintable(f *testing.F) {
	for _, s := range []string{"", "plain", "\x1b[2J", "日本語", "👩‍👩‍👧", "a\u0301\u0301\u0301\u0301\u0301\u0301", "\u202e", `"\`, "\xff\xfe"} {
		f.Add(s, 5)
	}
	f.Fuzz(func(t *testing.T, s string, most int) {
		for _, out := range []string{printable(s), quoted(s, false), quoted(s, true), pathText(s)} {
			for _, r := range out {
				if r < ' ' || (r >= 0x7f && r < 0xa0) || (r >= 0x202a && r <= 0x202e) || (r >= 0x2066 && r <= 0x2069) {
					t.Fatalf("%q gives %q", s, out)
				}
			}
		}
		if most = max(1, most%100); cells(cut(printable(s), most, "…")) > most {
			t.Fatalf("%q is wider than %d", cut(printable(s), most, "…"), most)
		}
	})
}

// TestTimelineOnTerminal checks colours and the width on a terminal.
func TestTimelineOnTerminal(t *testing.T) {
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer slave.Close()
	if err := pty.Setsize(slave, &pty.Winsize{Cols: 40, Rows: 24}); err != nil {
		t.Fatal(err)
	}
	a := &app{out: slave, now: func() time.Time { return noon }}
	for _, c := range []struct {
		term, noColor string
		color         bool
	}{{"xterm", "", true}, {"xterm", "1", false}, {"dumb", "", false}} {
		t.Setenv("TERM", c.term)
		t.Setenv("NO_COLOR", c.noColor)
		if p := a.pen(false); p.width != 40 || p.color != c.color {
			t.Errorf("%+v: %+v", c, p)
		}
	}
}
