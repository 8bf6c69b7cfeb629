package sdk

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/aptmirror"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// pair is a version of E2B's package for code interpreters and one of the SDK below it.
type pair struct {
	language, version, sdk string
	broken                 bool // by itself
}

// lost is what such a pair says: the package uses an internal name of an SDK before.
var lost = regexp.MustCompile(`AttributeError: 'Sandbox' object has no attribute '_transport'|` +
	`TypeError: get_transport\(\) got an unexpected keyword argument`)

func (p pair) String() string { return p.language + "-" + p.version + "-" + p.sdk }

// pairs reads pairs.txt.
func pairs(t *testing.T) (all []pair) {
	t.Helper()
	f, err := os.Open("pairs/pairs.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) < 3 || words[0] == "#" {
			continue
		}
		for _, sdk := range words[2:] {
			sdk, broken := strings.CutPrefix(sdk, "!")
			all = append(all, pair{words[0], words[1], sdk, broken})
		}
	}
	return all
}

// install installs a pair in a directory, if it is not there, and returns the command of its round.
func (p pair) install(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	dir = filepath.Join(dir, p.String())
	args := []string{"npm", "install", "--prefix", dir, "--silent", "--no-audit", "--no-fund",
		"--ignore-scripts", "@e2b/code-interpreter@" + p.version, "e2b@" + p.sdk}
	cmd := exec.Command("node", "pairs/pair.mjs")
	cmd.Env = []string{"PAIR=" + dir}
	if p.language == "python" {
		args = []string{"python3", "-m", "pip", "install", "--quiet", "--target", dir,
			"e2b-code-interpreter==" + p.version, "e2b==" + p.sdk}
		cmd = exec.Command("python3", "pairs/pair.py")
		cmd.Env = []string{"PYTHONPATH=" + dir}
	}
	if _, err := os.Stat(dir); err == nil {
		return cmd
	}
	if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
		_ = os.RemoveAll(dir)
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return cmd
}

// TestPairs runs versions of E2B's packages for code interpreters, each with the oldest SDK that it takes
// and with the newest. Packages before 2.7 know sandboxes by their host names only, so all use those.
func TestPairs(t *testing.T) {
	testenv.Long(t, "installs twenty pairs of packages")
	dir := os.Getenv("CARREL_KERNELS")
	if dir == "" {
		testenv.Need(t, "ipykernel", errors.New("CARREL_KERNELS names no directory: see make kernels"))
	}
	testenv.Need(t, "namespaces", canUnshare())
	for _, program := range []string{"node", "python3"} {
		_, err := exec.LookPath(program)
		testenv.Need(t, strings.TrimSuffix(program, "3"), err)
	}
	tmp := t.TempDir()
	authority := makeCertificates(t, tmp, "carrel.example.com")
	dns := startResolver(t, tmp)
	d := daemontest.Start(t, "--domain", "carrel.example.com:"+daemontest.Port, "--tls-cert",
		filepath.Join(tmp, "cert.pem"), "--tls-key", filepath.Join(tmp, "key.pem"),
		"--debian-mirror", aptmirror.Serve(t, "code-interpreter-v1"), "--cache-dir", filepath.Join(dir, "cache"))
	if out, err := d.CLI("template", "get", "code-interpreter-v1").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, p := range pairs(t) {
		t.Run(p.String(), func(t *testing.T) {
			cmd := p.install(t, filepath.Join(dir, "pairs"))
			cmd.Env = append(append(cleanEnv(), cmd.Env...), "E2B_DOMAIN="+d.Domain, "E2B_API_KEY="+d.Key,
				"NODE_EXTRA_CA_CERTS="+authority, "SSL_CERT_FILE="+authority)
			dns.wrap(cmd)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			out, err := runFor(ctx, cmd)
			if p.broken {
				if err == nil || !lost.MatchString(out) {
					t.Errorf("a pair that was broken by itself: %v\n%s", err, lastLines(out, 30))
				}
				return
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, lastLines(out, 30))
			}
			t.Log(lastLines(out, 1))
		})
	}
}
