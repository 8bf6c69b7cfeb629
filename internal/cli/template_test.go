package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// standing has the templates base and host. The latter stands in for the former until base is made.
type standing struct {
	*fake
	made bool
}

func (s *standing) base() carrel.Template {
	t := carrel.Template{ID: "base-id", Name: "base", BuiltIn: true}
	if s.made {
		t.Source, t.Digest = "Debian", "sha256:abc"
	} else {
		t.Source, t.StandIn = "this machine's toolchain", "host"
	}
	return t
}

func (s *standing) ListTemplates(context.Context) ([]carrel.Template, error) {
	return []carrel.Template{s.base(), {ID: "host-id", Name: "host", BuiltIn: true,
		Source: "this machine's toolchain"}}, nil
}

func (s *standing) GetTemplate(context.Context, string) (carrel.Template, error) {
	return s.base(), nil
}

func (s *standing) PullTemplate(context.Context, string, string,
	func(carrel.Progress)) (carrel.Template, error) {
	s.made = true
	return s.base(), nil
}

// TestStandInShown shows what people see of the template base before and after it is made.
func TestStandInShown(t *testing.T) {
	s := &standing{fake: &fake{}}
	run := func(args ...string) string {
		t.Helper()
		var out, errw bytes.Buffer
		a := &app{out: &out, err: &errw, now: func() time.Time { return noon },
			open: func(context.Context) (carrel.Service, error) { return s, nil }}
		if code := a.main(t.Context(), args); code != 0 {
			t.Fatalf("%v: %d, %s", args, code, errw.String())
		}
		return strings.Join(strings.Fields(out.String()), " ")
	}
	has := func(want string, args ...string) {
		t.Helper()
		if got := run(args...); !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %q in it", args, got, want)
		}
	}
	has("base base-id 0 B – – host stands in", "template", "ls")
	has("stand-in host", "template", "inspect", "base")
	has(`"standIn":"host"`, "template", "inspect", "base", "--json")
	has("base sha256:abc", "template", "get", "base")
	has("base base-id 0 B – – Debian host host-id", "template", "ls")
	has("digest sha256:abc", "template", "inspect", "base")
	if got := run("template", "inspect", "base", "--json"); strings.Contains(got, "standIn") {
		t.Error(got)
	}
}
