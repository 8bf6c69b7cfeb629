package shell

import (
	"sync"
	"time"

	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/tools"
	"github.com/carrel-dev/carrel/shell/vfs"
)

const (
	rootUser    = "root"
	defaultUser = "user"
	userID      = 1000
	programDir  = "/usr/local/bin/"
)

// seededBirth is the creation time of the files of a deterministic machine. It is before the start
// of its clock.
var seededBirth = time.Date(2023, time.December, 1, 0, 0, 0, 0, time.UTC)

// templates are the disks that machines copy. Making one takes milliseconds, copying it
// microseconds.
type templates struct{ bare, withUser *vfs.FS }

var (
	plainTemplates  = sync.OnceValues(func() (templates, error) { return newTemplates(time.Now) })
	seededTemplates = sync.OnceValues(func() (templates, error) { return newTemplates(func() time.Time { return seededBirth }) })
)

// newTemplates makes two disks: one that nobody has used, and one with a home for the default user.
func newTemplates(now func() time.Time) (templates, error) {
	bare := vfs.New(vfs.Options{Now: now})
	if err := interp.Install(bare, tools.Names()...); err != nil {
		return templates{}, err
	}
	withUser := bare.Clone(vfs.Options{Now: now})
	return templates{bare, withUser}, interp.AddUser(withUser, defaultUser, userID)
}

// homeOf is a user's home directory.
func homeOf(user string) string {
	if user == rootUser {
		return "/root"
	}
	return "/home/" + user
}
