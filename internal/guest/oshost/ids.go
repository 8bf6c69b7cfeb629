package oshost

import (
	"fmt"
	"os"
	"strings"

	"github.com/carrel-dev/carrel/internal/guest/agent"
)

// idMap tells which ids there are. In a user namespace that an ordinary user made there is one only,
// see user_namespaces(7): no process can become another user, and no file can be given to one.
type idMap []idRange

// idRange is one line of a map: the ids from first up to, without, end.
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

// readIDMap reads a map of this process; a kernel that shows none (gVisor has one user namespace) has all ids.
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

// possible is the account as which a request of u can be carried out. Where u's id does not exist that is our own,
// with u's name, home and shell: what it runs and writes then belongs to whom everything belongs.
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
