package oshost

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"

	"github.com/carrel-dev/carrel/internal/guest/agent"
)

const somePasswd = `root:x:0:0:root:/root:/bin/bash
# a comment
user:x:1000:1000::/home/user:/bin/zsh

user:x:7:7::/second:/bin/false
bare:x:2000:2000:::
broken:x:many:0::/:/bin/sh
short:x:1
big:x:4294967296:0::/:/bin/sh
  spaced:x:3000:100:With Spaces:/srv:/bin/sh
`

const someGroup = `root:x:0:
user:x:1000:
sudo:x:27:user,other
docker:x:998:other,user,
users:x:100:spaced
dup:x:27:user
short:x
`

func TestAccounts(t *testing.T) {
	a := &accounts{}
	a.parse([]byte(somePasswd), []byte(someGroup))
	for name, want := range map[string]agent.User{
		"root":   {Name: "root", Home: "/root", Shell: "/bin/bash", Groups: []uint32{0}},
		"user":   {Name: "user", UID: 1000, GID: 1000, Home: "/home/user", Shell: "/bin/zsh", Groups: []uint32{1000, 27, 998}},
		"bare":   {Name: "bare", UID: 2000, GID: 2000, Home: "/", Shell: "/bin/sh", Groups: []uint32{2000}},
		"spaced": {Name: "spaced", UID: 3000, GID: 100, Home: "/srv", Shell: "/bin/sh", Groups: []uint32{100}},
	} {
		got, ok := a.users[name]
		if !ok || got.Name != want.Name || got.UID != want.UID || got.GID != want.GID || got.Home != want.Home ||
			got.Shell != want.Shell || !slices.Equal(got.Groups, want.Groups) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	if len(a.users) != 4 {
		t.Errorf("accounts: %v", a.users)
	}
	if a.groupNames[27] != "sudo" || a.userNames[1000] != "user" {
		t.Errorf("names: %v %v", a.groupNames, a.userNames)
	}
	for name, want := range map[string]agent.User{
		"1000":       {Name: "user", UID: 1000, GID: 1000},
		"1000:27":    {Name: "user", UID: 1000, GID: 27},
		"user:sudo":  {Name: "user", UID: 1000, GID: 27},
		"user:5":     {Name: "user", UID: 1000, GID: 5},
		"7:docker":   {Name: "7", UID: 7, GID: 998},
		"65532":      {Name: "65532", UID: 65532},
		"65532:7777": {Name: "65532", UID: 65532, GID: 7777},
	} {
		if u, ok := a.composed(name); !ok || u.Name != want.Name || u.UID != want.UID ||
			u.GID != want.GID {
			t.Errorf("%s: got %+v, %v", name, u, ok)
		}
	}
	for _, bad := range []string{"", ":", "x", "1:x", "user:x", "user:", "-1", "4294967296"} {
		if u, ok := a.composed(bad); ok {
			t.Errorf("%q: got %+v", bad, u)
		}
	}
}

func TestLookup(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	u, err := s.User("root")
	if err != nil || u.UID != 0 {
		t.Errorf("root: %+v, %v", u, err)
	}
	if _, err := s.User("nobody-here"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if owner, group := s.Names(0, 0); owner != "root" || group != "root" {
		t.Errorf("names of 0: %s %s", owner, group)
	}
	if owner, group := s.Names(4000000000, 4000000001); owner != "4000000000" || group != "4000000001" {
		t.Errorf("names of nobody: %s %s", owner, group)
	}
}

func FuzzAccounts(f *testing.F) {
	f.Add([]byte(somePasswd), []byte(someGroup), "user")
	f.Add([]byte("::::::\n"), []byte(":::\n"), "")
	f.Add([]byte("a:x:0:0:::\r\n"), []byte("\x00"), "0:0")
	f.Fuzz(func(t *testing.T, passwd, group []byte, name string) {
		a := &accounts{}
		a.parse(passwd, group)
		for n, u := range a.users {
			if n == "" || u.Name != n || u.Home == "" || u.Shell == "" || !slices.Contains(u.Groups, u.GID) {
				t.Errorf("%q: %+v", n, u)
			}
		}
		if u, ok := a.composed(name); ok && u.Home == "" {
			t.Errorf("%q: %+v", name, u)
		}
	})
}

func TestMakeAccounts(t *testing.T) {
	for _, c := range []struct{ name, passwd, group, want string }{
		{"empty", "", "", "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"},
		{"no newline at the end", "root:x:0:0::/root:/bin/ash", "root:x:0:", "root:x:0:0::/root:/bin/ash\nuser:x:1000:1000::/home/user:/bin/sh\n"},
		{"user is there", "root:x:0:0::/:/bin/sh\nuser:x:5:5::/u:/bin/sh\n", "", "root:x:0:0::/:/bin/sh\nuser:x:5:5::/u:/bin/sh\n"},
		{"1000 is taken", "root:x:0:0::/:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\n", "node:x:1000:\n",
			"root:x:0:0::/:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\nuser:x:1001:1001::/home/user:/bin/sh\n"},
		{"the group is there", "root:x:0:0::/:/bin/sh\n", "user:x:55:\n", "root:x:0:0::/:/bin/sh\nuser:x:1000:55::/home/user:/bin/sh\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			if err := os.Mkdir(root+"/etc", 0o755); err != nil {
				t.Fatal(err)
			}
			for name, data := range map[string]string{"passwd": c.passwd, "group": c.group, "shadow": "root:*:1::::::\n"} {
				if err := os.WriteFile(root+"/etc/"+name, []byte(data), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // the second time changes nothing
				if err := makeAccounts(root); err != nil {
					t.Fatal(err)
				}
				if got, _ := os.ReadFile(root + "/etc/passwd"); string(got) != c.want {
					t.Errorf("got %s", got)
				}
				if got, _ := os.ReadFile(root + "/etc/shadow"); string(got) != "root:*:1::::::\nuser:*:19000:0:99999:7:::\n" {
					t.Errorf("got %s", got)
				}
			}
		})
	}
}

func TestOwnNameInHosts(t *testing.T) {
	file := t.TempDir() + "/hosts"
	for _, c := range []struct{ old, want string }{
		{"", hostsHead + "127.0.1.1\tifirst\n"},
		{"10.0.0.1 a b\n127.0.1.1\told\n::1 c", "10.0.0.1 a b\n::1 c\n127.0.1.1\tifirst\n"},
	} {
		if err := os.WriteFile(file, []byte(c.old), 0o644); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := replaceOwnName(file, "ifirst"); err != nil {
				t.Fatal(err)
			}
			if got, _ := os.ReadFile(file); string(got) != c.want {
				t.Errorf("got %q", got)
			}
		}
	}
}

// TestIdentifyLeavesTheHostAlone shows that a System without Own does not change the machine.
func TestIdentifyLeavesTheHostAlone(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	before, _ := os.Hostname()
	hosts, _ := os.ReadFile("/etc/hosts")
	if err := s.Identify("carrel-test-name", mustNotBeSet); err != nil {
		t.Error(err)
	}
	after, _ := os.Hostname()
	hostsAfter, _ := os.ReadFile("/etc/hosts")
	if before != after || string(hosts) != string(hostsAfter) {
		t.Errorf("host name was %q, is %q", before, after)
	}
}
