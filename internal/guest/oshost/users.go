package oshost

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/guest/agent"
)

// Linux's account files. Both are public and line-based, see passwd(5) and group(5).
const (
	passwdFile = "/etc/passwd"
	groupFile  = "/etc/group"
)

// accounts caches the account files. Every request needs them, and they change when a package adds
// a user.
type accounts struct {
	mu            sync.Mutex
	passwd, group version
	users         map[string]agent.User
	userNames     map[uint32]string
	groupNames    map[uint32]string
	groupIDs      map[string]uint32
}

// version identifies one state of a file.
type version struct {
	inode             uint64
	size              int64
	modified, changed unix.Timespec
}

// versionOf returns a file's version, the zero one for a missing file.
func versionOf(name string) version {
	var st unix.Stat_t
	if unix.Stat(name, &st) != nil {
		return version{}
	}
	return version{st.Ino, st.Size, st.Mtim, st.Ctim}
}

// User finds an account by the forms that images use for their user: a name or a uid, and perhaps a
// colon and the name or the gid of its only group. Numbers need not be in any file. If ids do not
// exist here, the account gets ours, see possible.
func (s *System) User(name string) (agent.User, error) {
	a := &s.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refresh()
	u, ok := a.users[name]
	if !ok {
		u, ok = a.composed(name)
	}
	if !ok {
		return agent.User{}, fmt.Errorf("user %q: %w", name, fs.ErrNotExist)
	}
	u.Groups = slices.Clone(u.Groups)
	return s.possible(u), nil
}

// composed finds or makes up the account of "uid", "uid:group" or "name:group". a.mu is held.
func (a *accounts) composed(name string) (agent.User, bool) {
	first, second, withGroup := strings.Cut(name, ":")
	u, known := a.users[first]
	if !known {
		uid, ok := number(first)
		if !ok {
			return agent.User{}, false
		}
		if u, known = a.users[a.userNames[uid]]; !known {
			u = agent.User{Name: first, UID: uid, Home: "/", Shell: "/bin/sh"}
		}
	}
	if withGroup {
		gid, ok := a.groupIDs[second]
		if !ok {
			gid, ok = number(second)
		}
		if !ok {
			return agent.User{}, false
		}
		u.GID, u.Groups = gid, []uint32{gid}
	}
	return u, true
}

// Names returns the names of an owner and a group. For an unknown id it returns the number as text.
func (s *System) Names(uid, gid uint32) (owner, group string) {
	a := &s.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refresh()
	owner, ok := a.userNames[uid]
	if !ok {
		owner = strconv.FormatUint(uint64(uid), 10)
	}
	group, ok = a.groupNames[gid]
	if !ok {
		group = strconv.FormatUint(uint64(gid), 10)
	}
	return owner, group
}

// refresh reads the files again if they have changed. a.mu is held.
func (a *accounts) refresh() {
	passwd, group := versionOf(passwdFile), versionOf(groupFile)
	if a.users != nil && passwd == a.passwd && group == a.group {
		return
	}
	a.passwd, a.group = passwd, group
	users, _ := readPlain(passwdFile) // absent: no accounts
	groups, _ := readPlain(groupFile)
	a.parse(users, groups)
}

// parse fills the tables from the files' contents. Like the C library it skips invalid lines.
func (a *accounts) parse(passwd, group []byte) {
	a.users, a.userNames, a.groupNames = map[string]agent.User{}, map[uint32]string{}, map[uint32]string{}
	a.groupIDs = map[string]uint32{}
	members := map[string][]uint32{}
	eachLine(group, 4, func(f []string) {
		gid, ok := number(f[2])
		if !ok {
			return
		}
		if _, taken := a.groupNames[gid]; !taken {
			a.groupNames[gid] = f[0]
		}
		if _, taken := a.groupIDs[f[0]]; !taken {
			a.groupIDs[f[0]] = gid
		}
		for m := range strings.SplitSeq(f[3], ",") {
			if m != "" {
				members[m] = append(members[m], gid)
			}
		}
	})
	eachLine(passwd, 7, func(f []string) {
		uid, ok1 := number(f[2])
		gid, ok2 := number(f[3])
		if _, taken := a.users[f[0]]; taken || !ok1 || !ok2 {
			return
		}
		u := agent.User{Name: f[0], UID: uid, GID: gid, Home: f[5], Shell: f[6]}
		u.Groups = append(u.Groups, gid)
		for _, g := range members[u.Name] {
			if !slices.Contains(u.Groups, g) {
				u.Groups = append(u.Groups, g)
			}
		}
		if u.Home == "" {
			u.Home = "/"
		}
		if u.Shell == "" {
			u.Shell = "/bin/sh"
		}
		a.users[u.Name] = u
		if _, taken := a.userNames[uid]; !taken {
			a.userNames[uid] = u.Name
		}
	})
}

// eachLine calls fn with the fields of each line that has at least n fields.
func eachLine(data []byte, n int, fn func(fields []string)) {
	sc := bufio.NewScanner(bytes.NewReader(data))
	sc.Buffer(nil, 1<<20) // a group line grows with its members
	for sc.Scan() {
		line := strings.TrimSpace(sc.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if f := strings.Split(line, ":"); len(f) >= n && f[0] != "" {
			fn(f)
		}
	}
}

// number parses a user or group id.
func number(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil
}
