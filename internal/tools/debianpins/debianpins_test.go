package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"

	"github.com/carrel-dev/carrel/internal/image/debian"
)

func TestCompareVersions(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"1.0", "1.0", 0}, {"1.0", "1.1", -1}, {"1.10", "1.9", 1}, {"1.0-1", "1.0-2", -1},
		{"1:0.1", "2.0", 1}, {"0:1", "1", 0},
		{"1.0~rc1", "1.0", -1}, {"1.0~rc1", "1.0~rc2", -1}, {"1.0", "1.0a", -1}, {"1.0a", "1.0+", -1},
		{"1.0-1~deb13u1", "1.0-1", -1},
		{"1.0-1+deb13u1", "1.0-1", 1}, {"1.001", "1.1", 0}, {"2.0-1-3", "2.0-2-1", -1},
		{"1.0-", "1.0", 0}, {"99999999999999999999", "100000000000000000000", -1},
	} {
		if got := compareVersions(c.a, c.b); got != c.want {
			t.Errorf("%s and %s: %d", c.a, c.b, got)
		}
		if got := compareVersions(c.b, c.a); got != -c.want {
			t.Errorf("%s and %s: %d", c.b, c.a, got)
		}
	}
}

// paragraph describes a package in an index.
func paragraph(name, version, fields string) string {
	return fmt.Sprintf(
		"Package: %s\nVersion: %s\nArchitecture: all\nFilename: pool/%s.deb\nSize: 10\nSHA256: %064x\nDescription: x\n more\n%s\n", name, version, name, len(name), fields)
}

func TestResolve(t *testing.T) {
	index := paragraph("init", "1", "Essential: yes\n") +
		paragraph("app", "1",
			"Pre-Depends: early\nDepends: lib (>= 2), awk, one | two, tool:any (>= 1)\n") +
		paragraph("early", "1", "") + paragraph("lib", "1", "") +
		paragraph("lib", "2", "Depends: app\n") +
		paragraph("mawk", "1", "Provides: awk\n") + paragraph("gawk", "1", "Provides: awk\n") +
		paragraph("two", "1", "") + paragraph("tool", "1", "") +
		paragraph("hater", "1", "Conflicts: lib (<< 3)\n") +
		paragraph("selfish", "1", "Provides: mta\nConflicts: mta\n") +
		paragraph("needy", "1", "Depends: lib (>= 3)\n") +
		paragraph("versioned", "1", "Depends: awk (>= 1)\n") +
		paragraph("exact", "1", "Depends: v (= 5)\n") + paragraph("pv", "9", "Provides: v (= 5)\n")
	all, err := readIndex(strings.NewReader(index), debian.Main)
	if err != nil {
		t.Fatal(err)
	}
	u := newUniverse(all)
	if got := strings.Join(u.essential(), " "); got != "init" {
		t.Errorf("essential: %s", got)
	}
	for _, c := range []struct{ roots, want, fails string }{
		{"app", "app early gawk lib tool two", ""},
		{"app mawk", "app early lib mawk tool two", ""},
		{"selfish", "selfish", ""},
		{"exact", "exact pv", ""},
		{"app hater", "", "can't be installed together"},
		{"needy", "", "nothing meets"},
		{"versioned", "", "nothing meets"},
		{"missing", "", "no package missing"},
	} {
		found, err := u.resolve(strings.Fields(c.roots))
		var names []string
		for _, f := range found {
			names = append(names, f.Name)
		}
		switch {
		case c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)):
			t.Errorf("%s: %v", c.roots, err)
		case c.fails == "" && (err != nil || strings.Join(names, " ") != c.want):
			t.Errorf("%s: %v %v", c.roots, names, err)
		}
	}
	if found, _ := u.resolve([]string{"lib"}); len(found) == 0 || u.byName["lib"].Version != "2" {
		t.Error("not the newest version")
	}
}

// signer makes a key and returns a function that signs with it, and the ring with its public half.
func signer(t *testing.T) (sign func(text string) []byte, ring []byte) {
	t.Helper()
	key, err := openpgp.NewEntity("archive", "", "archive@example.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	var pub bytes.Buffer
	if err := key.Serialize(&pub); err != nil {
		t.Fatal(err)
	}
	return func(text string) []byte {
		var b bytes.Buffer
		w, err := clearsign.Encode(&b, key.PrivateKey, nil)
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}, pub.Bytes()
}

func releaseText(suite string, index string) string {
	sum := sha256.Sum256([]byte(index))
	return fmt.Sprintf(
		"Origin: test\nCodename: %s\nVersion: 13.0\nDate: Sat, 09 Aug 2025 08:52:10 UTC\nSHA256:\n %s %d main/binary-amd64/Packages\n",
		suite, hex.EncodeToString(sum[:]), len(index))
}

func TestVerifyRelease(t *testing.T) {
	sign, ring := signer(t)
	other, _ := signer(t)
	text := releaseText("trixie", "x")
	good := sign(text)
	if r, err := verifyRelease(good, ring); err != nil || r.codename != "trixie" ||
		r.date.Unix() != 1754729530 || len(r.sums) != 1 {
		t.Fatalf("%+v %v", r, err)
	}
	for name, bad := range map[string][]byte{
		"another key":          other(text),
		"a changed text":       bytes.Replace(good, []byte("13.0"), []byte("13.1"), 1),
		"no signature":         []byte(text),
		"half a signature":     good[:len(good)-40],
		"text behind":          append(bytes.Clone(good), "SHA256:\n"...),
		"text in front is not": append([]byte("Codename: sid\n"), other(text)...),
	} {
		if r, err := verifyRelease(bad, ring); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
	// Text before the signed part is not read.
	if r, err := verifyRelease(append([]byte("Codename: sid\n"), good...), ring); err == nil &&
		r.codename != "trixie" {
		t.Errorf("unsigned text was read: %+v", r)
	}
}

// TestRun writes the pins of a small archive, and refuses an index that the release does not cover.
func TestRun(t *testing.T) {
	sign, ring := signer(t)
	dir := t.TempDir()
	keyring := filepath.Join(dir, "ring.gpg")
	var index string
	for _, r := range recipes {
		for name := range strings.FieldsSeq(r.packages) {
			if !strings.Contains(index, "Package: "+name+"\n") {
				index += paragraph(name, "1", "")
			}
		}
	}
	index += paragraph("dpkg", "1", "Essential: yes\n") +
		paragraph("linux-image-cloud-amd64", "6", "Depends: linux-image-6.1-cloud-amd64 (= 6)\n") +
		paragraph("linux-image-6.1-cloud-amd64", "6", "Depends: kmod, initramfs-tools\n")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ring.gpg", string(ring))
	updates := paragraph("curl", "2", "")
	suites := func() {
		t.Helper()
		for _, suite := range []string{"trixie", "trixie-updates", "trixie-security"} {
			text := index
			if suite != "trixie" {
				text = updates
			}
			write("mirror_dists_"+suite+"_InRelease", string(sign(releaseText(suite, text))))
			write("mirror_dists_"+suite+"_main_binary-amd64_Packages", text)
		}
	}
	suites()
	var out bytes.Buffer
	if err := run(&out, dir, keyring, "trixie", "amd64"); err != nil {
		t.Fatal(err)
	}
	set, err := debian.ParseSet(out.Bytes())
	if err != nil || len(set.Templates) != len(recipes) || set.Version != "13.0" ||
		set.Epoch != 1754729530 {
		t.Fatalf("%+v %v", set, err)
	}
	if !strings.Contains(out.String(), "package curl 2 all debian ") {
		t.Error("an update is not used")
	}
	if set.Kernel != "linux-image-6.1-cloud-amd64" || strings.Contains(out.String(), "package kmod ") {
		t.Errorf("kernel %q, without what it depends on", set.Kernel)
	}
	// The kernel alone is renewed: what else is new stays away.
	write("pins", out.String())
	updates = paragraph("curl", "3", "") +
		paragraph("linux-image-cloud-amd64", "7", "Depends: linux-image-6.2-cloud-amd64 (= 7)\n") +
		paragraph("linux-image-6.2-cloud-amd64", "7", "")
	suites()
	if err := renewKernel(filepath.Join(dir, "pins"), dir, keyring); err != nil {
		t.Fatal(err)
	}
	renewed, err := os.ReadFile(filepath.Join(dir, "pins"))
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.NewReplacer("linux-image-6.1-cloud-amd64 6 ", "linux-image-6.2-cloud-amd64 7 ",
		"linux-image-6.1-cloud-amd64", "linux-image-6.2-cloud-amd64").Replace(out.String()); string(renewed) != want {
		t.Errorf("renewed:\n%s\nwant:\n%s", renewed, want)
	}
	write("mirror_dists_trixie_main_binary-amd64_Packages",
		index+paragraph("evil", "1", "Essential: yes\n"))
	if err := run(&out, dir, keyring, "trixie", "amd64"); err == nil ||
		!strings.Contains(err.Error(), "not the one that the release lists") {
		t.Errorf("a changed index: %v", err)
	}
}
