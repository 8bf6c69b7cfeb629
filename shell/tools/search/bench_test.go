package search_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/awk"
	"github.com/carrel-dev/carrel/shell/tools/search"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// BenchmarkGNU compares with GNU's programs on 10 MB of log. The figure "×gnu" is our wall time
// divided by theirs.
func BenchmarkGNU(b *testing.B) {
	var log strings.Builder
	for i := range 190785 {
		fmt.Fprintf(&log, "2024-01-%02d host%d %s request %d took %dms\n", i%28+1, i%17, []string{"INFO", "WARN", "ERROR", "DEBUG"}[i%7%4], i, i*7919%1000)
	}
	name := b.TempDir() + "/log"
	if err := os.WriteFile(name, []byte(log.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	commands := map[string]tool.Command{}
	for n, c := range search.Commands() {
		commands[n] = c
	}
	commands["gawk"] = awk.Commands()["awk"]
	names := []string{"grep", "sed", "gawk"}
	fs := vfs.New(vfs.Options{})
	if err := interp.Install(fs, names...); err != nil {
		b.Fatal(err)
	}
	if err := fs.Root().WriteFile("/tmp/log", []byte(log.String()), 0o644); err != nil {
		b.Fatal(err)
	}
	m := interp.New(interp.Config{FS: fs, Commands: commands})
	defer m.Close()
	for _, c := range []string{
		`grep -c ERROR LOG`, `grep -ci error LOG`, `grep -o 'took [0-9]*ms' LOG`, `grep -cE 'ERROR.*took 9[0-9]+ms' LOG`, `grep -cw host3 LOG`, `grep -vc INFO LOG`,
		`sed 's/host/node/g' LOG`, `sed -E 's/([0-9]+)ms/<\1>/' LOG`, `sed -n '/ERROR/p' LOG`, `gawk '{s[$2]+=$5} END{for(k in s) print k, s[k]}' LOG`, `gawk -F- '/ERROR/{n++} END{print n}' LOG`,
	} {
		b.Run(c, func(b *testing.B) {
			_, err := exec.LookPath(strings.Fields(c)[0])
			testenv.Need(b, "shell", err)
			theirs := time.Hour
			for range 3 {
				start := time.Now()
				cmd := exec.Command("bash", "-c", strings.ReplaceAll(c, "LOG", name)+" | cat > /dev/null")
				cmd.Env = []string{"LC_ALL=C.UTF-8", "PATH=/usr/bin:/bin"}
				if err := cmd.Run(); err != nil {
					b.Fatal(err)
				}
				theirs = min(theirs, time.Since(start))
			}
			best := time.Hour
			for b.Loop() {
				start := time.Now()
				in, out := interp.NewPipe(), interp.NewPipe()
				in.CloseWrite()
				p, err := m.Start(interp.Spec{Path: "bash", Args: []string{"-c", strings.ReplaceAll(c, "LOG", "/tmp/log") + " > /dev/null"}, Dir: "/tmp", Env: []string{"PATH=/bin"}, Stdin: in, Out: out})
				if err != nil {
					b.Fatal(err)
				}
				if e := p.Wait(); e.Code != 0 {
					b.Fatalf("%+v", e)
				}
				best = min(best, time.Since(start))
			}
			b.ReportMetric(float64(best)/float64(theirs), "×gnu")
			b.ReportMetric(float64(theirs.Milliseconds()), "gnu-ms")
		})
	}
}
