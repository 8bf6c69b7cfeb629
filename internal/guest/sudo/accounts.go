package sudo

import (
	"slices"
	"strconv"
	"strings"
)

// Account is a line of passwd(5).
type Account struct {
	Name        string
	UID, GID    uint32
	Home, Shell string
}

// group is a line of group(5).
type group struct {
	name    string
	gid     uint32
	members []string
}

// Accounts are the account files.
type Accounts struct {
	users  []Account
	groups []group
}

// invalidID is the number that system calls take for "leave it as it is". For a user of that number
// they would keep sudo's own user, root.
const invalidID = 1<<32 - 1

// admins are the groups whose members may do anything, in Debian and in other systems.
var admins = []string{"sudo", "wheel"}

// owner is the account that a sandbox belongs to.
const owner = "user"

// NewAccounts reads the contents of /etc/passwd and /etc/group. It skips invalid lines. Of several
// lines for one name or number the first counts.
func NewAccounts(passwd, groups []byte) *Accounts {
	a := &Accounts{}
	eachLine(passwd, 7, func(f []string) {
		uid, ok1 := number(f[2])
		gid, ok2 := number(f[3])
		if !ok1 || !ok2 {
			return
		}
		u := Account{Name: f[0], UID: uid, GID: gid, Home: f[5], Shell: f[6]}
		if u.Home == "" {
			u.Home = "/"
		}
		if u.Shell == "" {
			u.Shell = "/bin/sh"
		}
		a.users = append(a.users, u)
	})
	eachLine(groups, 4, func(f []string) {
		if gid, ok := number(f[2]); ok {
			a.groups = append(a.groups, group{name: f[0], gid: gid, members: strings.Split(f[3], ",")})
		}
	})
	return a
}

// eachLine calls fn with the fields of each line that has at least n fields.
func eachLine(data []byte, n int, fn func(fields []string)) {
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if f := strings.Split(line, ":"); len(f) >= n && f[0] != "" {
			fn(f)
		}
	}
}

// number parses an ID that an account can have.
func number(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil && n != invalidID
}

// byUID finds the account with a number. Root needs no line.
func (a *Accounts) byUID(uid uint32) (Account, bool) {
	for _, u := range a.users {
		if u.UID == uid {
			return u, true
		}
	}
	return Account{Name: "root", Home: "/root", Shell: "/bin/sh"}, uid == 0
}

// user finds an account by name or "#number".
func (a *Accounts) user(name string) (Account, bool) {
	if digits, ok := strings.CutPrefix(name, "#"); ok {
		uid, ok := number(digits)
		if !ok {
			return Account{}, false
		}
		return a.byUID(uid)
	}
	for _, u := range a.users {
		if u.Name == name {
			return u, true
		}
	}
	if name == "root" {
		return a.byUID(0)
	}
	return Account{}, false
}

// gid finds a group by name or "#number". A number need not be in the file.
func (a *Accounts) gid(name string) (uint32, bool) {
	if digits, ok := strings.CutPrefix(name, "#"); ok {
		return number(digits)
	}
	for _, g := range a.groups {
		if g.name == name {
			return g.gid, true
		}
	}
	return 0, false
}

// groupsOf lists first and all groups of an account, as initgroups(3) does.
func (a *Accounts) groupsOf(u Account, first uint32) []uint32 {
	out := []uint32{first}
	add := func(gid uint32) {
		if !slices.Contains(out, gid) {
			out = append(out, gid)
		}
	}
	add(u.GID)
	for _, g := range a.groups {
		if slices.Contains(g.members, u.Name) {
			add(g.gid)
		}
	}
	return out
}

// may reports whether an account may run every command as every user.
func (a *Accounts) may(u Account) bool {
	if u.UID == 0 {
		return true
	}
	if o, ok := a.user(owner); ok && o.UID == u.UID {
		return true
	}
	for _, g := range a.groups {
		if slices.Contains(admins, g.name) && (g.gid == u.GID || slices.Contains(g.members, u.Name)) {
			return true
		}
	}
	return false
}
