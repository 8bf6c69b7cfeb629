package config

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/carrel-dev/carrel"
)

// load reads settings from a command line, an environment and a file's text.
func load(t *testing.T, text string, env map[string]string, args ...string) (Config, Origins, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "carrel.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := Default()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	cfg.Flags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	origins, err := cfg.Load(flags, file, true, func(k string) string { return env[k] })
	return cfg, origins, err
}

// TestOrder shows that a flag wins over a variable, a variable over the file, and the file over the
// built-in value.
func TestOrder(t *testing.T) {
	text := "# a comment\nlisten: 127.0.0.1:1\nmax-paused: 1\nmax-timeout: 9h\nwarm-floor:\n  - base=1\n  - py:1:256=2\nacme-domain: [a.example.com, b.example.com]\nsnapshot-quota: 3GiB\ntls-self-signed: true\n"
	env := map[string]string{"CARREL_LISTEN": "127.0.0.1:2", "CARREL_MAX_PAUSED": "2", "CARREL_DEFAULT_CPUS": "1.5", "CARREL_WARM_FLOOR": ""}
	cfg, origins, err := load(t, text, env, "--listen", "127.0.0.1:3")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Listen != "127.0.0.1:3" || cfg.MaxPaused != 2 || cfg.MaxTimeout != 9*time.Hour || cfg.Limits.CPUs != 1.5 || cfg.MaxSandboxes != Default().MaxSandboxes ||
		cfg.Warm.Floors.String() != "base=1,py:1:256=2" || len(cfg.Ingress.ACMEDomains) != 2 || cfg.SnapshotQuota != 3<<30 || !cfg.Ingress.SelfSigned {
		t.Errorf("%+v", cfg)
	}
	for key, want := range map[string]Origin{"listen": {Flag, "--listen"}, "max-paused": {Environment, "CARREL_MAX_PAUSED"}, "max-sandboxes": {Kind: BuiltIn}} {
		if origins[key] != want {
			t.Errorf("%s: %+v", key, origins[key])
		}
	}
	if o := origins["max-timeout"]; o.Kind != File || !strings.HasSuffix(o.Where, "carrel.yaml:4") {
		t.Errorf("max-timeout: %+v", o)
	}
}

// TestEverySettingHasThreeWays shows that each flag can also be set by its variable and by its key,
// without further code.
func TestEverySettingHasThreeWays(t *testing.T) {
	cfg := Default()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	cfg.Flags(flags)
	n := 0
	flags.VisitAll(func(f *pflag.Flag) {
		n++
		value, ok := map[string]string{"string": "x", "int": "3", "bool": "true", "float64": "0.5", "duration": "7s", "stringSlice": "x,y"}[f.Value.Type()]
		if !ok {
			value = map[string]string{"warm-floor": "base=1"}[f.Name]
			if value == "" {
				value = "12345678"
			}
		}
		for _, way := range []struct {
			kind, file string
			env        map[string]string
		}{{File, f.Name + ": \"" + value + "\"\n", nil}, {Environment, "", map[string]string{Variable(f.Name): value}}} {
			got, origins, err := load(t, way.file, way.env)
			again := pflag.NewFlagSet("again", pflag.ContinueOnError)
			got.Flags(again)
			if err != nil || origins[f.Name].Kind != way.kind || again.Lookup(f.Name).DefValue == f.DefValue {
				t.Errorf("--%s by %s: %s, %+v, %v", f.Name, way.kind, again.Lookup(f.Name).DefValue, origins[f.Name], err)
			}
		}
	})
	if n < 45 {
		t.Errorf("%d settings", n)
	}
}

// TestFilesAreRefused shows that an error in a file names the key and the line.
func TestFilesAreRefused(t *testing.T) {
	for text, want := range map[string]struct{ field, says string }{
		"listen: 127.0.0.1:1\nmax-pausd: 3\n":  {"max-pausd", "carrel.yaml:2"},
		"max_paused: 3\n":                      {"max_paused", "write it max-paused"},
		"api-key: e2b_x\n":                     {"api-key", "no such setting"},
		"max-paused: 1\nmax-paused: 2\n":       {"", "max-paused"},
		"max-paused: many\n":                   {"max-paused", "not a whole number"},
		"max-wait: 5\n":                        {"max-wait", "such as 90s"},
		"tls-self-signed: perhaps\n":           {"tls-self-signed", "true or false"},
		"listen:\n":                            {"listen", "has no value"},
		"listen: {host: a}\n":                  {"listen", "a value or a list"},
		"acme-domain: [[a]]\n":                 {"acme-domain", "no value"},
		"- listen\n":                           {"config", "KEY: VALUE"},
		"listen: [\n":                          {"config", "carrel.yaml"},
		strings.Repeat("#2345678\n", 200<<10):  {"config", "larger"},
		"audit-size: loud\n":                   {"audit-size", "size"},
		"warm-floor: [base=1, nothing]\n":      {"warm-floor", "the form is"},
		"default-cpus: &a 1\nmax-paused: *a\n": {"max-paused", "a value or a list"},
	} {
		_, _, err := load(t, text, nil)
		ce, ok := errors.AsType[*carrel.Error](err)
		if !ok || ce.Kind != carrel.Invalid || (want.field != "" && ce.Field != want.field) || !strings.Contains(ce.Error()+ce.Hint, want.says) {
			t.Errorf("%.40q: %v (%s)", text, err, carrel.HintOf(err))
		}
	}
}

// TestFileOfOthers shows that a file is refused if others can write it: it could open the daemon to
// the network.
func TestFileOfOthers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "carrel.yaml")
	if err := os.WriteFile(file, []byte("listen: 0.0.0.0:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}
	cfg := Default()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	cfg.Flags(flags)
	none := func(string) string { return "" }
	if _, err := cfg.Load(flags, file, false, none); !errors.Is(err, carrel.Invalid) || cfg.Listen != Default().Listen {
		t.Errorf("%v, listening on %s", err, cfg.Listen)
	}
	if os.Geteuid() == 0 {
		if err := errors.Join(os.Chmod(file, 0o600), os.Chown(file, 12345, 0)); err != nil {
			t.Fatal(err)
		}
		if _, err := cfg.Load(flags, file, false, none); !errors.Is(err, carrel.Invalid) {
			t.Errorf("another user's: %v", err)
		}
	}
	if _, err := cfg.Load(flags, file+".none", false, none); err != nil {
		t.Errorf("no file, and none was named: %v", err)
	}
	if _, err := cfg.Load(flags, file+".none", true, none); !errors.Is(err, carrel.Invalid) {
		t.Errorf("no file where one was named: %v", err)
	}
}

// TestDefaultFile shows that root gets the system's file, and others their own.
func TestDefaultFile(t *testing.T) {
	env := map[string]string{"HOME": "/home/a"}
	get := func(k string) string { return env[k] }
	if root, own := DefaultFile(0, get), DefaultFile(1, get); root != "/etc/carrel/carrel.yaml" || own != "/home/a/.config/carrel/carrel.yaml" {
		t.Errorf("%s, %s", root, own)
	}
	env["XDG_CONFIG_HOME"] = "/x"
	if own := DefaultFile(1, get); own != "/x/carrel/carrel.yaml" {
		t.Error(own)
	}
}

// TestShippedFile shows that the file in our packages sets nothing. It must list every setting with
// its built-in value.
func TestShippedFile(t *testing.T) {
	raw, err := os.ReadFile("../../dist/carrel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, origins, err := load(t, string(raw), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range origins {
		if o.Kind != BuiltIn {
			t.Errorf("%s is set: %+v", name, o)
		}
	}

	cfg := Default()
	builtIn := pflag.NewFlagSet("test", pflag.ContinueOnError)
	cfg.Flags(builtIn)
	cfg = Default()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	cfg.Flags(flags)
	file := filepath.Join(t.TempDir(), "carrel.yaml")
	open := regexp.MustCompile("(?m)^#([a-z])").ReplaceAll(raw, []byte("$1"))
	if err := os.WriteFile(file, open, 0o600); err != nil {
		t.Fatal(err)
	}
	origins, err = cfg.Load(flags, file, true, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	builtIn.VisitAll(func(f *pflag.Flag) {
		if origins[f.Name].Kind != File {
			t.Errorf("%s is not listed", f.Name)
		}
		if f.Name == "data-dir" || f.Name == "cache-dir" {
			return // they belong to the service, not to the tests' user
		}
		if got := flags.Lookup(f.Name).Value.String(); got != f.DefValue {
			t.Errorf("%s: %s is listed, %s is built in", f.Name, got, f.DefValue)
		}
	})
}
