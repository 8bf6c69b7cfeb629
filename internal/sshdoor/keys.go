package sshdoor

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
)

// maxKeys bounds how many keys are kept.
const maxKeys = 1000

// Keys holds the public keys that may pass, in a file. It is safe for concurrent use.
type Keys struct {
	file string

	mu   sync.Mutex
	keys []entry // by name, then by project
}

// entry is a key in its stored form and in its form for comparison.
type entry struct {
	carrel.SSHKey
	blob []byte
}

// OpenKeys reads the keys in dir, from the file keys.json. Without the file there are none.
func OpenKeys(dir string) (*Keys, error) {
	k := &Keys{file: filepath.Join(dir, "keys.json")}
	raw, err := os.ReadFile(k.file)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	var list []carrel.SSHKey
	if err == nil {
		err = json.Unmarshal(raw, &list)
	}
	for _, s := range list {
		if err != nil {
			break
		}
		var key ssh.PublicKey
		if key, err = parseKey(s.PublicKey); err == nil {
			k.keys = append(k.keys, entry{SSHKey: s, blob: key.Marshal()})
		}
	}
	if err != nil {
		return nil, &carrel.Error{Op: "read SSH keys", Kind: carrel.Invalid, Field: k.file, Err: err, Hint: "remove the file and add the keys again"}
	}
	return k, nil
}

// List returns the keys, sorted by name.
func (k *Keys) List() []carrel.SSHKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]carrel.SSHKey, 0, len(k.keys))
	for _, e := range k.keys {
		out = append(out, e.SSHKey)
	}
	return out
}

// Add adds a key to a project under a name, for the given sandboxes of the project. Without
// sandboxes, the key is for all of them. The project "" has the sandboxes of all projects. Each
// project has its own names, and several projects may have the same key. The key is durable when
// Add returns. Errors: Invalid, AlreadyExists, Exhausted.
func (k *Keys) Add(project, name, publicKey string, sandboxes []carrel.ID) (carrel.SSHKey, error) {
	const op = "add SSH key"
	e, err := newEntry(op, project, name, publicKey, sandboxes)
	if err != nil {
		return carrel.SSHKey{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, old := range k.keys {
		if old.Project == project && (old.Name == name || bytes.Equal(old.blob, e.blob)) {
			return carrel.SSHKey{}, keyTaken(op, old.Fingerprint, old.Name)
		}
	}
	if len(k.keys) >= maxKeys {
		return carrel.SSHKey{}, tooManyKeys(op, maxKeys)
	}
	next := append(slices.Clone(k.keys), e)
	slices.SortFunc(next, byName)
	return e.SSHKey, k.save(op, next)
}

// newEntry checks a new key. Error: Invalid.
func newEntry(op, project, name, publicKey string, sandboxes []carrel.ID) (entry, error) {
	invalid := func(field string, err error, hint string) (entry, error) {
		return entry{}, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: field, Err: err, Hint: hint}
	}
	if !validName(name) {
		return invalid("name", fmt.Errorf("%q is not a name of letters, digits and . _ @ + -, 64 at most", name), "")
	}
	key, err := parseKey(publicKey)
	if err != nil {
		return invalid("publicKey", err, "give the .pub file's line, such as ssh-ed25519 AAAA…")
	}
	for _, id := range sandboxes {
		if _, err := carrel.ParseID(string(id)); err != nil {
			return invalid("sandboxes", err, "")
		}
	}
	return entry{blob: key.Marshal(), SSHKey: carrel.SSHKey{
		Name: name, Project: project, PublicKey: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))), Fingerprint: ssh.FingerprintSHA256(key),
		Sandboxes: slices.Clone(sandboxes), Added: time.Now().UTC().Truncate(time.Second),
	}}, nil
}

// keyTaken is the error for a key, or a name, that a project has already.
func keyTaken(op, fingerprint, name string) error {
	return &carrel.Error{Op: op, Kind: carrel.AlreadyExists, Err: fmt.Errorf("key %s is there under the name %q", fingerprint, name),
		Hint: "carrel ssh-key rm " + name}
}

// noKey is the error for a name that no key has.
func noKey(op, name string) error {
	return &carrel.Error{Op: op, Kind: carrel.NotFound, Err: fmt.Errorf("no key is named %q", name)}
}

// tooManyKeys is the error when there is no room for another key.
func tooManyKeys(op string, n int) error {
	return &carrel.Error{Op: op, Kind: carrel.Exhausted, Err: fmt.Errorf("there are %d keys already", n)}
}

// byName orders keys.
func byName(a, b entry) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Project, b.Project))
}

// Remove removes a project's key of this name. Connections that it opened go on. Error: NotFound.
func (k *Keys) Remove(project, name string) error {
	const op = "remove SSH key"
	k.mu.Lock()
	defer k.mu.Unlock()
	next := slices.DeleteFunc(slices.Clone(k.keys), func(e entry) bool { return e.Name == name && e.Project == project })
	if len(next) == len(k.keys) {
		return noKey(op, name)
	}
	return k.save(op, next)
}

// save writes the keys to the file and then uses them. The caller holds k.mu.
func (k *Keys) save(op string, next []entry) error {
	list := make([]carrel.SSHKey, 0, len(next))
	for _, e := range next {
		list = append(list, e.SSHKey)
	}
	raw, err := json.MarshalIndent(list, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(k.file), 0o700)
	}
	if err == nil {
		err = atomicfile.Write(k.file, append(raw, '\n'), 0o600)
	}
	if err != nil {
		return &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	k.keys = next
	return nil
}

// Finder finds the keys that may pass. [Keys] and [SharedKeys] are two.
type Finder interface {
	// Find returns the known keys with these bytes, one of each project.
	Find(blob []byte) []carrel.SSHKey
}

var _ Finder = (*Keys)(nil)

// Find implements Finder.
func (k *Keys) Find(blob []byte) []carrel.SSHKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	return among(k.keys, blob)
}

// among returns the keys with these bytes. Public keys are no secret, so its running time reveals
// nothing important.
func among(all []entry, blob []byte) (found []carrel.SSHKey) {
	for _, e := range all {
		if bytes.Equal(e.blob, blob) {
			found = append(found, e.SSHKey)
		}
	}
	return found
}

// parseKey reads one public key as ssh-keygen writes it. It refuses options, certificates and weak
// key types.
func parseKey(line string) (ssh.PublicKey, error) {
	if len(line) > 16<<10 {
		return nil, errors.New("longer than a public key")
	}
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(line))
	switch {
	case err != nil:
		return nil, errors.New("not a public key")
	case len(options) > 0:
		return nil, errors.New("options before a key mean nothing here")
	case len(bytes.TrimSpace(rest)) > 0:
		return nil, errors.New("more than one key")
	}
	switch key.Type() {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSA, ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256:
		return key, nil
	}
	return nil, fmt.Errorf("keys of type %s are not taken", key.Type())
}

// validName reports whether a text is a valid name for a key.
func validName(s string) bool {
	const chars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@+-"
	return s != "" && len(s) <= 64 && strings.Trim(s, chars) == ""
}

// HostKey returns the key by which clients know this host. It is in dir, and is made on first use.
func HostKey(dir string) (ssh.Signer, error) {
	fail := func(err error) (ssh.Signer, error) {
		return nil, &carrel.Error{Op: "open SSH host key", Kind: carrel.Internal, Err: err, Hint: "clients will warn when it is made anew"}
	}
	file := filepath.Join(dir, "host-key")
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return fail(err)
		}
		block, err := ssh.MarshalPrivateKey(key, "carrel")
		if err != nil {
			return fail(err)
		}
		raw = pem.EncodeToMemory(block)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fail(err)
		}
		if err := atomicfile.Write(file, raw, 0o600); err != nil {
			return fail(err)
		}
	} else if err != nil {
		return fail(err)
	}
	signer, err := ssh.ParsePrivateKey(raw)
	if err != nil {
		return fail(err)
	}
	return signer, nil
}

// NewHostKey returns a key that is stored nowhere, for a connection of its own.
func NewHostKey() (ssh.Signer, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	return ssh.NewSignerFromKey(key)
}
