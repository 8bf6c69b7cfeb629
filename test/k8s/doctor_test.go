package k8s_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/k8s/cluster"
)

// finding and report are what "carrel doctor --json" prints.
type finding struct{ What, Why, Hint string }

type report struct {
	Driver   string
	Tier     carrel.Tier
	OK       bool
	Problem  string
	Hint     string
	Findings []finding
}

// poorPod has the settings that Kubernetes gives a pod which asks for none.
const poorPod = `
apiVersion: v1
kind: Pod
metadata: {name: poor}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: carrel
      image: ` + carrelImage + `
      command: [/usr/bin/sleep, "1000"]
      securityContext: {runAsUser: 10001, seccompProfile: {type: RuntimeDefault}}
      volumeMounts: [{name: tmp, mountPath: /tmp}]
  volumes: [{name: tmp, emptyDir: {}}]
`

// TestDoctor asks the doctor in a pod that has too little and in one of the chart.
func TestDoctor(t *testing.T) {
	testenv.Long(t, "starts two more pods")
	c := start(t)
	t.Run("too little", func(t *testing.T) {
		c.Apply(t, poorPod)
		t.Cleanup(func() { c.Delete(t, cluster.PodPath("poor")) })
		c.Ready(t, cluster.PodPath("poor"))
		rows := doctor(t, c, "poor")
		for _, tier := range []carrel.Tier{carrel.GVisor, carrel.NS} {
			row := rows[string(tier)]
			if row.OK || !hints(row, "securityContext.seccompProfile") {
				t.Errorf("%s: %+v", tier, row)
			}
		}
		if !hints(rows["ns"], "procMount") || hints(rows["gvisor"], "procMount") {
			t.Errorf("the hint about /proc is wrong: %+v, %+v", rows["ns"], rows["gvisor"])
		}
		if !rows["sim"].OK {
			t.Errorf("sim: %+v", rows["sim"])
		}
		for _, field := range []string{"hostUsers", "capabilities", "allowPrivilegeEscalation",
			"automountServiceAccountToken", "resources.limits.memory", "volumeMounts"} {
			if !hints(rows["pod"], field) {
				t.Errorf("nothing is said about %s: %+v", field, rows["pod"])
			}
		}
	})
	t.Run("enough", func(t *testing.T) {
		c.Apply(t, render(t, "well", testValues))
		t.Cleanup(func() { c.Delete(t, "/apis/apps/v1/namespaces/default/statefulsets/well-node") })
		c.Ready(t, cluster.PodPath("well-node-0"))
		rows := doctor(t, c, "well-node-0")
		for _, name := range []string{"gvisor", "ns", "sim"} {
			if !rows[name].OK {
				t.Errorf("%s: %+v", name, rows[name])
			}
		}
		if len(rows["pod"].Findings) != 0 {
			t.Errorf("the chart's pod could be safer: %+v", rows["pod"])
		}
	})
}

// doctor runs "carrel doctor --in-pod" in a pod, and returns its rows by name.
func doctor(t *testing.T, c *cluster.Cluster, pod string) map[string]report {
	t.Helper()
	out, err := c.Exec(t.Context(), pod, "/usr/bin/carrel", "doctor", "--in-pod", "--json")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var list []report
	if err := json.Unmarshal([]byte(out[strings.Index(out, "["):]), &list); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rows := map[string]report{}
	for _, row := range list {
		rows[row.Driver] = row
	}
	return rows
}

// hints says whether a row has a hint about a field.
func hints(row report, field string) bool {
	for _, f := range row.Findings {
		if strings.Contains(f.Hint, field) {
			return true
		}
	}
	return strings.Contains(row.Hint, field)
}
