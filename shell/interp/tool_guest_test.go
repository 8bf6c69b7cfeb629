package interp_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// TestGuestToken checks that programs in a machine can ask for tokens as in any sandbox.
func TestGuestToken(t *testing.T) {
	fs := vfs.New(vfs.Options{Quota: 64 << 20})
	if err := errors.Join(interp.Install(fs), fs.Root().MkdirAll("/work", 0o777)); err != nil {
		t.Fatal(err)
	}
	m := interp.New(interp.Config{FS: fs, Token: func(_ context.Context, name, audience string) (string, error) {
		if name == "none" {
			return "", errors.New("token: this sandbox has no such token")
		}
		return "of " + name + "|" + audience, nil
	}})
	t.Cleanup(m.Close)
	for script, want := range map[string]string{
		"carrel-guest token --name aws":                  "of aws|",
		"carrel-guest token --audience=https://a.b/?c=d": "of |https://a.b/?c=d",
		`T=$(carrel-guest token -name aws); echo "<$T>"`: "<of aws|>",
	} {
		if got := run(t, m, script, ""); got.out != want+"\n" || got.err != "" || got.exit.Code != 0 {
			t.Errorf("%s: %+v", script, got)
		}
	}
	for _, script := range []string{"carrel-guest", "carrel-guest checkpoint", "carrel-guest token", "carrel-guest token --name", "carrel-guest token --name a --audience b", "carrel-guest token --x y", "carrel-guest token --name none"} {
		if got := run(t, m, script, ""); got.out != "" || got.exit.Code != 1 || !strings.HasPrefix(got.err, "carrel-guest: ") {
			t.Errorf("%s: %+v", script, got)
		}
	}
	if got := run(t, newMachine(t, interp.Limits{}), "carrel-guest token --name a", ""); got.exit.Code != 1 || !strings.Contains(got.err, "no host") {
		t.Errorf("%+v", got)
	}
}
