package local_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// makeWheel is a Python program that writes a package for pip.
const makeWheel = `
import zipfile
info = "wheelhouse-1.0.dist-info/"
with zipfile.ZipFile("/tmp/house/wheelhouse-1.0-py3-none-any.whl", "w") as z:
    z.writestr("wheelhouse.py", "word = 'from the wheel'\n")
    z.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: wheelhouse\nVersion: 1.0\n")
    z.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr(info + "RECORD", "wheelhouse.py,,\n" + "".join(info + n + ",,\n" for n in ("METADATA", "WHEEL", "RECORD")))
`

// TestPackagesInBase shows that, in a sandbox of base, pip installs for the user and for root, and
// apt reads an archive.
func TestPackagesInBase(t *testing.T) {
	testenv.Long(t, "makes the base template")
	for name, program := range map[string]string{"python": "/usr/bin/pip3", "apt": "/usr/bin/apt-get"} {
		_, err := exec.LookPath(program)
		testenv.Need(t, name, err)
	}
	for _, tier := range []carrel.Tier{carrel.GVisor, carrel.NS} {
		t.Run(string(tier), func(t *testing.T) {
			s, err := carrel.Open(t.Context(), carrel.Config{Tier: tier})
			if errors.Is(err, carrel.Unsupported) {
				testenv.Need(t, string(tier), err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			box, err := s.Create(t.Context(), carrel.CreateOptions{})
			if err != nil {
				t.Fatalf("%v (hint: %s)", err, carrel.HintOf(err))
			}
			pc, err := s.Computer(t.Context(), box.ID)
			if err != nil {
				t.Fatal(err)
			}
			const install = "/usr/bin/pip3 install --no-index --find-links /tmp/house wheelhouse && cd / && /usr/bin/python3 -c 'import wheelhouse; print(wheelhouse.word)'"
			for _, job := range []struct{ user, line, want string }{
				{"user", "mkdir /tmp/house && /usr/bin/python3 -c '" + strings.ReplaceAll(makeWheel, "'", `'\''`) + "' && " + install, "from the wheel"},
				{"root", install, "from the wheel"},
				{"root", "ls -d /etc/apt/sources.list.d /var/lib/apt/lists/partial", "partial"},
				{"root", `mkdir /srv/debs && printf 'Package: word\nVersion: 7\nArchitecture: all\nMaintainer: x\nFilename: ./word.deb\nSize: 1\nSHA256: 0\nDescription: a word\n' >/srv/debs/Packages
rm -f /etc/apt/sources.list /etc/apt/sources.list.d/* && echo 'deb [trusted=yes] file:/srv/debs ./' >/etc/apt/sources.list && apt-get update && apt-cache policy word`, "Candidate: 7"},
			} {
				res, err := pc.Run(t.Context(), carrel.Command{User: job.user, Shell: job.line})
				if err != nil || res.ExitCode != 0 || !strings.Contains(string(res.Stdout), job.want) {
					t.Errorf("%s, %s: %v, %+v\n%s\n%s", job.user, job.line, err, res, res.Stdout, res.Stderr)
				}
			}
		})
	}
}
