package settings

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/internal/atomicfile"
)

// MaxFile bounds a settings file, in bytes.
const MaxFile = 1 << 20

// projectFile is searched upwards from the working directory; userFile is in the configuration
// directory.
const (
	projectFile = ".carrel.yaml"
	userFile    = "run.yaml"
)

// checkText refuses data that is not text, before a parser sees it.
func checkText(name string, data []byte) error {
	switch {
	case len(data) > MaxFile:
		return invalid(name, "", "the file is larger than %d bytes", MaxFile)
	case bytes.IndexByte(data, 0) >= 0:
		return invalid(name, "", "the file is binary")
	case !utf8.Valid(data):
		return invalid(name, "", "the file is not UTF-8")
	case len(bytes.TrimSpace(data)) == 0:
		return invalid(name, "settings that say nothing are written {}", "the file is empty")
	}
	return nil
}

// read reads a file of bounded size and follows links. It refuses pipes and devices, and does not
// wait for them.
func read(name string) ([]byte, error) {
	f, err := openNoWait(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no regular file")
	case info.Size() > MaxFile:
		return nil, fmt.Errorf("the file is larger than %d bytes", MaxFile)
	}
	return io.ReadAll(io.LimitReader(f, MaxFile+1))
}

// findProject searches for the project's file in dir and above it.
func findProject(dir string) string {
	for {
		p := filepath.Join(dir, projectFile)
		if _, err := os.Lstat(p); err == nil {
			return p
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

// load reads one file into a layer. A missing file is an error only with must.
func (v *resolver) load(name string, must bool) (*layer, error) {
	data, err := read(name)
	if errors.Is(err, fs.ErrNotExist) && !must {
		return nil, nil
	}
	shown := v.short(name)
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		err = p.Err // the field names it
	}
	if err != nil {
		return nil, invalid(shown, "", "%w", err)
	}
	l := &layer{Layer: Layer{Source: Source(shown), Dir: filepath.Dir(name)}, data: data, file: name}
	if must && looksSRT(data) {
		l.Dir = v.dir // as sandbox-runtime does
		s, notes, err := ParseSRT(shown, data)
		if err != nil {
			return nil, err
		}
		l.Settings = s
		for _, n := range notes {
			if rest, loud := strings.CutPrefix(n, "!"); loud {
				v.note("!%s: %s", shown, rest)
				continue
			}
			v.note("%s: %s", shown, n)
		}
		return l, nil
	}
	l.Settings, l.has, err = parse(shown, data)
	return l, err
}

// trust is the directory of files that a person trusted: for each path a file with the hash of the
// content.
type trust string

func (t trust) file(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(string(t), "trust", hex.EncodeToString(sum[:16]))
}

// holds reports whether exactly this content was trusted.
func (t trust) holds(path string, data []byte) bool {
	kept, err := read(t.file(path))
	return err == nil && string(kept) == trustLine(path, data)
}

// keep trusts this content from now on, instead of an earlier one.
func (t trust) keep(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(t.file(path)), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(t.file(path), []byte(trustLine(path, data)), 0o600)
}

func trustLine(path string, data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]) + " " + path + "\n"
}
