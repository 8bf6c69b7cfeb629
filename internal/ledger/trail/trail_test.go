package trail

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/attempts"
)

func open(t testing.TB, dir string, opts Options) *Trail {
	t.Helper()
	tr, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

func entry(i int) Entry {
	return Entry{Kind: carrel.TrailChange, Caller: carrel.Caller{Key: "ci", KeyID: "k1", Project: "web", Role: carrel.RoleMember},
		From: "192.0.2.1", Request: fmt.Sprint("r", i), Op: "POST /sandboxes", Targets: []string{fmt.Sprint("i", i)}, Status: 201}
}

func verify(t testing.TB, dir string, opts VerifyOptions) carrel.TrailReport {
	t.Helper()
	r, err := Verify(t.Context(), dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func told(r carrel.TrailReport, what string, seq int64) bool {
	return slices.ContainsFunc(r.Problems, func(p carrel.TrailProblem) bool { return p.What == what && (seq == 0 || p.Seq == seq) })
}

// filled makes a closed trail with n records of a caller and returns its directory and lines.
func filled(t testing.TB, n int) (dir string, lines [][]byte) {
	t.Helper()
	dir = t.TempDir()
	tr := open(t, dir, Options{})
	for i := range n {
		tr.Note(entry(i))
		if i%10 == 9 {
			tr.Sync()
		}
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, fileName(1)))
	if err != nil {
		t.Fatal(err)
	}
	return dir, bytes.SplitAfter(raw[:len(raw)-1], []byte("\n"))
}

func put(t testing.TB, dir string, lines [][]byte) {
	t.Helper()
	raw := bytes.TrimSuffix(bytes.Join(lines, nil), []byte("\n"))
	if err := os.WriteFile(filepath.Join(dir, fileName(1)), append(raw, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWhole(t *testing.T) {
	dir, lines := filled(t, 50)
	r := verify(t, dir, VerifyOptions{})
	if !r.OK || r.Records != int64(len(lines)) || r.Last != r.Records || r.SignedTo != r.Last {
		t.Fatalf("%+v, %d lines", r, len(lines))
	}
}

// TestTamper does to a trail what somebody with write access to its files can do, with and without
// the hashes made right again.
func TestTamper(t *testing.T) {
	// rechain computes all hashes anew, as an attacker can, from the line at on.
	rechain := func(lines [][]byte, at int) {
		prev, seq := zeroHash, int64(0)
		for i, line := range lines {
			r, _, ok := parse(bytes.TrimSuffix(line, []byte("\n")))
			if !ok {
				t.Fatalf("line %d is no record: %s", i, line)
			}
			if i >= at {
				sig := r.Sig
				r.Prev, r.Seq = prev, seq+1
				out, hash, err := seal(r, nil)
				if err != nil {
					t.Fatal(err)
				}
				if sig != "" {
					out = []byte(strings.TrimSuffix(string(out), "}\n") + `,"sig":"` + sig + `"}` + "\n")
				}
				lines[i], r.Hash = out, hash
			}
			prev, seq = r.Hash, r.Seq
		}
	}
	change := func(lines [][]byte, at int) [][]byte {
		lines[at] = bytes.Replace(lines[at], []byte(`"key":"ci"`), []byte(`"key":"me"`), 1)
		return lines
	}
	const at = 20 // record 21
	cases := map[string]struct {
		do   func([][]byte) [][]byte
		what string
		seq  int64
	}{
		"changed":                  {func(l [][]byte) [][]byte { return change(l, at) }, "changed", at + 1},
		"changed, hashes right":    {func(l [][]byte) [][]byte { l = change(l, at); rechain(l, at); return l }, "forged", 0},
		"own hash right":           {func(l [][]byte) [][]byte { l = change(l, at); rechain(l[:at+1], at); return l }, "changed", at + 2},
		"removed":                  {func(l [][]byte) [][]byte { return slices.Delete(l, at, at+1) }, "removed", at + 1},
		"several removed":          {func(l [][]byte) [][]byte { return slices.Delete(l, at, at+5) }, "removed", at + 1},
		"removed, hashes right":    {func(l [][]byte) [][]byte { l = slices.Delete(l, at, at+1); rechain(l, at); return l }, "forged", 0},
		"the first removed":        {func(l [][]byte) [][]byte { return l[1:] }, "removed", 2},
		"reordered":                {func(l [][]byte) [][]byte { l[at], l[at+1] = l[at+1], l[at]; return l }, "reordered", at + 1},
		"repeated":                 {func(l [][]byte) [][]byte { return slices.Insert(l, at, l[at]) }, "reordered", at + 1},
		"inserted, hashes right":   {func(l [][]byte) [][]byte { l = slices.Insert(l, at, l[at]); rechain(l, at); return l }, "forged", 0},
		"truncated":                {func(l [][]byte) [][]byte { return l[:len(l)-3] }, "truncated", 0},
		"all removed":              {func([][]byte) [][]byte { return nil }, "truncated", 0},
		"truncated to one":         {func(l [][]byte) [][]byte { return l[:1] }, "truncated", 0},
		"a line of something else": {func(l [][]byte) [][]byte { l[at] = []byte("hello\n"); return l }, "changed", at + 1},
		"text after the hash": {func(l [][]byte) [][]byte {
			l[at] = bytes.Replace(l[at], []byte("}\n"), []byte(`,"key":"me"}`+"\n"), 1)
			return l
		}, "changed", at + 1},
		"the last seal replaced": {func(l [][]byte) [][]byte { l = l[:len(l)-1]; l = append(l, l[at]); rechain(l, at); return l }, "forged", 0},
	}
	whole, written := filled(t, 40)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir, lines := t.TempDir(), slices.Clone(written)
			if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			put(t, dir, c.do(lines))
			r := verify(t, dir, VerifyOptions{})
			if r.OK || !told(r, c.what, c.seq) {
				t.Errorf("want %s at %d: %+v", c.what, c.seq, r)
			}
			// A daemon that goes on does not hide it.
			tr := open(t, dir, Options{})
			tr.Note(entry(1))
			if err := tr.Close(); err != nil {
				t.Fatal(err)
			}
			if r := verify(t, dir, VerifyOptions{}); r.OK {
				t.Errorf("after another start it counts as whole")
			}
		})
	}
}

// TestRandomTamper changes one byte anywhere, in 100 trails.
func TestRandomTamper(t *testing.T) {
	dir, lines := filled(t, 30)
	whole := bytes.Join(lines, nil)
	for range 100 {
		raw := append(slices.Clone(whole), '\n')
		i := rand.IntN(len(raw) - 1)
		raw[i] ^= byte(1 << rand.IntN(7))
		if err := os.WriteFile(filepath.Join(dir, fileName(1)), raw, 0o600); err != nil {
			t.Fatal(err)
		}
		if r := verify(t, dir, VerifyOptions{}); r.OK {
			t.Fatalf("byte %d changed from %q to %q, and nobody noticed", i, whole[i], raw[i])
		}
	}
}

// TestOtherHead shows what head.json is for, and what only an anchor shows.
func TestOtherHead(t *testing.T) {
	dir, _ := filled(t, 5)
	old, err := os.ReadFile(filepath.Join(dir, headName))
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, fileName(1)))
	if err != nil {
		t.Fatal(err)
	}
	tr := open(t, dir, Options{})
	tr.Note(entry(7))
	_ = tr.Close()
	kept := verify(t, dir, VerifyOptions{})
	name := filepath.Join(dir, headName)
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, dir, VerifyOptions{}); r.OK || !told(r, "truncated", 0) {
		t.Errorf("without a head: %+v", r)
	}
	// A daemon that starts without it does not hide it.
	gone := t.TempDir()
	if err := os.CopyFS(gone, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	_ = open(t, gone, Options{}).Close()
	if r := verify(t, gone, VerifyOptions{}); r.OK {
		t.Error("a start hid that the head was gone")
	}
	if err := os.Remove(filepath.Join(gone, headName)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(gone, fileName(1))); err != nil {
		t.Fatal(err)
	}
	_ = open(t, gone, Options{}).Close()
	if r := verify(t, gone, VerifyOptions{}); r.OK {
		t.Error("a start hid that everything was gone")
	}
	if err := os.WriteFile(name, []byte(`{"seq":1,"hash":"00","sig":"AA=="}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, dir, VerifyOptions{}); r.OK || !told(r, "forged", 0) {
		t.Errorf("with a forged head: %+v", r)
	}
	// The whole directory as it was once is a right trail. Only somebody who kept a later hash knows.
	if err := errors.Join(os.WriteFile(name, old, 0o600), os.WriteFile(filepath.Join(dir, fileName(1)), before, 0o600)); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, dir, VerifyOptions{}); !r.OK {
		t.Errorf("an old trail: %+v", r)
	}
	anchors := map[int64]string{kept.Last: kept.Head}
	if r := verify(t, dir, VerifyOptions{Anchors: anchors}); r.OK || !told(r, "truncated", kept.Last) {
		t.Errorf("an old trail, with an anchor: %+v", r)
	}
	// Another key signs another history.
	other, _ := filled(t, 5)
	pub, err := ReadPublicKey(filepath.Join(dir, publicName))
	if err != nil {
		t.Fatal(err)
	}
	if r := verify(t, other, VerifyOptions{Key: pub}); r.OK || !told(r, "forged", 0) {
		t.Errorf("another key: %+v", r)
	}
}

// TestTorn cuts a trail in and between its last two lines.
func TestTorn(t *testing.T) {
	dir, lines := filled(t, 3)
	key, err := loadKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	empty := head{Hash: zeroHash, Sig: sign(key, zeroHash)}
	whole := append(bytes.Join(lines, nil), '\n')
	cut := len(whole) - len(lines[len(lines)-1]) - len(lines[len(lines)-2])
	for end := cut; end < len(whole); end += 97 {
		if err := os.WriteFile(filepath.Join(dir, fileName(1)), whole[:end], 0o600); err != nil {
			t.Fatal(err)
		}
		if err := putHead(dir, empty); err != nil { // the seal that it named was never there
			t.Fatal(err)
		}
		tr := open(t, dir, Options{})
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
		r := verify(t, dir, VerifyOptions{})
		torn := whole[end-1] != '\n'
		if !r.OK || torn != slices.ContainsFunc(r.Notes, func(s string) bool { return strings.Contains(s, "cut off after a crash") }) {
			t.Fatalf("cut at %d of %d: %+v", end, len(whole), r)
		}
	}
}

// TestRetention fills a small trail many times over.
func TestRetention(t *testing.T) {
	dir := t.TempDir()
	tr := open(t, dir, Options{MaxBytes: 256 << 10, maxFile: 32 << 10})
	tr.shares = attempts.New(1<<20, time.Second)
	for i := range 2000 {
		e := entry(i)
		tr.Note(e)
		if i%100 == 0 {
			tr.Sync()
		}
	}
	tr.Sync()
	firsts, err := listFiles(dir)
	if err != nil || len(firsts) > 11 || firsts[0] == 1 {
		t.Fatalf("%v, %v", firsts, err)
	}
	r, err := tr.Verify(t.Context(), nil)
	if err != nil || !r.OK || r.First != firsts[0] {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	tr = open(t, dir, Options{MaxBytes: 256 << 10, maxFile: 32 << 10})
	_ = tr.Close()
	if r := verify(t, dir, VerifyOptions{}); !r.OK {
		t.Fatalf("after another start: %+v", r)
	}
	// What retention did not remove, somebody else did.
	if err := os.Remove(filepath.Join(dir, fileName(firsts[1]))); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, dir, VerifyOptions{}); r.OK || !told(r, "removed", firsts[1]) {
		t.Fatalf("%+v", r)
	}
	if err := os.Remove(filepath.Join(dir, fileName(firsts[0]))); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, dir, VerifyOptions{}); r.OK || !told(r, "removed", 0) {
		t.Fatalf("%+v", r)
	}
}

// TestAge removes what is too old.
func TestAge(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	var mu sync.Mutex
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	dir := t.TempDir()
	tr := open(t, dir, Options{MaxAge: 24 * time.Hour, maxFile: 2 << 10, Now: clock})
	for i := range 60 {
		tr.Note(entry(i))
		mu.Lock()
		now = now.Add(time.Hour)
		mu.Unlock()
		tr.Sync()
	}
	var oldest time.Time
	for r, err := range tr.Records(t.Context(), carrel.TrailOptions{Limit: -1}) {
		if err != nil {
			t.Fatal(err)
		}
		oldest = r.Time
		break
	}
	if age := now.Sub(oldest); age < 24*time.Hour || age > 40*time.Hour {
		t.Errorf("the oldest record is %v old", age)
	}
	if r, err := tr.Verify(t.Context(), nil); err != nil || !r.OK {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestInjection uses names that would begin lines, end strings or move a terminal's cursor.
func TestInjection(t *testing.T) {
	dir := t.TempDir()
	tr := open(t, dir, Options{})
	evil := []string{"a\nb", "a\r\n{\"seq\":1}", "\x1b[2J\x1b]0;x\a", `","hash":"00","sig":"x`, "\u202egpj.exe", "\u2028", "\x00", "\xff\xfe", "\u009b31m",
		strings.Repeat("x", 1<<20), "😀\U000e0001"}
	for _, s := range evil {
		e := entry(0)
		e.Caller.Key, e.Op, e.From, e.Targets, e.Caller.Project = s, s, s, []string{s, s}, s
		tr.Note(e)
	}
	n := 0
	for r, err := range tr.Records(t.Context(), carrel.TrailOptions{Kind: carrel.TrailChange}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if len(r.Line) > maxLine {
			t.Errorf("%d bytes in a line", len(r.Line))
		}
		for _, c := range string(r.Line) {
			if c < ' ' || c == 0x7f || c >= 0x80 && c < 0xa0 || c == '\u202e' || c == '\u2028' || c == '\U000e0001' {
				t.Errorf("%U in %.100q", c, r.Line)
			}
		}
	}
	_ = tr.Close()
	if r := verify(t, dir, VerifyOptions{}); !r.OK || n != len(evil) {
		t.Errorf("%d records: %+v", n, r)
	}
}

// TestFlood is a caller who fills the trail, and somebody without a key who does.
func TestFlood(t *testing.T) {
	dir := t.TempDir()
	tr := open(t, dir, Options{MaxBytes: 1 << 20})
	tr.Note(Entry{Kind: carrel.TrailChange, Caller: carrel.Caller{Key: "evidence", Project: "other"}, Op: "DELETE /sandboxes/{id}", Targets: []string{"i1"}, Status: 204})
	for i := range 10_000 {
		tr.Note(entry(i))
		read := entry(i)
		read.Kind = carrel.TrailRead
		tr.Note(read)
		tr.Note(Entry{Kind: carrel.TrailRefuse, From: fmt.Sprint("2001:db8::", i), Op: fmt.Sprint("GET /", i), Status: 401})
	}
	if n := len(tr.folds.of); n > 2*maxFolds+3 {
		t.Errorf("%d counts", n)
	}
	tr.Sync()
	counted := map[string]int{}
	evidence := false
	for r, err := range tr.Records(t.Context(), carrel.TrailOptions{Limit: -1}) {
		if err != nil {
			t.Fatal(err)
		}
		evidence = evidence || r.Key == "evidence"
		if r.Op != "" || r.Repeats > 0 {
			counted[r.Kind] += r.Repeats
			if r.Repeats == 0 {
				counted[r.Kind]++
			}
		}
	}
	if !evidence {
		t.Error("the flood pushed out what another caller did")
	}
	for _, kind := range []string{carrel.TrailChange, carrel.TrailRefuse} {
		if got := counted[kind]; got < 10_000 || got > 10_002 {
			t.Errorf("%s: %d of 10000 are told", kind, got)
		}
	}
	if r, err := tr.Verify(t.Context(), nil); err != nil || !r.OK {
		t.Errorf("%+v, %v", r, err)
	}
	var total int64
	for _, s := range tr.list {
		total += s.size
	}
	if total > 3<<20 {
		t.Errorf("the flood filled %d bytes", total)
	}
}

// TestFull is a disk without room that has some again.
func TestFull(t *testing.T) {
	dir := t.TempDir()
	var full bool
	var mu sync.Mutex
	tr := open(t, dir, Options{write: func(f *os.File, line []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		if full {
			n, _ := f.Write(line[:len(line)/2]) // what a full disk does
			return n, syscall.ENOSPC
		}
		return f.Write(line)
	}})
	tr.Note(entry(1))
	mu.Lock()
	full = true
	mu.Unlock()
	const n = 30_000
	for i := range n {
		tr.Note(entry(i))
	}
	tr.mu.Lock()
	tr.opts.write = (*os.File).Write
	tr.mu.Unlock()
	tr.Sync()
	tr.Note(entry(2))
	r, err := tr.Verify(t.Context(), nil)
	if err != nil || !r.OK {
		t.Fatalf("%+v, %v", r, err)
	}
	told := 0
	for r := range tr.Records(t.Context(), carrel.TrailOptions{Limit: -1}) {
		switch r.Kind {
		case carrel.TrailChange:
			told++
		case carrel.TrailLost:
			told += r.Repeats
		}
	}
	if told < n+2 || told > n+4 {
		t.Errorf("%d of %d are told", told, n+2)
	}
}

func TestQuery(t *testing.T) {
	tr := open(t, t.TempDir(), Options{maxFile: 4 << 10})
	for i := range 100 {
		e := entry(i)
		if i%2 == 1 {
			e.Caller.Project = "shop"
		}
		tr.Note(e)
		if i%20 == 0 {
			tr.Sync()
		}
	}
	get := func(o carrel.TrailOptions) (seqs []int64, targets []string) {
		for r, err := range tr.Records(t.Context(), o) {
			if err != nil {
				t.Fatal(err)
			}
			seqs, targets = append(seqs, r.Seq), append(targets, r.Target)
		}
		return seqs, targets
	}
	if _, got := get(carrel.TrailOptions{Project: "shop", Limit: 3}); !slices.Equal(got, []string{"i95", "i97", "i99"}) {
		t.Error(got)
	}
	if _, got := get(carrel.TrailOptions{Target: "i42"}); len(got) != 1 {
		t.Error(got)
	}
	all, _ := get(carrel.TrailOptions{Limit: -1, Kind: carrel.TrailChange})
	later, _ := get(carrel.TrailOptions{Limit: -1, Kind: carrel.TrailChange, After: all[89]})
	if len(all) != 100 || !slices.Equal(later, all[90:]) {
		t.Error(len(all), later)
	}
	for _, err := range tr.Records(t.Context(), carrel.TrailOptions{Kind: "nonsense"}) {
		if carrel.KindOf(err) != carrel.Invalid {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if tr.Wait(ctx, 1<<40) || !tr.Wait(t.Context(), 1) {
		t.Error("Wait")
	}
}

// TestEgress joins a log of decisions to the chain.
func TestEgress(t *testing.T) {
	dir := t.TempDir()
	tr := open(t, dir, Options{})
	var log [][]byte
	write := func(n int) {
		sum, first := sha256.New(), len(log)+1
		for range n {
			line := fmt.Appendf(nil, "{\"seq\":%d}\n", len(log)+1)
			log = append(log, line)
			sum.Write(line)
		}
		tr.Egress(int64(first), int64(len(log)), hex.EncodeToString(sum.Sum(nil)))
	}
	write(5)
	write(1)
	write(10)
	lines := func(log [][]byte) Lines {
		return func(_ context.Context, fn func(int64, []byte) error) error {
			for _, l := range log {
				var head struct{ Seq int64 }
				_ = json.Unmarshal(l, &head)
				if err := fn(head.Seq, l); err != nil {
					return err
				}
			}
			return nil
		}
	}
	check := func(name string, log [][]byte, ok bool, egress int64) {
		t.Helper()
		r, err := tr.Verify(t.Context(), lines(log))
		if err != nil || r.OK != ok || r.Egress != egress || !ok && !told(r, "egress", 0) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	check("whole", log, true, 16)
	changed := slices.Clone(log)
	changed[7] = []byte(`{"seq":8,"allowed":true}` + "\n")
	check("changed", changed, false, 6)
	check("one removed", slices.Delete(slices.Clone(log), 7, 8), false, 6)
	check("the end removed", log[:10], false, 6)
	check("all removed", nil, false, 0)
	check("the beginning removed", log[5:], false, 11)
	tr.EgressCut(5)
	check("retention", log[5:], true, 11)
	if tr.EgressLast() != 16 {
		t.Error(tr.EgressLast())
	}
	_ = tr.Close()
	tr = open(t, dir, Options{})
	if tr.EgressLast() != 16 {
		t.Error("after another start:", tr.EgressLast())
	}
	check("after another start", log[5:], true, 11)
}

// TestExport verifies lines that were sent elsewhere.
func TestExport(t *testing.T) {
	dir, lines := filled(t, 20)
	pub, err := ReadPublicKey(filepath.Join(dir, publicName))
	if err != nil {
		t.Fatal(err)
	}
	raw := append(bytes.Join(lines, nil), '\n')
	r, err := VerifyLines(t.Context(), bytes.NewReader(raw), VerifyOptions{Key: pub})
	if err != nil || !r.OK {
		t.Errorf("%+v, %v", r, err)
	}
	raw[len(raw)/2] ^= 1
	if r, err := VerifyLines(t.Context(), bytes.NewReader(raw), VerifyOptions{Key: pub}); err != nil || r.OK {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := VerifyLines(t.Context(), bytes.NewReader(raw), VerifyOptions{}); carrel.KindOf(err) != carrel.Invalid {
		t.Error(err)
	}
}

// TestKilled kills a process that writes, again and again. No record that it told of is lost.
func TestKilled(t *testing.T) {
	if dir := os.Getenv("CARREL_TRAIL_DIR"); dir != "" {
		tr, err := Open(dir, Options{})
		if err != nil {
			fmt.Println("failed", err)
			return
		}
		for i := 0; ; i++ {
			tr.Note(entry(i))
			tr.mu.Lock()
			seq := tr.seq
			tr.mu.Unlock()
			fmt.Println(seq)
		}
	}
	dir := t.TempDir()
	for round := range 5 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), "CARREL_TRAIL_DIR="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var last int64
		n, most := 0, 50+rand.IntN(3000)
		for n < most {
			if _, err := fmt.Fscanln(out, &last); err != nil {
				t.Fatal(err)
			}
			n++
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		r := verify(t, dir, VerifyOptions{})
		if !r.OK || r.Last < last {
			t.Fatalf("round %d: told of %d: %+v", round, last, r)
		}
	}
}

// TestHammer has many callers, readers and verifications at once.
func TestHammer(t *testing.T) {
	tr := open(t, t.TempDir(), Options{MaxBytes: 512 << 10, maxFile: 64 << 10})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 300 {
				e := entry(i)
				e.Kind = []string{carrel.TrailChange, carrel.TrailRead, carrel.TrailEnter, carrel.TrailRefuse}[i%4]
				e.Caller.KeyID = fmt.Sprint(g)
				tr.Note(e)
				switch {
				case i%50 == 0:
					tr.Sync()
				case i%75 == 0:
					for range tr.Records(t.Context(), carrel.TrailOptions{Limit: 10}) {
					}
				}
			}
		})
	}
	wg.Wait()
	if r, err := tr.Verify(t.Context(), nil); err != nil || !r.OK {
		t.Errorf("%+v, %v", r, err)
	}
}

// BenchmarkNote measures what a creation pays for its record.
func BenchmarkNote(b *testing.B) {
	tr := open(b, b.TempDir(), Options{MaxBytes: 1 << 34})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		tr.Note(entry(i))
	}
}

// BenchmarkRepeat measures what a repeated read pays.
func BenchmarkRepeat(b *testing.B) {
	tr := open(b, b.TempDir(), Options{})
	e := entry(1)
	e.Kind = carrel.TrailRead
	b.ReportAllocs()
	for b.Loop() {
		tr.Note(e)
	}
}
