package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"path"
	"strings"

	"github.com/carrel-dev/carrel"
)

// python reads the description of a package that pip installed.
func (r *reader) python(file string) error {
	raw, err := r.read(file, maxManifest)
	if err != nil || raw == nil {
		return err
	}
	head, _, _ := bytes.Cut(bytes.ReplaceAll(raw, []byte("\r\n"), []byte("\n")), []byte("\n\n"))
	f := fields(head)
	license := f["License-Expression"]
	if license == "" {
		license = f["License"]
	}
	// Names that differ in case, "_" and "." only are one name; URLs have it in one form.
	plain := strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(f["Name"]))
	p := carrel.Package{Kind: "pypi", Name: f["Name"], Version: f["Version"], License: license,
		URL: packageURL("pypi", "", plain, f["Version"], "", "")}
	return r.add(p, file)
}

// npm reads the packages of a directory node_modules. Those below it are found by the walk.
func (r *reader) npm(dir string) error {
	names, err := r.files.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "@") {
			if err := r.npmPackage(path.Join(dir, name, "package.json")); err != nil {
				return err
			}
			continue
		}
		scoped, err := r.files.List(path.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // "@name" is a file
		}
		if err != nil {
			return err
		}
		for _, inner := range scoped {
			if err := r.npmPackage(path.Join(dir, name, inner, "package.json")); err != nil {
				return err
			}
		}
	}
	return nil
}

// npmPackage reads one package.json.
func (r *reader) npmPackage(file string) error {
	raw, err := r.read(file, maxManifest)
	if err != nil || raw == nil {
		return err
	}
	var m struct {
		Name    string          `json:"name"`
		Version string          `json:"version"`
		License json.RawMessage `json:"license"`
	}
	if json.Unmarshal(raw, &m) != nil {
		return nil // damaged: nobody could load it either
	}
	p := carrel.Package{Kind: "npm", Name: m.Name, Version: m.Version, License: npmLicense(m.License)}
	scope, name, scoped := strings.Cut(m.Name, "/")
	if !scoped {
		scope, name = "", m.Name
	}
	p.URL = packageURL("npm", scope, name, m.Version, "", "")
	return r.add(p, file)
}

// npmLicense reads a licence in its present form, a text, or in its old one, an object.
func npmLicense(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var old struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(raw, &old) == nil {
		return old.Type
	}
	return ""
}

// packageURL writes a package URL: pkg:kind/space/name@version?key=value. See
// https://github.com/package-url/purl-spec.
func packageURL(kind, space, name, version, key, value string) string {
	escape := func(text string) string {
		return strings.ReplaceAll(strings.ReplaceAll(url.QueryEscape(clean(text)), "+", "%20"), "%3A",
			":")
	}
	out := "pkg:" + kind + "/"
	if space != "" {
		out += escape(space) + "/"
	}
	out += escape(name) + "@" + escape(version)
	if value != "" {
		out += "?" + key + "=" + escape(value)
	}
	return out
}
