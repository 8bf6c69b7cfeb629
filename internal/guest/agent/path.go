package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"syscall"

	"connectrpc.com/connect"
)

// The lengths that Linux allows, see limits.h. They are checked here, so that every System refuses
// the same paths and the error names the field.
const (
	maxPath = 4095
	maxName = 255
)

// resolve turns a client's path into an absolute, clean path. Relative paths, "~" and "~/…" begin
// at the user's home; the empty path is the default working directory. field is the request's name
// for the path, for errors.
func (a *Agent) resolve(field, name string, u User) (string, error) {
	if name == "" {
		name = a.defaultWorkdir()
	}
	return resolvePath(field, name, u)
}

// resolvePath is resolve without the default for an empty path.
func resolvePath(field, name string, u User) (string, error) {
	if i := strings.IndexByte(name, 0); i >= 0 {
		return "", badPath(field, syscall.EINVAL, "has a NUL byte at offset %d", i)
	}
	if len(name) > maxPath {
		return "", badPath(field, syscall.ENAMETOOLONG, "is %d bytes long, more than %d", len(name), maxPath)
	}
	if strings.HasPrefix(name, "~") {
		if len(name) > 1 && name[1] != '/' && name[1] != '\\' {
			return "", fmt.Errorf("failed to expand path '%s' for user '%s': cannot expand user-specific home dir", name, u.Name)
		}
		name = path.Join(u.Home, name[1:])
	}
	if !path.IsAbs(name) {
		name = path.Join(u.Home, name)
	}
	if !path.IsAbs(name) { // a home that is none
		name = "/" + name
	}
	name = path.Clean(name)
	if len(name) > maxPath {
		return "", badPath(field, syscall.ENAMETOOLONG, "is %d bytes long with the home directory, more than %d", len(name), maxPath)
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > maxName {
			return "", badPath(field, syscall.ENAMETOOLONG, "has a name of %d bytes, more than %d", len(part), maxName)
		}
	}
	return name, nil
}

// badPath returns an error about a path that no file can have.
func badPath(field string, cause error, format string, args ...any) error {
	return &fileError{text: field + " " + fmt.Sprintf(format, args...), cause: cause}
}

// fileError has its own text and the kind of its cause.
type fileError struct {
	text  string
	cause error
}

func (e *fileError) Error() string { return e.text }
func (e *fileError) Unwrap() error { return e.cause }

// ensureDirs makes a directory and its missing parents, owned by u. It does not change existing
// ones.
func (a *Agent) ensureDirs(dir string, u User) error {
	e, err := a.sys.Stat(dir)
	switch {
	case err == nil && e.Mode.IsDir():
		return nil
	case err == nil:
		return &fileError{text: "path is a file: " + dir, cause: syscall.ENOTDIR}
	case errors.Is(err, syscall.ENOTDIR):
		return &fileError{text: "path is a file: " + a.fileAbove(dir), cause: syscall.ENOTDIR}
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("failed to stat directory: %w", err)
	}
	if dir != "/" {
		if err := a.ensureDirs(path.Dir(dir), u); err != nil {
			return err
		}
	}
	err = a.sys.Mkdir(dir, u)
	if errors.Is(err, fs.ErrExist) {
		// Another request made it, or it is a link to nothing.
		if e, serr := a.sys.Stat(dir); serr == nil && e.Mode.IsDir() {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("failed to create directory: %w", err)
	}
	return nil
}

// fileAbove returns the part of a path that is used as a directory but is none.
func (a *Agent) fileAbove(dir string) string {
	for p := dir; p != "/"; p = path.Dir(p) {
		if e, err := a.sys.Stat(p); err == nil && !e.Mode.IsDir() {
			return p
		}
	}
	return dir
}

// fault says who is to blame for a file error. One table serves both protocols, see fault.code and
// fault.status.
type fault int

const (
	faultGuest    fault = iota // ours
	faultAbsent                // no such file
	faultExists                // something is there
	faultArgument              // invalid path: a file used as a directory, a loop of links
	faultDenied                // a read-only file system, an immutable file
	faultSpace                 // the disk is full, or its quota
)

// faultOf sorts an error of a Filesystem.
func faultOf(err error) fault {
	is := func(errs ...error) bool {
		for _, e := range errs {
			if errors.Is(err, e) {
				return true
			}
		}
		return false
	}
	switch {
	case is(syscall.ENOSPC, syscall.EDQUOT):
		return faultSpace
	case is(fs.ErrNotExist):
		return faultAbsent
	case is(syscall.ENOTEMPTY, fs.ErrExist):
		return faultExists
	case is(syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP, syscall.ENAMETOOLONG, syscall.EINVAL, syscall.EXDEV, syscall.ETXTBSY, syscall.EBUSY):
		return faultArgument
	case is(fs.ErrPermission, syscall.EROFS):
		return faultDenied
	}
	return faultGuest
}

// code returns the Connect code of a fault.
func (f fault) code() connect.Code {
	switch f {
	case faultAbsent:
		return connect.CodeNotFound
	case faultExists:
		return connect.CodeAlreadyExists
	case faultArgument:
		return connect.CodeInvalidArgument
	case faultDenied:
		return connect.CodePermissionDenied
	case faultSpace:
		return connect.CodeResourceExhausted
	}
	return connect.CodeInternal
}

// status returns the HTTP status of a fault.
func (f fault) status() int {
	switch f {
	case faultAbsent:
		return http.StatusNotFound
	case faultExists, faultArgument:
		return http.StatusBadRequest
	case faultDenied:
		return http.StatusForbidden
	case faultSpace:
		return http.StatusInsufficientStorage
	}
	return http.StatusInternalServerError
}

// connectError returns an error about what, with the code of the cause.
func connectError(what string, err error) *connect.Error {
	return connect.NewError(faultOf(err).code(), fmt.Errorf("%s: %w", what, err))
}
