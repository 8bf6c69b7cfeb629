package cli

import (
	"context"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
)

// crowd is a service with several sandboxes. It returns all of them, like a daemon that ignores
// Match.
type crowd struct {
	fake
	boxes []carrel.Sandbox
}

func (c *crowd) List(context.Context, carrel.ListOptions) (carrel.Page, error) {
	return carrel.Page{Sandboxes: c.boxes}, nil
}

// TestAmbiguousSandbox shows that a text that may mean two sandboxes means none, even if it is the
// name of one. A name must not hide the sandbox whose ID begins with it.
func TestAmbiguousSandbox(t *testing.T) {
	c := &crowd{boxes: []carrel.Sandbox{
		{ID: "iabcd000000000000000a"}, {ID: "iabce000000000000000a"}, {ID: "ixyz0000000000000000a", Name: "iabcd"}, {ID: "iqqq0000000000000000a", Name: "only"},
	}}
	for text, want := range map[string]string{
		"iabce": "iabce000000000000000a", "only": "iqqq0000000000000000a", "ixyz": "ixyz0000000000000000a",
		"iab": "NotFound", "iabc": "Invalid", "iabcd": "Invalid", "on": "NotFound", "": "NotFound",
	} {
		id, err := resolveSandbox(t.Context(), c, text)
		got := string(id)
		switch carrel.KindOf(err) {
		case carrel.NotFound:
			got = "NotFound"
		case carrel.Invalid:
			got = "Invalid"
		}
		if got != want {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
}

// TestNamingsAreCommands shows that each entry is a command, and each command with an ID has an
// entry.
func TestNamingsAreCommands(t *testing.T) {
	root := Commands()
	for path, n := range namings {
		c, rest, err := root.Find(strings.Fields(path))
		if err != nil || len(rest) > 0 {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if n.flag != "" && c.Flags().Lookup(n.flag) == nil {
			t.Errorf("%s has no --%s", path, n.flag)
		}
		if n.flag == "" && !strings.Contains(c.Use, "ID") && !n.path {
			t.Errorf("%s takes no ID: %s", path, c.Use)
		}
	}
	var check func(path string)
	check = func(path string) {
		c, _, _ := root.Find(strings.Fields(path))
		for _, sub := range c.Commands() {
			below := strings.TrimSpace(path + " " + sub.Name())
			if _, ok := namings[below]; !ok && strings.Contains(sub.Use, " ID") {
				t.Errorf("%s takes an ID and no name", below)
			}
			check(below)
		}
	}
	check("")
}
