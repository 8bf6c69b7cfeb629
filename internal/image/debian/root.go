package debian

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/internal/image/locale"
)

// merged are the directories of the root that are links into /usr. Packages may still name files by
// the old way.
var merged = []string{"bin", "lib", "lib64", "sbin"}

// newConffile is the suffix of a configuration file until dpkg configures its package.
const newConffile = ".dpkg-new"

// rootWriter writes the tree of an unconfigured system as a tar stream.
type rootWriter struct {
	tw        *tar.Writer
	db        database
	time      time.Time
	languages languages
}

// WriteRoot writes a root filesystem as a tar stream: the files of packages, in their order, an
// archive of the languages among them, and dpkg's database, in which the packages are unpacked. open
// opens a package.
func WriteRoot(w io.Writer, pins []Pin, at time.Time, open func(Pin) (io.ReadCloser, error)) error {
	rw := &rootWriter{tw: tar.NewWriter(w), time: at}
	if err := rw.skeleton(); err != nil {
		return err
	}
	for _, p := range pins {
		if err := rw.add(p, open); err != nil {
			return fmt.Errorf("package %s: %w", p.Name, err)
		}
	}
	if packed := rw.languages.pack(); packed != nil {
		if err := rw.file(locale.Dir+"/"+locale.Archive, 0o644, packed); err != nil {
			return err
		}
	}
	files := rw.db.files()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		if err := rw.file("var/lib/dpkg/"+name, f.mode, f.data); err != nil {
			return err
		}
	}
	return rw.tw.Close()
}

// skeleton writes the directories and links of the root that no package has.
func (rw *rootWriter) skeleton() error {
	dirs := []string{"usr", "var", "var/lib", "var/lib/dpkg", "var/lib/dpkg/alternatives",
		"var/lib/dpkg/info",
		"var/lib/dpkg/parts", "var/lib/dpkg/triggers", "var/lib/dpkg/updates"}
	for _, d := range merged {
		dirs = append(dirs, "usr/"+d)
	}
	for _, d := range dirs {
		if err := rw.tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: d + "/", Mode: 0o755,
			ModTime: rw.time}); err != nil {
			return err
		}
	}
	for _, d := range merged {
		if err := rw.tw.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: d, Linkname: "usr/" + d,
			Mode: 0o777, ModTime: rw.time}); err != nil {
			return err
		}
	}
	return nil
}

func (rw *rootWriter) file(name string, mode fs.FileMode, data []byte) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(mode), Size: int64(len(data)),
		ModTime: rw.time}
	if err := rw.tw.WriteHeader(h); err != nil {
		return err
	}
	_, err := rw.tw.Write(data)
	return err
}

// add writes the files of one package and enters it into the database.
func (rw *rootWriter) add(p Pin, open func(Pin) (io.ReadCloser, error)) error {
	rc, err := open(p)
	if err != nil {
		return err
	}
	defer rc.Close()
	list := []string{"/."}
	c, err := readDeb(rc, func(c *control, h *tar.Header, body io.Reader) error {
		name, err := place(h.Name)
		if err != nil || name == "" {
			return err
		}
		list = append(list, "/"+name)
		return rw.entry(c, name, h, body)
	})
	if err != nil {
		return err
	}
	if got := c.field("Package"); got != p.Name || c.field("Version") != p.Version {
		return fmt.Errorf("it says that it is %.100s %.100s", got, c.field("Version"))
	}
	return rw.db.add(c, list)
}

// entry writes one file of a package.
func (rw *rootWriter) entry(c *control, name string, h *tar.Header, body io.Reader) error {
	out := &tar.Header{Typeflag: h.Typeflag, Name: throughUsr(name), Linkname: h.Linkname,
		Mode: h.Mode & 0o7777,
		Uid:  h.Uid, Gid: h.Gid, Size: h.Size, ModTime: h.ModTime}
	switch h.Typeflag {
	case tar.TypeDir:
		if slices.Contains(merged, name) {
			return nil // there it is a link
		}
		out.Name += "/"
	case tar.TypeLink:
		target, err := place(h.Linkname)
		if err != nil {
			return fmt.Errorf("a hard link to %w", err)
		}
		out.Linkname = throughUsr(target)
	case tar.TypeReg:
		if c.conffiles["/"+name] {
			out.Name += newConffile
		}
	case tar.TypeSymlink:
	default:
		return errors.New("a device or another special file")
	}
	if err := rw.tw.WriteHeader(out); err != nil {
		return err
	}
	_, err := io.Copy(rw.tw, rw.languages.watch(out, body))
	return err
}

// place checks the name of an entry and makes it relative to the root. It returns "" for the root.
func place(name string) (string, error) {
	rel := strings.TrimPrefix(name, "./")
	if path.IsAbs(rel) {
		return "", errors.New("an absolute path")
	}
	rel = strings.TrimSuffix(rel, "/")
	if slices.Contains(strings.Split(rel, "/"), "..") {
		return "", errors.New(`a path with ".."`)
	}
	if strings.ContainsAny(rel, "\n\x00") {
		return "", errors.New("a path with a line break")
	}
	if rel = path.Clean(rel); rel == "." {
		return "", nil
	}
	return rel, nil
}

// throughUsr moves a path of a merged directory below usr.
func throughUsr(name string) string {
	top, _, deeper := strings.Cut(name, "/")
	if deeper && slices.Contains(merged, top) {
		return "usr/" + name
	}
	return name
}

// database is dpkg's database while packages are added to it.
type database struct {
	status   bytes.Buffer
	info     map[string]dbFile
	interest map[string][]string // trigger → packages, with /noawait
}

type dbFile struct {
	mode fs.FileMode
	data []byte
}

// add enters a package as unpacked. list names its files.
func (d *database) add(c *control, list []string) error {
	if d.info == nil {
		d.info, d.interest = map[string]dbFile{}, map[string][]string{}
	}
	name := c.field("Package")
	if c.field("Multi-Arch") == "same" {
		name += ":" + c.field("Architecture")
	}
	first, rest, _ := strings.Cut(c.text, "\n")
	if !strings.HasPrefix(first, "Package:") {
		return errors.New("its control file does not begin with its name")
	}
	fmt.Fprintf(&d.status, "%s\nStatus: install ok unpacked\n%s", first, rest)
	if len(c.conffiles) > 0 {
		d.status.WriteString("Conffiles:\n")
		for _, f := range slices.Sorted(maps.Keys(c.conffiles)) {
			fmt.Fprintf(&d.status, " %s newconffile\n", f)
		}
	}
	d.status.WriteByte('\n')
	d.info[name+".list"] = dbFile{0o644, []byte(strings.Join(list, "\n") + "\n")}
	for file, data := range c.files {
		mode := fs.FileMode(0o644)
		if slices.Contains([]string{"preinst", "postinst", "prerm", "postrm", "config"}, file) {
			mode = 0o755
		}
		d.info[name+"."+file] = dbFile{mode, data}
	}
	d.triggers(name, string(c.files["triggers"]))
	return nil
}

// triggers notes the triggers in which a package is interested.
func (d *database) triggers(pkg, text string) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 2 {
			continue
		}
		switch f[0] {
		case "interest", "interest-await":
			d.interest[f[1]] = append(d.interest[f[1]], pkg)
		case "interest-noawait":
			d.interest[f[1]] = append(d.interest[f[1]], pkg+"/noawait")
		}
	}
}

// files returns the files of the database, by name.
func (d *database) files() map[string]dbFile {
	out := map[string]dbFile{"status": {0o644, d.status.Bytes()},
		"info/format": {0o644, []byte("1\n")}}
	for _, empty := range []string{"available", "diversions", "statoverride", "triggers/Lock",
		"triggers/Unincorp"} {
		out[empty] = dbFile{mode: 0o644}
	}
	for name, f := range d.info {
		out["info/"+name] = f
	}
	var paths strings.Builder
	for _, trigger := range slices.Sorted(maps.Keys(d.interest)) {
		pkgs := d.interest[trigger]
		if !path.IsAbs(trigger) {
			out["triggers/"+path.Base(trigger)] = dbFile{0o644, []byte(strings.Join(pkgs, "\n") + "\n")}
			continue
		}
		for _, pkg := range pkgs {
			fmt.Fprintf(&paths, "%s %s\n", trigger, pkg)
		}
	}
	out["triggers/File"] = dbFile{0o644, []byte(paths.String())}
	return out
}
