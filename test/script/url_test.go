package script

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// TestURL shows that the printed URL leads to the port, if its name means the daemon's address, as
// in browsers.
func TestURL(t *testing.T) {
	d := daemontest.Start(t)
	id, err := d.CLI("create", "-t", "base").Output()
	if err != nil {
		t.Fatal(err)
	}
	box := strings.TrimSpace(string(id))
	if out, err := d.CLI("exec", "-d", box, "--", "python3", "-m", "http.server", "3000", "--directory", "/etc").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := d.CLI("url", box, "3000").Output()
	if err != nil {
		t.Fatal(err)
	}
	printed, err := url.Parse(strings.TrimSpace(string(out)))
	if err != nil || !strings.HasPrefix(printed.Host, "3000-"+box+".localhost:") {
		t.Fatalf("%q, %v", out, err)
	}
	req, err := http.NewRequest(http.MethodGet, d.URL+"/os-release", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = printed.Host
	testenv.Eventually(t, "the server inside answers", func() bool {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body) // an incomplete body fails the comparison
		return resp.StatusCode == http.StatusOK && strings.Contains(string(body), "PRETTY_NAME")
	})
}
