package build

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// TestThin makes templates thin, and does with a thin one each thing that can be done with a
// template: push, compare, list packages, history, back up, create, remove, collect.
func TestThin(t *testing.T) {
	testenv.Long(t, "an image stays whole for a minute after its last use")
	t.Parallel()
	host, _ := daemontest.ServeSmall(t)
	for _, tier := range tiers {
		t.Run(string(tier), func(t *testing.T) {
			t.Parallel()
			testenv.Need(t, string(tier), tierWorks(t, tier))
			thinTemplates(t, newBenchOn(t, daemontest.Start(t, "--default-tier", string(tier),
				"--allow-registry", "http://"+host), tier), host+"/thin/"+string(tier)+":1")
		})
	}
}

// thinNames are the templates of TestThin, by what happens to them.
var thinNames = []string{"pushed", "left", "right", "listed", "saved", "used", "removed", "orphan"}

// thinTemplates is TestThin in one tier. ref is an image's name in a registry.
func thinTemplates(t *testing.T, b *bench, ref string) {
	ctx := t.Context()
	all := map[string]string{} // directories by name
	for _, name := range thinNames {
		b.ready(carrel.BuildSpec{Name: name, Instructions: steps(
			fmt.Sprintf("RUN head -c 1000000 /dev/urandom > ~/random; echo %s > ~/name", name))})
		tmpl, err := b.GetTemplate(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = filepath.Join(b.d.Dir, "templates", tmpl.ID)
	}
	isThin := func(name string) bool {
		_, err := os.Stat(filepath.Join(all[name], "image.erofs"))
		_, derr := os.Stat(filepath.Join(all[name], "image.delta"))
		return errors.Is(err, fs.ErrNotExist) && derr == nil
	}
	ok := func(args ...string) string {
		t.Helper()
		out, err := b.d.CLI(args...).CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	time.Sleep(time.Minute + time.Second)
	ok("template", "gc", "--all")
	for name := range all {
		if !isThin(name) {
			t.Fatalf("%s is not thin", name)
		}
	}

	// Nothing of this needs an image.
	ok("template", "history", "listed")
	ok("template", "show", "listed")
	ok("template", "ls")
	ok("template", "tag", "listed", "again")
	for name := range all {
		if !isThin(name) {
			t.Errorf("%s is not thin any more", name)
		}
	}
	file := filepath.Join(t.TempDir(), "backup")
	ok("backup", file)

	ok("template", "push", "pushed", ref)
	if out := ok("template", "diff", "left", "right"); !strings.Contains(out, "random") ||
		!strings.Contains(out, "name") {
		t.Errorf("diff says %q", out)
	}
	ok("template", "sbom", "listed")
	for _, name := range []string{"used", "listed:again"} {
		want, _, _ := strings.Cut(name, ":")
		if got := b.run(name, "cat ~/name; wc -c < ~/random"); got != want+"\n1000000" {
			t.Errorf("a sandbox of %s has %q", name, got)
		}
	}
	if !isThin("removed") || !isThin("orphan") || !isThin("saved") {
		t.Error("a template that nobody used is whole")
	}
	ok("template", "rm", "removed")
	if _, err := os.Stat(all["removed"]); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the directory of a removed template is there:", err)
	}
	ok("template", "rm", small)
	ok("template", "gc", "--all")
	b.d.Restart()
	if got := b.run("orphan", "cat ~/name"); got != "orphan" {
		t.Errorf("without its base's template, a thin template gives %q", got)
	}
	ok("template", "pull", "back", ref)
	if got := b.run("back", "cat ~/name"); got != "pushed" {
		t.Errorf("what was pushed has %q", got)
	}

	dir := filepath.Join(t.TempDir(), "data")
	ok("restore", file, "--data-dir", dir)
	d := daemontest.StartIn(t, dir, "--default-tier", string(b.tier))
	svc, err := client.New(d.URL, d.Key)
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	restored := &bench{Service: svc, t: t, d: d, tier: b.tier}
	for name := range all {
		if got := restored.run(name, "cat ~/name"); got != name {
			t.Errorf("in the restored directory %s gives %q", name, got)
		}
	}
}
