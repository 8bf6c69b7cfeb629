package hostbase_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/image/hostbase"
	"github.com/carrel-dev/carrel/internal/testenv"
)

var categories = []string{"LC_ADDRESS", "LC_COLLATE", "LC_CTYPE", "LC_IDENTIFICATION", "LC_MEASUREMENT", "LC_MESSAGES/SYS_LC_MESSAGES", "LC_MONETARY",
	"LC_NAME", "LC_NUMERIC", "LC_PAPER", "LC_TELEPHONE", "LC_TIME"}

// language adds the files of a language to a machine, each with other contents.
func language(h host, name string, without ...string) {
	for _, c := range categories {
		if !slices.Contains(without, c) {
			h["usr/lib/locale/"+name+"/"+c] = name + " " + c + strings.Repeat("!", len(c))
		}
	}
}

const archive = "usr/lib/locale/locale-archive"

// TestLocales checks that languages in directories are also in the archive.
func TestLocales(t *testing.T) {
	h := host{"usr/lib/locale/README": "x"}
	language(h, "C.utf8")
	language(h, "eo.utf8")
	language(h, "half", "LC_TIME")
	_, img := build(t, hostbase.Options{Root: machine(t, h)}, nil)
	got, err := fs.ReadFile(img, archive)
	if err != nil {
		t.Fatal(err)
	}
	for _, lang := range []string{"C.utf8", "eo.utf8"} {
		for _, c := range categories {
			if !bytes.Contains(got, []byte(h["usr/lib/locale/"+lang+"/"+c])) {
				t.Errorf("%s/%s is not in the archive", lang, c)
			}
		}
	}
	if bytes.Contains(got, []byte("half")) {
		t.Error("a language that is not whole is in the archive")
	}
	if n := binary.NativeEndian.Uint32(got[3*4:]); n != 2 {
		t.Errorf("%d names, want 2", n)
	}
}

// TestLocalesLeftAlone checks that an existing archive stays, and that none is made without
// languages.
func TestLocalesLeftAlone(t *testing.T) {
	h := host{archive: "theirs"}
	language(h, "C.utf8")
	_, img := build(t, hostbase.Options{Root: machine(t, h)}, nil)
	if got, err := fs.ReadFile(img, archive); err != nil || string(got) != "theirs" {
		t.Errorf("%q, %v", got, err)
	}
	_, img = build(t, hostbase.Options{Root: machine(t, host{"usr/lib/locale/C.utf8/LC_CTYPE": "x"})}, nil)
	if _, err := fs.Stat(img, archive); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an archive of nothing: %v", err)
	}
}

// TestLocaledef reads our archive with the C library's own program, and adds to it.
func TestLocaledef(t *testing.T) {
	localedef, err := exec.LookPath("localedef")
	if err != nil {
		testenv.Need(t, "localedef", err)
	}
	const real = "/usr/lib/locale/C.utf8"
	if _, err := os.Stat(real); err != nil {
		testenv.Need(t, "localedef", err)
	}
	h := host{}
	for _, c := range categories {
		data, err := os.ReadFile(filepath.Join(real, c))
		if err != nil {
			t.Fatal(err)
		}
		h["usr/lib/locale/C.utf8/"+c] = string(data)
	}
	_, img := build(t, hostbase.Options{Root: machine(t, h)}, nil)
	data, err := fs.ReadFile(img, archive)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "usr/lib/locale"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, archive), data, 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		out, err := exec.Command(localedef, append([]string{"--prefix=" + root}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("localedef %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	if out := run("--list-archive"); out != "C.utf8\n" {
		t.Errorf("localedef finds %q", out)
	}
	for _, name := range []string{"xx.utf8", "yy.utf8", "zz.utf8", "aa.utf8"} { // more than there is room for
		dir := filepath.Join(t.TempDir(), name)
		if err := os.CopyFS(dir, os.DirFS(real)); err != nil {
			t.Fatal(err)
		}
		run("--add-to-archive", dir)
	}
	if out := run("--list-archive"); out != "C.utf8\naa.utf8\nxx.utf8\nyy.utf8\nzz.utf8\n" {
		t.Errorf("after more were added, localedef finds %q", out)
	}
}
