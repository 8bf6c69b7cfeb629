package net

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// TestLearn lets a sandbox work with everything allowed, learns a policy from it, and gives it to
// another one. The same work succeeds there, and nothing near it.
func TestLearn(t *testing.T) {
	o := newOutside(t)
	o.serve(t, "api.example.com", "198.51.100.21", webSite())
	o.serve(t, "files.example.org", "198.51.100.22", webSite())
	git, _ := gitSite(t)
	o.serve(t, "git.example.com", "198.51.100.23", git)
	h := open(t, o)
	work := lines("set -e",
		"for i in 101 102 103; do curl -sS --fail https://api.example.com/v1/items/$i; done",
		"curl -sS --fail -X POST -d x https://api.example.com/v1/items",
		"curl -sS --fail http://files.example.org/pool/a.deb",
		"rm -rf /tmp/hello && git clone -q https://git.example.com/hello.git /tmp/hello && cat /tmp/hello/README")

	watched := h.desk(t, &carrel.Policy{Rules: []carrel.Rule{{Allow: []string{"*"}, Inspect: true}}})
	watched.must(t, work, "hello")
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if out, err := h.CLI("policy", "learn", string(watched.id), "-o", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", text)
	learned, err := policy.Parse(file, text)
	if err != nil {
		t.Fatal(err)
	}

	d := h.desk(t, &learned)
	d.must(t, work, "hello")
	d.must(t, "curl -sS --fail https://api.example.com/v1/items/999", "hello") // a number is a part
	for _, script := range []string{
		"curl -sS --fail https://api.example.com/v1/keys",
		"curl -sS --fail -X DELETE https://api.example.com/v1/items/101",
		"curl -sS --fail http://api.example.com/v1/items/101",
		"curl -sS --fail https://files.example.org/pool/a.deb",
		"curl -sS --fail https://denied.example.net/",
	} {
		if code, out := d.try(t, script); code == 0 {
			t.Errorf("%s succeeded: %s", script, out)
		}
	}
	if n := o.strays.Load(); n != 0 {
		t.Errorf("%d connections went elsewhere", n)
	}
}
