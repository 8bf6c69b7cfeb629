package fleet

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// noFiles is the name of an archive that nobody has.
var noFiles = strings.Repeat("a", 64)

// TestBuilds makes templates at one front. The other front tells of them, and all nodes have them when
// it says that they are ready. Other projects see nothing. At last the node dies that builds.
func TestBuilds(t *testing.T) {
	host, image := daemontest.ServeSmall(t)
	f := onWalls(t, 2, "--allow-registry", "http://"+host)
	ctx := t.Context()
	f.addFront()
	other := f.at(1)
	first := f.build(image, "made", "one")
	if got, err := other.GetBuild(ctx, first.ID); err != nil || got.State != carrel.BuildReady || got.Name != "made" {
		t.Fatalf("at the other front: %+v %v", got, err)
	}
	var lines []string
	for l, err := range other.BuildLogs(ctx, first.ID, carrel.BuildLogOptions{Follow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l.Message)
	}
	if !strings.Contains(strings.Join(lines, "\n"), "said one") {
		t.Errorf("the log at the other front: %q", lines)
	}
	f.everywhere("made", "one")
	second := f.build(image, "made", "two") // no node has the old one still
	f.everywhere("made", "two")
	if second.TemplateID != first.TemplateID || second.ID == first.ID {
		t.Errorf("%+v after %+v", second, first)
	}
	if _, err := other.TagTemplate(ctx, "made", []string{"stable"}); err != nil {
		t.Fatal(err)
	}
	f.everywhere("made:stable", "two")
	if tags, err := f.TemplateTags(ctx, "made"); err != nil || len(tags) != 2 {
		t.Errorf("tags: %+v %v", tags, err)
	}
	all, err := other.ListBuilds(ctx, carrel.BuildListOptions{Template: "made"})
	if err != nil || len(all) != 2 || all[0].ID != second.ID {
		t.Errorf("builds: %+v %v", all, err)
	}
	if !testing.Short() {
		f.sdkBuilds(image)
	}
	f.foreignBuilds(first)
	f.dyingBuild(image)
}

// build builds a template at the first front, and waits for it as the command line does.
func (f *fleetOf) build(image, name, word string) carrel.Build {
	f.t.Helper()
	ctx := f.t.Context()
	b, err := f.StartBuild(ctx, carrel.BuildSpec{Name: name, Dockerfile: "FROM " + image + "\nRUN echo said " + word + "; echo " + word + " > ~/word\n"})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, err := range f.BuildLogs(ctx, b.ID, carrel.BuildLogOptions{Follow: true}) {
		if err != nil {
			f.t.Fatal(err)
		}
	}
	if b, err = f.GetBuild(ctx, b.ID); err != nil || b.State != carrel.BuildReady {
		f.t.Fatalf("%+v %+v %v", b, b.Reason, err)
	}
	return b
}

// everywhere makes a sandbox of a template on each node, and one where the front wants it.
func (f *fleetOf) everywhere(template, word string) {
	f.t.Helper()
	doors := []*client.Client{f.Client}
	for _, d := range f.nodes {
		doors = append(doors, f.direct(d))
	}
	for i, c := range doors {
		sb, err := c.Create(f.t.Context(), carrel.CreateOptions{Template: template, Timeout: time.Hour})
		if err != nil {
			f.t.Fatalf("door %d: %v", i, err)
		}
		if got := f.sh(c, sb.ID, "cat ~/word"); got != word {
			f.t.Errorf("door %d: %s has %q, want %q", i, template, got, word)
		}
		if err := c.Kill(f.t.Context(), sb.ID); err != nil {
			f.t.Error(err)
		}
	}
}

// sdkBuilds runs the tests of builds of E2B's own client.
func (f *fleetOf) sdkBuilds(image string) {
	f.t.Helper()
	sdk := jsClient(f.t)
	key, _ := f.fronts[1].Key()
	cmd := exec.CommandContext(f.t.Context(), "node", "--test", "--test-timeout=300000", filepath.Join(sdk, "template.test.mjs"))
	cmd.Dir = sdk
	cmd.Env = append(os.Environ(), "SDK=e2b", "IMAGE="+image, "E2B_API_URL="+f.fronts[1].URL(), "E2B_SANDBOX_URL="+f.fronts[1].URL(), "E2B_API_KEY="+key)
	out, err := cmd.CombinedOutput()
	if err != nil {
		f.t.Errorf("%v\n%s", err, failures(string(out)))
	}
	f.t.Log(summary(string(out)))
}

// ask sends a request to a front and decodes the answer.
func (f *fleetOf) ask(front int, project, method, url string, body io.Reader, out any) int {
	f.t.Helper()
	if !strings.Contains(url, "://") {
		url = f.fronts[front].URL() + url
	}
	r, err := http.NewRequestWithContext(f.t.Context(), method, url, body)
	if err != nil {
		f.t.Fatal(err)
	}
	if project != "" {
		key, _ := f.fronts[front].Key()
		r.Header.Set("X-Api-Key", key)
		r.Header.Set("Carrel-Tenant", project)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	if out != nil {
		if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
			f.t.Fatal(err)
		}
	}
	return resp.StatusCode
}

// foreignBuilds attacks builds of the project default from another one.
func (f *fleetOf) foreignBuilds(theirs carrel.Build) {
	t, ctx := f.t, f.t.Context()
	t.Helper()
	if _, err := f.People().CreateProject(ctx, "thief"); err != nil {
		t.Fatal(err)
	}
	thief := f.in(0, "thief")
	if _, err := thief.GetBuild(ctx, theirs.ID); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("another project's build: %v", err)
	}
	if _, err := thief.CancelBuild(ctx, theirs.ID); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("cancel another project's build: %v", err)
	}
	if _, err := thief.StartBuild(ctx, carrel.BuildSpec{ID: theirs.ID, Dockerfile: "FROM scratch"}); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("start another project's build: %v", err)
	}
	if list, err := thief.ListBuilds(ctx, carrel.BuildListOptions{}); err != nil || len(list) != 0 {
		t.Errorf("the thief's list: %+v %v", list, err)
	}
	at := "/templates/" + theirs.TemplateID
	for _, path := range []string{at + "/builds/" + theirs.ID + "/status", at + "/builds/" + theirs.ID + "/logs", at + "/files/" + noFiles} {
		if code := f.ask(0, "thief", http.MethodGet, path, nil, nil); code != http.StatusNotFound {
			t.Errorf("%s: %d, want 404", path, code)
		}
	}

	// Uploads: the URL of one front is good at the other one, and for what it names alone.
	var made struct{ TemplateID, BuildID string }
	if code := f.ask(0, "thief", http.MethodPost, "/v3/templates", strings.NewReader(`{"name":"own"}`), &made); code != http.StatusAccepted {
		t.Fatal(code)
	}
	own := "/templates/" + made.TemplateID + "/files/"
	for _, bad := range []string{"..%2f..%2f" + noFiles, noFiles + "%2f..", "x"} {
		if code := f.ask(1, "thief", http.MethodGet, own+bad, nil, nil); code != http.StatusBadRequest {
			t.Errorf("files %s: %d, want 400", bad, code)
		}
	}
	var up struct {
		Present bool
		URL     string
	}
	if code := f.ask(1, "thief", http.MethodGet, own+noFiles, nil, &up); code != http.StatusCreated || up.Present || !strings.HasPrefix(up.URL, f.fronts[1].URL()) {
		t.Fatalf("%d %+v", code, up)
	}
	path := strings.TrimPrefix(up.URL, f.fronts[1].URL())
	if code := f.ask(0, "", http.MethodPut, "/carrel/v1/uploads/x"+path[len("/carrel/v1/uploads/")+1:], strings.NewReader("x"), nil); code != http.StatusForbidden {
		t.Errorf("a forged URL: %d, want 403", code)
	}
	if code := f.ask(0, "", http.MethodPut, path, strings.NewReader(strings.Repeat("\x00", 1024)), nil); code != http.StatusOK {
		t.Errorf("the other front: %d, want 200", code)
	}
	if code := f.ask(0, "thief", http.MethodGet, own+noFiles, nil, &up); code != http.StatusCreated || !up.Present {
		t.Errorf("after the upload: %d %+v", code, up)
	}
	if code := f.ask(0, "default", http.MethodGet, at+"/files/"+noFiles, nil, &up); code != http.StatusCreated || up.Present {
		t.Errorf("another project has the upload: %d %+v", code, up)
	}
}

// dyingBuild kills the node that builds. The build has failed then, with a hint, also when the node
// is back.
func (f *fleetOf) dyingBuild(image string) {
	t, ctx := f.t, f.t.Context()
	t.Helper()
	b, err := f.StartBuild(ctx, carrel.BuildSpec{Name: "long", Dockerfile: "FROM " + image + "\nRUN sleep 1000\n"})
	if err != nil {
		t.Fatal(err)
	}
	var last string
	seen := make(chan error, 1)
	go func() {
		for l, err := range f.BuildLogs(ctx, b.ID, carrel.BuildLogOptions{Follow: true}) {
			if err != nil {
				seen <- err
				return
			}
			last = l.Message
		}
		seen <- nil
	}()
	at := -1
	for i, d := range f.nodes {
		if _, err := f.direct(d).GetBuild(ctx, b.ID); err == nil {
			at = i
		}
	}
	if at < 0 {
		t.Fatal("no node has the build")
	}
	f.nodes[at].Kill9()
	testenv.EventuallyNil(t, "the build is lost", func() error {
		got, err := f.GetBuild(ctx, b.ID)
		if err == nil && (got.State != carrel.BuildError || got.Reason == nil || got.Reason.Hint == "") {
			err = fmt.Errorf("%+v", got)
		}
		return err
	})
	if err := <-seen; err != nil || !strings.Contains(last, "is lost") {
		t.Errorf("the followed log ends with %q, %v", last, err)
	}
	var status struct {
		Status string
		Reason struct{ Message string }
	}
	if code := f.ask(0, "default", http.MethodGet, "/templates/"+b.TemplateID+"/builds/"+b.ID+"/status", nil, &status); code != http.StatusOK || status.Status != "error" || !strings.Contains(status.Reason.Message, "start the build again") {
		t.Errorf("%d %+v", code, status)
	}
	f.nodes[at].Restart()
	testenv.EventuallyNil(t, "the node that came back does not go on with it", func() error {
		got, err := f.direct(f.nodes[at]).GetBuild(ctx, b.ID)
		if err == nil && got.State != carrel.BuildCancelled {
			err = fmt.Errorf("%+v", got)
		}
		return err
	})
}

// direct is a client of a node's own door.
func (f *fleetOf) direct(d *daemontest.Daemon) *client.Client {
	f.t.Helper()
	svc, err := client.New(d.URL, d.Key)
	if err != nil {
		f.t.Fatal(err)
	}
	return svc.(*client.Client)
}
