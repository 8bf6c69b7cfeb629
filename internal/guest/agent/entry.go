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

// describer turns entries into the protocol's file descriptions. It remembers account names, so
// that a long listing asks for each only once. It serves one request.
type describer struct {
	a     *Agent
	names map[[2]uint32][2]string
}

func (a *Agent) describer() *describer {
	return &describer{a: a, names: map[[2]uint32][2]string{}}
}

// stat describes the file at a path. A link itself is described, but with the type and mode of its
// target.
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

// describe describes an entry that was found without following links, under the client's path for
// it.
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

// follow fills in a link's target. A link that leads nowhere, or in a circle, is its own target and
// has no type.
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

// metadata reads the attributes that uploads stored with a file. If they can't be read, it returns
// none, because the file itself is there. It leaves out values that are not text, as another
// program may store: one would spoil the whole answer.
func (a *Agent) metadata(e Entry) map[string]string {
	if !e.Mode.IsRegular() && e.Mode&(fs.ModeDir|fs.ModeSymlink) == 0 {
		return nil // devices and pipes have no user attributes
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

// text makes a name valid UTF-8. Linux names are bytes, the protocol's strings are UTF-8, and one
// odd name must not spoil a whole listing.
func text(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// fileType returns the protocol's word for a kind of file.
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
