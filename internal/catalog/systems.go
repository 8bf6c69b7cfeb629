package catalog

import (
	"bytes"
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/carrel-dev/carrel"
)

// debian reads the database of dpkg. Images without a package manager have one file for each
// package instead.
func (r *reader) debian(system string) error {
	const one, many = "var/lib/dpkg/status", "var/lib/dpkg/status.d"
	raw, err := r.read(one, maxDatabase)
	if err != nil {
		return err
	}
	if err := r.debianStanzas(raw, one, system); err != nil {
		return err
	}
	names, err := r.files.List(many)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".md5sums") {
			continue
		}
		file := path.Join(many, name)
		raw, err := r.read(file, maxManifest)
		if err != nil {
			return err
		}
		if err := r.debianStanzas(raw, file, system); err != nil {
			return err
		}
	}
	return nil
}

// debianStanzas reads paragraphs of fields.
func (r *reader) debianStanzas(raw []byte, file, system string) error {
	if system == "" {
		system = "debian"
	}
	for _, stanza := range paragraphs(raw) {
		f := fields(stanza)
		// A package that was removed and left its settings behind is not installed.
		if status := strings.Fields(f["Status"]); len(status) > 0 &&
			status[len(status)-1] != "installed" {
			continue
		}
		p := carrel.Package{Kind: "deb", Name: f["Package"], Version: f["Version"],
			Arch: f["Architecture"]}
		p.URL = packageURL("deb", system, p.Name, p.Version, "arch", p.Arch)
		if err := r.add(p, file); err != nil {
			return err
		}
	}
	return nil
}

// alpine reads the database of apk, whose fields have one letter.
func (r *reader) alpine(system string) error {
	if system == "" {
		system = "alpine"
	}
	for _, file := range []string{"lib/apk/db/installed", "usr/lib/apk/db/installed"} {
		raw, err := r.read(file, maxDatabase)
		if err != nil {
			return err
		}
		for _, stanza := range paragraphs(raw) {
			f := fields(stanza)
			p := carrel.Package{Kind: "apk", Name: f["P"], Version: f["V"], Arch: f["A"], License: f["L"]}
			p.URL = packageURL("apk", system, p.Name, p.Version, "arch", p.Arch)
			if err := r.add(p, file); err != nil {
				return err
			}
		}
	}
	return nil
}

// paragraphs splits a text at its empty lines.
func paragraphs(raw []byte) [][]byte {
	return bytes.Split(bytes.ReplaceAll(raw, []byte("\r\n"), []byte("\n")), []byte("\n\n"))
}

// fields reads "Name: value" lines. The first of two counts. Further lines of a value, which begin
// with a space, are passed over.
func fields(stanza []byte) map[string]string {
	out := map[string]string{}
	if len(stanza) > maxFieldsBytes {
		stanza = stanza[:maxFieldsBytes]
	}
	for line := range strings.Lines(string(stanza)) {
		if line == "\n" || line[0] == ' ' || line[0] == '\t' {
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		if _, twice := out[key]; ok && !twice && len(out) < 100 {
			out[key] = strings.TrimSpace(value)
		}
	}
	return out
}
