package fleet

import (
	"fmt"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestDatabase stops the fleet's database for less than a lease. Commands go on meanwhile, a creation
// is refused and leaves nothing behind, and afterwards all is as before.
func TestDatabase(t *testing.T) {
	f := startFor(t, time.Minute, 2)
	ctx := t.Context()
	sb := f.create(carrel.CreateOptions{})
	f.sh(f.Client, sb.ID, "echo kept > /tmp/kept")
	f.server.Stop()
	stopped := time.Now()
	if got := f.sh(f.Client, sb.ID, "cat /tmp/kept"); got != "kept" {
		t.Errorf("without the database, it has %q", got)
	}
	made, err := f.Create(ctx, carrel.CreateOptions{Tier: carrel.Sim, Timeout: time.Hour})
	if carrel.KindOf(err) != carrel.Unavailable || carrel.HintOf(err) == "" {
		t.Errorf("a creation without the database: %v %v, want Unavailable and a hint", made.ID, err)
	}
	t.Logf("the database was away for %v", time.Since(stopped).Round(time.Millisecond))
	f.server.Run(t)
	testenv.EventuallyNil(t, "sandboxes are made again", func() error {
		_, err := f.Create(ctx, carrel.CreateOptions{Tier: carrel.Sim, Timeout: time.Hour, Metadata: map[string]string{"after": "1"}})
		return err
	})
	if got := f.sh(f.Client, sb.ID, "cat /tmp/kept"); got != "kept" {
		t.Errorf("afterwards, it has %q", got)
	}
	testenv.EventuallyNil(t, "nothing is left of the refused creation", func() error {
		page, err := f.List(ctx, carrel.ListOptions{})
		if err == nil && (len(page.Sandboxes) != 2 || len(page.Missing) > 0) {
			err = fmt.Errorf("%d sandboxes, missing %v", len(page.Sandboxes), page.Missing)
		}
		return err
	})
}
