package refusal_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/internal/refusal"
)

var update = flag.Bool("update", false, "write the golden files")

// clock returns a clock that moves forward each time it is read.
func clock() func() time.Time {
	t := time.Date(2025, 3, 4, 5, 6, 7, 0, time.UTC)
	return func() time.Time { t = t.Add(time.Second); return t }
}

func key(n int) refusal.Refusal {
	return refusal.Refusal{
		Kind: refusal.Read, What: "/home/ann/.ssh/id_ed25519", Operation: "openat", Rule: "built-in: ssh keys",
		Reason: "keys of other machines", Allow: "--read ~/.ssh", Program: "cat", PID: n, Certain: true,
	}
}

// sample returns a log like one after a run.
func sample() *refusal.Log {
	l := refusal.New(refusal.Options{Now: clock()})
	l.Add(refusal.Refusal{Kind: refusal.Syscall, What: "ptrace", Rule: "built-in: calls", Certain: true, Program: "gdb"})
	l.Add(refusal.Refusal{Kind: refusal.Write, What: "/usr/lib/python3/__pycache__/x.pyc", Rule: "built-in: read-only", Minor: true, Program: "python3"})
	for i := range 3 {
		l.Add(key(i))
	}
	stat := key(9)
	stat.Operation = "stat"
	l.Add(stat)
	l.Add(refusal.Refusal{Kind: refusal.Connect, What: "example.com:443", Operation: "https", Rule: "no rule allows it", Allow: "--allow example.com", Program: "curl", Certain: true})
	l.Add(refusal.Refusal{Kind: refusal.Write, What: "/etc/a\x1b[2J\u202eb\xff", Operation: "openat", Rule: "outside", Allow: "--write /etc", Program: "evil\nname"})
	l.Add(refusal.Refusal{Kind: refusal.Limit, What: "memory", Rule: "512 MiB", Allow: "--memory 1024", Certain: true})
	return l
}

func TestEqualRecordsAreFolded(t *testing.T) {
	list, dropped := sample().List()
	if dropped != 0 || len(list) != 7 {
		t.Fatalf("%d records, %d dropped: %+v", len(list), dropped, list)
	}
	r := list[2]
	if r.Count != 3 || r.PID != 0 || r.Last.Sub(r.First) != 2*time.Second {
		t.Errorf("folded: %+v", r)
	}
	l := refusal.New(refusal.Options{})
	a := refusal.Refusal{What: "x", Minor: true}
	l.Add(a)
	a.Certain, a.Minor = true, false
	l.Add(a)
	if list, _ := l.List(); !list[0].Certain || list[0].Minor {
		t.Errorf("certain once, needed once: %+v", list[0])
	}
}

func TestGolden(t *testing.T) {
	list, dropped := sample().List()
	doc, err := refusal.Report{
		Command: []string{"sh", "-c", "cat ~/.ssh/id_ed25519 && curl <x>"}, Dir: "/home/ann/src", Tier: "ns",
		Started: clock()(), Ended: clock()(), ExitCode: 1, Refused: list, Dropped: dropped, Notes: []string{"no cgroup"},
	}.JSON()
	if err != nil {
		t.Fatal(err)
	}
	list = refusal.Abbreviate(list, "/home/ann/")
	for name, got := range map[string]string{
		"report.json": string(doc),
		"summary.txt": refusal.Summary(list, dropped, 10),
		"short.txt":   refusal.Summary(list, 5, 4),
	} {
		file := filepath.Join("testdata", name)
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
			t.Errorf("%s (go test -update writes it):\n%s\nwant\n%s", name, got, want)
		}
	}
}

func TestEmptyReport(t *testing.T) {
	doc, err := refusal.Report{}.JSON()
	if err != nil || !strings.Contains(string(doc), `"refused": []`) || strings.Contains(string(doc), "null") {
		t.Errorf("%s, %v", doc, err)
	}
	list, _ := refusal.New(refusal.Options{}).List()
	if list == nil {
		t.Error("an empty log's list is nil")
	}
	if s := refusal.Summary(list, 0, 10); s != "" {
		t.Errorf("summary of nothing: %q", s)
	}
	if s := refusal.Summary([]refusal.Refusal{{Minor: true}}, 0, 10); s != "" {
		t.Errorf("summary of habits: %q", s)
	}
}

// TestFlood fills a log from one rule and looks for the record of another.
func TestFlood(t *testing.T) {
	l := refusal.New(refusal.Options{Max: 100})
	long := strings.Repeat("x", 100_000)
	for i := range 10_000 {
		l.Add(refusal.Refusal{Kind: refusal.Write, What: fmt.Sprint(i, "/") + long[:10*i], Rule: "outside"})
	}
	l.Add(key(1))
	l.Add(key(1))
	for i := range 10_000 {
		l.Add(refusal.Refusal{Kind: refusal.Name, What: fmt.Sprint(i), Rule: "no network"})
	}
	list, dropped := l.List()
	if len(list) != 100 || dropped != 20_002-101 {
		t.Errorf("%d records, %d dropped", len(list), dropped)
	}
	size, kinds := 0, map[refusal.Kind]int{}
	for _, r := range list {
		size += len(r.What)
		kinds[r.Kind]++
	}
	if size > 100*5000 {
		t.Errorf("%d bytes kept", size)
	}
	if kinds[refusal.Read] != 1 || kinds[refusal.Name] < 45 || kinds[refusal.Write] < 45 {
		t.Errorf("what the flood left: %v", kinds)
	}
	if list[0].What[0] != '0' {
		t.Errorf("the first record went: %.20q", list[0].What)
	}
}

func TestSummaryFits(t *testing.T) {
	var list []refusal.Refusal
	for i := range 50 {
		list = append(list, refusal.Refusal{Kind: refusal.Write, What: fmt.Sprint("/usr/", i), Rule: fmt.Sprint("rule ", i%20), Count: 2, Allow: "a"})
	}
	for lines := range 60 {
		got := refusal.Summary(list, 3, lines)
		if n := strings.Count(got, "\n"); n > lines || n == 0 && lines > 0 || got != "" && !strings.HasSuffix(got, "\n") {
			t.Errorf("%d lines of %d:\n%s", n, lines, got)
		}
	}
	got := refusal.Summary(list, 0, 4)
	if !strings.HasPrefix(got, "carrel: 50 things were refused\n  write /usr/0 and 2 more (6 times): rule 0") || !strings.HasSuffix(got, "\n  and 44 more\n") {
		t.Errorf("short summary:\n%s", got)
	}
}

// TestNamesCannotPlay puts hostile texts into every field.
func TestNamesCannotPlay(t *testing.T) {
	for _, bad := range []string{"\x1b]0;x\a", "a\nb", "a\r", "\u202ex", "\u200b", "\x9b31m", "\xff\xfe", "a\u2028b", strings.Repeat("\x00", 9000)} {
		l := refusal.New(refusal.Options{})
		l.Add(refusal.Refusal{Kind: refusal.Kind("read"), What: bad, Operation: bad, Rule: bad, Reason: bad, Allow: bad, Program: bad})
		list, _ := l.List()
		got := refusal.Summary(list, 0, 5)
		for _, r := range strings.ReplaceAll(got, "\n", "") {
			if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x202e || r == 0x200b || r == 0x2028 {
				t.Errorf("%q has %U: %q", bad, r, got)
			}
		}
		if doc, err := (refusal.Report{Refused: list}).JSON(); err != nil || strings.ContainsAny(string(doc), "\x1b\u202e\u200b\u009b\u2028\r") || !json.Valid(doc) {
			t.Errorf("%q: %s, %v", bad, doc, err)
		}
		if strings.Count(got, "\n") != 2 || len(got) > 5000 || !utf8.ValidString(got) {
			t.Errorf("%q: %q", bad, got)
		}
	}
	a, b := refusal.New(refusal.Options{}), refusal.New(refusal.Options{})
	a.Add(refusal.Refusal{What: "\xff"})
	b.Add(refusal.Refusal{What: "\xfe"})
	la, _ := a.List()
	lb, _ := b.List()
	if la[0].What == lb[0].What || la[0].What != `\xff` {
		t.Errorf("%q and %q", la[0].What, lb[0].What)
	}
}

func TestHammer(t *testing.T) {
	l := refusal.New(refusal.Options{Max: 50})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				l.Add(refusal.Refusal{What: fmt.Sprint(i % 100), Rule: fmt.Sprint(g)})
				if i%100 == 0 {
					list, dropped := l.List()
					_ = refusal.Summary(list, dropped, 5)
				}
			}
		})
	}
	wg.Wait()
	list, dropped := l.List()
	n := dropped
	for _, r := range list {
		n += r.Count
	}
	if n != 16_000 || len(list) != 50 {
		t.Errorf("%d attempts accounted for, %d records", n, len(list))
	}
}

func BenchmarkAdd(b *testing.B) {
	l := refusal.New(refusal.Options{})
	for b.Loop() {
		l.Add(key(1))
	}
}
