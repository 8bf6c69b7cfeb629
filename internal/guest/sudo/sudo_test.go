package sudo_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/guest/sudo"
)

const passwd = `root:x:0:0:root:/root:/bin/bash
nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin
user:x:1000:1000::/home/user:/bin/zsh
admin:x:1001:1001::/home/admin:
wheeler:x:1002:10::/:/bin/sh
other:x:1003:1003::/home/other:/bin/sh
broken:x:many:1:::
minus:x:4294967295:0:::
# comment:x:0:0:::
`

const groups = `root:x:0:
sudo:x:27:admin
wheel:x:10:
docker:x:999:user,other
www:x:33:user
`

// programs are the programs that exist.
var programs = []string{"/bin/bash", "/bin/zsh", "/bin/sh", "/usr/bin/env", "/usr/local/sbin/env", "/usr/bin/id", "./tool", "/usr/sbin/nologin"}

func runnable(file string) bool { return slices.Contains(programs, file) }

func TestParse(t *testing.T) {
	for _, c := range []struct {
		args string
		want sudo.Request
	}{
		{"id -u", sudo.Request{Command: []string{"id", "-u"}}},
		{"-n -E -H -S id", sudo.Request{Preserve: true, Home: true, Command: []string{"id"}}},
		{"-nEHS -u other id", sudo.Request{Preserve: true, Home: true, User: "other", HasUser: true, Command: []string{"id"}}},
		{"-nuother -g#5 id", sudo.Request{User: "other", HasUser: true, Group: "#5", HasGroup: true, Command: []string{"id"}}},
		{"--user=other --group docker id", sudo.Request{User: "other", HasUser: true, Group: "docker", HasGroup: true, Command: []string{"id"}}},
		{"A=1 -u other B=x=y id C=2", sudo.Request{User: "other", HasUser: true, Set: []string{"A=1", "B=x=y"}, Command: []string{"id", "C=2"}}},
		{"-- A=1", sudo.Request{Command: []string{"A=1"}}},
		{"/opt/a=b", sudo.Request{Command: []string{"/opt/a=b"}}},
		{"--preserve-env=A,,B --preserve-env=C id", sudo.Request{Keep: []string{"A", "B", "C"}, Command: []string{"id"}}},
		{"--preserve-env id", sudo.Request{Preserve: true, Command: []string{"id"}}},
		{"-p prompt: -i", sudo.Request{Login: true}},
		{"-s -- -x", sudo.Request{Shell: true, Command: []string{"-x"}}},
		{"-b id", sudo.Request{Background: true, Command: []string{"id"}}},
		{"-k", sudo.Request{Mode: sudo.Forget}},
		{"-k id", sudo.Request{Command: []string{"id"}}},
		{"-K", sudo.Request{Mode: sudo.Forget}},
		{"-nv", sudo.Request{Mode: sudo.Validate}},
		{"-ll", sudo.Request{Mode: sudo.List}},
		{"-l id x", sudo.Request{Mode: sudo.List, Command: []string{"id", "x"}}},
		{"--version", sudo.Request{Mode: sudo.Version}},
		{"-h", sudo.Request{Mode: sudo.Help}},
	} {
		got, err := sudo.Parse(strings.Fields(c.args))
		if len(got.Command) == 0 {
			got.Command = nil
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", c.args, got, err, c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"":             "",
		"-n":           "",
		"A=1":          "",
		"-v id":        "",
		"-K id":        "",
		"-l -s":        "",
		"-z id":        "invalid option -- 'z'",
		"-nu":          "option requires an argument -- 'u'",
		"--user":       "option '--user' requires an argument",
		"--login=x id": "option '--login' doesn't allow an argument",
		"--no-such id": "unrecognized option '--no-such'",
		"-i -s":        "you may not specify both the -i and -s options",
		"-iE":          "you may not specify both the -i and -E options",
		"-l A=1":       "you may not specify environment variables in list or validate mode",
		"-l -v":        "Only one of the -e, -h, -i, -K, -l, -s, -v or -V options may be specified",
	} {
		_, err := sudo.Parse(strings.Fields(args))
		var usage sudo.UsageError
		if !errors.As(err, &usage) || err.Error() != want {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// plan parses, authorizes and plans a whole command line.
func plan(t *testing.T, c sudo.Caller, args ...string) (sudo.Command, error) {
	t.Helper()
	r, err := sudo.Parse(args)
	if err != nil {
		t.Fatal(err)
	}
	a := sudo.NewAccounts([]byte(passwd), []byte(groups))
	from, err := sudo.Authorize(r, c, a, "box")
	if err != nil {
		return sudo.Command{}, err
	}
	return sudo.Plan(r, c, from, a, runnable)
}

func TestAuthorize(t *testing.T) {
	for _, c := range []struct {
		name     string
		uid, gid uint32
		args     []string
		want     string
	}{
		{"root", 0, 0, []string{"id"}, ""},
		{"the sandbox's owner", 1000, 1000, []string{"id"}, ""},
		{"of group sudo", 1001, 1001, []string{"id"}, ""},
		{"of group wheel, by passwd", 1002, 10, []string{"id"}, ""},
		{"another", 1003, 1003, []string{"id"}, "other is not in the sudoers file."},
		{"a group that the process has and the account has not", 1003, 27, []string{"id"}, "other is not in the sudoers file."},
		{"may not list", 1003, 1003, []string{"-l"}, "Sorry, user other may not run sudo on box."},
		{"may not validate", 1003, 1003, []string{"-v"}, "Sorry, user other may not run sudo on box."},
		{"learns nothing of files", 1003, 1003, []string{"no-such"}, "other is not in the sudoers file."},
		{"nobody", 65534, 65534, []string{"id"}, "nobody is not in the sudoers file."},
		{"no account", 1234, 0, []string{"id"}, "sudo: you do not exist in the passwd database"},
		{"no ID", 1<<32 - 1, 0, []string{"id"}, "sudo: you do not exist in the passwd database"},
	} {
		r, err := sudo.Parse(c.args)
		if err != nil {
			t.Fatal(err)
		}
		_, err = sudo.Authorize(r, sudo.Caller{UID: c.uid, GID: c.gid}, sudo.NewAccounts([]byte(passwd), []byte(groups)), "box")
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	// Without account files only root exists.
	for uid, ok := range map[uint32]bool{0: true, 1000: false} {
		_, err := sudo.Authorize(sudo.Request{}, sudo.Caller{UID: uid}, sudo.NewAccounts(nil, nil), "box")
		if (err == nil) != ok {
			t.Errorf("no files, uid %d: %v", uid, err)
		}
	}
}

func TestPlan(t *testing.T) {
	user := sudo.Caller{UID: 1000, GID: 1000, Env: []string{"SHELL=/bin/bash"}}
	for _, c := range []struct {
		args   string
		path   string
		argv   string // separated by |
		dir    string
		uid    uint32
		groups []uint32
		said   string
	}{
		{"id -u", "/usr/bin/id", "id|-u", "", 0, []uint32{0}, "/usr/bin/id -u"},
		{"env", "/usr/local/sbin/env", "env", "", 0, []uint32{0}, "/usr/local/sbin/env"},
		{"./tool x", "./tool", "./tool|x", "", 0, []uint32{0}, "./tool x"},
		{"-u user id", "/usr/bin/id", "id", "", 1000, []uint32{1000, 999, 33}, "/usr/bin/id"},
		{"-u #1003 id", "/usr/bin/id", "id", "", 1003, []uint32{1003, 999}, "/usr/bin/id"},
		{"-g docker id", "/usr/bin/id", "id", "", 1000, []uint32{999, 1000, 33}, "/usr/bin/id"},
		{"-u other -g #77 id", "/usr/bin/id", "id", "", 1003, []uint32{77, 1003, 999}, "/usr/bin/id"},
		{"-i", "/bin/bash", "-bash", "/root", 0, []uint32{0}, "/bin/bash"},
		{"-i -u user id -u", "/bin/zsh", `-zsh|-c|id -u`, "/home/user", 1000, []uint32{1000, 999, 33}, "/bin/zsh -c id -u"},
		{"-s", "/bin/bash", "/bin/bash", "", 0, []uint32{0}, "/bin/bash"},
		{"-s a;b $HOME *", "/bin/bash", `/bin/bash|-c|a\;b $HOME \*`, "", 0, []uint32{0}, `/bin/bash -c a\;b $HOME \*`},
	} {
		got, err := plan(t, user, strings.Fields(c.args)...)
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		if got.Path != c.path || strings.Join(got.Args, "|") != c.argv || got.Dir != c.dir || got.UID != c.uid ||
			!slices.Equal(got.Groups, c.groups) || got.GID != c.groups[0] || !slices.Contains(got.Env, "SUDO_COMMAND="+c.said) {
			t.Errorf("%s: %+v", c.args, got)
		}
	}
	for args, want := range map[string]string{
		"foo":               "sudo: foo: command not found",
		"./foo":             "sudo: ./foo: command not found",
		"..":                "sudo: ..: command not found",
		"-u nope id":        "sudo: unknown user nope",
		"-u #-1 id":         "sudo: unknown user #-1",
		"-u #4294967295 id": "sudo: unknown user #4294967295", // setuid(2) would stay root
		"-u minus id":       "sudo: unknown user minus",
		"-u #1234 id":       "sudo: unknown user #1234",
		"-g nope id":        "sudo: unknown group nope",
		"-g #4294967295 id": "sudo: unknown group #4294967295",
	} {
		if _, err := plan(t, user, strings.Fields(args)...); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
	if _, err := plan(t, user, ""); err == nil {
		t.Error("a command without a name is no error")
	}
}

// hostile is an environment with one variable of each kind.
var hostile = []string{
	"PATH=/tmp/evil", "HOME=/tmp/evil", "USER=mallory", "LOGNAME=mallory", "SHELL=/bin/bash", "MAIL=/tmp/mail",
	"LD_PRELOAD=/tmp/evil.so", "LD_LIBRARY_PATH=/tmp", "BASH_ENV=/tmp/evil", "ENV=/tmp/evil", "IFS=x", "SHELLOPTS=xtrace",
	"BASH_FUNC_ls%%=() { evil; }", "ls=() { evil; }", "PYTHONPATH=/tmp", "PERL5OPT=-Mevil", "GLIBC_TUNABLES=x", "GOTRACEBACK=crash",
	"SUDO_USER=root", "SUDO_UID=0", "SECRET=s", "SECRET=second", "http_proxy=http://p.example.com", "novalue", "=x",
	"TERM=xterm", "COLORTERM=truecolor", "LANG=C.UTF-8", "LC_ALL=../../tmp/evil", "LC_TIME=de_DE", "LANGUAGE=%s", "TZ=Europe/Berlin", "DISPLAY=:0",
}

func TestEnvironment(t *testing.T) {
	user := sudo.Caller{UID: 1000, GID: 1000, Env: hostile}
	always := []string{"PATH=" + sudo.SecurePath, "LOGNAME=root", "USER=root", "TERM=xterm", "COLORTERM=truecolor", "LANG=C.UTF-8",
		"LC_TIME=de_DE", "TZ=Europe/Berlin", "DISPLAY=:0", "SUDO_USER=user", "SUDO_UID=1000", "SUDO_GID=1000"}
	reset := append([]string{"HOME=/root", "SHELL=/bin/bash", "MAIL=/var/mail/root"}, always...)
	preserved := append([]string{"SECRET=s", "http_proxy=http://p.example.com", "MAIL=/tmp/mail", "SHELL=/bin/bash", "LANGUAGE=%s", "LC_ALL=../../tmp/evil"}, always...)
	env, login := "SUDO_COMMAND=/usr/local/sbin/env", "SUDO_COMMAND=/bin/bash -c env"
	for args, want := range map[string][]string{
		"env":                              append([]string{env}, reset...),
		"-H env":                           append([]string{env}, reset...),
		"-i env":                           append([]string{login}, reset...),
		"-E env":                           append([]string{env, "HOME=/tmp/evil"}, preserved...),
		"-E -H env":                        append([]string{env, "HOME=/root"}, preserved...),
		"A=1 LD_PRELOAD=/my.so env":        append([]string{env, "A=1", "LD_PRELOAD=/my.so"}, reset...),
		"--preserve-env=SECRET,ABSENT env": append([]string{env, "SECRET=s"}, reset...),
	} {
		got, err := plan(t, user, strings.Fields(args)...)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(got.Env)
		slices.Sort(want)
		if !slices.Equal(got.Env, want) {
			t.Errorf("%s:\n got %q\nwant %q", args, got.Env, want)
		}
	}
	got, err := plan(t, user, "PATH=/mine", "--preserve-env=HOME", "-u", "other", "env")
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range []string{"PATH=/mine", "HOME=/tmp/evil", "USER=other", "MAIL=/var/mail/other", "SHELL=/bin/sh"} {
		if !slices.Contains(got.Env, kv) {
			t.Errorf("no %s in %q", kv, got.Env)
		}
	}
	if got, err = plan(t, sudo.Caller{Env: []string{"TZ=/tmp/evil"}}, "env"); err != nil || !slices.Contains(got.Env, "TERM=unknown") || slices.Contains(got.Env, "TZ=/tmp/evil") {
		t.Errorf("%q, %v", got.Env, err)
	}
	long, err := plan(t, user, "env", strings.Repeat("x", 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range long.Env {
		if len(kv) > 5000 {
			t.Errorf("a variable of %d bytes", len(kv))
		}
	}
}

// FuzzPlan searches for a command line and environment that break the rules. A caller without
// rights must get nothing, only named accounts may get an ID, and no variable of the dynamic linker
// may come from the caller unless the command line names it.
func FuzzPlan(f *testing.F) {
	f.Add("-u\x00user\x00id", "LD_PRELOAD=x\x00PATH=/", uint32(1000))
	f.Add("-Eu#0\x00--\x00A=b", "LD_A=x\x00=\x00a", uint32(1003))
	f.Add("--preserve-env=X\x00-i", "X=()", uint32(0))
	f.Add("-l\x00-g\x00#4294967295", "", uint32(1<<32-1))
	a := sudo.NewAccounts([]byte(passwd), []byte(groups))
	f.Fuzz(func(t *testing.T, line, env string, uid uint32) {
		r, err := sudo.Parse(strings.Split(line, "\x00"))
		if err != nil {
			return
		}
		c := sudo.Caller{UID: uid, Env: strings.Split(env, "\x00")}
		from, err := sudo.Authorize(r, c, a, "box")
		if may := uid <= 1002 && (uid == 0 || uid >= 1000); may != (err == nil) {
			t.Fatalf("uid %d: %v", uid, err)
		}
		if err != nil || r.Mode != sudo.Run {
			return
		}
		cmd, err := sudo.Plan(r, c, from, a, func(string) bool { return true })
		if err != nil {
			return
		}
		if cmd.UID == 1<<32-1 || cmd.GID == 1<<32-1 || len(cmd.Groups) == 0 || cmd.Groups[0] != cmd.GID || len(cmd.Args) == 0 || cmd.Path == "" {
			t.Fatalf("%+v", cmd)
		}
		for _, kv := range cmd.Env {
			name, _, _ := strings.Cut(kv, "=")
			asked := slices.Contains(r.Keep, name) || slices.ContainsFunc(r.Set, func(s string) bool { return strings.HasPrefix(s, name+"=") })
			if strings.HasPrefix(kv, "LD_") && !asked || name == "" {
				t.Fatalf("%q in %q", kv, cmd.Env)
			}
		}
	})
}
