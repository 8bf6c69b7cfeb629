// Package sudo tries the guest's own sudo in a real sandbox of a daemon that runs
// as root. Package rootless does the same without root.
package sudo

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

func TestSudo(t *testing.T) {
	if os.Geteuid() != 0 {
		testenv.Need(t, "gvisor", errors.New("root, to run a daemon as root"))
	}
	d := daemontest.Start(t)
	svc, err := client.New(d.URL, d.Key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	sb, err := svc.Create(t.Context(), carrel.CreateOptions{Timeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	c, err := svc.Computer(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	daemontest.CheckSudo(t, c)
}
