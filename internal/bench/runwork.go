package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// compile builds a small Go module, all of whose packages have changed, outside and inside.
func (b *runBench) compile(ctx context.Context) ([]row, error) {
	const packages, functions = 8, 150
	b.env = append(b.env, "GOCACHE="+filepath.Join(b.work, ".cache", "go"), "GOFLAGS=-trimpath", "GOTOOLCHAIN=local", "CGO_ENABLED=0", "GOTELEMETRY=off", "GOENV=off")
	change := func(i int) error {
		var main strings.Builder
		main.WriteString("package main\n\nimport (\n\t\"encoding/json\"\n\t\"fmt\"\n\t\"os\"\n")
		calls := ""
		for p := range packages {
			fmt.Fprintf(&main, "\t\"example.com/small/p%d\"\n", p)
			calls += fmt.Sprintf("\tt += p%d.F0(t)\n", p)
			var text strings.Builder
			fmt.Fprintf(&text, "// Package p%d is one of many.\npackage p%d\n\nimport \"strings\"\n\nconst round = %d\n", p, p, i)
			for f := range functions {
				fmt.Fprintf(&text, "\nfunc F%d(n int) int {\n\tvar s []string\n\tfor i := range n %% 7 {\n\t\ts = append(s, strings.Repeat(\"x\", i+round))\n\t}\n\tm := map[string]int{}\n\tfor _, v := range s {\n\t\tm[v] += len(v)*%d\n\t}\n\treturn len(m) + %s\n}\n", f, f+1, next(f, functions))
			}
			if err := write(filepath.Join(b.work, fmt.Sprintf("p%d", p), "p.go"), text.String()); err != nil {
				return err
			}
		}
		main.WriteString(")\n\nfunc main() {\n\tt := len(os.Args)\n" + calls + "\traw, _ := json.Marshal(t)\n\tfmt.Println(string(raw))\n}\n")
		return write(filepath.Join(b.work, "main.go"), main.String())
	}
	if err := write(filepath.Join(b.work, "go.mod"), "module example.com/small\n\ngo 1.26\n"); err != nil {
		return nil, err
	}
	out, in, err := b.pairs(ctx, max(b.o.samples(20), 10), change, "go", "build", "-o", "small", ".")
	if err != nil {
		return nil, err
	}
	return []row{
		summarise("go build of a small module, bare", "ms", out), summarise("go build of a small module, in a box", "ms", in),
		atMost(ratio("go build: in a box / bare", in, out), 1.03),
	}, nil
}

// next returns a call of the function after f, so that the compiler has something to follow.
func next(f, all int) string {
	if f+1 == all {
		return "n"
	}
	return fmt.Sprintf("F%d(n/2)", f+1)
}

// status runs git status on 50,000 files, outside and inside.
func (b *runBench) status(ctx context.Context) ([]row, error) {
	files := b.o.samples(50_000)
	old := b.work
	b.work = filepath.Join(b.dir, "home", "repository")
	defer func() { b.work = old }()
	if err := b.repository(ctx, files, 500); err != nil {
		return nil, err
	}
	out, in, err := b.pairs(ctx, max(b.o.samples(40), 10), func(int) error { return nil }, "git", "status", "--porcelain")
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("git status on %d files", files)
	return []row{
		summarise(what+", bare", "ms", out), summarise(what+", in a box", "ms", in),
		atMost(ratio("git status: in a box / bare", in, out), 1.10),
	}, nil
}

// files measures the walls' cost per call: making and removing files, starting programs, reads that
// are refused.
func (b *runBench) files(ctx context.Context) ([]row, error) {
	if err := write(filepath.Join(b.work, ".env"), "SECRET=x\n"); err != nil {
		return nil, err
	}
	defer os.Remove(filepath.Join(b.work, ".env"))
	const n = 3000
	var rows []row
	for _, c := range []struct{ what, script string }{
		{"make, write and remove a file", "for i in range(N):\n f=open('t%d'%i,'w'); f.write('x'); f.close(); os.unlink('t%d'%i)"},
		{"look at a file and read it", "for i in range(N):\n os.stat('main.go'); open('main.go').read()"},
		{"try to read a secret", "for i in range(N):\n  try: open('.env').read()\n  except OSError: pass"},
		{"try to write outside", "for i in range(N):\n  try: open('/etc/passwd','a').close()\n  except OSError: pass"},
		{"connect to a socket of its own", "s=socket.socket(socket.AF_UNIX); s.bind('own.sock'); s.listen(5)\nfor i in range(N):\n c=socket.socket(socket.AF_UNIX); c.connect('own.sock'); s.accept()[0].close(); c.close()\nos.unlink('own.sock')"},
		{"start a program", "for i in range(N//20):\n os.waitpid(os.posix_spawn('/bin/true',['true'],{}),0)"},
	} {
		// The script times itself, so that the starts of Python and of the box do not count.
		script := fmt.Sprintf("import os,time,socket\nN=%d\nt=time.perf_counter()\n%s\nd=(time.perf_counter()-t)/%s*1e6\nopen('result','w').write(str(d))\n",
			n, c.script, map[bool]string{true: "(N//20)", false: "N"}[c.what == "start a program"])
		if os.Getuid() == 0 && c.what == "try to write outside" {
			script = strings.Replace(script, "/etc/passwd", "/proc/version", 1) // as root, reading the other file would succeed outside
		}
		var each [2][]float64
		bare, ours := &contestant{name: "bare"}, &contestant{name: "carrel run", prefix: []string{b.carrel, "run", "-q", "--"}}
		for i := range 2 * max(b.o.samples(10), 3) {
			side := (i + i/2) % 2
			if _, err := b.once(ctx, []*contestant{bare, ours}[side], "python3", "-c", script); err != nil {
				return rows, err
			}
			raw, err := os.ReadFile(filepath.Join(b.work, "result"))
			if err != nil {
				return rows, err
			}
			var x float64
			if _, err := fmt.Sscan(string(raw), &x); err != nil {
				return rows, err
			}
			each[side] = append(each[side], x)
		}
		rows = append(rows, summarise(c.what+", bare", "µs", each[0]), summarise(c.what+", in a box", "µs", each[1]))
	}
	return rows, nil
}
