package sdk

import (
	"encoding/json"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// TestNeighbours lets two projects share one daemon, one with E2B's JavaScript SDK and one with its
// Python SDK. The first does all it can to be in the way: it asks for more than its quota all the
// time, and tries what it knows of the other. The other must not see, wait for, run out because of,
// or pay for it.
func TestNeighbours(t *testing.T) {
	_, err := exec.LookPath("node")
	testenv.Need(t, "node", err)
	_, err = exec.LookPath("python3")
	testenv.Need(t, "python", err)
	install(t, "js/node_modules/e2b", "npm", "ci", "--prefix", "js", "--silent")
	installPython(t)
	d := daemontest.Start(t)
	as := func(key string) *client.Client {
		svc, err := client.New(d.URL, key)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = svc.Close() })
		return svc.(*client.Client)
	}
	c := as(d.Key)
	keys := map[string]carrel.IssuedKey{}
	for _, p := range []string{"loud", "quiet"} {
		if _, err := c.People().CreateProject(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if keys[p], err = c.People().CreateKey(t.Context(), carrel.NewKey{Name: p, Project: p}); err != nil {
			t.Fatal(err)
		}
		q := carrel.Quota{Hard: map[carrel.LimitName]carrel.Milli{carrel.LimitSandboxes: 3000}}
		if _, err := c.Allowances().SetQuota(t.Context(), carrel.Holder{Project: p}, q); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	run := func(project string, cmd *exec.Cmd) {
		wg.Go(func() {
			cmd.Env = append(os.Environ(), "E2B_API_URL="+d.URL, "E2B_SANDBOX_URL="+d.URL, "E2B_API_KEY="+keys[project].Secret,
				"THEIR_PROJECT=quiet", "TEMPLATE=sim")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", project, err, out)
			} else {
				t.Logf("%s: %s", project, out)
			}
		})
	}
	dir := t.TempDir()
	for _, cmd := range []struct{ project, name, script string }{{"loud", "node", "js/neighbours.mjs"}, {"quiet", "python/.venv/bin/python", "python/neighbours.py"}} {
		run(cmd.project, exec.CommandContext(t.Context(), cmd.name, cmd.script, dir))
	}
	wg.Wait()

	// What each pays is what it used, and only the owner sees it.
	total := carrel.Milli(0)
	for p, key := range keys {
		own := as(key.Secret)
		usage, err := own.Usage(t.Context(), carrel.UsageOptions{By: []string{"project", "label:who"}})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range usage.Rows {
			if row.Group[0] != p || row.Group[1] != p {
				t.Errorf("%s pays for %v", p, row.Group)
			}
		}
		if usage.Total.AliveSeconds == 0 {
			t.Errorf("%s pays nothing", p)
		}
		total += usage.Total.AliveSeconds
		quotas, err := own.Allowances().Quotas(t.Context(), false)
		if raw, _ := json.Marshal(quotas); err != nil || len(quotas) != 1 || quotas[0].Project != p {
			t.Errorf("%s sees the quotas %s, %v", p, raw, err)
		}
	}
	all, err := c.Usage(t.Context(), carrel.UsageOptions{By: []string{"kind"}, From: time.Now().Add(-time.Hour)})
	if err != nil || len(all.Rows) != 1 || all.Total.AliveSeconds != total {
		t.Errorf("the two pay %v of %+v, %v", total, all, err)
	}
}
