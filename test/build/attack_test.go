package build

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// TestHostileSteps runs commands that never end, fill the disk, use up all processes, or leave
// processes behind. Each must end as a failure of its step, and leave nothing. A step that forks
// for ever may reach the end of its time or the end of its memory first.
func TestHostileSteps(t *testing.T) {
	oneTier(t, carrel.GVisor, func(t *testing.T, b *bench) {
		for _, c := range []struct {
			name, want string
			spec       carrel.BuildSpec
			ends       bool // the sandbox may end by itself
		}{
			{"never ends", "did not end within", carrel.BuildSpec{StepTimeout: 3 * time.Second,
				Instructions: steps("RUN while :; do sleep 1; done")}, false},
			{"fills the disk", "", carrel.BuildSpec{DiskMB: 64,
				Instructions: steps("RUN dd if=/dev/urandom of=/home/user/big bs=1M count=200")}, false},
			{"needs too much memory", "signal: killed", carrel.BuildSpec{MemoryMB: 256,
				Instructions: steps(`RUN x=$(cat /dev/zero | tr '\0' x)`)}, true},
			{"forks for ever", "did not end within", carrel.BuildSpec{StepTimeout: 5 * time.Second,
				MemoryMB:     256,
				Instructions: steps("RUN f() { f | f & }; f; while :; do sleep 1; done")}, true},
			{"writes for ever", "did not end within",
				carrel.BuildSpec{StepTimeout: 3 * time.Second,
					Instructions: steps("RUN while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done")}, false},
			{"no line breaks", "did not end within", carrel.BuildSpec{StepTimeout: 3 * time.Second,
				Instructions: steps(`RUN cat /dev/zero | tr '\0' x`)}, false},
		} {
			if testing.Short() && (strings.Contains(c.name, "write") || strings.Contains(c.name, "line")) {
				continue // the whole takes long
			}
			t.Run(c.name, func(t *testing.T) {
				c.spec.Name = "hostile"
				build, logs := b.build(c.spec)
				if build.State != carrel.BuildError || build.Reason == nil || build.Reason.Step != "1" ||
					!strings.Contains(build.Reason.Message, c.want) &&
						!(c.ends && strings.Contains(build.Reason.Message, "out of memory")) {
					t.Errorf("the build is %s, %+v\n%.2000s", build.State, build.Reason, text(logs))
				}
			})
		}
		b.ready(carrel.BuildSpec{Name: "left", Instructions: steps("RUN sleep 1000 & echo started",
			"RUN for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $p; echo; done > /home/user/ps")})
		if ps := b.run("left", "cat /home/user/ps"); strings.Contains(ps, "sleep 1000") {
			t.Errorf("a process of the step before was still there:\n%s", ps)
		}
		b.nothingLeft()
	})
}

// TestCancel cancels a build that runs and one that waits.
func TestCancel(t *testing.T) {
	t.Parallel()
	testenv.Need(t, "gvisor", tierWorks(t, carrel.GVisor))
	b := newBench(t, carrel.GVisor)
	long := b.start(carrel.BuildSpec{Name: "long", Instructions: steps("RUN echo begun; sleep 1000")})
	for l, err := range b.BuildLogs(t.Context(), long.ID, carrel.BuildLogOptions{Follow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if l.Message == "begun" {
			break
		}
	}
	b.wantWorkshop(long.ID)
	build, err := b.CancelBuild(t.Context(), long.ID)
	if err != nil || build.State != carrel.BuildCancelled {
		t.Errorf("cancelled: %+v, %v", build, err)
	}
	b.nothingLeft()
	_, made := b.call("POST", "/v3/templates", map[string]any{"name": "idle"})
	if build, err := b.CancelBuild(t.Context(), fmt.Sprint(made["buildID"])); err != nil ||
		build.State != carrel.BuildCancelled {
		t.Errorf("a build that was not started, cancelled: %+v, %v", build, err)
	}
}

// wantWorkshop checks that the sandbox of a build is listed only when it is asked for, and that
// nobody can end it behind the build's back.
func (b *bench) wantWorkshop(build string) {
	b.t.Helper()
	if page, err := b.List(b.t.Context(), carrel.ListOptions{}); err != nil ||
		len(page.Sandboxes) > 0 || page.Running > 0 {
		b.t.Errorf("the list has %+v, %v", page, err)
	}
	page, err := b.List(b.t.Context(), carrel.ListOptions{Builds: true})
	if err != nil || len(page.Sandboxes) != 1 || page.Sandboxes[0].Build != build {
		b.t.Fatalf("the list with builds has %+v, %v", page, err)
	}
	id := page.Sandboxes[0].ID
	if err := b.Kill(b.t.Context(), id); carrel.KindOf(err) != carrel.Conflict ||
		!strings.Contains(carrel.HintOf(err), "carrel build cancel "+build) {
		b.t.Errorf("kill: %v, %q", err, carrel.HintOf(err))
	}
	if _, err := b.Pause(b.t.Context(), id, carrel.PauseOptions{}); carrel.KindOf(
		err) != carrel.Conflict {
		b.t.Errorf("pause: %v", err)
	}
}

// TestManyBuilds makes fifty builds at once, some of one name. None may be lost.
func TestManyBuilds(t *testing.T) {
	testenv.Need(t, "gvisor", tierWorks(t, carrel.GVisor))
	b := newBench(t, carrel.GVisor)
	count := 50
	if testing.Short() {
		count = 6
	}
	var wg sync.WaitGroup
	ended := make([]carrel.Build, count)
	for i := range count {
		wg.Go(func() {
			spec := carrel.BuildSpec{Name: fmt.Sprintf("many-%d", i/2), MemoryMB: 256, FromTemplate: small,
				Instructions: steps(fmt.Sprintf("RUN echo %d > /home/user/number", i))}
			build, err := b.StartBuild(t.Context(), spec)
			if err != nil {
				t.Error(err)
				return
			}
			for range b.BuildLogs(t.Context(), build.ID, carrel.BuildLogOptions{Follow: true}) {
			}
			if ended[i], err = b.GetBuild(t.Context(), build.ID); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i, build := range ended {
		if build.State != carrel.BuildReady {
			t.Errorf("build %d is %s: %+v", i, build.State, build.Reason)
		}
		if other := ended[i^1]; other.TemplateID != build.TemplateID {
			t.Errorf("two builds of %s have the IDs %s and %s", build.Name, build.TemplateID,
				other.TemplateID)
		}
	}
	if got := b.run("many-0", "cat ~/number"); got != "0" && got != "1" {
		t.Errorf("the template has %q", got)
	}
	b.nothingLeft()
}

// TestHostileUploads sends archives and names that a daemon must refuse, and a name that lies about
// its files.
func TestHostileUploads(t *testing.T) {
	t.Parallel()
	testenv.Need(t, "gvisor", tierWorks(t, carrel.GVisor))
	b := newBench(t, carrel.GVisor)
	_, made := b.call("POST", "/v3/templates", map[string]any{"name": "files"})
	ask := func(hash string) string {
		t.Helper()
		status, out := b.call("GET", "/templates/"+fmt.Sprint(made["templateID"])+"/files/"+hash, nil)
		if status != http.StatusCreated {
			t.Fatalf("ask for a URL: %d %v", status, out)
		}
		return fmt.Sprint(out["url"])
	}
	for _, h := range []tar.Header{
		{Name: "../out", Typeflag: tar.TypeReg}, {Name: "/etc/out", Typeflag: tar.TypeReg},
		{Name: "a/../../out", Typeflag: tar.TypeReg},
		{Name: "l", Typeflag: tar.TypeLink, Linkname: "../../etc/passwd"},
		{Name: "big", Typeflag: tar.TypeReg, Size: 1 << 41},
	} {
		var raw bytes.Buffer
		w := tar.NewWriter(&raw)
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if status, text := b.put(ask(sum("bad")), &raw); status < 400 || status >= 500 {
			t.Errorf("an archive with %q was answered with %d %s", h.Name, status, text)
		}
	}
	url := ask(sum("good"))
	for what, bad := range map[string]string{"an altered URL": url[:len(url)-2] + "xx",
		"no signature": url[:strings.LastIndex(url, ".")]} {
		if status, text := b.put(bad, strings.NewReader("")); status != http.StatusForbidden {
			t.Errorf("%s was answered with %d %s", what, status, text)
		}
	}
	if status, _ := b.call("GET", "/templates/"+fmt.Sprint(made["templateID"])+"/files/not-a-hash",
		nil); status != http.StatusBadRequest {
		t.Errorf("a name that is no hash was answered with %d", status)
	}
	// A name lies: the same hash first names one content, then another.
	copyIt := []carrel.BuildInstruction{{Type: "COPY", Args: []string{"f", "/home/user/f"},
		FilesHash: sum("lie")}}
	for _, content := range []string{"first", "second"} {
		b.upload(sum("lie"), archive(t, file{name: "f", content: content}))
		b.ready(carrel.BuildSpec{Name: "lie", Instructions: copyIt})
		if got := b.run("lie", "cat ~/f"); got != content {
			t.Errorf("the template has %q, not %q", got, content)
		}
	}
	// Links in an archive lead nowhere outside of the sandbox.
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("of the host"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.upload(sum("links"), archive(t, file{name: "d", link: filepath.Dir(secret)},
		file{name: "d2", link: "/etc"}))
	build, _ := b.build(carrel.BuildSpec{Name: "links",
		Instructions: []carrel.BuildInstruction{{Type: "COPY", Args: []string{"d/secret", "/s"},
			FilesHash: sum("links")}}})
	if build.State != carrel.BuildError {
		t.Errorf("a file behind a link was copied: %+v", build)
	}
}

// TestNothingOfABuildStays looks for a build's secrets and identity in everything that the daemon
// keeps.
func TestNothingOfABuildStays(t *testing.T) {
	t.Parallel()
	oneTier(t, carrel.GVisor, func(t *testing.T, b *bench) {
		// This daemon keeps its snapshots in a store, compressed into packs.
		store := filepath.Join(t.TempDir(), "store")
		b = newBenchOn(t, daemontest.Start(t, "--default-tier", string(b.tier), "--snapshot-store", store,
			"--snapshot-cache", "1"), b.tier)
		const password, token = "hunter2-of-the-registry", "value-of-the-builds-secret"
		spec := carrel.BuildSpec{Name: "clean", FromTemplate: small,
			Instructions: steps("RUN cat /etc/hostname; env | grep -i token; cat /run/secrets/* ; true"),
			Registries: map[string]carrel.RegistryCredentials{"registry.example.com": {Username: "me",
				Password: password}}}
		build, logs := b.build(spec)
		if build.State != carrel.BuildReady {
			t.Fatalf("the build is %s: %+v", build.State, build.Reason)
		}
		host := ""
		for _, l := range logs {
			if id, err := carrel.ParseID(l.Message); err == nil {
				host = string(id)
			}
		}
		if host == "" {
			t.Fatalf("the step did not print its host name:\n%s", text(logs))
		}
		b.ready(carrel.BuildSpec{Name: "secretive", Secrets: map[string]string{"token": token},
			Context: bytes.NewReader(archive(t, file{name: "a"})),
			Dockerfile: "FROM template://small\nUSER root\nRUN --mount=type=secret,id=token,required --mount=type=secret,id=token,env=TOKEN " +
				"test \"$TOKEN\" = \"$(cat /run/secrets/token)\" && echo used > /used\nRUN echo after > /after\n"})
		if got := b.run("secretive",
			"cat /used /after; ls -A /run/secrets 2>/dev/null; grep -rl "+token[:8]+" /etc /home /root /run /tmp /var 2>/dev/null"); got != "used\nafter" {
			t.Errorf("a sandbox of a build with a secret has %q", got)
		}
		if got := b.run("clean", "cat /etc/hostname"); got == host {
			t.Errorf("a sandbox has the name of the build's: %s", got)
		}
		testenv.Eventually(t, "the layers are packed", func() bool {
			packs, err := filepath.Glob(filepath.Join(store, "packs", "*"))
			return err == nil && len(packs) > 0
		})
		wantNowhere(t, b.d.Dir, []string{password, token})
		wantNowhere(t, filepath.Join(b.d.Dir, "templates"), []string{host})
		for _, secret := range []string{password, token} {
			if strings.Contains(b.d.Log(), secret) {
				t.Errorf("the daemon's log holds %q", secret)
			}
		}
		if parts := wantNowhere(t, store, []string{password, token}); parts == 0 {
			t.Error("no layer was compressed")
		}
	})
}

// TestSimIsRefused checks that a build in tier sim is refused with its reason.
func TestSimIsRefused(t *testing.T) {
	t.Parallel()
	testenv.Need(t, "gvisor", tierWorks(t, carrel.GVisor))
	b := newBench(t, carrel.GVisor)
	_, err := b.StartBuild(context.Background(),
		carrel.BuildSpec{Name: "sim", Tier: carrel.Sim, FromTemplate: small,
			Instructions: steps("RUN true")})
	if carrel.KindOf(err) != carrel.Unsupported || !strings.Contains(fmt.Sprint(err), "simulated") {
		t.Errorf("a build in tier sim: %v", err)
	}
}
