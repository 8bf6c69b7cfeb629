//go:build linux

package datadir

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// File is the name of the identity's file in a data directory.
const File = "datadir.json"

// secondFile is a second copy of it. It is read if the first is lost or damaged: without its
// identity a directory could not adopt what runs.
const secondFile = "sandboxes/.datadir.json"

const opOpen = "open data directory"

// formVersion is the version of the file's form.
const formVersion = 1

// Identity is the content of the file.
type Identity struct {
	Form int    `json:"form"`
	ID   string `json:"id"`
	Spot

	// CopyOf is the ID of the directory that this one was copied from; "" for an original.
	CopyOf string `json:"copyOf,omitempty"`
	// CopyFrom is the path of that directory when it was last opened.
	CopyFrom string `json:"copyFrom,omitempty"`
	// Adopted says that a person made this copy the owner of everything in it.
	Adopted bool `json:"adopted,omitempty"`
	// Restored says that the copy was made by a backup and its restoration. Its sandboxes keep
	// their IDs.
	Restored bool `json:"restored,omitempty"`
	// Parts are the copy's own part of a shared store of packs, and the parts of copies before it.
	Parts []string `json:"parts,omitempty"`
	// Renamed holds the sandboxes of a copy that got new IDs: the earlier ID by the new one.
	Renamed map[carrel.ID]carrel.ID `json:"renamed,omitempty"`
}

// Copy reports whether the directory is a copy that nobody made the owner of its content.
func (i Identity) Copy() bool { return i.CopyOf != "" && !i.Adopted }

// Verdict is the result of a comparison.
type Verdict string

// The verdicts.
const (
	Fresh  Verdict = "fresh"  // there was no identity
	Same   Verdict = "same"   // the directory that the file describes
	Copied Verdict = "copied" // a copy, opened for the first time
)

// Dir is an open data directory's identity.
type Dir struct {
	Identity
	// Verdict says what Open found.
	Verdict Verdict
	// Claimed says that this start made a copy the owner.
	Claimed bool

	path string
	was  Spot // of the file
}

// Open reads the identity of the directory at path, and compares it with the directory. adopt makes
// a copy the owner. Nothing is written before [Dir.Commit]. The caller holds the directory's lock.
// Errors: Invalid (the file is damaged), Unsupported (it is of a newer build), Internal.
func Open(path string, adopt bool) (*Dir, error) {
	now, err := spotOf(path)
	if err != nil {
		return nil, &carrel.Error{Op: opOpen, Kind: carrel.Internal, Field: "data-dir", Err: err}
	}
	d := &Dir{path: path, Verdict: Fresh}
	was, err := Read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.Identity = Identity{Form: formVersion, ID: newID()}
	case err != nil:
		return nil, err
	case was.ID == "":
		// A restored backup names only its original. See Restored.
		d.Verdict, d.Identity = Copied, Identity{Form: formVersion, ID: newID(), CopyOf: was.CopyOf,
			Restored: true}
	case was.Spot.is(now) && !elsewhere(was, path), failpoint.Mutant("identity"):
		d.Verdict, d.Identity, d.was = Same, was, was.Spot
	default:
		d.Verdict, d.Identity = Copied, Identity{Form: formVersion, ID: newID(), CopyOf: was.ID,
			CopyFrom: was.Path, Parts: was.Parts}
	}
	if adopt && d.Copy() {
		d.Adopted, d.Claimed = true, true
	}
	d.Spot = now
	return d, nil
}

// Commit makes the identity durable. A copy calls it after its records are its own. It writes
// nothing if nothing has changed.
func (d *Dir) Commit() error {
	if d.Verdict == Same && !d.Claimed && d.was == d.Spot && d.isWhole() {
		return nil
	}
	raw, err := d.Encode()
	if err == nil {
		err = os.MkdirAll(filepath.Join(d.path, filepath.Dir(secondFile)), 0o700)
	}
	for _, name := range []string{secondFile, File} {
		if err == nil {
			err = atomicfile.Write(filepath.Join(d.path, name), raw, 0o600)
		}
	}
	if err != nil {
		return &carrel.Error{Op: opOpen, Kind: carrel.KindOf(err), Field: "data-dir",
			Err: fmt.Errorf("write its identity: %w", err)}
	}
	return nil
}

// KeepApart gives a new copy a part of its own in a store of packs that the original uses, too. A
// copy that was made the owner at once needs none, unless it already reads from parts.
func (d *Dir) KeepApart() {
	if d.Verdict == Copied && (!d.Claimed || len(d.Parts) > 0) {
		d.Parts = append([]string{d.ID}, d.Parts...)
	}
}

// Original names the directory that this one was copied from, for people.
func (i Identity) Original() string {
	name := "the data directory " + i.CopyOf
	if i.CopyFrom != "" {
		name += ", last seen at " + i.CopyFrom
	}
	return name
}

// Rename records that sandboxes got new IDs.
func (d *Dir) Rename(old map[carrel.ID]carrel.ID) {
	if len(old) > 0 && d.Renamed == nil {
		d.Renamed = map[carrel.ID]carrel.ID{}
	}
	maps.Copy(d.Renamed, old)
}

// isWhole reports whether both files say the same, and have a checksum.
func (d *Dir) isWhole() bool {
	first, errA := os.ReadFile(filepath.Join(d.path, File))
	second, errB := os.ReadFile(filepath.Join(d.path, secondFile))
	if errA != nil || errB != nil || !bytes.Equal(first, second) {
		return false
	}
	_, summed, err := decode(first)
	return err == nil && summed
}

// Read reads the identity of the directory at path. If the first file is lost or damaged, it reads
// the second one. Errors: fs.ErrNotExist, Invalid, Unsupported, Internal.
func Read(path string) (Identity, error) {
	i, summed, err := readFile(filepath.Join(path, File))
	switch {
	case err == nil && summed:
		return i, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, carrel.Invalid):
		return i, err
	}
	second, summed, secondErr := readFile(filepath.Join(path, secondFile))
	switch {
	case secondErr == nil && (err != nil || summed):
		return second, nil
	case err == nil && secondErr == nil && second.ID == i.ID:
		// Both are of an older build and have no checksum. A file does not describe the directory
		// itself by chance.
		if now, err := spotOf(path); err == nil && !i.is(now) && second.is(now) {
			return second, nil
		}
	case errors.Is(err, fs.ErrNotExist) && errors.Is(secondErr, carrel.Invalid):
		return i, secondErr // there was an identity
	}
	return i, err
}

// readFile reads one of the two files. summed reports whether it has a checksum.
func readFile(name string) (i Identity, summed bool, err error) {
	raw, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return i, false, err
	}
	if err != nil {
		return i, false, &carrel.Error{Op: opOpen, Kind: carrel.Internal, Field: "data-dir", Err: err}
	}
	i, summed, err = decode(raw)
	if err == nil && (i.ID == "" && i.CopyOf == "" || strings.ContainsAny(i.ID, "/# ")) {
		err = errors.New("it names no directory")
	}
	if i.Form > formVersion {
		return i, false, &carrel.Error{Op: opOpen, Kind: carrel.Unsupported, Field: "data-dir",
			Err:  fmt.Errorf("%s has form %d, this build reads form %d", name, i.Form, formVersion),
			Hint: "use the newer build again"}
	}
	if err != nil {
		return i, false, &carrel.Error{Op: opOpen, Kind: carrel.Invalid, Field: "data-dir",
			Err: fmt.Errorf("%s is damaged (%w): it does not say whether this directory is the "+
				"original or a copy", name, err),
			Hint: "put the file back from a backup of the directory's files, or put the file of " +
				"its original there if it is a copy"}
	}
	return i, summed, nil
}

// Restored writes the identity file of a directory that was restored from a backup of the directory
// with this ID.
func Restored(path, original string) error {
	raw, err := Identity{Form: formVersion, CopyOf: original, Restored: true}.Encode()
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(path, File), raw, 0o600)
}

// State describes a directory for a person.
func (i Identity) State() (problem, hint string) {
	if !i.Copy() {
		return "", ""
	}
	if i.Restored {
		return "it was restored from a backup of " + i.Original() +
				": packs in an object store stay that directory's",
			"if that directory is gone for good, start once with: carrel serve --adopt-copy"
	}
	return "it is a copy of " + i.Original() +
			": its sandboxes have new IDs, and nothing of the original's is touched",
		"if the original is gone for good, start once with: carrel serve --adopt-copy"
}

// Inspect says whether the directory at path is a copy, as a daemon would find. It changes nothing.
func Inspect(path string) (problem, hint string, err error) {
	if _, err := Read(path); errors.Is(err, fs.ErrNotExist) {
		return "", "", nil // no daemon has run there
	}
	d, err := Open(path, false)
	if err != nil {
		return "", "", err
	}
	problem, hint = d.State()
	return problem, hint, nil
}

// newID makes an ID. It is a part of file names.
func newID() string { return "d" + strings.ToLower(rand.Text())[:20] }

// elsewhere reports whether another directory with the same identity lies at the recorded path.
// Inode numbers are equal in copies of a whole filesystem.
func elsewhere(was Identity, path string) bool {
	if was.Path == "" || was.Path == path {
		return false
	}
	other, err := Read(was.Path)
	if err != nil || other.ID != was.ID {
		return false
	}
	a, errA := os.Stat(was.Path)
	b, errB := os.Stat(path)
	return errA == nil && errB == nil && !os.SameFile(a, b)
}

// bootID names this boot of the host.
func bootID() string { return proc.BootID() }
