package awk_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/tools/awk"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// BenchmarkAwk runs programs over 10 MB of log, or over no input.
func BenchmarkAwk(b *testing.B) {
	var log strings.Builder
	names := []string{"ann", "bob", "cleo", "dan", "eve", "finn", "gus", "hal"}
	for i := 0; log.Len() < 10<<20; i++ {
		fmt.Fprintf(&log, "%06d host%d %d user=%s status=%d\n", i, i*7919%40, i*104729%100000,
			names[i%8], 200+i*31%330)
	}
	fs := vfs.New(vfs.Options{})
	if err := interp.Install(fs, "awk"); err != nil {
		b.Fatal(err)
	}
	if err := fs.Root().WriteFile("/tmp/f", []byte(log.String()), 0o644); err != nil {
		b.Fatal(err)
	}
	m := interp.New(interp.Config{FS: fs, Commands: awk.Commands()})
	defer m.Close()
	for name, program := range map[string]string{
		"group":  `{ n[$2] += $3 } END { for (k in n) print k, n[k] }`,
		"fields": `{ print $1, $3 }`,
		"FS":     `BEGIN { FS = "[ =]" } { c[$5]++ } END { for (k in c) print k, c[k] }`,
		"match":  `/status=5/ { n++ } END { print n }`,
		"gsub":   `{ gsub(/[aeiou]/, "#"); print }`,
		"loop":   `BEGIN { for (i = 0; i < 2000000; i++) s += i * 2 % 7; print s; exit }`,
		"array":  `BEGIN { for (i = 0; i < 500000; i++) a[i] = i; for (k in a) s += a[k]; print s; exit }`,
		"calls":  `function f(n) { return n < 2 ? n : f(n-1) + f(n-2) } BEGIN { print f(24); exit }`,
		"split":  `{ $2 = "x"; print; n = split($0, p, " "); t += length(p[n]) substr($1, 2) } END { print t }`,
		"append": `BEGIN { for (i = 0; i < 100000; i++) s = s "x" i; print length(s); exit }`,
		"printf": `{ s = sprintf("%5d %s %.2f", $1, toupper($2), $3/7); n += length(s) } END { print n }`,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				in, out := interp.NewPipe(), interp.NewPipe()
				in.CloseWrite()
				p, err := m.Start(interp.Spec{Path: "bash", Args: []string{"-c",
					`awk "$1" f > /dev/null`, "x", program}, Dir: "/tmp",
					Env: []string{"PATH=/bin"}, Stdin: in, Out: out})
				if err != nil {
					b.Fatal(err)
				}
				if e := p.Wait(); e.Code != 0 {
					b.Fatalf("%+v", e)
				}
			}
		})
	}
}
