package agent

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/carrel-dev/carrel/internal/guest/filesystem"
)

// describer turns entries into what clients see of files. It remembers the names
// of accounts, so that a long listing asks once for each; it serves one request.
type describer struct {
	a     *Agent
	names map[[2]uint32][2]string
}

func (a *Agent) describer() *describer {
	return &describer{a: a, names: map[[2]uint32][2]string{}}
}

// stat describes the file at a path; a link is described itself, but with the
// type and mode of what it leads to.
func (d *describer) stat(name string) (*filesystem.EntryInfo, error) {
	e, err := d.a.sys.Lstat(name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, connectError("file not found", err)
		}
		return nil, connectError("error getting file info", err)
	}
	return d.describe(name, e), nil
}

// describe describes an entry that was found without following links, under the
// path by which the client asked for it.
func (d *describer) describe(name string, e Entry) *filesystem.EntryInfo {
	owner, group := d.owners(e.UID, e.GID)
	info := &filesystem.EntryInfo{
		Name:        path.Base(name),
		Path:        name,
		Type:        fileType(e.Mode),
		Size:        e.Size,
		Mode:        uint32(e.Mode.Perm()),
		Permissions: e.Mode.String(),
		Owner:       owner,
		Group:       group,
	}
	if !e.Modified.IsZero() {
		info.ModifiedTime = timestamppb.New(e.Modified)
	}
	if e.Mode&fs.ModeSymlink != 0 {
		d.follow(e.Path, info)
	}
	info.Name, info.Path = text(info.Name), text(info.Path)
	info.Metadata = d.a.metadata(e)
	return info
}

// follow fills in where a link leads. One that leads nowhere, or in a circle, is
// its own target and of no type.
func (d *describer) follow(name string, info *filesystem.EntryInfo) {
	info.Type, info.Mode = filesystem.FileType_FILE_TYPE_UNSPECIFIED, 0
	target, err := d.a.sys.EvalSymlinks(name)
	if err != nil {
		target = name
	} else if e, err := d.a.sys.Stat(target); err == nil {
		info.Type, info.Mode = fileType(e.Mode), uint32(e.Mode.Perm())
	}
	target = text(target)
	info.SymlinkTarget = &target
}

// owners returns the names of a file's owner and group.
func (d *describer) owners(uid, gid uint32) (owner, group string) {
	names, ok := d.names[[2]uint32{uid, gid}]
	if !ok {
		names[0], names[1] = d.a.sys.Names(uid, gid)
		d.names[[2]uint32{uid, gid}] = names
	}
	return names[0], names[1]
}

// metadata reads what uploads stored beside a file. Whatever keeps it from being
// read, the file itself is there: then there is none. What is no text, as another
// program may store, would spoil the whole answer and is left out.
func (a *Agent) metadata(e Entry) map[string]string {
	if !e.Mode.IsRegular() && e.Mode&(fs.ModeDir|fs.ModeSymlink) == 0 {
		return nil // devices and pipes have no attributes of users
	}
	attrs, err := a.sys.Attrs(e.Path)
	if err != nil {
		return nil
	}
	for k, v := range attrs {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			delete(attrs, k)
		}
	}
	return attrs
}

// text makes a name fit for an answer: Linux names are bytes, the protocol's
// strings are UTF-8, and one odd name must not spoil a whole listing.
func text(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// fileType is the protocol's word for a kind of file.
func fileType(mode fs.FileMode) filesystem.FileType {
	switch {
	case mode.IsRegular():
		return filesystem.FileType_FILE_TYPE_FILE
	case mode.IsDir():
		return filesystem.FileType_FILE_TYPE_DIRECTORY
	case mode&fs.ModeSymlink != 0:
		return filesystem.FileType_FILE_TYPE_SYMLINK
	}
	return filesystem.FileType_FILE_TYPE_UNSPECIFIED
}
