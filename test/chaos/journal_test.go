package chaos

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"sync"

	"github.com/carrel-dev/carrel"
)

// journal is what the daemon acknowledged. It is kept outside the daemon.
type journal struct {
	mu        sync.Mutex
	boxes     map[carrel.ID]*box
	snaps     map[carrel.SnapshotID]*snap
	templates map[string]bool // names of imported templates; false: deleted
	unknown   int             // sandboxes that may exist although no answer named them
	unnamed   int             // snapshots of the same kind
	everyID   []carrel.ID     // of all sandboxes that the daemon named, for the search for leaks
}

func newJournal() *journal {
	return &journal{boxes: map[carrel.ID]*box{}, snaps: map[carrel.SnapshotID]*snap{},
		templates: map[string]bool{}}
}

// doubt is an operation that was asked for and not answered.
type doubt string

// The doubts that a sandbox or a snapshot can have.
const (
	none       doubt = ""
	inKill     doubt = "kill"
	inPause    doubt = "pause"
	inResume   doubt = "resume"
	inWrite    doubt = "write"
	inCount    doubt = "count"
	inRollback doubt = "roll back"
	inDelete   doubt = "delete"
)

// content is the inside of a sandbox at one moment.
type content struct {
	files map[string]string // checksum by name
	pid   int               // of the process that holds number; 0: there is none
	n     int               // the number in its memory
}

func (c content) clone() content {
	c.files = maps.Clone(c.files)
	return c
}

// box is one sandbox in the journal. One worker at a time has it.
type box struct {
	id     carrel.ID
	tier   carrel.Tier
	paused bool
	dead   bool // its kill was acknowledged, or the oracle saw its allowed end
	content

	doubt doubt
	file  string  // of inWrite
	sum   string  // of inWrite
	back  content // of inRollback: the content of the target
	memo  bool    // of inRollback: with memory
}

// snap is one snapshot in the journal.
type snap struct {
	id     carrel.SnapshotID
	of     carrel.ID
	tier   carrel.Tier
	memory bool
	gone   bool
	blind  bool // its content is not known: it was not acknowledged
	doubt  doubt
	content
}

func sumOf(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// addBox writes a new sandbox down.
func (j *journal) addBox(b *box) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.boxes[b.id] = b
	j.everyID = append(j.everyID, b.id)
}

func (j *journal) addSnap(s *snap) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.snaps[s.id] = s
}

// expect changes how many unanswered creations and snapshots there may be.
func (j *journal) expect(boxes, snaps int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unknown += boxes
	j.unnamed += snaps
}

// alive returns the sandboxes that were not killed.
func (j *journal) alive() []*box {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []*box
	for _, b := range j.boxes {
		if !b.dead {
			out = append(out, b)
		}
	}
	return out
}

// snapsOf returns the existing snapshots of a sandbox; "" for those of all.
func (j *journal) snapsOf(id carrel.ID) []*snap {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []*snap
	for _, s := range j.snaps {
		if !s.gone && (id == "" || s.of == id) {
			out = append(out, s)
		}
	}
	return out
}
