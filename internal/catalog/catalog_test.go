package catalog_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/catalog"
	"github.com/carrel-dev/carrel/internal/image"
)

// tree is an image of a map.
type tree struct{ fstest.MapFS }

func (t tree) Lstat(name string) (image.File, error) {
	info, err := fs.Lstat(t.MapFS, name)
	if err != nil {
		return image.File{}, fs.ErrNotExist
	}
	return image.File{Mode: info.Mode(), Size: info.Size()}, nil
}

func (t tree) List(name string) ([]string, error) {
	list, err := t.ReadDir(name)
	if err != nil {
		return nil, fs.ErrNotExist
	}
	var names []string
	for _, d := range list {
		names = append(names, d.Name())
	}
	return names, nil
}

func (t tree) Open(name string) (io.ReadCloser, error) {
	if info, err := fs.Lstat(t.MapFS, name); err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("opened what is no file")
	}
	return t.MapFS.Open(name)
}

func (tree) Close() error { return nil }

// imageOf makes an image of names and contents.
func imageOf(files map[string]string) tree {
	m := fstest.MapFS{}
	for name, text := range files {
		m[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return tree{m}
}

// everything is an image with packages of each kind.
var everything = map[string]string{
	"etc/os-release": "NAME=\"Debian\"\nID=debian\nVERSION_ID=\"13\"\n",
	"var/lib/dpkg/status": "Package: bash\nStatus: install ok installed\nArchitecture: amd64\nVersion: 5.2.37-2+b1\nDescription: a shell\n Version: 0\n\n" +
		"Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n\nPackage: epoch\nStatus: install ok installed\nVersion: 1:2~rc\n",
	"var/lib/dpkg/status.d/tzdata":                                        "Package: tzdata\nVersion: 2026a\nArchitecture: all\n",
	"var/lib/dpkg/status.d/tzdata.md5sums":                                "Package: nothing\nVersion: 1\n",
	"lib/apk/db/installed":                                                "C:Q1\nP:musl\nV:1.2.5-r9\nA:x86_64\nL:MIT\n\nP:zlib\nV:1.3\n",
	"usr/lib/python3/dist-packages/Zope.Interface-5.0.dist-info/METADATA": "Metadata-Version: 2.1\r\nName: Zope.Interface\r\nVersion: 5.0\r\nLicense: ZPL 2.1\r\n\r\nName: body\n",
	"opt/venv/lib/python3.12/site-packages/old.egg-info":                  "Name: old\nVersion: 0.1\n",
	"opt/venv/lib/python3.12/site-packages/egg-2.egg-info/PKG-INFO":       "Name: egg\nVersion: 2\nLicense-Expression: MIT\n",
	"app/node_modules/left-pad/package.json":                              `{"name":"left-pad","version":"1.3.0","license":"WTFPL"}`,
	"app/node_modules/@scope/pkg/package.json":                            `{"name":"@scope/pkg","version":"2.0.0","license":{"type":"MIT"}}`,
	"app/node_modules/chart.js/package.json":                              `{"name":"chart.js","version":"4.0.0"}`,
	"app/node_modules/chart.js/node_modules/inner/package.json":           `{"name":"inner","version":"1.0.0"}`,
	"app/node_modules/.bin/tool":                                          "x",
	"app/node_modules/broken/package.json":                                `{"name":`,
	"app/package.json":                                                    `{"name":"app","version":"0"}`,
	"proc/x/node_modules/no/package.json":                                 `{"name":"no","version":"1"}`,
	"usr/share/doc/x.dist-info/README":                                    "x",
	"srv/evil/node_modules/e/package.json":                                `{"name":"e\u001b[2J\u202e","version":"1\n2"}`,
	"srv/long/node_modules/l/package.json": `{"name":"` +
		strings.Repeat("l", 2000) + `","version":"1"}`,
	"srv/site-packages/" + strings.Repeat("d/", 70) +
		"x.dist-info/METADATA": "Name: deep\nVersion: 1\n",
}

// TestPackages shows what is found in an image with packages of each kind.
func TestPackages(t *testing.T) {
	list, system, err := catalog.Packages(t.Context(), imageOf(everything))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, p := range list {
		if len(p.Name) > 512 {
			t.Errorf("a name of %d bytes", len(p.Name))
			continue
		}
		if len(p.Name) > 100 {
			continue
		}
		fmt.Fprintln(&b, p.URL, p.License, p.Path)
	}
	const want = `pkg:apk/debian/musl@1.2.5-r9?arch=x86_64 MIT /lib/apk/db/installed
pkg:apk/debian/zlib@1.3  /lib/apk/db/installed
pkg:deb/debian/bash@5.2.37-2%2Bb1?arch=amd64  /var/lib/dpkg/status
pkg:deb/debian/epoch@1:2~rc  /var/lib/dpkg/status
pkg:deb/debian/tzdata@2026a?arch=all  /var/lib/dpkg/status.d/tzdata
pkg:npm/%40scope/pkg@2.0.0 MIT /app/node_modules/@scope/pkg/package.json
pkg:npm/chart.js@4.0.0  /app/node_modules/chart.js/package.json
pkg:npm/e%5B2J@12  /srv/evil/node_modules/e/package.json
pkg:npm/inner@1.0.0  /app/node_modules/chart.js/node_modules/inner/package.json
pkg:npm/left-pad@1.3.0 WTFPL /app/node_modules/left-pad/package.json
pkg:pypi/zope-interface@5.0 ZPL 2.1 /usr/lib/python3/dist-packages/Zope.Interface-5.0.dist-info/METADATA
pkg:pypi/egg@2 MIT /opt/venv/lib/python3.12/site-packages/egg-2.egg-info/PKG-INFO
pkg:pypi/old@0.1  /opt/venv/lib/python3.12/site-packages/old.egg-info
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	if system != "debian 13" {
		t.Errorf("the system is %q", system)
	}
}

// TestLinksAreNotFollowed shows that a database which is a link or a directory counts as none.
func TestLinksAreNotFollowed(t *testing.T) {
	files := imageOf(map[string]string{"secret": "Package: leak\nVersion: 1\n",
		"var/lib/dpkg/status.d/x/y": "Package: z\nVersion: 1\n"})
	files.MapFS["var/lib/dpkg/status"] = &fstest.MapFile{Data: []byte("../../../secret"),
		Mode: fs.ModeSymlink | 0o777}
	files.MapFS["a/node_modules"] = &fstest.MapFile{Data: []byte("."), Mode: fs.ModeSymlink | 0o777}
	list, _, err := catalog.Packages(t.Context(), files)
	if err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestCycloneDX shows that a bill of materials is JSON with every package, and equal for equal
// templates.
func TestCycloneDX(t *testing.T) {
	list, system, err := catalog.Packages(t.Context(), imageOf(everything))
	if err != nil {
		t.Fatal(err)
	}
	in := carrel.TemplatePackages{Template: "web", Digest: "sha256:abc", System: system,
		Packages: list}
	one, err := catalog.CycloneDX(in)
	if err != nil {
		t.Fatal(err)
	}
	two, err := catalog.CycloneDX(in)
	if err != nil || string(one) != string(two) {
		t.Errorf("two documents of one template differ: %v", err)
	}
	var doc struct {
		BomFormat, SpecVersion, SerialNumber string
		Components                           []struct {
			Type, Name, Version, PURL string
			Ref                       string `json:"bom-ref"`
		}
	}
	if err := json.Unmarshal(one, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.BomFormat != "CycloneDX" || doc.SpecVersion != "1.6" ||
		len(doc.SerialNumber) != len("urn:uuid:")+36 || len(doc.Components) != len(list) {
		t.Errorf("%+v", doc)
	}
	refs := map[string]bool{}
	for _, c := range doc.Components {
		if c.Name == "" || c.PURL == "" || c.Type != "library" || refs[c.Ref] {
			t.Errorf("%+v", c)
		}
		refs[c.Ref] = true
	}
}

// FuzzPackages reads any file as each kind of database.
func FuzzPackages(f *testing.F) {
	for _, text := range everything {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		text := string(raw)
		list, _, err := catalog.Packages(t.Context(), imageOf(map[string]string{
			"etc/os-release": text, "var/lib/dpkg/status": text, "var/lib/dpkg/status.d/x": text,
			"lib/apk/db/installed":   text,
			"a/x.dist-info/METADATA": text, "a/x.egg-info": text, "n/node_modules/x/package.json": text,
		}))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			if p.Name == "" || p.Version == "" || strings.ContainsAny(p.Name+p.Version+p.License+p.URL,
				"\n\x1b") || !strings.HasPrefix(p.URL, "pkg:") {
				t.Errorf("%+v", p)
			}
		}
		if _, err := catalog.CycloneDX(carrel.TemplatePackages{Packages: list}); err != nil {
			t.Fatal(err)
		}
	})
}
