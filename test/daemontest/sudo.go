package daemontest

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// CheckSudo checks the guest's own sudo in a real sandbox, even if its image has another one.
func CheckSudo(t *testing.T, c carrel.Computer) {
	t.Helper()
	for _, s := range []struct {
		name, user, line string
		code             int
		out              string // both outputs; with a final "*", their beginning
	}{
		{"root", "", "S whoami", 0, "root\n"},
		{"all IDs", "", "S id", 0, "uid=0(root) gid=0(root) groups=0(root)\n"},
		{"back", "", "S -u user sh -c 'id -un; id -u'", 0, "user\n1000\n"},
		{"for good", "", "S -u nobody grep -E '^([UG]id|Cap(Prm|Eff|Amb)):.*[1-9]' /proc/self/status", 0, "Uid:\t65534\t65534\t65534\t65534\nGid:\t65534\t65534\t65534\t65534\n"},
		{"from root", "root", "S -n -u user whoami", 0, "user\n"},
		{"group", "", "S -g daemon sh -c 'id -un; id -gn'", 0, "user\ndaemon\n"},
		{"never asks", "", "S -n true && S -v && S -k", 0, ""},
		{"login", "", "S -i pwd", 0, "/root\n"},
		{"shell", "", "S -s echo '$HOME' 'a b'", 0, "/root a b\n"},
		{"stays", "", "cd /var/tmp && S pwd", 0, "/var/tmp\n"},
		{"environment", "", "X=1 LD_PRELOAD=/no.so S FOO=2 printenv X LD_PRELOAD FOO HOME SUDO_USER", 1, "2\n/root\nuser\n"},
		{"whole environment", "", "X=1 S -E printenv X HOME USER", 0, "1\n/home/user\nroot\n"},
		{"path", "", "PATH=/nowhere S printenv PATH", 0, "/usr/local/sbin:*"},
		{"the runtime knows it is set-uid", "", "GOTRACEBACK=crash S --preserve-env=GOTRACEBACK printenv GOTRACEBACK", 0, "none\n"},
		{"exit code", "", "S sh -c 'exit 7'", 7, ""},
		{"signal", "", "exec 2>/dev/null; S sh -c 'kill -KILL $$'; echo $?", 0, "137\n"},
		{"same process", "", "sh -c 'echo $$; exec S sh -c \"echo \\$\\$\"' | uniq | wc -l", 0, "1\n"},
		{"not found", "", "S foo", 1, "sudo: foo: command not found\n"},
		{"no user", "", "S -u foo id", 1, "sudo: unknown user foo\n"},
		{"minus one", "", "S -u '#-1' id; S -u '#4294967295' id", 1, "sudo: unknown user #-1\nsudo: unknown user #4294967295\n"},
		{"usage", "", "S", 1, "usage: sudo *"},
		{"may not", "nobody", "cd /; S id", 1, "nobody is not in the sudoers file.\n"},
		{"may not, by sudo", "", "S -u nobody S id", 1, "nobody is not in the sudoers file.\n"},
		{"is nobody", "1234", "cd /; S id", 1, "sudo: you do not exist in the passwd database\n"},
		{"a copy is not set-uid", "", "cp S my && chmod 4755 my && ./my id", 1, "sudo: effective uid is not 0, *"},
		{"the guest is not set-uid", "", "test -u /.carrel/guest || test -w /.carrel/sudo", 1, ""},
		{"closed files", "", "S sh -c true <&- >&- 2>&-", 0, ""},
		{"no files", "", "ulimit -n 3; S id", 1, "sudo: open /etc/passwd: too many open files\n"},
	} {
		t.Run(s.name, func(t *testing.T) {
			line := regexp.MustCompile(`\bS\b`).ReplaceAllString(s.line, "/.carrel/sudo")
			res, err := c.Run(t.Context(), carrel.Command{Shell: line, User: s.user, Dir: "/tmp", Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			got := string(res.Stdout) + string(res.Stderr)
			start, open := strings.CutSuffix(s.out, "*")
			if res.ExitCode != s.code || got != s.out && (!open || !strings.HasPrefix(got, start)) {
				t.Errorf("%s\nexit code %d, want %d:\n%swant\n%s", line, res.ExitCode, s.code, got, s.out)
			}
		})
	}
	// Every sandbox must have a sudo, wherever it comes from.
	if res, err := c.Run(t.Context(), carrel.Command{Shell: "sudo -n whoami"}); err != nil || string(res.Stdout) != "root\n" {
		t.Errorf("sudo whoami: %q, %q, %v", res.Stdout, res.Stderr, err)
	}
}
