package move

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// forge changes a passport and gives it a fresh sum, as somebody would who knows how.
func forge(t *testing.T, p carrel.Passport, change func(p *carrel.Passport, state map[string]any)) carrel.Passport {
	t.Helper()
	var state map[string]any
	if err := json.Unmarshal(p.State, &state); err != nil {
		t.Fatal(err)
	}
	change(&p, state)
	raw, err := json.Marshal(state)
	if err == nil {
		p.State = raw
		p, err = p.Sealed()
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// sandboxIn returns the sandbox in the state of a passport.
func sandboxIn(state map[string]any) map[string]any {
	return state["record"].(map[string]any)["Sandbox"].(map[string]any)
}

// TestRefused hands passports over that are damaged, forged, or of no use here. Nothing of them may
// be here afterwards.
func TestRefused(t *testing.T) {
	f := start(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	a, b := f.nodes[0], f.nodes[1]
	sb := a.create(ctx, t, carrel.CreateOptions{Tier: carrel.Sim, Env: map[string]string{"TOKEN": "hunter2"}})
	a.run(ctx, t, sb.ID, "echo kept > file")
	wantKind(t, "publish a running one", errOf(a.Publish(ctx, string(sb.ID))), carrel.Conflict, "pause")
	wantKind(t, "publish nothing", errOf(a.Publish(ctx, string(carrel.NewID()))), carrel.NotFound)
	wantKind(t, "publish no snapshot", errOf(a.Publish(ctx, string(carrel.NewSnapshotID()))), carrel.NotFound)
	p := a.pause(ctx, t, sb.ID)

	for _, text := range []string{p.String(), fmt.Sprint(p), fmt.Sprintf("%+v %#v %s %q %x", p, p, p, p, p), fmt.Sprint(&p)} {
		if strings.Contains(text, "hunter2") || strings.Contains(text, sb.AccessToken) || !strings.Contains(text, string(sb.ID)) {
			t.Errorf("a text of the passport: %s", text)
		}
	}
	if !strings.Contains(string(p.State), "hunter2") {
		t.Error("the passport lacks the environment")
	}

	other := string(carrel.NewID())
	damaged := p
	damaged.State = json.RawMessage(strings.Replace(string(p.State), "hunter2", "hunter3", 1))
	future := p
	future.Version = 99
	for _, c := range []struct {
		what  string
		p     carrel.Passport
		kind  carrel.Kind
		words []string
	}{
		{"a changed byte", damaged, carrel.Invalid, []string{"SHA-256"}},
		{"a future version", future, carrel.Invalid, []string{"version 99"}},
		{"an empty one", carrel.Passport{}, carrel.Invalid, []string{"version"}},
		{"another ID", forge(t, p, func(p *carrel.Passport, _ map[string]any) { p.Sandbox = carrel.ID(other) }), carrel.Invalid, []string{string(sb.ID)}},
		{"another ID everywhere", forge(t, p, func(p *carrel.Passport, st map[string]any) {
			p.Sandbox = carrel.ID(other)
			sandboxIn(st)["id"] = other
			sn := st["snapshots"].([]any)[0].(map[string]any)["record"].(map[string]any)
			sn["Snapshot"].(map[string]any)["sandbox"] = other
			sandboxIn(map[string]any{"record": sn["Record"]})["id"] = other
		}), carrel.Invalid, []string{other}},
		{"another project", forge(t, p, func(p *carrel.Passport, st map[string]any) {
			p.Project = "elsewhere"
			sandboxIn(st)["project"] = "elsewhere"
		}), carrel.Invalid, []string{"project"}},
		{"a running one", forge(t, p, func(_ *carrel.Passport, st map[string]any) { sandboxIn(st)["state"] = "running" }), carrel.Invalid, []string{"paused"}},
		{"a path for an image", forge(t, p, func(p *carrel.Passport, _ map[string]any) {
			p.Images = []carrel.MovedImage{{Name: "../../etc/passwd", Sum: strings.Repeat("0", 64)}}
		}), carrel.Invalid, []string{"image"}},
		{"another digest", forge(t, p, func(_ *carrel.Passport, st map[string]any) {
			st["snapshots"].([]any)[0].(map[string]any)["digest"] = strings.Repeat("0", 64)
		}), carrel.Invalid, []string{"digest"}},
		{"a tier that is nowhere", forge(t, p, func(p *carrel.Passport, st map[string]any) {
			p.Needs.Tier = "vapour"
			sandboxIn(st)["tier"] = "vapour"
		}), carrel.Unsupported, []string{"vapour"}},
	} {
		_, err := b.Adopt(ctx, c.p)
		wantKind(t, c.what, err, c.kind, c.words...)
		wantKind(t, c.what+": afterwards", errOf(b.Get(ctx, c.p.Sandbox)), carrel.NotFound)
	}
	if holders := f.blobs(t, "holders/*/"); len(holders) > 0 {
		t.Errorf("refused adoptions left holders: %v", holders)
	}

	// Its content is not there, or not whole.
	manifest := f.blobs(t, "manifests/"+string(p.Snapshot))
	if len(manifest) != 1 {
		t.Fatalf("manifests: %v", manifest)
	}
	raw, err := os.ReadFile(manifest[0])
	if err != nil {
		t.Fatal(err)
	}
	for what, content := range map[string][]byte{"a truncated manifest": raw[:len(raw)/2], "a damaged manifest": append([]byte("x"), raw[1:]...)} {
		if err := os.WriteFile(manifest[0], content, 0o600); err != nil {
			t.Fatal(err)
		}
		wantKind(t, what, errOf(b.Adopt(ctx, p)), carrel.Invalid)
		wantKind(t, what+": afterwards", errOf(b.Get(ctx, sb.ID)), carrel.NotFound)
	}
	if err := os.Remove(manifest[0]); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "no manifest", errOf(b.Adopt(ctx, p)), carrel.NotFound)
	if err := os.WriteFile(manifest[0], raw, 0o600); err != nil {
		t.Fatal(err)
	}

	// Twice is once. What runs here is not replaced.
	for range 2 {
		if got, err := b.Adopt(ctx, p); err != nil || got.State != carrel.Paused {
			t.Fatalf("adopt: %+v, %v", got, err)
		}
	}
	if err := a.Release(ctx, sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Resume(ctx, sb.ID, carrel.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "adopt what runs", errOf(b.Adopt(ctx, p)), carrel.Conflict, "running")
	if got := b.run(ctx, t, sb.ID, "cat file; echo $TOKEN"); got != "kept\nhunter2" {
		t.Errorf("it has %q", got)
	}
	if err := a.Release(ctx, carrel.NewID()); err != nil {
		t.Errorf("release what is not here: %v", err)
	}
}

// TestLastOneDeletes lets each of two nodes delete and collect, in both directions. What the other
// one uses stays. What nobody uses goes.
func TestLastOneDeletes(t *testing.T) {
	testenv.Long(t, "it starts more daemons")
	f := start(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	a, b := f.nodes[0], f.nodes[1]
	for _, c := range []struct {
		name     string
		from, to *node
		leave    func(id carrel.ID) error
	}{
		{"released", a, b, func(id carrel.ID) error { return a.Release(ctx, id) }},
		{"killed", a, b, func(id carrel.ID) error { return a.Kill(ctx, id) }},
		{"released the other way", b, a, func(id carrel.ID) error { return b.Release(ctx, id) }},
	} {
		sb := c.from.create(ctx, t, carrel.CreateOptions{Tier: carrel.Sim})
		c.from.run(ctx, t, sb.ID, "seq 1 20000 > numbers")
		sn, err := c.from.Snapshot(ctx, sb.ID, carrel.SnapshotOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p := c.from.pause(ctx, t, sb.ID)
		if _, err := c.to.Adopt(ctx, p); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err := c.leave(sb.ID); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err := c.from.DeleteSnapshot(ctx, string(sn.ID)); err != nil && carrel.KindOf(err) != carrel.NotFound {
			t.Fatalf("%s: %v", c.name, err)
		}
		c.from.gc(t)
		c.to.gc(t)
		c.from.gc(t)
		c.to.Restart()
		if _, _, err := c.to.Resume(ctx, sb.ID, carrel.ResumeOptions{}); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := c.to.run(ctx, t, sb.ID, "wc -l < numbers"); got != "20000" {
			t.Errorf("%s: %q", c.name, got)
		}
		if _, err := c.to.Rollback(ctx, sb.ID, sn.ID, carrel.RollbackOptions{}); err != nil {
			t.Errorf("%s: an ancestor: %v", c.name, err)
		}
		if err := c.to.Kill(ctx, sb.ID); err != nil {
			t.Fatal(err)
		}
		if err := c.to.DeleteSnapshot(ctx, string(sn.ID)); err != nil && carrel.KindOf(err) != carrel.NotFound {
			t.Fatalf("%s: %v", c.name, err)
		}
	}
	a.gc(t)
	b.gc(t)
	for _, prefix := range []string{"manifests/", "doomed/", "holders/*/", "left/"} {
		if left := f.blobs(t, prefix); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}
