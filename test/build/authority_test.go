package build

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestAuthorityIsTakenOut builds with a policy that opens TLS, so that the guest trusts the wire's
// authority while a step runs. The image must not trust it.
func TestAuthorityIsTakenOut(t *testing.T) {
	t.Parallel()
	testenv.Need(t, "gvisor", tierWorks(t, carrel.GVisor))
	b := newBench(t, carrel.GVisor)
	network := carrel.Network{Internet: true,
		Rules: map[string][]carrel.NetworkRule{"example.com": {{Transform: &carrel.NetworkTransform{Headers: map[string]string{"X-Test": "1"}}}}}}
	system := certificate(t)
	b.upload(sum("bundle"), archive(t, file{name: "ca-certificates.crt", content: system}))
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	all := slices.Insert(steps("USER root", "RUN mkdir -p /etc/ssl/certs"), 2,
		carrel.BuildInstruction{Type: "COPY", Args: []string{"ca-certificates.crt", bundle},
			FilesHash: sum("bundle")})
	b.ready(carrel.BuildSpec{Name: "below", Instructions: all})
	build, logs := b.build(carrel.BuildSpec{Name: "trusting", FromTemplate: "below", Network: &network,
		Instructions: steps("USER root", "RUN touch /first",
			"RUN sleep 1; env | grep NODE_EXTRA; grep -c BEGIN "+bundle, "RUN touch /last")})
	if build.State != carrel.BuildReady {
		t.Fatalf("the build is %s: %+v\n%s", build.State, build.Reason, text(logs))
	}
	if got := text(logs); !strings.Contains(got, "stdout[3] NODE_EXTRA_CA_CERTS=/run/carrel/ca.pem") ||
		!strings.Contains(got, "stdout[3] 2\n") {
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
	if got := b.run("trusting", "cat "+bundle); got != strings.TrimSpace(system) {
		t.Errorf("the template's authorities are %q", got)
	}
}

// certificate makes an authority's certificate, in PEM.
func certificate(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	raw, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
}
