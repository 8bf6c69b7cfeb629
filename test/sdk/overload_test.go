package sdk

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/access"
	"github.com/carrel-dev/carrel/internal/api"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// refusing is a service that starts nothing at the moment.
type refusing struct {
	carrel.Service
	kind  carrel.Kind
	asked atomic.Int32
}

func (s *refusing) Create(context.Context, carrel.CreateOptions) (carrel.Sandbox, error) {
	s.asked.Add(1)
	return carrel.Sandbox{}, &carrel.Error{Op: "create sandbox", Kind: s.kind, Err: errors.New("1000 requests wait for their turn"),
		Hint: "try again in 1s", RetryAfter: time.Second}
}

// TestOverload shows that E2B's SDK understands a refusal, and tries again when it was told to.
func TestOverload(t *testing.T) {
	_, err := exec.LookPath("node")
	testenv.Need(t, "node", err)
	install(t, "js/node_modules/e2b", "npm", "ci", "--prefix", "js", "--silent")
	for kind, want := range map[carrel.Kind]struct {
		name  string
		least int32
	}{carrel.Exhausted: {"RateLimitError", 2}, carrel.Unavailable: {"ServiceBusyError", 1}} {
		t.Run(string(kind), func(t *testing.T) {
			s := &refusing{kind: kind}
			srv := httptest.NewServer(api.New(api.Options{Service: s, Callers: access.NewAuthenticator(access.Key{Secret: "e2b_0000000000000000000000000000000000000000", Role: carrel.RoleAdmin})}))
			defer srv.Close()
			cmd := exec.Command("node", "js/overload.mjs", want.name)
			cmd.Env = append(os.Environ(), "E2B_API_URL="+srv.URL, "E2B_API_KEY=e2b_0000000000000000000000000000000000000000")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if n := s.asked.Load(); n < want.least {
				t.Errorf("it asked %d times", n)
			}
		})
	}
}
