package drivertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

// testHostileFiles makes files inside that could trick a reader of the snapshot. It checks that
// nothing on the host was touched.
func (s *suite) testHostileFiles(t *testing.T) {
	c := plant(t)
	d := s.open(t)
	b := s.box(t, d)
	if s.attack == "" {
		var script strings.Builder
		script.WriteString("mkdir /tmp/odd && cd /tmp/odd && echo plain > plain && echo no whiteout > .wh.hidden && : > .wh..wh..opq\n")
		for i, p := range c.paths {
			fmt.Fprintf(&script, "ln -s %[1]s link-%[2]d; ln -s %[3]s dir-%[2]d; ln -s ../../../../../../../../..%[1]s up-%[2]d; ln -s /proc/1/root%[1]s proc-%[2]d\n",
				p, i, filepath.Dir(p))
		}
		b.must(t, script.String())
	} else {
		b.upload(t)
		b.run(t, time.Minute, nil, append([]string{"odd", "/tmp/odd"}, c.paths...)...).wantControl(t, "odd")
	}
	for name, opts := range s.modes() {
		t.Run(name, func(t *testing.T) {
			before := b.tree(t, "/tmp/odd")
			m := b.snapshot(t, opts)
			wantClean(t, m.dir, c)
			r := s.restore(t, d, m, driver.RestoreOptions{})
			after := r.tree(t, "/tmp/odd")
			if _, kept := after["/tmp/odd/socket"]; !kept && opts.FilesOnly {
				delete(before, "/tmp/odd/socket") // tar has no sockets, and no process listens there now
			}
			wantTree(t, after, before)
			for i, p := range c.paths {
				if out, _, _ := r.exec(t.Context(), fmt.Sprintf("cd /tmp/odd; cat link-%d up-%[1]d proc-%[1]d", i)); strings.Contains(out, c.token) {
					t.Errorf("a link leads to the host's %s", p)
				}
				// Writes through a link must stay inside, too.
				_, _, _ = r.exec(t.Context(), fmt.Sprintf("cd /tmp/odd; mkdir -p %s; echo overwritten > link-%d; echo overwritten > up-%[2]d", filepath.Dir(p), i))
			}
			got := s.files(t, d, m)
			if e := got["tmp/odd/plain"]; e.Header == nil {
				t.Error("the plain file is not in the stream")
			}
			again := s.files(t, d, r.snapshot(t, opts))
			if len(again) == 0 {
				t.Error("no files in the second stream")
			}
			c.wantUntouched(t)
		})
	}
	t.Run("churn", func(t *testing.T) { s.testChurn(t, d) })
	c.wantUntouched(t)
}

// wantClean checks that a snapshot's files hold nothing from the host.
func wantClean(t testing.TB, dir string, c *canaries) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		// The links hold the canaries' names, which end in the token. Only the canaries' contents
		// hold "secret".
		if strings.Contains(string(b), "secret "+c.token) {
			t.Errorf("%s holds the contents of a file of the host's", e.Name())
		}
	}
}

// testChurn takes snapshots while a process changes the files as fast as it can.
func (s *suite) testChurn(t *testing.T, d driver.Driver) {
	b := s.box(t, d)
	cmd := carrel.Command{User: "root", Dir: "/", Args: []string{"/bin/sh", "-c",
		`mkdir -p /tmp/churn; cd /tmp/churn; i=0; while :; do echo $i > a; mv a b; ln -s / a; rm a; mkdir a; echo x > a/x; rm -r a b; i=$((i+1)); done`}}
	if s.attack != "" {
		b.upload(t)
		cmd.Args = []string{attackInside, "churn", "/tmp/churn"}
	}
	b.must(t, "echo kept > /tmp/kept")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p, err := b.conn.Start(ctx, cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = p.Signal(context.WithoutCancel(ctx), 9)
		_ = p.Close()
	}()
	rounds := 6
	if testing.Short() {
		rounds = 2 // one of each mode
	}
	for i := range rounds {
		m := b.snapshot(t, driver.SnapshotOptions{FilesOnly: i%2 == 1})
		r := s.restore(t, d, m, driver.RestoreOptions{FilesOnly: true})
		r.want(t, "cat /tmp/kept; cd /tmp/churn; ls > /tmp/list; for f in *; do [ -L \"$f\" ] || cat \"$f\" > /tmp/x 2> /tmp/y; done; echo read", "kept\nread")
		if n := len(s.files(t, d, m)); n == 0 {
			t.Error("no files in the stream")
		}
		r.destroy(t)
		b.want(t, "echo runs", "runs")
	}
}
