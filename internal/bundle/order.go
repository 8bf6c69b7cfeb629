package bundle

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/carrel-dev/carrel"
)

// Order is one piece of work for "carrel-guest bundle". Exactly one of its fields is set.
type Order struct {
	Unpack *UnpackOrder `json:"unpack,omitempty"`
	Pack   *PackOrder   `json:"pack,omitempty"`
	Mkdir  *MkdirOrder  `json:"mkdir,omitempty"`
	Fetch  *FetchOrder  `json:"fetch,omitempty"`
	Remove []string     `json:"remove,omitempty"`
	// Settle kills every other process but the first.
	Settle bool `json:"settle,omitempty"`
	// Distrust takes the wire's authority out of the system's files, and Trust brings it back.
	Distrust bool `json:"distrust,omitempty"`
	Trust    bool `json:"trust,omitempty"`
}

// FetchOrder fetches a file from the network.
type FetchOrder struct {
	Placement
	URL      string `json:"url"`
	Checksum string `json:"checksum,omitempty"` // "sha256:…"
}

// UnpackOrder unpacks an archive and removes it.
type UnpackOrder struct {
	Placement
	Archive string `json:"archive"`
}

// PackOrder packs files into an archive.
type PackOrder struct {
	Selection
	Archive string `json:"archive"`
	// Missing says that it is no error if there are no such files.
	Missing bool `json:"missing,omitempty"`
}

// MkdirOrder makes a directory.
type MkdirOrder struct {
	Target string `json:"target"`
	Owner  string `json:"owner,omitempty"`
}

// Carry carries an order out in the filesystem of this process. The text is the order in JSON. It
// writes a [Packed] to out for a PackOrder.
func Carry(ctx context.Context, text string, out io.Writer) error {
	var o Order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return fmt.Errorf("the order: %w", err)
	}
	switch {
	case o.Unpack != nil:
		f, err := os.Open(o.Unpack.Archive)
		if err != nil {
			return err
		}
		defer os.Remove(o.Unpack.Archive)
		defer f.Close()
		return Unpack(f, o.Unpack.Placement)
	case o.Mkdir != nil:
		return MakeDir(o.Mkdir.Target, o.Mkdir.Owner)
	case o.Fetch != nil:
		return fetch(ctx, *o.Fetch)
	case o.Distrust:
		return distrust()
	case o.Trust:
		return trust()
	case o.Settle:
		err := syscall.Kill(-1, syscall.SIGKILL) // not the caller, and not the first process
		if errors.Is(err, syscall.ESRCH) {
			err = nil // there was none
		}
		return err
	case o.Pack != nil:
		p, err := packFile(ctx, *o.Pack)
		if err != nil {
			return err
		}
		return json.NewEncoder(out).Encode(p)
	}
	var errs []error
	for _, name := range o.Remove {
		errs = append(errs, os.RemoveAll(name))
	}
	return errors.Join(errs...)
}

// packFile packs into a file.
func packFile(ctx context.Context, o PackOrder) (_ Packed, err error) {
	f, err := os.OpenFile(o.Archive, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return Packed{}, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(o.Archive)
		}
	}()
	w := bufio.NewWriterSize(f, 256<<10)
	p, err := Pack(ctx, w, OS{}, o.Selection)
	if o.Missing && (errors.Is(err, fs.ErrNotExist) || isMissing(err)) {
		p, err = Pack(ctx, w, OS{}, Selection{})
	}
	return p, errors.Join(err, w.Flush(), f.Close())
}

// isMissing reports whether an error of Pack means that there are no such files.
func isMissing(err error) bool { return carrel.KindOf(err) == carrel.NotFound }
