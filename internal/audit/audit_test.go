package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel"
)

const (
	boxA = carrel.ID("iaaaaaaaaaaaaaaaaaaaa")
	boxB = carrel.ID("ibbbbbbbbbbbbbbbbbbbb")
)

// noon is the time of these tests, unless their clock moves.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// open opens a log that is closed at the end of the test.
func open(t *testing.T, dir string, opts Options) *Log {
	t.Helper()
	before := goleak.IgnoreCurrent()
	l, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.Close()                               // tests that mean it check it
		for end := time.Now().Add(time.Minute); ; { // Find itself waits for a second
			if err := goleak.Find(before); err == nil {
				break
			} else if time.Now().After(end) {
				t.Error(err)
				break
			}
		}
	})
	return l
}

func mustClose(t *testing.T, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// all reads the complete answer to a query.
func all(t *testing.T, l *Log, opts carrel.AuditOptions) []carrel.Decision {
	t.Helper()
	var out []carrel.Decision
	for d, err := range l.Audit(t.Context(), opts) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, d)
	}
	return out
}

func seqs(ds []carrel.Decision) []int64 {
	out := make([]int64, len(ds))
	for i, d := range ds {
		out[i] = d.Seq
	}
	return out
}

// refusal is the n-th refusal of a test.
func refusal(id carrel.ID, n int) carrel.Decision {
	return carrel.Decision{ID: id, Time: noon.Add(time.Duration(n) * time.Second), Protocol: "tls", Name: fmt.Sprintf("h%d.example.com", n),
		Address: "203.0.113.9", Port: 443, Rule: "default", Reason: "no rule allows it"}
}

func TestFilters(t *testing.T) {
	l := open(t, t.TempDir(), Options{})
	yes, no := true, false
	for _, d := range []carrel.Decision{
		{ID: boxA, Time: noon, Allowed: true, Protocol: "https", Name: "api.example.com", Address: "203.0.113.9", Port: 443, Rule: "rule 1 (api)", Secrets: []string{"key"}},
		{ID: boxB, Time: noon.Add(time.Minute), Protocol: "dns", Name: "Example.com.", Method: "A", Rule: "default"},
		{ID: boxA, Time: noon.Add(2 * time.Minute), Protocol: "tcp", Address: "10.0.0.7", Port: 22, Rule: "built-in: private address"},
		{ID: boxB, Time: noon.Add(3 * time.Minute), Allowed: true, Protocol: "udp", Address: "2001:db8::7", Port: 53, Rule: "rule 2"},
		{ID: boxA, Time: noon.Add(4 * time.Minute), Protocol: "http", Name: "203.0.113.77", Rule: "default"},
		{ID: boxA, Time: noon.Add(5 * time.Minute), Protocol: "tls", Name: `x","allowed":true,"id":"` + string(boxB) + `.example.com`, Rule: "default"},
	} {
		l.Write(d)
	}
	for _, c := range []struct {
		name string
		opts carrel.AuditOptions
		want []int64
	}{
		{"all", carrel.AuditOptions{}, []int64{1, 2, 3, 4, 5, 6}},
		{"newest", carrel.AuditOptions{Limit: 2}, []int64{5, 6}},
		{"more than there is", carrel.AuditOptions{Limit: 100}, []int64{1, 2, 3, 4, 5, 6}},
		{"after", carrel.AuditOptions{After: 4}, []int64{5, 6}},
		{"after and newest", carrel.AuditOptions{After: 2, Limit: 1}, []int64{6}},
		{"after the end", carrel.AuditOptions{After: 7}, nil},
		{"sandbox", carrel.AuditOptions{ID: boxB}, []int64{2, 4}},
		{"sandbox's newest", carrel.AuditOptions{ID: boxA, Limit: 2}, []int64{5, 6}},
		{"allowed", carrel.AuditOptions{Allowed: &yes}, []int64{1, 4}},
		{"denied", carrel.AuditOptions{Allowed: &no}, []int64{2, 3, 5, 6}},
		{"since", carrel.AuditOptions{Since: noon.Add(2 * time.Minute)}, []int64{3, 4, 5, 6}},
		{"until", carrel.AuditOptions{Until: noon.Add(2 * time.Minute)}, []int64{1, 2}},
		{"between", carrel.AuditOptions{Since: noon.Add(time.Minute), Until: noon.Add(3 * time.Minute)}, []int64{2, 3}},
		{"name", carrel.AuditOptions{Host: "example.com"}, []int64{2}},
		{"name in capitals", carrel.AuditOptions{Host: "EXAMPLE.com."}, []int64{2}},
		{"pattern", carrel.AuditOptions{Host: "*.example.com"}, []int64{1, 6}},
		{"address", carrel.AuditOptions{Host: "203.0.113.9"}, []int64{1}},
		{"mapped address", carrel.AuditOptions{Host: "::ffff:203.0.113.9"}, []int64{1}},
		{"address as name", carrel.AuditOptions{Host: "203.0.113.77"}, []int64{5}},
		{"network", carrel.AuditOptions{Host: "203.0.113.0/24"}, []int64{1, 5}},
		{"network v6", carrel.AuditOptions{Host: "2001:db8::/32"}, []int64{4}},
		{"rule", carrel.AuditOptions{Rule: "private"}, []int64{3}},
		{"secret", carrel.AuditOptions{Secret: "key"}, []int64{1}},
		{"part of a secret's name", carrel.AuditOptions{Secret: "ke"}, nil},
		{"several", carrel.AuditOptions{ID: boxA, Allowed: &no, Host: "10.0.0.0/8", Rule: "built-in"}, []int64{3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := seqs(all(t, l, c.opts)); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestBadQuestions(t *testing.T) {
	l := open(t, t.TempDir(), Options{})
	for _, c := range []struct {
		field string
		opts  carrel.AuditOptions
	}{
		{"id", carrel.AuditOptions{ID: "../etc"}},
		{"limit", carrel.AuditOptions{Limit: -1}},
		{"after", carrel.AuditOptions{After: -1}},
		{"until", carrel.AuditOptions{Since: noon, Until: noon}},
		{"host", carrel.AuditOptions{Host: "a b"}},
		{"host", carrel.AuditOptions{Host: "api.*.example.com"}},
		{"host", carrel.AuditOptions{Host: "*"}},
		{"host", carrel.AuditOptions{Host: "10.0.0.0/99"}},
		{"host", carrel.AuditOptions{Host: strings.Repeat("a", 1000)}},
		{"rule", carrel.AuditOptions{Rule: strings.Repeat("a", 1000)}},
		{"secret", carrel.AuditOptions{Secret: strings.Repeat("a", 1000)}},
	} {
		for _, err := range l.Audit(t.Context(), c.opts) {
			var ce *carrel.Error
			if !errors.As(err, &ce) || ce.Kind != carrel.Invalid || ce.Field != c.field {
				t.Errorf("%+v: %v", c.opts, err)
			}
		}
	}
}

// TestHostileTexts shows that, with any text from a sandbox, each decision stays one line of plain
// text.
func TestHostileTexts(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{})
	evil := "a\"\n{\"seq\":99}\r\n\x1b[2J\x00\x7f\u009b31m\u202e\u2028\U000e0041\xff" + strings.Repeat("ä", 5000)
	l.Write(carrel.Decision{ID: carrel.ID(evil), Time: noon, Process: evil, Protocol: evil, Name: evil, Address: evil, Method: evil, Path: evil,
		Rule: evil, Reason: evil, Hint: evil, Secrets: slices.Repeat([]string{evil}, 100)})
	l.Write(carrel.Decision{ID: boxA, Time: time.Date(99999, 1, 1, 0, 0, 0, 0, time.UTC), Rule: "a time that JSON can't say"})
	got := all(t, l, carrel.AuditOptions{})
	if len(got) != 2 || got[1].Rule != "a time that JSON can't say" || got[1].Time.IsZero() {
		t.Fatalf("read %+v", got)
	}
	raw, err := os.ReadFile(filepath.Join(dir, activeName))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(raw, []byte("\n")); n != 2 {
		t.Errorf("%d lines", n)
	}
	for _, r := range string(raw) {
		if r != '\n' && (r < ' ' || r == 0x7f || r == 0x9b || r == 0x202e || r == 0x2028 || r == 0xe0041) {
			t.Errorf("%q is in the file", r)
		}
	}
	d := got[0]
	if !strings.HasPrefix(d.Name, "a\"\n{\"seq\":99}\r\n\x1b[2J\x00\x7f\u009b31m\u202e\u2028\U000e0041\ufffd") {
		t.Errorf("the name became %q", d.Name)
	}
	if len(d.Name) > maxName+8 || len(d.Path) > maxPath+8 || len(d.Secrets) > maxSecrets {
		t.Errorf("name of %d, path of %d bytes, %d secrets", len(d.Name), len(d.Path), len(d.Secrets))
	}
	if _, cost := bound(d, noon); len(raw) > 2*cost {
		t.Errorf("%d bytes cost only %d", len(raw), cost)
	}
}

func TestReopen(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		l := open(t, dir, Options{})
		l.Write(refusal(boxA, i))
		if err := l.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := seqs(all(t, l, carrel.AuditOptions{})); len(got) != i+1 || got[i] != int64(i+1) {
			t.Errorf("after %d: %v", i, got)
		}
		mustClose(t, l)
		mustClose(t, l)
		l.Write(refusal(boxA, 99)) // nobody takes it
		for _, err := range l.Audit(t.Context(), carrel.AuditOptions{}) {
			if carrel.KindOf(err) != carrel.Unavailable {
				t.Errorf("a closed log: %v", err)
			}
		}
	}
}

// TestTornEnd shows that a half-written end after a crash is cut off, and that broken lines
// elsewhere are skipped.
func TestTornEnd(t *testing.T) {
	for name, rest := range map[string]string{
		"half a line":     `{"seq":4,"time":"2026-03-01T12:00:00Z","id":"i`,
		"a whole line":    `{"seq":4,"time":"2026-03-01T12:00:00Z","id":"iaaaaaaaaaaaaaaaaaaaa","allowed":false,"protocol":"","rule":""}`,
		"zeros":           strings.Repeat("\x00", 5000),
		"lines of zeros":  strings.Repeat("\x00\n", 5000),
		"a line too long": strings.Repeat("x", 2*maxLine) + "\n",
		"nothing":         "",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l := open(t, dir, Options{})
			for i := range 3 {
				l.Write(refusal(boxA, i))
			}
			mustClose(t, l)
			file := filepath.Join(dir, activeName)
			good, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			lines := bytes.SplitAfter(good, []byte("\n"))
			broken := append(append(append(bytes.Clone(lines[0]), "\x00garbage\n"...), bytes.Join(lines[1:], nil)...), rest...)
			if err := os.WriteFile(file, broken, 0o600); err != nil {
				t.Fatal(err)
			}
			l = open(t, dir, Options{})
			l.Write(refusal(boxA, 3))
			if got := seqs(all(t, l, carrel.AuditOptions{})); !slices.Equal(got, []int64{1, 2, 3, 4}) {
				t.Errorf("got %v", got)
			}
			mustClose(t, l)
			if now, err := os.ReadFile(file); err != nil || !bytes.HasSuffix(now, []byte("}\n")) || bytes.Contains(now, []byte("x\n{")) {
				t.Errorf("the file ends in %q, %v", now[max(0, len(now)-100):], err)
			}
		})
	}
}

// fileNames lists a log's files.
func fileNames(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestRotation(t *testing.T) {
	dir := t.TempDir()
	opts := Options{MaxFile: 2 << 10, MaxFiles: 4, bytes: 1 << 30, Now: func() time.Time { return noon.Add(time.Hour) }}
	l := open(t, dir, opts)
	write := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			l.Write(refusal(boxA, i))
			if err := l.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(0, 20)
	if got := seqs(all(t, l, carrel.AuditOptions{})); len(got) != 20 || got[0] != 1 || got[19] != 20 {
		t.Errorf("over several files: %v", got)
	}
	mustClose(t, l)
	l = open(t, dir, opts)
	l.files.packs.Wait()
	names := fileNames(t, dir)
	if len(names) != 3 || names[0] != "audit-00000000000000000001.jsonl.zst" || names[2] != activeName {
		t.Errorf("files %v", names)
	}
	write(20, 100)
	l.files.packs.Wait()
	if names := fileNames(t, dir); len(names) != 4 {
		t.Errorf("files %v", names)
	}
	got := seqs(all(t, l, carrel.AuditOptions{}))
	if len(got) < 20 || got[len(got)-1] != 100 || got[0] != 101-int64(len(got)) {
		t.Errorf("what is left: %v", got)
	}
	if newest := seqs(all(t, l, carrel.AuditOptions{ID: boxA, Limit: 15})); len(newest) != 15 || newest[0] != 86 {
		t.Errorf("the newest over several files: %v", newest)
	}
	mustClose(t, l)

	// Leave a half-packed file, as after a crash, and one that was packed but not removed.
	first := fileNames(t, dir)[0]
	if err := os.WriteFile(filepath.Join(dir, ".audit-1.tmp"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, strings.TrimSuffix(first, ".zst")), []byte("same"), 0o600); err != nil {
		t.Fatal(err)
	}
	l = open(t, dir, opts)
	if again := seqs(all(t, l, carrel.AuditOptions{})); !slices.Equal(again, got) {
		t.Errorf("after a crash: %v", again)
	}
	if names := fileNames(t, dir); len(names) != 4 {
		t.Errorf("files %v", names)
	}
	for _, e := range fileNames(t, dir) {
		if info, err := os.Stat(filepath.Join(dir, e)); err != nil || info.Mode().Perm() != 0o600 || info.Size() > opts.MaxFile {
			t.Errorf("%s: %v, %v", e, info, err)
		}
	}
}

func TestMaxAge(t *testing.T) {
	dir := t.TempDir()
	now := noon
	opts := Options{MaxAge: 24 * time.Hour, Now: func() time.Time { return now }}
	l := open(t, dir, opts)
	for i := range 5 {
		d := refusal(boxA, 0)
		d.Time = time.Time{}
		l.Write(d)
		mustClose(t, l)
		now = now.Add(10 * time.Hour)
		l = open(t, dir, opts)
		if got := seqs(all(t, l, carrel.AuditOptions{})); len(got) > 3 || got[len(got)-1] != int64(i+1) {
			t.Errorf("after %d days: %v", i, got)
		}
	}
}

// TestOldFilesAreSkipped shows that a file whose times can't match is not read. The file is
// damaged, so reading it would be logged.
func TestOldFilesAreSkipped(t *testing.T) {
	dir := t.TempDir()
	var told bytes.Buffer
	opts := Options{MaxFile: 1 << 10, MaxFiles: 100, bytes: 1 << 30, Logger: slog.New(slog.NewTextHandler(&told, nil))}
	l := open(t, dir, opts)
	for i := range 20 {
		l.Write(refusal(boxA, i))
		if err := l.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	l.files.packs.Wait()
	mustClose(t, l)
	name := filepath.Join(dir, fileNames(t, dir)[0])
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, append(raw[:len(raw)-20], "damaged"...), 0o600); err != nil {
		t.Fatal(err)
	}
	l = open(t, dir, opts)
	late := all(t, l, carrel.AuditOptions{Since: noon.Add(15 * time.Second)})
	if len(late) != 5 || told.Len() > 0 {
		t.Errorf("%d decisions, told %s", len(late), told.String())
	}
	if got := all(t, l, carrel.AuditOptions{}); len(got) < 15 || len(got) == 20 || !strings.Contains(told.String(), "can't be read to its end") {
		t.Errorf("%d decisions with a damaged file, told %s", len(got), told.String())
	}
}

func TestDirectoryThatIsNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file, Options{}); carrel.KindOf(err) != carrel.Internal {
		t.Errorf("got %v", err)
	}
}

func TestQuestionThatIsGivenUp(t *testing.T) {
	l := open(t, t.TempDir(), Options{})
	l.Write(refusal(boxA, 1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range l.Audit(ctx, carrel.AuditOptions{}) {
		if carrel.KindOf(err) != carrel.Unavailable {
			t.Errorf("not whole, and no error: %v", err)
		}
	}
	for d := range l.Audit(t.Context(), carrel.AuditOptions{}) {
		if d.Seq != 1 {
			t.Errorf("got %+v", d)
		}
		break // must leave nothing behind
	}
}

// TestProjects shows that a project's decisions are found by its name. Another project's decision
// with that name in a text must not be found.
func TestProjects(t *testing.T) {
	l := open(t, t.TempDir(), Options{})
	for i, project := range []string{"a", "b", "a", ""} {
		d := refusal(boxA, i+1)
		d.Project, d.Reason = project, `"project":"b"`
		l.Write(d)
	}
	for project, want := range map[string]int{"": 4, "a": 2, "b": 1, "c": 0} {
		n := 0
		for _, err := range l.Audit(t.Context(), carrel.AuditOptions{Project: project}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != want {
			t.Errorf("%d of project %q, want %d", n, project, want)
		}
	}
	for _, err := range l.Audit(t.Context(), carrel.AuditOptions{Project: `x"`}) {
		if carrel.KindOf(err) != carrel.Invalid {
			t.Error(err)
		}
	}
}
