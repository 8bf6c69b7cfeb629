package text_test

import (
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/tools/text"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// runScript runs a script in a small machine with a file f, and returns the result.
func runScript(t testing.TB, script string, data []byte) interp.Exit {
	t.Helper()
	fs := vfs.New(vfs.Options{Quota: 4 << 20})
	all := text.Commands()
	var names []string
	for name := range all {
		names = append(names, name)
	}
	if err := interp.Install(fs, names...); err != nil {
		t.Fatal(err)
	}
	if err := fs.Root().WriteFile("/tmp/f", data, 0o644); err != nil {
		t.Fatal(err)
	}
	m := interp.New(interp.Config{FS: fs, Commands: all, Limits: interp.Limits{Procs: 8, Memory: 16 << 20, Output: 256 << 10, Steps: 2 << 20, Depth: 40}})
	defer m.Close()
	out := interp.NewPipe()
	out.CloseRead()
	p, err := m.Start(interp.Spec{Path: "bash", Args: []string{"-c", script}, Dir: "/tmp", Env: []string{"PATH=/bin"}, Out: out, Err: out})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan interp.Exit, 1)
	go func() { done <- p.Wait() }()
	select {
	case e := <-done:
		return e
	case <-time.After(2 * time.Minute):
		t.Fatalf("hangs: %q", script)
	}
	return interp.Exit{}
}

// FuzzDecoders gives any bytes to the programs that read encoded or keyed text.
func FuzzDecoders(f *testing.F) {
	for _, s := range []string{"00000000: 6162 0a  ab.\n", "ffffffffffff: 61\n", "6162zz", "YWJj\nZA==", "YWJjZ", "=", "a b\na c\n b", "\x00\xff\n", "begin 644 x\n#86)C\n`\nend\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 64<<10 {
			return
		}
		script := `exec >/dev/null 2>&1; xxd -r f; xxd -r -p f; xxd -r f o; base64 -d f; base64 -di f; base32 -d f; basenc --base16 -d f; basenc --z85 -d f
join f f; join -a1 -v2 -1 2 -t: f f; join --nocheck-order -o 0,1.9 f f; uniq -f1 -c f; sort -k2n,3 f; od f; fold -w3 f; column -t f; tsort f; numfmt --field=- < f; true`
		if e := runScript(t, script, data); strings.Contains(e.Message, "internal") {
			t.Fatalf("%q: %s", data, e.Message)
		}
	})
}
