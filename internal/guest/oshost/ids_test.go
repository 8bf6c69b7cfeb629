package oshost

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/carrel-dev/carrel/internal/guest/agent"
)

func TestIDMap(t *testing.T) {
	for _, c := range []struct {
		text string
		id   uint32
		want bool
	}{
		{"         0          0 4294967295\n", 0, true},
		{"         0          0 4294967295\n", 4294967294, true},
		{"0 1000 1\n", 0, true},
		{"0 1000 1\n", 1, false},
		{"0 2100000000 65536\n", 65535, true},
		{"0 2100000000 65536\n", 65536, false},
		{"0 1000 1\n1 100000 65536\n", 1000, true},
		{"", 1000, true}, // no map is shown
		{"nonsense\n", 7, true},
	} {
		if got := parseIDMap(c.text).has(c.id); got != c.want {
			t.Errorf("%d in %q: %v", c.id, c.text, got)
		}
	}
}

// TestAccountsWithOneID shows that, if only one id exists, every account has that id and keeps its
// name and home.
func TestAccountsWithOneID(t *testing.T) {
	s := &System{uids: parseIDMap("0 1000 1\n"), gids: parseIDMap("0 1000 1\n")}
	u := s.possible(agent.User{Name: "user", UID: 1000, GID: 1000, Home: "/home/user", Groups: []uint32{1000, 27}})
	if u.UID != uint32(os.Geteuid()) || u.GID != uint32(os.Getegid()) || u.Name != "user" || u.Home != "/home/user" || len(u.Groups) != 1 {
		t.Errorf("%+v", u)
	}
	root := agent.User{Name: "root", Home: "/root", Groups: []uint32{0, 10}}
	if got := s.possible(root); got.UID != 0 || !slices.Equal(got.Groups, []uint32{0}) {
		t.Errorf("root: %+v", got)
	}
	all := &System{}
	in := agent.User{Name: "user", UID: 1000, GID: 1000, Groups: []uint32{1000, 27}}
	if got := all.possible(in); got.UID != 1000 || !slices.Equal(got.Groups, in.Groups) {
		t.Errorf("with all ids: %+v", got)
	}
}

// TestAptWithOneID shows that apt is told not to change to an account that does not exist here.
func TestAptWithOneID(t *testing.T) {
	for _, one := range []bool{true, false} {
		root := t.TempDir()
		if err := os.MkdirAll(filepath.Join(root, "usr/bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "usr/bin/apt-get"), nil, 0o755); err != nil {
			t.Fatal(err)
		}
		s := &System{}
		if one {
			s.uids = parseIDMap("0 1000 1\n")
		}
		if err := s.makeApt(root); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(root, "etc/apt/apt.conf.d/00carrel-one-user")); (err == nil) != one {
			t.Errorf("with one id %v: %v", one, err)
		}
	}
}
