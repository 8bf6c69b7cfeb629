package sqlite_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/tools"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// machine makes a machine whose scripts run in /w.
func machine(t testing.TB, l interp.Limits) *interp.Machine {
	t.Helper()
	disk := vfs.New(vfs.Options{Quota: 64 << 20})
	if err := interp.Install(disk, tools.Names()...); err != nil {
		t.Fatal(err)
	}
	if err := disk.Root().MkdirAll("/w", 0o777); err != nil {
		t.Fatal(err)
	}
	m := interp.New(interp.Config{FS: disk, Hostname: "box", Commands: tools.All(), Limits: l})
	t.Cleanup(m.Close)
	return m
}

var usual = interp.Limits{Procs: 50, Memory: 64 << 20, Output: 16 << 20, Steps: 200 << 20}

func run(t testing.TB, m *interp.Machine, script string) (string, interp.Exit) {
	t.Helper()
	o := interp.NewPipe()
	p, err := m.Start(interp.Spec{Path: "bash", Args: []string{"-c", script}, Dir: "/w", Out: o, Err: o, Env: []string{"PATH=/usr/bin:/bin", "HOME=/root"}})
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(o)
	return string(b), p.Wait()
}

func TestScripts(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"locked", `sqlite3 a.db "create table t(x)"; (echo "begin exclusive;"; echo ".shell sqlite3 a.db 'insert into t values(1)'"; echo "commit;") | sqlite3 a.db; sqlite3 a.db "select count(*) from t"`,
			"Error: in prepare, database is locked (5)\n0\n"},
		{"readers", `sqlite3 a.db "create table t(x); insert into t values(1)"; (echo "begin; select * from t;"; echo ".shell sqlite3 a.db 'select * from t'"; echo "commit;") | sqlite3 a.db`, "1\n1\n"},
		{"wal", `sqlite3 a.db "pragma journal_mode=wal; create table t(x)"; (echo "begin; select count(*) from t;"; echo ".shell sqlite3 a.db 'insert into t values(1)'"; echo "select count(*) from t; commit; select count(*) from t;") | sqlite3 a.db; ls`, "wal\n0\n0\n1\na.db\n"},
		{"killed", `sqlite3 a.db "create table t(x); insert into t values(1)"; (echo "begin; insert into t values(2); update t set x=9;"; echo ".shell kill -9 \$PPID"; sleep 1) | sqlite3 a.db; sqlite3 a.db "select * from t; pragma integrity_check"`, "1\nok\n"},
		{"in parallel", `sqlite3 a.db "create table t(x)"; for i in 1 2 3 4 5; do (printf '.timeout 5000\ninsert into t values(1);\n' | sqlite3 a.db) & done; wait; sqlite3 a.db "select sum(x) from t"`, "5\n"},
		{"quota", `sqlite3 a.db "create table t(x)"; sqlite3 a.db "with recursive c(n) as (select 1 union all select n+1 from c where n<200) insert into t select zeroblob(1000000) from c" 2>&1 | tail -1; sqlite3 a.db "select count(*) from t; pragma integrity_check"`, "Error: stepping, database or disk is full (13)\n0\nok\n"},
		{"permission", `sqlite3 a.db "create table t(x)"; chmod 444 a.db; sqlite3 a.db "select count(*) from t"; sqlite3 -readonly a.db "insert into t values(1)"`, "0\nError: stepping, attempt to write a readonly database (8)\n"},
		{"host names", `sqlite3 a.db "attach '/etc/passwd' as p; select count(*) from p.sqlite_schema" 2>&1 | tail -1; sqlite3 :memory: "attach 'file:/x?vfs=unix' as y; create table y.t(a)"; ls`, "Error: stepping, file is not a database (26)\nError: stepping, unable to open database: file:/x?vfs=unix (14)\na.db\n"},
		{"no extensions", `sqlite3 :memory: "select load_extension('x')"; sqlite3 :memory: ".load x"; sqlite3 :memory: "select readfile('/etc/passwd')" 2>&1 | head -1`, "Error: in prepare, not authorized to use function: load_extension\n  select load_extension('x')\n         ^--- error here\nError: .load is not available here\nError: in prepare, no such function: readfile\n"},
		{"memory attached", `sqlite3 :memory: "attach ':memory:' as m"`, "Error: in prepare, not authorized (23)\n"},
		{"temporary attached", `sqlite3 :memory: "attach '' as m; create table m.t(x); insert into m.t values(7); select * from m.t"`, "7\n"},
		{"local time", `sqlite3 :memory: "select datetime(0,'unixepoch','localtime')"`, "1970-01-01 00:00:00\n"},
		{"shell", `printf '.shell echo hi\n.system pwd\n' | sqlite3`, "hi\n/w\n"},
		{"bad pages", `sqlite3 a.db "create table t(x); insert into t values(1)"; printf 'XXXXXXXXXXXXXXXX' | dd of=a.db bs=1 seek=4096 conv=notrunc 2>/dev/null; sqlite3 a.db "select * from t"`, "Error: stepping, database disk image is malformed (11)\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, _ := run(t, machine(t, usual), c.script); got != c.want {
				t.Errorf("%s\n got %q\nwant %q", c.script, got, c.want)
			}
		})
	}
}

// TestHostile runs scripts that a limit must end soon.
func TestHostile(t *testing.T) {
	for name, script := range map[string]string{
		"endless":    `sqlite3 :memory: "with recursive c(x) as (select 1 union all select x+1 from c) select count(*) from c"`,
		"sorted":     `sqlite3 :memory: "with recursive c(x) as (select 1 union all select x+1 from c) select * from c order by hex(randomblob(100))"`,
		"collected":  `sqlite3 :memory: "with recursive c(x) as (select 1 union all select x+1 from c) select group_concat(x) from c"`,
		"kept":       `sqlite3 :memory: "create table t as with recursive c(x) as (select 1 union all select x+1 from c) select randomblob(1000) from c"`,
		"temporary":  `sqlite3 a.db "pragma temp_store=2; create temp table t as with recursive c(x) as (select 1 union all select x+1 from c) select randomblob(1000) from c"`,
		"cache":      `sqlite3 a.db "pragma cache_size=10000000; create table t(x); begin; insert into t with recursive c(x) as (select 1 union all select x+1 from c) select randomblob(1000) from c"`,
		"blob":       `sqlite3 :memory: "select length(zeroblob(2000000000))"`,
		"product":    `sqlite3 :memory: "select count(*) from generate_series(1,100000000)"`,
		"like":       `sqlite3 :memory: "select replace(hex(zeroblob(10000)),'0','a') like replace(hex(zeroblob(200)),'0','a%')"`,
		"expression": `p=$(printf '%20000s' | tr ' ' '('); sqlite3 :memory: "select $p"`,
		"printed":    `sqlite3 -box :memory: "with recursive c(x) as (select 1 union all select x+1 from c) select hex(randomblob(1000)) from c"`,
		"json":       `sqlite3 :memory: "with recursive c(x) as (select '1' union all select json_array(x,x) from c) select max(length(x)) from c"`,
		"reads":      `echo '.read r' > r; sqlite3 :memory: ".read r" 2>&1 | tail -1`,
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			out, _ := run(t, machine(t, interp.Limits{Procs: 50, Memory: 32 << 20, Output: 4 << 20, Steps: 10 << 20}), script)
			if d := time.Since(begin); d > 5*time.Minute {
				t.Errorf("took %v: %.200s", d, out)
			}
		})
	}
}

// TestHostFiles shows that no name opens a file on the host's disk.
func TestHostFiles(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("SQLITE_TMPDIR", dir)
	t.Setenv("TMPDIR", dir)
	if err := os.WriteFile("host.db", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	out, _ := run(t, machine(t, usual), `sqlite3 `+dir+`/host.db "create table t(x)"; sqlite3 host.db "create table t(x); pragma temp_store=1; create temp table big as with recursive c(x) as (select 1 union all select x+1 from c where x<3000) select randomblob(1000) from c; vacuum into 'copy.db'"; sqlite3 :memory: "attach 'other.db' as o; create table o.t(x)"; ls`)
	if out != "Error: unable to open database \""+dir+"/host.db\": unable to open database file\ncopy.db\nhost.db\nother.db\n" {
		t.Errorf("output %q", out)
	}
	names, _ := filepath.Glob("*")
	if info, err := os.Stat("host.db"); err != nil || info.Size() != 0 || len(names) != 1 {
		t.Errorf("on the host: %v %v %v", names, info, err)
	}
}

// TestSeed shows that a machine with a seed has the same random numbers each time.
func TestSeed(t *testing.T) {
	var outs [2]string
	for i := range outs {
		disk := vfs.New(vfs.Options{})
		if err := interp.Install(disk, tools.Names()...); err != nil {
			t.Fatal(err)
		}
		seed := uint64(7)
		m := interp.New(interp.Config{FS: disk, Hostname: "box", Commands: tools.All(), Seed: &seed})
		t.Cleanup(m.Close)
		o := interp.NewPipe()
		p, err := m.Start(interp.Spec{Path: "bash", Args: []string{"-c", "sqlite3 :memory: \"select random(), hex(randomblob(8)), length(randomblob(0)), datetime('now')\""}, Dir: "/", Out: o, Err: o, Env: []string{"PATH=/usr/bin:/bin"}})
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(o)
		p.Wait()
		outs[i] = string(b)
	}
	if outs[0] != outs[1] || !strings.Contains(outs[0], "|1|") {
		t.Errorf("%q, %q", outs[0], outs[1])
	}
}

// TestManyAtOnce runs sqlite3 on several machines at once, for the race detector.
func TestManyAtOnce(t *testing.T) {
	m := machine(t, usual)
	done := make(chan string)
	for i := range 8 {
		go func() {
			out, _ := run(t, m, fmt.Sprintf("sqlite3 f%d.db 'create table t(x); insert into t values(%d); select x from t'", i, i))
			done <- strings.TrimSpace(out)
		}()
	}
	sum := 0
	for range 8 {
		n := 0
		_, _ = fmt.Sscan(<-done, &n)
		sum += n
	}
	if sum != 28 {
		t.Errorf("sum %d", sum)
	}
}

// BenchmarkCall measures one sqlite3 that makes a table and reads it.
func BenchmarkCall(b *testing.B) {
	m := machine(b, interp.Limits{Procs: 50})
	for b.Loop() {
		run(b, m, "rm -f a.db; sqlite3 a.db 'create table t(a,b); insert into t values(1,2),(3,4); select sum(a) from t'")
	}
}

// FuzzDots feeds any script to sqlite3.
func FuzzDots(f *testing.F) {
	for _, s := range []string{".tables\n.schema\n", ".mode box\nselect 1,'a';\n", ".import \"a b\" t\n", ".separator '\\t' \"\\n\"\n.headers on\nselect 1 as x;", ".width -3 2\n.mode column\nselect 'abcdef','g';", ".output x\nselect 1;\n.output\n.read x",
		".dump\n", ".once o\n.mode insert t\nselect null,x'00';", "select 1\n;;.quit", ".backup b\n.open b\n.restore b\n", "create table t(a);insert into t values('x\ny');.mode json\nselect*from t;", ".show", ".nullvalue \\x\n.print \"a\\\"", "/\ngo\n#c\n", ".mode markdown\nselect '|';", "explain query plan select 1;"} {
		f.Add(s)
	}
	m := machine(f, interp.Limits{Procs: 50, Memory: 64 << 20, Output: 1 << 20, Steps: 1 << 20, Wall: 5 * time.Second})
	f.Fuzz(func(t *testing.T, s string) {
		low := strings.ToLower(s)
		if len(s) > 4000 || strings.ContainsRune(s, 0) || strings.Contains(low, ".sh") || strings.Contains(low, ".sy") {
			return
		}
		o := interp.NewPipe()
		p, err := m.Start(interp.Spec{Path: "bash", Args: []string{"-c", "mkdir -p f; cd f; rm -rf *; sqlite3 a.db <<< \"$0\"", s}, Dir: "/w", Out: o, Err: o, Env: []string{"PATH=/usr/bin:/bin"}})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadAll(o)
		p.Wait()
	})
}
