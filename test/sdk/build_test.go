package sdk

import (
	"os/exec"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// TestBuilds builds templates with E2B's own SDKs, from a small image in a registry of this process
// and from templates.
func TestBuilds(t *testing.T) {
	host, image := daemontest.ServeSmall(t)
	d := daemontest.Start(t, "--allow-registry", "http://"+host)
	env := []string{"IMAGE=" + image}
	runSuites(t, testenv.Few(2, []suite{
		{"npm-newest", "node", nodeTests("template", "methods"), append([]string{"SDK=e2b"}, env...)},
		{"python", "python", pythonTests("test_template*.py"), env},
		{"npm-2.45", "node", nodeTests("template"), append([]string{"SDK=e2b-2.45"}, env...)},
	}...), func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "E2B_API_URL="+d.URL, "E2B_SANDBOX_URL="+d.URL, "E2B_API_KEY="+d.Key)
	})
}
