package move

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// TestTemplates moves a template with its start settings, and a sandbox made from it after that.
func TestTemplates(t *testing.T) {
	testenv.Long(t, "it starts more daemons")
	f := start(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	a, b := f.nodes[0], f.nodes[1]
	if out, err := a.CLI("template", "import", "tools", f.archive).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	begin := []string{"sh", "-c", "echo begun > /tmp/begun; sleep 1000"}
	want, err := a.UpdateTemplate(ctx, "tools", carrel.TemplateUpdate{Start: &begin})
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.PublishTemplate(ctx, "tools")
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprintf("%+v", p); strings.Contains(text, "begun") {
		t.Errorf("its text has all of it: %s", text)
	}
	changed := p
	changed.Template.Name = "other"
	wantKind(t, "a changed one", errOf(b.AdoptTemplate(ctx, changed)), carrel.Invalid, "SHA-256")
	climbing := p
	climbing.Template.ID = "../../../etc"
	if climbing, err = climbing.Sealed(); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "a path for an ID", errOf(b.AdoptTemplate(ctx, climbing)), carrel.Invalid, "template")
	for range 2 {
		got, err := b.AdoptTemplate(ctx, p)
		if err != nil || got.ID != want.ID || got.Name != "tools" || fmt.Sprint(got.Start) != fmt.Sprint(begin) {
			t.Fatalf("adopted: %+v, %v", got, err)
		}
	}
	a.gc(t)
	b.gc(t)
	b.Restart()
	sb := b.create(ctx, t, carrel.CreateOptions{Template: "tools", Tier: carrel.GVisor})
	testenv.Eventually(t, "its start command ran", func() bool {
		return b.run(ctx, t, sb.ID, "cat /tmp/begun 2>/dev/null || true") == "begun"
	})
	// A sandbox of the same template needs no second copy of the image there.
	one := a.create(ctx, t, carrel.CreateOptions{Template: "tools", Tier: carrel.GVisor})
	a.move(ctx, t, one.ID, b)
	if fetched, _ := filepath.Glob(filepath.Join(b.Dir, "sandboxes", ".roots", "moved-*")); len(fetched) > 0 {
		t.Errorf("it fetched an image that it has: %v", fetched)
	}
	_, err = b.PublishTemplate(ctx, "nothing")
	wantKind(t, "publish no template", err, carrel.NotFound)
}

// TestNamespaceMoves moves a sandbox of tier ns with its files.
func TestNamespaceMoves(t *testing.T) {
	testenv.Long(t, "it starts more daemons")
	f := start(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	a, b := f.nodes[0], f.nodes[1]
	sb, err := a.Create(ctx, carrel.CreateOptions{Tier: carrel.NS, Timeout: time.Hour})
	testenv.Need(t, "ns", err)
	sum := a.run(ctx, t, sb.ID, "head -c 3000000 /dev/urandom > noise; sha256sum < noise")
	a.move(ctx, t, sb.ID, b)
	if got := b.run(ctx, t, sb.ID, "sha256sum < noise"); got != sum {
		t.Errorf("there it is %q, here it was %q", got, sum)
	}
}

// TestUnfit hands over passports that this machine can't restore, and content that is not there.
func TestUnfit(t *testing.T) {
	testenv.Long(t, "it starts more daemons")
	f := start(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	a, b := f.nodes[0], f.nodes[1]
	sb := a.create(ctx, t, carrel.CreateOptions{Tier: carrel.GVisor})
	a.run(ctx, t, sb.ID, "head -c 3000000 /dev/urandom > noise")
	p := a.pause(ctx, t, sb.ID)
	if p.Needs.CPU == "" || p.Needs.Build == "" || p.Needs.Arch == "" || len(p.Images) < 2 {
		t.Errorf("its needs are %+v, its images %+v", p.Needs, p.Images)
	}
	t.Logf("level %q, kernel %q", p.Needs.Level, p.Needs.Kernel)
	cpu := forge(t, p, func(p *carrel.Passport, _ map[string]any) { p.Needs.CPU += " quantum" })
	wantKind(t, "a feature that is nowhere", errOf(b.Adopt(ctx, cpu)), carrel.Unsupported, "quantum")
	arch := forge(t, p, func(p *carrel.Passport, _ map[string]any) { p.Needs.Arch = "vax" })
	wantKind(t, "another architecture", errOf(b.Adopt(ctx, arch)), carrel.Unsupported, "vax")
	if left := f.blobs(t, "holders/*/"); len(left) > 0 {
		t.Errorf("they left %v", left)
	}

	// An image that is another one, cut off, or missing.
	images := f.blobs(t, "images/")
	if len(images) < 2 {
		t.Fatalf("images: %v", images)
	}
	kept := map[string][]byte{}
	for _, path := range images {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		kept[path] = raw
	}
	for what, change := range map[string]func(path string, raw []byte) error{
		"truncated": func(path string, raw []byte) error { return os.WriteFile(path, raw[:len(raw)/2], 0o600) },
		"missing":   func(path string, _ []byte) error { return os.Remove(path) },
	} {
		for path, raw := range kept {
			if err := change(path, raw); err != nil {
				t.Fatal(err)
			}
		}
		_, err := b.Adopt(ctx, p)
		if kind := carrel.KindOf(err); kind != carrel.Invalid && kind != carrel.NotFound {
			t.Errorf("%s images: %v (%s)", what, err, kind)
		}
		wantKind(t, what+": afterwards", errOf(b.Get(ctx, sb.ID)), carrel.NotFound)
		for path, raw := range kept {
			if err := os.WriteFile(path, raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if left := f.blobs(t, "holders/*/"); len(left) > 0 {
		t.Errorf("refused adoptions left %v", left)
	}
	if stray, _ := filepath.Glob(filepath.Join(b.Dir, "snapshots", "packed", "*")); len(stray) > 0 {
		t.Errorf("refused adoptions left %v", stray)
	}

	// Packs that are gone or cut off: it is adopted, since only the manifest was read, and does not
	// resume. When they are back, it does.
	packs := map[string][]byte{}
	for _, path := range f.blobs(t, "packs/") {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		packs[path] = raw
	}
	if _, err := b.Adopt(ctx, p); err != nil {
		t.Fatal(err)
	}
	b.Terminate()
	if err := os.RemoveAll(filepath.Join(b.Dir, "snapshots", "hot")); err != nil {
		t.Fatal(err)
	}
	for path := range packs {
		if err := os.Truncate(path, 100); err != nil {
			t.Fatal(err)
		}
	}
	b.Restart()
	_, _, err := b.Resume(ctx, sb.ID, carrel.ResumeOptions{})
	wantKind(t, "resume without its packs", err, carrel.Invalid, string(p.Snapshot))
	if got, err := b.Get(ctx, sb.ID); err != nil || got.State != carrel.Paused {
		t.Errorf("it is %s, %v", got.State, err)
	}
	for path, raw := range packs {
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := b.Resume(ctx, sb.ID, carrel.ResumeOptions{}); err != nil {
		t.Errorf("with its packs: %v", err)
	}
}

// TestToAndFro moves a sandbox twenty times. Its memory and files stay as they were to the byte.
func TestToAndFro(t *testing.T) {
	testenv.Long(t, "it moves a sandbox twenty times")
	f := start(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	sb := f.nodes[0].create(ctx, t, carrel.CreateOptions{Tier: carrel.GVisor})
	shell, err := daemontest.Begin(ctx, f.nodes[0].computer(ctx, t, sb.ID), carrel.Command{Args: []string{"bash"}})
	if err != nil {
		t.Fatal(err)
	}
	const line = "echo said $n $(echo $secret | sha256sum) $(sha256sum < noise)"
	if _, err := shell.Ask(ctx, "n=0; secret=$(head -c 300000 /dev/urandom | base64 -w0); head -c 3000000 /dev/urandom > noise; echo said", "said"); err != nil {
		t.Fatal(err)
	}
	first, err := shell.Ask(ctx, line, "said")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		from, to := f.nodes[i%2], f.nodes[1-i%2]
		from.move(ctx, t, sb.ID, to)
		if shell, err = shell.Attach(ctx, to.computer(ctx, t, sb.ID)); err != nil {
			t.Fatal(err)
		}
		got, err := shell.Ask(ctx, "n=$((n+1)); "+line, "said")
		if want := strings.Replace(first, "said 0", fmt.Sprintf("said %d", i+1), 1); err != nil || got != want {
			t.Fatalf("move %d: %q, %v, want %q", i+1, got, err, want)
		}
		if i%5 == 4 {
			from.gc(t)
			to.gc(t)
		}
	}
	home := f.nodes[0]
	if err := home.Kill(ctx, sb.ID); err != nil {
		t.Fatal(err)
	}
	for _, n := range f.nodes {
		n.gc(t)
	}
	if left := f.blobs(t, "manifests/"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
