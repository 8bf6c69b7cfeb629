package awk_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/tools/awk"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// run runs a program in a small machine and returns how it ended. It kills the program after limit.
func run(t testing.TB, program string, limit time.Duration) interp.Exit {
	t.Helper()
	fs := vfs.New(vfs.Options{Quota: 4 << 20})
	if err := interp.Install(fs, "awk"); err != nil {
		t.Fatal(err)
	}
	if err := fs.Root().WriteFile("/tmp/f", []byte("a b c\n1 2 3\n\nx=é\xff 4"), 0o644); err != nil {
		t.Fatal(err)
	}
	m := interp.New(interp.Config{FS: fs, Commands: awk.Commands(), Limits: interp.Limits{Procs: 8, Memory: 16 << 20, Output: 256 << 10, Steps: 400000, Depth: 40}})
	defer m.Close()
	in, out, errs := interp.NewPipe(), interp.NewPipe(), interp.NewPipe()
	in.CloseWrite()
	out.CloseRead()
	errs.CloseRead()
	p, err := m.Start(interp.Spec{Path: "bash", Args: []string{"-c", `trap '' PIPE; awk -- "$1" f > /dev/null 2>&1`, "x", program}, Dir: "/tmp", Env: []string{"PATH=/bin"}, Stdin: in, Out: out, Err: errs})
	if err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(limit, func() { _ = p.Signal(9) })
	defer timer.Stop()
	done := make(chan interp.Exit, 1)
	go func() { done <- p.Wait() }()
	select {
	case e := <-done:
		return e
	case <-time.After(limit + time.Minute):
		t.Fatalf("hangs: %q", program)
	}
	return interp.Exit{}
}

// TestLimits runs programs that would use up the machine. They must end.
func TestLimits(t *testing.T) {
	for name, c := range map[string]struct{ program, message string }{
		"endless loop":     {`BEGIN{while(1);}`, "steps"},
		"doubling string":  {`BEGIN{x="x"; while(1) x=x x}`, ""},
		"growing array":    {`BEGIN{while(1) a[i++]=i}`, "limit"},
		"recursion":        {`function f(x){f(x)} BEGIN{f(1)}`, ""},
		"array of strings": {`BEGIN{x=sprintf("%9999d",1); while(1) a[i++]=x i}`, "memory limit"},
		"wide":             {`BEGIN{printf "%999999999d", 1}`, ""},
		"many fields":      {`BEGIN{for(i=1;i<1000000;i++) $i=i}`, "steps"},
		"gsub growth":      {`BEGIN{x="x"; while(1) gsub(/x/,"&&",x)}`, ""},
		"endless command":  {`BEGIN{while(("awk \"BEGIN{while(1)print 1}\"" | getline)>0) n++}`, ""},
		"writes to nobody": {`BEGIN{while(1) print "x" | "true"}`, ""},
		"nesting":          {"BEGIN{x=" + strings.Repeat("(", 100000) + "}", ""},
		"long sum":         {"BEGIN{x=1" + strings.Repeat("+1", 100000) + "}", ""},
		"nested blocks":    {"BEGIN" + strings.Repeat("{", 100000), ""},
		"nots":             {"BEGIN{x=" + strings.Repeat("!", 100000) + "1}", ""},
		"dollars":          {"BEGIN{x=" + strings.Repeat("$", 100000) + "1}", ""},
		"nested arrays":    {`BEGIN{while(1) a[i++][1]=i}`, "limit"},
		"deep arrays":      {`function f(a) { a[1][1]=1; f(a[1]) } BEGIN { f(x) }`, ""},
		"indirect":         {`function f(x) { g="f"; return @g(x) } BEGIN { f(1) }`, ""},
		"two-way pipe":     {`BEGIN { while (1) print "x" |& "cat" }`, ""},
		"endless reply":    {`BEGIN { c = "awk \"BEGIN{while(1)print 1}\""; while ((c |& getline) > 0) n++ }`, ""},
		"orders":           {`function c(a,b,d,e) { return 1 } BEGIN { for (i=0;i<20000;i++) a[i]=i; while (1) asort(a, b, "c") }`, "steps"},
		"formats":          {`BEGIN { while (1) x = sprintf("%9999.9999d", 1) }`, "steps"},
		"includes":         {"@include \"f\"\n@include \"f\"", ""},
		"concatenation":    {"BEGIN{x=" + strings.Repeat("a ", 100000) + "}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := run(t, c.program, 5*time.Minute)
			if !strings.Contains(e.Message, c.message) || strings.Contains(e.Message, "internal") {
				t.Errorf("%+v, want %q", e, c.message)
			}
		})
	}
}

// maxHeap is the most host memory that the programs of TestBudget may use. Their machines have 16
// MB.
const maxHeap = 512 << 20

// TestBudget runs short programs that ask for a lot of memory or work at once. Each must end soon
// with the expected message. The host must not need much more than the machine's memory.
func TestBudget(t *testing.T) {
	for name, c := range map[string]struct {
		program string
		status  int
		message string // of the budget; "" when the program refuses by itself or finishes
	}{
		"field number":        {`BEGIN { $1e9 = 1 }`, 2, ""},
		"field within bounds": {`BEGIN { $1e7 = 1 }`, 137, "memory limit"},
		"huge field":          {`BEGIN { $1e300 = 1 }`, 2, ""},
		"number of fields":    {`BEGIN { NF = 1e9 }`, 2, ""},
		"fields within":       {`BEGIN { NF = 16e6; print length($0) }`, 137, "memory limit"},
		"substr far":          {`BEGIN { exit length(substr("abc", 1e300)) + length(substr("abc", -1e300, 1e300)) + 1 }`, 4, ""},
		"substr long":         {`BEGIN { exit length(substr("abc", 2, 1e308)) + length(substr("é", 1, 2^63)) }`, 3, ""},
		"substr of no number": {`BEGIN { exit length(substr("abc", "nan" + 0)) + length(substr("abc", 2, log(-1))) }`, 3, ""},
		"doubling":            {`BEGIN { x = "x"; while (1) x = x x }`, 137, "memory limit"},
		"doubling in array":   {`BEGIN { a[0] = "x"; while (1) { a[i + 1] = a[i] a[i]; i++ } }`, 137, "memory limit"},
		"doubling a field":    {`BEGIN { $1 = "x"; while (1) $1 = $1 $1 }`, 137, "memory limit"},
		"doubling by gsub":    {`BEGIN { x = "x"; while (1) gsub(/x/, "&&", x) }`, 137, ""},
		"wide number":         {`BEGIN { x = sprintf("%1000000000d", 1) }`, 2, ""},
		"width by argument":   {`BEGIN { x = sprintf("%*d", 1e9, 1) }`, 2, ""},
		"precision":           {`BEGIN { x = sprintf("%.1000000000f", 1) }`, 2, ""},
		"many widths":         {`BEGIN { f = "%9999999d"; for (i = 0; i < 12; i++) f = f f; x = sprintf(f, 1) }`, 137, "limit"},
		"backtracking":        {`BEGIN { while (length(x) < 1e5) x = x "aaaaaaaaaa"; exit x ~ /(a*)*b/ }`, 0, ""},
		"backtracking groups": {`BEGIN { while (length(x) < 1e4) x = x "aaaaaaaaaa"; exit match(x, /((a*)*|b)*c/, m) }`, 0, ""},
		"alternatives":        {`BEGIN { while (length(x) < 1e5) x = x "aaaaaaaaaa"; exit x ~ /^(a|a|aa)+$/ }`, 1, ""},
		"repetitions":         {`BEGIN { exit "a" ~ /((a{1,200}){1,200}){1,200}/ }`, 137, "limit"},
		"repetitions at run":  {`BEGIN { r = "a"; for (i = 0; i < 9; i++) r = "(" r "){1,200}"; exit "a" ~ r }`, 137, "limit"},
		"endless":             {`BEGIN { while (1) ; }`, 137, "steps"},
		"endless for":         {`BEGIN { for (;;) { } }`, 137, "steps"},
		"endless do":          {`BEGIN { do { } while (1) }`, 137, "steps"},
		"endless end":         {`END { while (1) n = n "" }`, 137, "steps"},
		"recursion":           {`function f(n) { return f(n + 1) + 1 } BEGIN { f(1) }`, 2, ""},
		"two functions":       {`function f(n) { return g(n) } function g(n) { return f(n) } BEGIN { f(1) }`, 2, ""},
		"split into many":     {`BEGIN { x = sprintf("%9000000d", 1); gsub(/ /, "a ", x); split(x, a) }`, 137, ""},
		"split by character":  {`BEGIN { x = sprintf("%3000000d", 1); print split(x, a, "") }`, 137, ""},
		"fields of a text":    {`BEGIN { $0 = sprintf("%3000000d", 1); FS = ""; $0 = $0; print NF }`, 137, ""},
		"long subscripts":     {`BEGIN { x = sprintf("%100000d", 1); while (1) a[x i++] }`, 137, "memory limit"},
		"sorting":             {`BEGIN { while (i < 1e5) a[i] = i++; while (1) asort(a) }`, 137, ""},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			e := run(t, c.program, time.Minute)
			took := time.Since(start)
			if e.Code != c.status || !strings.Contains(e.Message, c.message) || strings.Contains(e.Message, "internal") {
				t.Errorf("%+v, want %d %q", e, c.status, c.message)
			}
			if took > 20*time.Second {
				t.Errorf("took %v", took)
			}
			var m runtime.MemStats
			if runtime.ReadMemStats(&m); m.HeapSys > maxHeap { // about the largest size of the heap so far
				t.Errorf("the host's heap grew to %d MB", m.HeapSys>>20)
			}
		})
	}
}

// FuzzAwk runs any program.
func FuzzAwk(f *testing.F) {
	for _, s := range []string{`{print $1}`, `BEGIN{while(1)x=x "a"}`, `{a[$1]++}END{for(k in a)print k,a[k]}`, `function f(x){return f(x-1)}BEGIN{f(9)}`, `{gsub(/a*/,"&&")}1`, `BEGIN{printf "%*d%c%s", 9, 9, 9, 9}`,
		`BEGIN{"echo a"|getline;print|"cat"}`, `$NF=$(NF+1)`, `BEGIN{RS="";FS="[a"}{NF=9}1`, `/a/,/b/{next}`, `BEGIN{x=split("a b",a,/ /);delete a;print substr("é",0,2)}`, `{print > "o";close("o")}`,
		`BEGIN{match("aab",/(a+)(b)/,m);asort(m);print gensub(/(a)/,"\\1","g","a")}`, `BEGIN{$0="a";$-1}`, `{$1000001=1}`, `BEGIN { getline x < "f"; print -x ^ !x ? 1 : 2 }`, `BEGIN{FPAT="a*";$0="aa b"}`,
		`BEGIN{a[1][2]=3;delete a[1];f="g";@f(a);switch(1){case 1:print;break;default:print typeof(a)}}function g(x){x[1][1]++}`,
		`BEGIN{c="cat";print "x"|&c;close(c,"to");c|&getline;split("a b",p[1],/ /,s[2]);asort(p[1],q[1],"z")}`, `BEGIN{printf "%2$*1$.3s%c%#x",@/a/,"b";sub(@/x/,"\\&",a[1][1])}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, program string) {
		if strings.IndexByte(program, 0) >= 0 {
			return
		}
		// A command may sleep.
		if e := run(t, program, 3*time.Second); strings.Contains(e.Message, "internal") {
			t.Fatalf("%q: %s", program, e.Message)
		}
	})
}
