package carreltest_test

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/carreltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServer(t *testing.T) {
	srv := carreltest.New(t, carreltest.WithMaxSandboxes(2))
	c := srv.Client()
	box, err := c.Create(t.Context(), carrel.CreateOptions{Env: map[string]string{"GREETING": "hi"}})
	if err != nil {
		t.Fatal(err)
	}
	pc, err := c.Computer(t.Context(), box.ID)
	if err != nil {
		t.Fatal(err)
	}
	res, err := pc.Run(t.Context(), carrel.Command{Shell: `echo "$GREETING from $(hostname)"; exit 3`})
	if err != nil || res.ExitCode != 3 || string(res.Stdout) != "hi from "+string(box.ID)+"\n" {
		t.Errorf("%+v, %v", res, err)
	}
	if _, err := pc.Files("").Write(t.Context(), "x/y", strings.NewReader("data")); err != nil {
		t.Error(err)
	}
	if res, err = pc.Run(t.Context(), carrel.Command{Shell: "cat ~/x/y; stat -c %U x/y"}); err != nil || string(res.Stdout) != "datauser\n" {
		t.Errorf("%s, %v", res.Stdout, err)
	}
	if _, err := c.Create(t.Context(), carrel.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := c.Create(t.Context(), carrel.CreateOptions{}); carrel.KindOf(err) != carrel.Exhausted {
		t.Errorf("a third of two sandboxes gave %v", err)
	}
	page, err := c.List(t.Context(), carrel.ListOptions{})
	if err != nil || len(page.Sandboxes) != 2 {
		t.Errorf("%d sandboxes, %v", len(page.Sandboxes), err)
	}
	if err := c.Kill(t.Context(), box.ID); err != nil {
		t.Error(err)
	}
	if err := c.Kill(t.Context(), box.ID); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("killing it twice gave %v", err)
	}
}

// TestBaseIsInstant creates from the template that clients use by default. Nothing from this
// machine may be packed for it.
func TestBaseIsInstant(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	c := carreltest.New(t).Client()
	box, err := c.Create(t.Context(), carrel.CreateOptions{Template: "base"})
	if err != nil {
		t.Fatal(err)
	}
	if box.Alias != "base" || box.Tier != carrel.Sim {
		t.Errorf("%+v", box)
	}
	if made, err := os.ReadDir(cache); err != nil || len(made) > 0 {
		t.Errorf("the cache holds %v (%v)", made, err)
	}
}

// TestKeyIsDemanded asks without the key.
func TestKeyIsDemanded(t *testing.T) {
	srv := carreltest.New(t)
	resp, err := http.Get(srv.URL + "/v2/sandboxes")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("status %d without a key", resp.StatusCode)
	}
}
