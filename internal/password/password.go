// Package password hashes passwords that people choose, with Argon2id (RFC 9106).
//
// # Threat
//
// Somebody has a stolen copy of the hashes, and tries words. So each try costs memory and time, and
// each hash has its own salt. Somebody else sends many sign-ins, so that these costs exhaust the
// machine: a [Hasher] works on few hashes at once, lets few wait, and refuses the others. A third
// one measures times to learn which names exist: Check takes as long for a name without a hash.
package password

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"golang.org/x/crypto/argon2"
)

// The cost of new hashes. OWASP advises 19 MiB and two passes as the least.
const (
	memoryKiB = 32 << 10
	passes    = 2
	lanes     = 1
	saltBytes = 16
	hashBytes = 32
)

// Bounds on the costs that a stored hash may ask for. Records are ours, but a damaged one must not
// exhaust the machine.
const (
	maxMemoryKiB = 256 << 10
	maxPasses    = 16
	maxLanes     = 8
)

// ErrBusy is the error when too many hashes are computed and waited for.
var ErrBusy = errors.New("too many passwords are being checked")

// Hasher makes and checks hashes. It is safe for concurrent use.
type Hasher struct {
	turns  chan struct{}
	places chan struct{} // those who have a turn and those who wait
}

// New returns a Hasher that works on as many hashes at once as there are processors, at most four.
func New() *Hasher {
	turns := min(4, runtime.GOMAXPROCS(0))
	return &Hasher{turns: make(chan struct{}, turns), places: make(chan struct{}, turns*8)}
}

// turn waits for a turn. The caller calls done when it has used it.
func (h *Hasher) turn(ctx context.Context) (done func(), err error) {
	select {
	case h.places <- struct{}{}:
	default:
		return nil, ErrBusy
	}
	select {
	case h.turns <- struct{}{}:
		return func() { <-h.turns; <-h.places }, nil
	case <-ctx.Done():
		<-h.places
		return nil, ctx.Err()
	}
}

// Hash returns the hash of a password, with its salt and costs in it. Errors: ErrBusy, and that of
// a context that ended.
func (h *Hasher) Hash(ctx context.Context, password string) (string, error) {
	done, err := h.turn(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // never fails: crypto/rand aborts the process instead
	sum := argon2.IDKey([]byte(password), salt, passes, memoryKiB, lanes, hashBytes)
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, memoryKiB, passes,
		lanes, base64.RawStdEncoding.EncodeToString(salt),
		base64.RawStdEncoding.EncodeToString(sum)), nil
}

// parts are what a hash says.
type parts struct {
	memory, passes uint32
	lanes          uint8
	salt, sum      []byte
}

// parse reads a hash.
func parse(hash string) (p parts, ok bool) {
	f := strings.Split(hash, "$")
	if len(f) != 6 || f[0] != "" || f[1] != "argon2id" || f[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return p, false
	}
	var m, t, l uint32
	if _, err := fmt.Sscanf(f[3], "m=%d,t=%d,p=%d", &m, &t, &l); err != nil ||
		m == 0 || m > maxMemoryKiB || t == 0 || t > maxPasses || l == 0 || l > maxLanes {
		return p, false
	}
	p.memory, p.passes, p.lanes = m, t, uint8(l)
	var err, err2 error
	p.salt, err = base64.RawStdEncoding.DecodeString(f[4])
	p.sum, err2 = base64.RawStdEncoding.DecodeString(f[5])
	return p, err == nil && err2 == nil && len(p.salt) >= 8 && len(p.sum) == hashBytes
}

// Check reports whether a password has a hash. A hash of "", or one that can't be read, is no
// password's, and the answer takes as long. Errors: ErrBusy, and that of a context that ended.
func (h *Hasher) Check(ctx context.Context, hash, password string) (bool, error) {
	done, err := h.turn(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	p, ok := parse(hash)
	if !ok {
		p = parts{memoryKiB, passes, lanes, make([]byte, saltBytes), make([]byte, hashBytes)}
	}
	sum := argon2.IDKey([]byte(password), p.salt, p.passes, p.memory, p.lanes, hashBytes)
	same := subtle.ConstantTimeCompare(sum, p.sum) == 1
	return same && ok, nil
}

// Make returns a random password of 99 bits, which can be read out loud.
func Make() string {
	const letters = "abcdefghjkmnpqrstuvwxyz23456789" // 31, without those that look alike
	out := make([]byte, 0, 23)
	for n := 0; n < 20; {
		var b [32]byte
		_, _ = rand.Read(b[:])
		for _, c := range b {
			if int(c) >= 256/len(letters)*len(letters) || n == 20 { // no letter is more likely
				continue
			}
			if n > 0 && n%5 == 0 {
				out = append(out, '-')
			}
			out = append(out, letters[int(c)%len(letters)])
			n++
		}
	}
	return string(out)
}
