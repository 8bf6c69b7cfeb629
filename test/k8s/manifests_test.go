package k8s_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

var update = flag.Bool("update", false, "write the manifests in deploy/manifests again")

// manifests are the files that the chart is rendered into, and the values that are not its own.
var manifests = map[string]string{
	"carrel.yaml": "secret: {existing: carrel-settings}\n",
	"pool.yaml":   "sandboxesPerPod: one\n",
}

// TestManifests compares the plain manifests with the chart.
func TestManifests(t *testing.T) {
	_, err := exec.LookPath(filepath.Join(os.Getenv("CARREL_K8S"), "bin", "render"))
	testenv.Need(t, "k8s", err)
	for name, values := range manifests {
		file := filepath.Join("../../deploy/manifests", name)
		want := "# Made of the chart in deploy/helm/carrel by: go test ./test/k8s -run TestManifests -update\n" +
			renderIn(t, "carrel", "carrel", values)
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not what the chart gives; with -update the test writes it again", file)
		}
	}
}

// TestChartValues renders the chart with each of its switches, and expects the objects that follow.
func TestChartValues(t *testing.T) {
	_, err := exec.LookPath(filepath.Join(os.Getenv("CARREL_K8S"), "bin", "render"))
	testenv.Need(t, "k8s", err)
	for name, c := range map[string]struct{ values, has, lacks string }{
		"scaling":             {"autoscaling: {enabled: true}", "kind: HorizontalPodAutoscaler", "replicas: 2\n  serviceName"},
		"alone":               {"front: {enabled: false}", "kind: StatefulSet", "kind: Deployment"},
		"alone, nobody joins": {"front: {enabled: false}", "preStop", "--join"},
		"one":                 {"sandboxesPerPod: one", "kind: SandboxWarmPool", "kind: StatefulSet"},
		"one, no front":       {"sandboxesPerPod: one", "/usr/bin/carrel, pod", "kind: Deployment"},
		"no policies":         {"networkPolicy: {enabled: false}", "kind: Service", "kind: NetworkPolicy"},
		"own secret":          {"secret: {existing: mine}", "secretName: mine", "kind: Secret\n"},
		"secret":              {`secret: {joinToken: "a: \"b", stateURL: x}`, `join-token: "a: \"b"`, "--join-token=a"},
		"store":               {"node: {snapshotStore: 's3://b/p'}", "--snapshot-store=s3://b/p", "hostPath"},
		"ssh":                 {"front: {sshPort: 2222}", "--ssh-listen=0.0.0.0:2222", "trail"},
		"ssh, its Service":    {"front: {sshPort: 2222}", "{name: ssh, port: 2222, targetPort: ssh}", "oidc"},
		"ssh, its policy":     {"front: {sshPort: 2222}\nnetworkPolicy: {sshIngress: [{ipBlock: {cidr: 192.0.2.0/24}}]}", `from: [{"ipBlock":{"cidr":"192.0.2.0/24"}}]`, "oidc"},
		"no ssh":              {"", "kind: Deployment", "ssh"},
		"trail":               {"front: {trail: {enabled: true, size: 7Gi}}", "--trail-dir=/var/lib/carrel-trail/trail", "kind: Deployment"},
		"trail, its volume":   {"front: {trail: {enabled: true, size: 7Gi}}", "resources: {requests: {storage: 7Gi}}", "kind: Deployment"},
		"people":              {"front: {publicURL: https://c.example.com, oidc: {issuer: https://id.example.com, clientID: c, roles: ['dev=web:run']}}", `"--oidc-role=dev=web:run"`, "client-secret"},
		"people, secret":      {"front: {oidc: {issuer: https://id.example.com, clientID: c, secret: mine}}", "secretName: mine, items: [{key: client-secret", "--public-url"},
		"webhooks":            {"front: {allowWebhooks: ['http://hooks.example.com:80']}", `"--allow-webhook=http://hooks.example.com:80"`, "oidc"},
		"no volume":           {"node: {volume: {size: ''}}", "{name: data, emptyDir: {}}", "volumeClaimTemplates"},
	} {
		t.Run(name, func(t *testing.T) {
			out := render(t, "x", c.values)
			if !strings.Contains(out, c.has) || strings.Contains(out, c.lacks) {
				t.Errorf("want %q and not %q in\n%s", c.has, c.lacks, out)
			}
			for _, never := range []string{"privileged: true", "hostNetwork", "hostPID", "kind: ClusterRole", "automountServiceAccountToken: true"} {
				if strings.Contains(out, never) {
					t.Errorf("%s is in\n%s", never, out)
				}
			}
		})
	}
}

// TestFrontEgress shows that fronts reach public addresses, and never private ones, and that a value shuts
// these off, too.
func TestFrontEgress(t *testing.T) {
	_, err := exec.LookPath(filepath.Join(os.Getenv("CARREL_K8S"), "bin", "render"))
	testenv.Need(t, "k8s", err)
	const world, private = "cidr: 0.0.0.0/0", `except: ["10.0.0.0/8"`
	for values, want := range map[string]int{"": 2, "networkPolicy: {frontPublic: false}": 1} { // the nodes' is one
		out := render(t, "x", values)
		if n := strings.Count(out, world); n != want || strings.Count(out, private) != want {
			t.Errorf("%q: %d policies open the world, want %d, each without private addresses:\n%s", values, n, want, out)
		}
	}
}
