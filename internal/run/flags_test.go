package run

import (
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/carrel-dev/carrel"
)

// parse reads a command line.
func parse(t *testing.T, line ...string) (*Options, []string) {
	t.Helper()
	fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	o := AddFlags(fs)
	if err := fs.Parse(line); err != nil {
		t.Fatal(err)
	}
	return o, fs.Args()
}

func TestFlagsOfTheCommandAreTheCommands(t *testing.T) {
	for _, c := range []struct{ line, want []string }{
		{[]string{"--quiet", "ls", "--read", "-l"}, []string{"ls", "--read", "-l"}},
		{[]string{"--", "ls", "--", "-l"}, []string{"ls", "--", "-l"}},
		{[]string{"-c", "echo $0 $1", "a", "b"}, []string{"bash", "-c", "echo $0 $1", "a", "b"}},
		{[]string{"-c", ""}, []string{"bash", "-c", ""}},
	} {
		o, rest := parse(t, c.line...)
		if got, err := o.args(rest); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q runs %q, %v; want %q", c.line, got, err, c.want)
		}
	}
	for _, line := range [][]string{{}, {"--"}, {"--", ""}, {"--quiet"}} {
		o, rest := parse(t, line...)
		if got, err := o.args(rest); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("%q runs %q, %v", line, got, err)
		}
	}
}

func TestFlagsBecomeALayer(t *testing.T) {
	o, _ := parse(t, "--memory", "1.5G", "--pids", "7", "--cpu", "0.5", "--timeout", "90s", "--env", "A=b=c", "--env", "KEEP", "--env", "GONE-",
		"--no-bind", "--diff", "--internet", "--file-size", "10K", "true")
	s, err := o.layer()
	if err != nil {
		t.Fatal(err)
	}
	if *s.Limits.MemoryMB != 1536 || *s.Limits.Pids != 7 || *s.Limits.CPUs != 0.5 || *s.Limits.Timeout != 90*time.Second || *s.Limits.FileMB != 1 || s.Limits.TmpMB != nil {
		t.Errorf("limits: %+v", s.Limits)
	}
	if s.Env.Set["A"] != "b=c" || !slices.Equal(s.Env.Pass, []string{"KEEP"}) || !slices.Equal(s.Env.Strip, []string{"GONE"}) {
		t.Errorf("environment: %+v", s.Env)
	}
	if *s.Network.Bind || !*s.Overlay || s.Network.Policy.Default != "allow" || o.diff != "-" {
		t.Errorf("layer: %+v", s)
	}
}

func TestBadFlagsNameThemselves(t *testing.T) {
	for _, c := range []struct{ field, value string }{
		{"memory", "much"}, {"memory", "-5M"}, {"memory", "0"}, {"memory", "1e300G"}, {"memory", "NaN"}, {"file-size", "5X"}, {"pids", "0"}, {"pids", "-1"},
		{"cpu", "0"}, {"cpu", "NaN"}, {"cpu", "Inf"}, {"timeout", "0s"}, {"timeout", "-1s"}, {"env", "=x"}, {"env", ""}, {"open-files", "0"},
	} {
		o, _ := parse(t, "--"+c.field, c.value, "true")
		_, err := o.layer()
		if carrel.KindOf(err) != carrel.Invalid || fieldOf(err) != "--"+c.field {
			t.Errorf("--%s %s: %v", c.field, c.value, err)
		}
	}
}

func fieldOf(err error) string {
	var e *carrel.Error
	if errors.As(err, &e) {
		return e.Field
	}
	return ""
}
