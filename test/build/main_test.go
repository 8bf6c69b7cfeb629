package build

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/cli"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/daemon"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// With these variables this test binary is carrel itself, so that its fail points can be enabled.
const (
	playVar   = "CARREL_TEST_PLAY"   // set: it is the carrel command
	pointsVar = "CARREL_TEST_POINTS" // file with fail points; each SIGUSR1 reads and removes it
)

func TestMain(m *testing.M) {
	if reexec.Run(daemon.Reexec()) {
		return
	}
	if os.Getenv(playVar) != "" {
		told := make(chan os.Signal, 1)
		signal.Notify(told, syscall.SIGUSR1)
		go func() {
			for range told {
				spec, err := os.ReadFile(os.Getenv(pointsVar))
				if err == nil {
					failpoint.Reset()
					err = failpoint.Parse(string(spec))
				}
				if err != nil {
					fmt.Fprintln(os.Stderr, "fail points:", err)
				}
				_ = os.Remove(os.Getenv(pointsVar))
			}
		}()
		os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// tiers are the tiers in which a build can run.
var tiers = []carrel.Tier{carrel.GVisor, carrel.NS}

// perTier runs a test in each tier, each with a daemon of its own.
func perTier(t *testing.T, test func(t *testing.T, b *bench)) { perTierOf(t, tiers, test) }

// oneTier is perTier for a test that takes long in each tier. In the short form it runs in one.
func oneTier(t *testing.T, short carrel.Tier, test func(t *testing.T, b *bench)) {
	if testing.Short() {
		perTierOf(t, []carrel.Tier{short}, test)
		return
	}
	perTier(t, test)
}

func perTierOf(t *testing.T, tiers []carrel.Tier, test func(t *testing.T, b *bench)) {
	for _, tier := range tiers {
		t.Run(string(tier), func(t *testing.T) {
			testenv.Need(t, string(tier), tierWorks(t, tier))
			test(t, newBench(t, tier))
		})
	}
}

// bench is a daemon to build with.
type bench struct {
	carrel.Service
	t    *testing.T
	d    *daemontest.Daemon
	tier carrel.Tier
}

func newBench(t *testing.T, tier carrel.Tier) *bench {
	t.Helper()
	return newBenchOn(t, daemontest.Start(t, "--default-tier", string(tier)), tier)
}

func newBenchOn(t *testing.T, d *daemontest.Daemon, tier carrel.Tier) *bench {
	t.Helper()
	svc, err := client.New(d.URL, d.Key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	b := &bench{Service: svc, t: t, d: d, tier: tier}
	b.importSmall()
	return b
}

// steps makes instructions of lines such as "RUN echo hi".
func steps(lines ...string) (out []carrel.BuildInstruction) {
	for _, l := range lines {
		kind, rest, _ := strings.Cut(l, " ")
		in := carrel.BuildInstruction{Type: kind, Args: []string{rest}}
		if kind == "ENV" {
			name, value, _ := strings.Cut(rest, "=")
			in.Args = []string{name, value}
		}
		out = append(out, in)
	}
	return out
}

// start begins a build.
func (b *bench) start(spec carrel.BuildSpec) carrel.Build {
	b.t.Helper()
	if spec.FromImage == "" && spec.FromTemplate == "" && spec.Dockerfile == "" {
		spec.FromTemplate = small
	}
	build, err := b.StartBuild(b.t.Context(), spec)
	if err != nil {
		b.t.Fatalf("start build: %v\n%s", err, carrel.HintOf(err))
	}
	return build
}

// build makes a build and waits for its end.
func (b *bench) build(spec carrel.BuildSpec) (carrel.Build, []carrel.BuildLog) {
	b.t.Helper()
	return b.wait(b.start(spec).ID)
}

// wait waits for a build's end, and returns its log.
func (b *bench) wait(id string) (carrel.Build, []carrel.BuildLog) {
	b.t.Helper()
	var logs []carrel.BuildLog
	for l, err := range b.BuildLogs(b.t.Context(), id, carrel.BuildLogOptions{Follow: true}) {
		if err != nil {
			b.t.Fatalf("follow the log: %v", err)
		}
		logs = append(logs, l)
	}
	build, err := b.GetBuild(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	if !build.State.Final() {
		b.t.Fatalf("the log ended, and the build is %s", build.State)
	}
	return build, logs
}

// ready is build for a build that must succeed.
func (b *bench) ready(spec carrel.BuildSpec) carrel.Build {
	b.t.Helper()
	build, logs := b.build(spec)
	if build.State != carrel.BuildReady {
		b.t.Fatalf("the build is %s: %+v\n%s", build.State, build.Reason, text(logs))
	}
	return build
}

// text joins the lines of a log.
func text(logs []carrel.BuildLog) string {
	var out strings.Builder
	for _, l := range logs {
		fmt.Fprintf(&out, "%s %s/%s[%s] %s\n", l.Time.Format(time.TimeOnly), l.Level, l.Source, l.Step,
			l.Message)
	}
	return out.String()
}

// run runs a command in a new sandbox of a template and returns its output.
func (b *bench) run(template, command string) string {
	b.t.Helper()
	sb, err := b.Create(b.t.Context(), carrel.CreateOptions{Template: template, Tier: b.tier,
		Limits: carrel.Limits{MemoryMB: 256}})
	if err != nil {
		b.t.Fatalf("create from %s: %v\n%s", template, err, carrel.HintOf(err))
	}
	defer func() {
		if err := b.Kill(context.WithoutCancel(b.t.Context()), sb.ID); err != nil {
			b.t.Error(err)
		}
	}()
	c, err := b.Computer(b.t.Context(), sb.ID)
	if err != nil {
		b.t.Fatal(err)
	}
	res, err := c.Run(b.t.Context(), carrel.Command{Args: []string{"/bin/sh", "-c", command}})
	if err != nil {
		b.t.Fatalf("run %q: %v", command, err)
	}
	return strings.TrimSpace(string(res.Stdout) + string(res.Stderr))
}

// file is a file of an archive.
type file struct {
	name, content, link string
	mode                int64
}

// archive makes a tar stream.
func archive(t *testing.T, files ...file) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), Typeflag: tar.TypeReg,
			Linkname: f.link, Uid: 501, Gid: 20}
		if f.mode == 0 {
			h.Mode = 0o644
		}
		switch {
		case f.link != "":
			h.Typeflag = tar.TypeSymlink
		case strings.HasSuffix(f.name, "/"):
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// sum is the name of an upload.
func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

// call sends a request of E2B's API and returns the status and the answer.
func (b *bench) call(method, path string, body any) (int, map[string]any) {
	b.t.Helper()
	var r io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			b.t.Fatal(err)
		}
		r = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.d.URL+path, r)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("X-API-KEY", b.d.Key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	out := map[string]any{}
	_ = json.NewDecoder(resp.Body).Decode(&out) // some answers have no body, or a list
	return resp.StatusCode, out
}

// put uploads an archive to a URL, and returns the status and the answer.
func (b *bench) put(url string, body io.Reader) (int, string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPut, url, body)
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// upload uploads an archive under a name.
func (b *bench) upload(name string, content []byte) {
	b.t.Helper()
	_, made := b.call("POST", "/v3/templates", map[string]any{"name": "uploads"})
	id, ok := made["templateID"].(string)
	if !ok {
		b.t.Fatalf("create template: %v", made)
	}
	status, out := b.call("GET", "/templates/"+id+"/files/"+name, nil)
	url, ok := out["url"].(string)
	if status != http.StatusCreated || !ok {
		b.t.Fatalf("ask for the upload's URL: %d %v", status, out)
	}
	if status, text := b.put(url, bytes.NewReader(content)); status != http.StatusOK {
		b.t.Fatalf("upload: %d %s", status, text)
	}
}

// tierWorks returns why a tier does not work on this machine; nil if it does.
func tierWorks(t *testing.T, tier carrel.Tier) error {
	t.Helper()
	cfg := config.Default()
	cfg.DataDir, cfg.CacheDir = t.TempDir(), t.TempDir()
	checks, err := daemon.Doctor(t.Context(), cfg)
	if err != nil {
		return err
	}
	for _, c := range checks {
		switch {
		case c.Tier == tier && c.OK:
			return nil
		case c.Tier == tier:
			return errors.New(c.Problem)
		}
	}
	return errors.New("this build has no such driver")
}

// small is the name of the template with a small root filesystem.
const small = "small"

// importSmall makes that template.
func (b *bench) importSmall() {
	b.t.Helper()
	raw, err := daemontest.SmallRoot()
	testenv.Need(b.t, "ldd", err)
	if _, err := b.ImportTemplate(b.t.Context(), small, bytes.NewReader(raw), nil); err != nil {
		b.t.Fatal(err)
	}
}
