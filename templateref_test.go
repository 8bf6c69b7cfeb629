package carrel_test

import (
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
)

// TestParseTemplateRef checks the kind of each form, and texts that are no reference.
func TestParseTemplateRef(t *testing.T) {
	snap, tpl := "s0123456789abcdefghij", "0123456789abcdefghij"
	for text, want := range map[string]struct {
		kind  carrel.RefKind
		name  string
		plain bool
	}{
		"base":            {carrel.RefName, "base", true},
		"team/App_1.2-x":  {carrel.RefName, "team/App_1.2-x", true},
		"base:latest":     {carrel.RefTagged, "base", true},
		"base:default":    {carrel.RefTagged, "base", true},
		"python:3.12":     {carrel.RefTagged, "python", false},
		"python:_3":       {carrel.RefTagged, "python", false},
		tpl:               {carrel.RefTemplateID, tpl, true},
		tpl + ":default":  {carrel.RefTemplateID, tpl, true},
		tpl + ":v1":       {carrel.RefTagged, tpl, false},
		snap:              {carrel.RefSnapshotID, snap, true},
		snap + ":default": {carrel.RefSnapshotID, snap, true},
		snap + ":v1":      {carrel.RefTagged, snap, false},
		// Almost IDs.
		strings.ToUpper(tpl):            {carrel.RefName, strings.ToUpper(tpl), true},
		snap[:20]:                       {carrel.RefTemplateID, snap[:20], true},
		snap + "k":                      {carrel.RefName, snap + "k", true},
		"t" + tpl:                       {carrel.RefName, "t" + tpl, true},
		"s0123456789-bcdefghij":         {carrel.RefName, "s0123456789-bcdefghij", true},
		strings.Repeat("x", 256):        {carrel.RefName, strings.Repeat("x", 256), true},
		"x:" + strings.Repeat("y", 254): {carrel.RefTagged, "x", false},
	} {
		ref, err := carrel.ParseTemplateRef(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if ref.Kind() != want.kind || ref.Name() != want.name || ref.Plain() != want.plain || ref.String() != text {
			t.Errorf("%q: %q %q %v %q, want %+v", text, ref.Kind(), ref.Name(), ref.Plain(), ref, want)
		}
		id, ok := ref.SnapshotID()
		if ok != (want.kind == carrel.RefSnapshotID) || ok && id != carrel.SnapshotID(want.name) {
			t.Errorf("%q: snapshot ID %q, %v", text, id, ok)
		}
	}
	for _, text := range []string{"", " ", "a b", "a\n", "a\x00b", "a\x7f", "é", "a\u2028", "\xff", ":", ":tag", "a:", "a:b:c", "a:é", "a:-b", "a:.b",
		"a:b/c", "/a", "-a", "_a", ".a", "../a", "a@sha256", "a[", "a`", "a{", "a@", "[a", "a\x0d", "a:\x1a", strings.Repeat("x", 257)} {
		ref, err := carrel.ParseTemplateRef(text)
		ce, ok := err.(*carrel.Error)
		if !ok || ce.Kind != carrel.Invalid || ce.Field != "template" || ce.Hint == "" || ref != (carrel.TemplateRef{}) {
			t.Errorf("%q: %q, %v", text, ref, err)
		}
	}
	if err := (carrel.TemplateRef{}).NotFound("x"); carrel.KindOf(err) != carrel.NotFound {
		t.Error(err)
	}
}

// TestMayUse checks which callers may make sandboxes from a template.
func TestMayUse(t *testing.T) {
	a := carrel.Caller{Project: "a", Role: carrel.RoleMember}
	for name, c := range map[string]struct {
		who  carrel.Caller
		t    carrel.Template
		want bool
	}{
		"its own":                     {a, carrel.Template{Project: "a"}, true},
		"another's":                   {a, carrel.Template{Project: "b"}, false},
		"another's public one":        {a, carrel.Template{Project: "b", Public: true}, true},
		"a built-in one":              {a, carrel.Template{BuiltIn: true}, true},
		"nobody's":                    {carrel.Caller{Role: carrel.RoleMember}, carrel.Template{}, false},
		"another's, an administrator": {carrel.Local(), carrel.Template{Project: "b"}, true},
	} {
		if got := c.who.MayUse(c.t); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// FuzzParseTemplateRef shows that a text is either refused with field "template", or comes back
// unchanged, short and printable.
func FuzzParseTemplateRef(f *testing.F) {
	for _, s := range []string{"", "base", "base:latest", "python:3.12", "s0123456789abcdefghij", "0123456789abcdefghij:default", ":", "a:", "a:b:c", "\x00", "é", "../../etc/passwd"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := carrel.ParseTemplateRef(s)
		if err != nil {
			ce, ok := err.(*carrel.Error)
			if !ok || ce.Kind != carrel.Invalid || ce.Field != "template" || ce.Hint == "" || len(ce.Error()) > 1000 {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		if ref.String() != s || ref.Kind() == "" || ref.Name() == "" || len(s) > 256 {
			t.Fatalf("%q: %q %q", s, ref, ref.Kind())
		}
		if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Fatalf("%q has a control character", s)
		}
		if again, err := carrel.ParseTemplateRef(ref.String()); err != nil || again != ref {
			t.Fatalf("%q: %v, %v", s, again, err)
		}
	})
}
