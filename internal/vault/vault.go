package vault

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/failpoint"
)

const opOpen = "open secrets"

// Options configures a Vault. The zero value is valid.
type Options struct {
	// KeyFile holds the key: 32 bytes or 64 hexadecimal digits. It must exist. "" means a file in
	// the vault's own directory. The vault makes it if there are no secrets yet.
	KeyFile string
	// Now returns the time; nil is time.Now.
	Now func() time.Time
	// Logger receives errors in files; nil discards them.
	Logger *slog.Logger
}

// Vault keeps the secrets of all projects, each project's apart. The owner of a secret is a
// project's name, or "" for [carrel.DefaultProject]. It is safe for concurrent use. It must be the
// only one to use its directory.
type Vault struct {
	dir  string
	opts Options

	writing sync.Mutex // held while files are changed; taken before mu

	mu     sync.RWMutex
	key    *key
	next   *key // set while the key file holds the old key; see Rekey
	byID   map[string]*record
	byName map[ownName]string
	// broken holds the refused files, by their ID.
	broken map[string]refused
}

// refused describes a refused file and the reason.
type refused struct {
	header
	why error
}

// ownName is a secret's name with its owner.
type ownName struct{ owner, name string }

// Open opens the vault in dir, and makes the directory if needed. Files that were changed or
// damaged are reported to the logger. A request for such a secret is refused. Errors: Invalid for a
// key that is missing or does not fit the secrets.
func Open(dir string, opts Options) (*Vault, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	v := &Vault{dir: dir, opts: opts, byID: map[string]*record{}, byName: map[ownName]string{}, broken: map[string]refused{}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, internal(opOpen, err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, internal(opOpen, err)
	}
	files, err := v.files()
	if err != nil {
		return nil, err
	}
	if err := v.openKey(len(files) > 0); err != nil {
		return nil, err
	}
	foreign := 0
	for _, name := range files {
		if err := v.load(name); errors.Is(err, errOtherKey) {
			foreign++
		} else if err != nil {
			return nil, err
		}
	}
	if foreign > 0 && foreign == len(files) {
		return nil, &carrel.Error{Op: opOpen, Kind: carrel.Invalid, Field: "secret-key-file",
			Err:  fmt.Errorf("the key %s is not the one that the %d secrets in %s are sealed with", v.keyFile(), foreign, dir),
			Hint: "restore the key file that belongs to them; or remove the secrets' files and set them anew"}
	}
	if v.next != nil {
		if err := v.finishRekey(); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// Format implements fmt.Formatter, so that a vault prints only its directory.
func (v *Vault) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "vault(%s)", v.dir) }

// files lists the secrets' files. It removes unfinished files of a crash.
func (v *Vault) files() ([]string, error) {
	entries, err := os.ReadDir(v.dir)
	if err != nil {
		return nil, internal(opOpen, err)
	}
	var out []string
	for _, e := range entries {
		id, isSecret := strings.CutSuffix(e.Name(), ".json")
		switch {
		case isSecret && isID(id):
			out = append(out, e.Name())
		case strings.HasPrefix(e.Name(), "."+idPrefix), strings.HasPrefix(e.Name(), "."+keyName):
			if err := os.Remove(filepath.Join(v.dir, e.Name())); err != nil {
				return nil, internal(opOpen, err)
			}
		}
	}
	return out, nil
}

// load reads one file. It remembers a faulty file as broken. It returns only errOtherKey or a read
// error.
func (v *Vault) load(name string) error {
	raw, err := os.ReadFile(filepath.Join(v.dir, name))
	if err != nil {
		return internal(opOpen, err)
	}
	id := strings.TrimSuffix(name, ".json")
	r, err := parse(raw)
	if err == nil && r.ID != id {
		err = errors.New("it is the file of another secret")
	}
	if err == nil {
		err = r.unlock(v.keyOf(r))
	}
	if err == nil {
		err = v.index(r)
	}
	if err != nil {
		v.opts.Logger.Error("a secret's file is refused", "file", name, "secret", r.Name, "err", err)
		v.broken[id] = refused{r.header, err}
	}
	if errors.Is(err, errOtherKey) {
		return err
	}
	return nil
}

// keyOf returns the key to try for a record.
func (v *Vault) keyOf(r *record) *key {
	if v.key == nil || (v.next != nil && r.Key == v.next.id) {
		return v.next
	}
	return v.key
}

// index adds an opened record to the tables. If two files have one name, which happens only when
// files come from outside, the younger keeps it.
func (v *Vault) index(r *record) error {
	n := ownName{r.Owner, r.Name}
	if other := v.byID[v.byName[n]]; other != nil && other.ID != r.ID {
		older := r
		if r.Created.After(other.Created) {
			older = other
			delete(v.byID, other.ID)
			v.byID[r.ID], v.byName[n] = r, r.ID
		}
		err := errors.New("another secret's file has its name")
		if older == r {
			return err
		}
		v.broken[older.ID] = refused{older.header, err}
		return nil
	}
	v.byID[r.ID], v.byName[n] = r, r.ID
	return nil
}

// put writes a record and makes it the present one. The caller holds v.writing.
func (v *Vault) put(op string, r *record) error {
	raw, err := r.encode()
	if err != nil {
		return internal(op, err)
	}
	if err := failpoint.Hit("vault.write"); err != nil {
		return internal(op, err)
	}
	if err := atomicfile.Write(filepath.Join(v.dir, r.ID+".json"), raw, 0o600); err != nil {
		return internal(op, err)
	}
	if err := failpoint.Hit("vault.written"); err != nil {
		return internal(op, err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.byID[r.ID], v.byName[ownName{r.Owner, r.Name}] = r, r.ID
	return nil
}

// sealingKey returns the key for new writes.
func (v *Vault) sealingKey() *key {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.next != nil {
		return v.next
	}
	return v.key
}

// find returns the record of a reference, which is an ID or a name.
func (v *Vault) find(op, owner, ref string) (*record, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	ref = strings.ToLower(ref)
	if r := v.byID[ref]; r != nil && r.Owner == owner {
		return r, nil
	}
	if r := v.byID[v.byName[ownName{owner, ref}]]; r != nil {
		return r, nil
	}
	if id := v.findBroken(owner, ref); id != "" {
		return nil, &carrel.Error{Op: op, Kind: carrel.Internal, Err: fmt.Errorf("secret %s (%s) is refused: %w", clip(ref), id, v.broken[id].why),
			Hint: "restore " + id + ".json from a backup, or remove the secret and set it anew"}
	}
	e := &carrel.Error{Op: op, Kind: carrel.NotFound, Err: errors.New("no such secret"), Hint: "list them with: carrel secret list"}
	if isID(ref) || checkName(ref) == nil { // any other text may be the value itself
		e.Err = fmt.Errorf("no secret %q", ref)
	}
	return nil, e
}

// findBroken returns the ID of a refused file. The caller holds v.mu.
func (v *Vault) findBroken(owner, ref string) string {
	if h, ok := v.broken[ref]; ok && h.Owner == owner {
		return ref
	}
	for id, h := range v.broken {
		if h.Owner == owner && h.Name == ref && ref != "" {
			return id
		}
	}
	return ""
}

// Reveal returns the value of a project's secret for a request to host. Only the wire may call it.
// Errors: NotFound; Forbidden when the secret is not for that host.
func (v *Vault) Reveal(_ context.Context, project, ref, host string) (string, error) {
	const op = "reveal secret"
	r, err := v.find(op, ownerOf(project), ref)
	if err != nil {
		return "", err
	}
	if !covers(r.Hosts, host) {
		return "", &carrel.Error{Op: op, Kind: carrel.Forbidden, Err: fmt.Errorf("secret %s is not for %q", r.Name, clip(host)),
			Hint: "it is for " + strings.Join(r.Hosts, ", ")}
	}
	value, err := r.open()
	if err != nil {
		return "", &carrel.Error{Op: op, Kind: carrel.Internal, Err: fmt.Errorf("secret %s: %w", r.Name, err)}
	}
	return string(value), nil
}

// minHidden is the length of the shortest value that Hider replaces. A shorter one is in ordinary
// words.
const minHidden = 6

// Hider returns a function that replaces the values of a project's secrets in texts. A secret that
// can't be opened is not replaced: its value is known to nobody.
func (v *Vault) Hider(project string) func(text string) string {
	type secret struct{ value, name string }
	var all []secret
	v.mu.RLock()
	for _, r := range v.byID {
		if r.Owner != ownerOf(project) {
			continue
		}
		if value, err := r.open(); err == nil && len(value) >= minHidden {
			all = append(all, secret{string(value), r.Name})
		}
	}
	v.mu.RUnlock()
	// A value may contain another one. The longer one goes first.
	slices.SortFunc(all, func(a, b secret) int { return len(b.value) - len(a.value) })
	var pairs []string
	for _, s := range all {
		pairs = append(pairs, s.value, "[redacted: secret "+s.name+"]")
	}
	return strings.NewReplacer(pairs...).Replace
}

// list returns an owner's records, sorted by name.
func (v *Vault) list(owner string) []carrel.Secret {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := []carrel.Secret{}
	for _, r := range v.byID {
		if r.Owner == owner {
			out = append(out, r.tell())
		}
	}
	slices.SortFunc(out, func(a, b carrel.Secret) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func internal(op string, err error) error {
	return &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
}
