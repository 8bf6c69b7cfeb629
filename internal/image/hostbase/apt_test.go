package hostbase_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/image/hostbase"
)

// TestPackageManagers checks that pip finds no mark that makes it refuse, and that apt has the
// machine's public sources and no others.
func TestPackageManagers(t *testing.T) {
	const public = "deb http://mirror.example/debian stable main\n"
	root := machine(t, host{
		"usr/bin/apt-get": elf, "usr/lib/python3.11/EXTERNALLY-MANAGED": "[externally-managed]", "usr/lib/python3.11/os.py": "x",
		"etc/apt/sources.list":                     "# ask Ann, 555\n" + public + "deb-src http://mirror.example/debian stable main # Ann's\n",
		"etc/apt/sources.list.d/new.sources":       "Types: deb\n# hers\nURIs: https://mirror.example/archive/20250520T000000Z\nSuites: stable\nSigned-By:\n -----BEGIN\n .\n abc=\n",
		"etc/apt/sources.list.d/private.list":      public + "deb https://ann:word@private.example/ppa stable main\n",
		"etc/apt/sources.list.d/token.list":        "deb https://packages.example/priv/0a1b2c3d4e5f6a7b8c9d/debian stable main\n",
		"etc/apt/sources.list.d/query.list":        "deb https://packages.example/debian?key=x stable main\n",
		"etc/apt/sources.list.d/local.list":        "deb file:/srv/debs ./\n",
		"etc/apt/sources.list.d/copy.list":         "deb [trusted=yes] copy:/srv/debs ./\n",
		"etc/apt/sources.list.d/hidden.list":       "0600 " + public,
		"etc/apt/sources.list.d/off.list.disabled": public,
		"etc/apt/sources.list.d/linked.list":       "-> /etc/apt/sources.list",
		"etc/apt/apt.conf.d/90proxy":               "Acquire::http::Proxy \"http://ann:word@proxy\";", "etc/apt/auth.conf.d/a": "password",
		"etc/apt/trusted.gpg.d/k.asc": "KEY", "etc/apt/keyrings/k.gpg": "KEY",
	})
	_, img := build(t, hostbase.Options{Root: root}, nil)
	for name, want := range map[string]string{
		"etc/apt/sources.list":               public + "deb-src http://mirror.example/debian stable main\n",
		"etc/apt/sources.list.d/new.sources": "Types: deb\nURIs: https://mirror.example/archive/20250520T000000Z\nSuites: stable\nSigned-By:\n -----BEGIN\n .\n abc=\n",
		"etc/apt/trusted.gpg.d/k.asc":        "KEY", "etc/apt/keyrings/k.gpg": "KEY", "usr/lib/python3.11/os.py": "x",
	} {
		if got, err := fs.ReadFile(img, name); err != nil || string(got) != want {
			t.Errorf("%s: %v\n%q, want\n%q", name, err, got, want)
		}
	}
	if _, err := fs.Stat(img, "var/lib/apt/lists/partial"); err != nil {
		t.Error(err)
	}
	var names []string
	for _, dir := range []string{"etc/apt/sources.list.d", "etc/apt/apt.conf.d", "etc/apt/auth.conf.d", "usr/lib/python3.11"} {
		entries, _ := fs.ReadDir(img, dir) // the list below shows missing ones
		for _, e := range entries {
			names = append(names, e.Name())
		}
	}
	if got := strings.Join(names, " "); got != "new.sources os.py" {
		t.Errorf("in the image: %s", got)
	}
}
