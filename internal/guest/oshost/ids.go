package oshost

import (
	"fmt"
	"os"
	"strings"

	"github.com/carrel-dev/carrel/internal/guest/agent"
)

// idMap holds the existing ids. A user namespace that an ordinary user made has only one, see
// user_namespaces(7). No process there can become another user, and no file can be given to one.
type idMap []idRange

// idRange is one line of a map: the ids from first up to end, without end.
type idRange struct{ first, end uint64 }

// parseIDMap reads /proc/self/uid_map or gid_map.
func parseIDMap(text string) idMap {
	var m idMap
	for line := range strings.Lines(text) {
		var inside, outside, length uint64
		if _, err := fmt.Sscan(line, &inside, &outside, &length); err == nil {
			m = append(m, idRange{inside, inside + length})
		}
	}
	return m
}

// readIDMap reads a map of this process. If the kernel shows none, all ids exist (gVisor has one
// user namespace).
func readIDMap(file string) idMap {
	b, _ := readPlain(file)
	return parseIDMap(string(b))
}

// has reports whether an id exists.
func (m idMap) has(id uint32) bool {
	for _, r := range m {
		if r.first <= uint64(id) && uint64(id) < r.end {
			return true
		}
	}
	return len(m) == 0
}

// possible returns the account that can carry out a request of u. If u's id does not exist here, it
// returns our own id with u's name, home and shell. u's processes and files then belong to the one
// id that exists.
func (s *System) possible(u agent.User) agent.User {
	if s.uids.has(u.UID) && s.gids.has(u.GID) {
		kept := u.Groups[:0:0]
		for _, g := range u.Groups {
			if s.gids.has(g) {
				kept = append(kept, g)
			}
		}
		u.Groups = kept
		return u
	}
	u.UID, u.GID = uint32(os.Geteuid()), uint32(os.Getegid())
	u.Groups = []uint32{u.GID}
	return u
}
