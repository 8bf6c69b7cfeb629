package sdk

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// commandLine runs E2B's CLI in a home of its own.
type commandLine struct {
	t    *testing.T
	home string
	env  []string
}

func (c commandLine) command(ctx context.Context, args ...string) *exec.Cmd {
	node, err := exec.LookPath("node")
	testenv.Need(c.t, "node", err)
	cmd := exec.CommandContext(ctx, node, append([]string{cliCode}, args...)...)
	// Without a PATH there is no browser, so the CLI prints the address.
	cmd.Env = append([]string{"HOME=" + c.home, "PATH=" + c.home, "NO_COLOR=1"}, c.env...)
	return cmd
}

func (c commandLine) run(args ...string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	out, err := c.command(ctx, args...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("e2b %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestCommandLine logs in with E2B's CLI, with a key of the daemon instead of an account, and uses
// its commands.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	_, err := exec.LookPath("node")
	testenv.Need(t, "node", err)
	installCLI(t)
	d := daemontest.Start(t)
	svc, err := client.New(d.URL, d.Key)
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	sb, err := svc.Create(t.Context(), carrel.CreateOptions{Template: "sim",
		Metadata: map[string]string{"made": "here"}})
	if err != nil {
		t.Fatal(err)
	}
	id := string(sb.ID)
	cli := commandLine{t, t.TempDir(), []string{"E2B_API_URL=" + d.URL, "E2B_SANDBOX_URL=" + d.URL,
		"E2B_DOCS_BASE=" + d.URL + "/docs"}}
	login(cli, d)

	config, err := os.ReadFile(filepath.Join(cli.home, ".e2b", "config.json"))
	if err != nil || !strings.Contains(string(config), carrel.TeamID(carrel.DefaultProject)) {
		t.Fatalf("%v\n%s", err, config)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"auth", "info"}, "carrel"},
		{[]string{"sandbox", "list", "--format", "json"}, id},
		{[]string{"sandbox", "info", id, "--format", "json"}, `"here"`},
		{[]string{"sandbox", "exec", id, "echo of a command"}, "of a command"},
		{[]string{"sandbox", "metrics", id}, "CPU"},
		{[]string{"sandbox", "logs", id}, "created from template"},
		{[]string{"template", "list", "--format", "json"}, `"base"`},
		{[]string{"sandbox", "pause", id}, ""},
		{[]string{"sandbox", "resume", id}, ""},
		{[]string{"sandbox", "kill", id}, id},
		{[]string{"auth", "logout"}, "Logged out"},
	} {
		if out := cli.run(c.args...); !strings.Contains(out, c.want) {
			t.Errorf("e2b %s:\n%s", strings.Join(c.args, " "), out)
		}
	}
	if _, err := svc.Get(t.Context(), sb.ID); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("after e2b sandbox kill: %v", err)
	}
}

// login is "e2b auth login", with a person who types a key into the page.
func login(cli commandLine, d *daemontest.Daemon) {
	t := cli.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := cli.command(ctx, "auth", "login")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	address := regexp.MustCompile(`http://\S+/docs/api/cli\S+`)
	page := ""
	for page == "" && lines.Scan() {
		page = address.FindString(lines.Text())
	}
	u, err := url.Parse(page)
	if err != nil || page == "" {
		t.Fatal("it printed no address: ", page, err)
	}
	form := func(key string) (status int, body string) {
		resp, err := http.PostForm(d.URL+u.Path,
			url.Values{"next": {u.Query().Get("next")}, "key": {key}})
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(raw)
	}
	if status, body := form("e2b_wrong"); status != http.StatusUnauthorized ||
		!strings.Contains(body, "not an API key") {
		t.Errorf("a wrong key: %d %s", status, body)
	}
	if status, body := form(d.Key); status != http.StatusOK ||
		!strings.Contains(body, "You are logged in") {
		t.Errorf("the key: %d %s", status, body)
	}
	var rest strings.Builder
	for lines.Scan() {
		rest.WriteString(lines.Text() + "\n")
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(rest.String(), "Logged in as") {
		t.Fatalf("%v\n%s", err, rest.String())
	}
}
