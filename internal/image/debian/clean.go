package debian

import (
	"archive/tar"
	"bytes"
	"io"
	"path"
	"slices"
	"strings"
	"time"
)

// dropped are the files that a making leaves behind, as patterns of path.Match on whole paths. They
// differ from one making to the next, or belong to one machine, or are of no use in a template.
var dropped = []string{
	"etc/*-", "etc/.pwd.lock", "etc/resolv.conf", "etc/mtab", "usr/sbin/policy-rc.d", ".dockerenv",
	"var/lib/dpkg/*-old", "var/lib/dpkg/lock", "var/lib/dpkg/lock-*", "var/lib/dpkg/triggers/Lock",
	"var/cache/debconf/*-old", "var/lib/systemd/random-seed", "var/lib/urandom/random-seed",
	"root/.bash_history", "root/.wget-hsts", "root/.cache",
	// The mark by which pip refuses to install beside the distribution's packages. A sandbox is one
	// program's computer, so there is nothing to protect.
	"usr/lib/python3*/EXTERNALLY-MANAGED",
}

// noSetID are files to which a package's script gives a set-id bit. Not every tier lets a script do
// that, so they have it in none. The same is true of directories. Programs that are packed with
// such a bit keep it.
var noSetID = []string{"usr/bin/ssh-agent"}

// mounted are directories that every image gets anew, because other filesystems are mounted there.
var mounted = []string{"dev", "proc", "sys", "run"}

// emptied are directories of which only the subdirectories stay, or nothing at all.
var emptied = []struct {
	dir     string
	keepDir bool // its subdirectories stay
}{
	{"tmp", false}, {"var/tmp", false},
	{"var/cache/apt", true}, {"var/cache/ldconfig", true}, {"var/cache/man", true},
	{"var/lib/apt/lists", true}, {"var/log", true},
}

// written are the files that are the same in every template.
var written = []struct {
	name, text string
	mode       int64
}{
	{"etc/hostname", "carrel\n", 0o644},
	{"etc/hosts", "", 0o644}, // an empty one gets the usual text
	{"etc/machine-id", "", 0o444},
}

// Clean copies a root filesystem from one tar stream to another and makes it reproducible: it drops
// files, and no file is younger than at. The files in skip are left out, too, with what is below
// them.
func Clean(w io.Writer, r io.Reader, at time.Time, skip ...string) error {
	tr, tw := tar.NewReader(r), tar.NewWriter(w)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		name, err := place(h.Name)
		if err != nil {
			return err
		}
		if name == "" || isDropped(name, h.Typeflag == tar.TypeDir, skip) {
			continue
		}
		if err := copyEntry(tw, tr, h, name, at); err != nil {
			return err
		}
	}
	for _, f := range written {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.text)),
			ModTime: at}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.WriteString(tw, f.text); err != nil {
			return err
		}
	}
	return tw.Close()
}

// copyEntry copies one entry with the metadata that a template keeps.
func copyEntry(tw *tar.Writer, body io.Reader, h *tar.Header, name string, at time.Time) error {
	out := &tar.Header{Typeflag: h.Typeflag, Name: name, Linkname: h.Linkname, Mode: h.Mode & 0o7777,
		Uid: h.Uid, Gid: h.Gid, Size: h.Size, ModTime: h.ModTime.Truncate(time.Second)}
	switch h.Typeflag {
	case tar.TypeDir:
		out.Name += "/"
	case tar.TypeLink:
		target, err := place(h.Linkname)
		if err != nil {
			return err
		}
		out.Linkname = target
	}
	if h.Typeflag == tar.TypeDir {
		out.ModTime = at // it says in what order files came into the directory
		out.Mode &= 0o1777
	}
	if out.ModTime.After(at) {
		out.ModTime = at
	}
	if slices.Contains(noSetID, name) {
		out.Mode &= 0o777
	}
	if name == keystoreName && h.Typeflag == tar.TypeReg && h.Size <= maxKeystore {
		raw, err := io.ReadAll(body)
		if err != nil {
			return err
		}
		raw = fixedKeystore(raw, at)
		out.Size, body = int64(len(raw)), bytes.NewReader(raw)
	}
	if err := tw.WriteHeader(out); err != nil {
		return err
	}
	_, err := io.Copy(tw, body)
	return err
}

// isDropped reports whether a path has no place in a template.
func isDropped(name string, isDir bool, skip []string) bool {
	for _, s := range slices.Concat(skip, mounted) {
		if within(name, s) {
			return true
		}
	}
	for _, e := range emptied {
		if name != e.dir && within(name, e.dir) && !(isDir && e.keepDir) {
			return true
		}
	}
	for _, f := range written {
		if name == f.name {
			return true
		}
	}
	for p := name; p != "."; p = path.Dir(p) {
		for _, pattern := range dropped {
			if ok, _ := path.Match(pattern, p); ok {
				return true
			}
		}
	}
	return false
}

func within(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }
