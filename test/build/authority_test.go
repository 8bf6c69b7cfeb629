package build

import (
	"bytes"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestAuthorityIsTakenOut builds with a policy that opens TLS, so that the guest trusts the wire's
// authority while a step runs. The image must not trust it.
func TestAuthorityIsTakenOut(t *testing.T) {
	testenv.Need(t, "gvisor", tierWorks(t, carrel.GVisor))
	b := newBench(t, carrel.GVisor)
	network := carrel.Network{Internet: true, Rules: map[string][]carrel.NetworkRule{"example.com": {{Transform: &carrel.NetworkTransform{Headers: map[string]string{"X-Test": "1"}}}}}}
	build, logs := b.build(carrel.BuildSpec{Name: "trusting", FromTemplate: small, Network: &network,
		Instructions: steps("USER root", "RUN mkdir -p /etc/ssl/certs && echo first > /etc/ssl/certs/ca-certificates.crt", "RUN grep -c BEGIN /etc/ssl/certs/ca-certificates.crt || true",
			"RUN touch /last")})
	if build.State != carrel.BuildReady {
		t.Fatalf("the build is %s: %+v\n%s", build.State, build.Reason, text(logs))
	}
	if !strings.Contains(text(logs), "stdout[3] 1\n") {
		t.Errorf("the step did not trust the authority:\n%s", text(logs))
	}
	certificates, err := filepath.Glob(filepath.Join(b.d.Dir, "wire", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var line []byte // of the certificate's text
	for _, f := range certificates {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if block, _ := pem.Decode(raw); block != nil && block.Type == "CERTIFICATE" {
			line = bytes.Split(raw, []byte("\n"))[2]
		}
	}
	if len(line) < 40 {
		t.Fatalf("no certificate among %v", certificates)
	}
	images, err := filepath.Glob(filepath.Join(b.d.Dir, "templates", "*", "image.erofs"))
	if err != nil || len(images) == 0 {
		t.Fatal("no images", err)
	}
	for _, f := range images {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(raw, line) {
			t.Errorf("%s holds the authority's certificate", f)
		}
	}
	if got := b.run("trusting", "cat /etc/ssl/certs/ca-certificates.crt"); got != "first" {
		t.Errorf("the template's authorities are %q", got)
	}
}
