// Package aptmirror brings Debian's packages to tests of the built-in templates. It has apt fetch
// the pinned packages, from wherever this machine's apt gets its packages, and serves them on
// loopback in the way of a mirror. So the daemon under test talks to loopback only.
package aptmirror

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/debian"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// Serve returns the address of a mirror with the packages of templates; "kernel" is that of virtual
// machines. If they can't be had here,
// it skips the test: CARREL_REQUIRE calls this need "debian".
func Serve(t testing.TB, templates ...string) string {
	t.Helper()
	files, err := fetch(t.TempDir(), templates)
	testenv.Need(t, "debian", err)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		http.ServeFile(w, r, name)
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/" + debian.Main
}

// fetch returns the files of the templates' packages, by their paths on a mirror.
func fetch(dir string, templates []string) (map[string]string, error) {
	set, err := debian.Pinned()
	if err != nil {
		return nil, err
	}
	host, err := debian.HostMirror("/")
	if err != nil {
		return nil, err
	}
	pins := map[string]debian.Pin{} // by SHA-256
	var want []string
	for _, p := range set.Pins {
		for _, c := range set.Templates {
			wanted := slices.Contains(templates, c.Name) && slices.Contains(c.Packages, p.Name) ||
				slices.Contains(templates, image.Kernel) && p.Name == set.Kernel
			if _, ok := pins[p.SHA256]; !ok && wanted {
				pins[p.SHA256] = p
				want = append(want, p.Name+"="+p.Version)
			}
		}
	}
	if err := apt(dir, set, host, want); err != nil {
		return nil, err
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, name := range debs {
		raw, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(raw)
		if p, ok := pins[hex.EncodeToString(sum[:])]; ok {
			out["/"+p.Archive+"/"+p.Path] = name
		}
	}
	if len(out) != len(want) {
		return nil, fmt.Errorf("apt has %d of the %d pinned packages: Debian may have newer ones",
			len(out), len(want))
	}
	return out, nil
}

// apt downloads packages into dir. It uses lists of its own, so that it changes nothing of this
// machine's.
func apt(dir string, set *debian.Set, host debian.Mirror, want []string) error {
	const keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
	if _, err := os.Stat(keys); err != nil {
		return errors.New("the package debian-archive-keyring")
	}
	state := filepath.Join(dir, "apt")
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(state, d), 0o755); err != nil {
			return err
		}
	}
	var list strings.Builder
	for _, s := range [][2]string{{host.Main, set.Suite}, {host.Main, set.Suite + "-updates"},
		{host.Security, set.Suite + "-security"}} {
		fmt.Fprintf(&list, "deb [signed-by=%s] %s %s main\n", keys, s[0], s[1])
	}
	for name, text := range map[string]string{"sources.list": list.String(), "status": ""} {
		if err := os.WriteFile(filepath.Join(state, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	opts := []string{"-q", "-o", "APT::Sandbox::User=root", "-o",
		"APT::Architecture=" + runtime.GOARCH, "-o", "APT::Architectures=" + runtime.GOARCH,
		"-o", "Dir::State=" + state, "-o", "Dir::State::status=" + state + "/status", "-o",
		"Dir::Cache=" + state + "/cache",
		"-o", "Dir::Etc::sourcelist=" + state + "/sources.list", "-o", "Dir::Etc::sourceparts=-", "-o",
		"Acquire::Languages=none",
		"-o", "APT::Update::Post-Invoke-Success::=", "-o",
		"Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false"}
	for _, args := range [][]string{{"update"}, append([]string{"download"}, want...)} {
		cmd := exec.Command("apt-get", append(opts, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			return fmt.Errorf("apt-get %s: %w: %s", args[0], err, lines[len(lines)-1])
		}
	}
	return nil
}
