package ns

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// These parts of an image are hashed to name it. A small image is hashed as a whole. Of a big one
// both ends are hashed, and blocks spread over the rest. The ends hold the tables of inodes, with
// every file's size, owner and time of change.
const (
	imageEnds    = 2 << 20
	imageSamples = 256
	imageSample  = 4 << 10
)

// rootIDs caches the names of images by their files.
type rootIDs struct {
	mu    sync.Mutex
	known map[string]string
}

// rootID names a root filesystem by its content. It tells builds of a template apart. It does not
// detect an image that somebody forged.
func (d *Driver) rootID(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "", os.NewSyscallError("fstat", err)
	}
	key := imageKey(st)
	d.roots.mu.Lock()
	id, ok := d.roots.known[key]
	d.roots.mu.Unlock()
	if ok {
		return id, nil
	}
	if id, err = imageID(f, st.Size); err != nil {
		return "", err
	}
	d.roots.mu.Lock()
	defer d.roots.mu.Unlock()
	if d.roots.known == nil {
		d.roots.known = map[string]string{}
	}
	d.roots.known[key] = id
	return id, nil
}

// rootID names the content of a sandbox's template.
func (in *Instance) rootID() (string, error) {
	if in.rec.Whole != "" {
		return in.d.rootID(in.rec.Whole)
	}
	return in.rec.Root, nil
}

func imageID(f io.ReaderAt, size int64) (string, error) {
	h := sha256.New()
	var errs error
	part := func(from, n int64) {
		_, err := io.Copy(h, io.NewSectionReader(f, from, n))
		errs = errors.Join(errs, err)
	}
	if size <= 2*imageEnds+imageSamples*imageSample {
		part(0, size)
	} else {
		part(0, imageEnds)
		step := (size - 2*imageEnds) / imageSamples
		for i := range int64(imageSamples) {
			part(imageEnds+i*step, imageSample)
		}
		part(size-imageEnds, imageEnds)
	}
	return hex.EncodeToString(h.Sum(nil)[:16]) + "-" + itoa(size), errs
}
