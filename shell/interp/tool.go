package interp

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// toolTable lists the programs of the machine. It is a function, called once, because its entries
// refer back to it.
func toolTable() map[string]command {
	return map[string]command{
		"bash": toolShell, "sh": toolShell,
		"true": biTrue, "false": biFalse, "echo": biEcho, "printf": biPrintf, "test": biTest, "[": biTest, "pwd": biPwd, "kill": biKill,
		"stty":         toolStty,
		"carrel-guest": toolGuest,
	}
}

// Install puts a small Linux into an empty filesystem: tools, devices and directories. It also
// installs the tools named in commands (see Config.Commands).
func Install(f *vfs.FS, commands ...string) error {
	v := f.Root()
	for _, d := range []string{"/bin", "/usr/local/bin", "/etc", "/dev", "/proc", "/root", "/home", "/var/log", "/var/tmp", "/run", "/opt", "/mnt", "/srv"} {
		if d == "/bin" {
			if err := errors.Join(v.MkdirAll("/usr/bin", 0o755), v.Symlink("usr/bin", "/bin"), v.MkdirAll("/usr/sbin", 0o755), v.Symlink("usr/sbin", "/sbin")); err != nil {
				return err
			}
			continue
		}
		if err := v.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if err := errors.Join(v.Mkdir("/tmp", fs.ModeSticky|0o777), v.Chmod("/var/tmp", fs.ModeSticky|0o777), v.Chmod("/root", 0o700),
		v.Device("/dev/null", "null"), v.Device("/dev/zero", "zero"), v.Device("/dev/full", "full"),
		v.Device("/dev/random", "random"), v.Device("/dev/urandom", "random"), v.Symlink("/proc/self/fd", "/dev/fd")); err != nil {
		return err
	}
	for name, text := range etcFiles {
		if err := v.WriteFile("/etc/"+name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(toolTable())), commands) {
		if err := v.WriteFile("/usr/bin/"+name, []byte(tool.ProgramMark+name+"\n"), 0o755); err != nil {
			return err
		}
	}
	return errors.Join(v.Remove("/usr/bin/sh"), v.Symlink("bash", "/usr/bin/sh"), installProc(f))
}

// Stub returns the content of a file that runs one of the machine's programs.
func Stub(name string) []byte { return []byte(tool.ProgramMark + name + "\n") }

var etcFiles = map[string]string{
	"passwd":     "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
	"group":      "root:x:0:\nnogroup:x:65534:\n",
	"os-release": "PRETTY_NAME=\"Carrel (simulated)\"\nNAME=\"Carrel\"\nID=carrel\nHOME_URL=\"https://example.com/\"\n",
	"shells":     "/bin/sh\n/bin/bash\n",
	"hosts":      "127.0.0.1\tlocalhost\n::1\tlocalhost\n",
}

// complain writes "name: message" and returns status.
func (c *call) complain(status int, format string, args ...any) int {
	c.r.writeErr(base(c.name) + ": " + fmt.Sprintf(format, args...) + "\n")
	return status
}

func base(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// AddUser adds a user, a group with the same name and number, and a home directory.
func AddUser(f *vfs.FS, name string, id uint32) error {
	v := f.Root()
	add := func(file, line string) error {
		have, err := v.ReadFile(file)
		if err != nil {
			return err
		}
		return v.WriteFile(file, append(have, line...), 0o644)
	}
	home := "/home/" + name
	return errors.Join(add("/etc/passwd", fmt.Sprintf("%s:x:%d:%d:%s:%s:/bin/bash\n", name, id, id, name, home)),
		add("/etc/group", fmt.Sprintf("%s:x:%d:\n", name, id)), v.MkdirAll(home, 0o755), v.Chown(home, id, id))
}
