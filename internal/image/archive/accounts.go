package archive

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"
)

// account holds the fields of a line of /etc/passwd that this package needs.
type account struct{ name, uid string }

// user turns an image's USER into the name of an account, because the guest's protocol knows only
// names. USER is a name or number, with or without a group. The group of the result is the
// account's own. Without USER it is the account "user" if there is one, as in E2B's images, and
// root otherwise.
//
// Images made for one program often have no accounts at all and run as a bare number. Then accounts
// for root and for that number are added to /etc/passwd.
func (t *Tree) user(spec string) (string, error) {
	name, group, _ := strings.Cut(spec, ":")
	passwd, err := t.readSmall("/etc/passwd", 1<<20)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	accounts := parsePasswd(string(passwd))
	has := func(f func(account) bool) (string, bool) {
		for _, a := range accounts {
			if f(a) {
				return a.name, true
			}
		}
		return "", false
	}
	text, changed := string(passwd), false
	add := func(line string) {
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		text, changed = text+line+"\n", true
	}
	if _, ok := has(func(a account) bool { return a.name == "root" }); !ok {
		add("root:x:0:0:root:/root:/bin/sh")
	}
	_, hasUser := has(func(a account) bool { return a.name == "user" })
	switch known, ok := has(func(a account) bool { return a.name == name || a.uid == name }); {
	case ok && name != "":
		name = known
	case name == "" && hasUser:
		name = "user"
	case name == "" || name == "0":
		name = "root"
	case isNumber(name):
		gid := name
		if isNumber(group) {
			gid = group
		}
		add("u" + name + ":x:" + name + ":" + gid + "::/:/bin/sh")
		name = "u" + name
	}
	if !changed {
		return name, nil
	}
	_, err = t.w.AddFile(t.find("etc"), "passwd", 0o644, []byte(text))
	return name, Classify(op, err)
}

func parsePasswd(text string) (out []account) {
	for line := range strings.Lines(text) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) >= 3 && f[0] != "" {
			out = append(out, account{f[0], f[2]})
		}
	}
	return out
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 31)
	return err == nil
}
