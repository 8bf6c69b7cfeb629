package audit

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/carrel-dev/carrel/internal/atomicfile"
)

// errStopped ends the packing when the log is closed.
var errStopped = errors.New("the log is being closed")

// stoppable is a file whose reads fail when it is told to stop.
type stoppable struct {
	io.Reader
	stop *atomic.Bool
}

// Read reads on, or not.
func (s stoppable) Read(p []byte) (int, error) {
	if s.stop.Load() {
		return 0, errStopped
	}
	return s.Reader.Read(p)
}

// packHead is the beginning of a packed file, in a frame that zstd skips. It holds the file's
// range, so that a reader need not unpack it.
type packHead struct {
	First int64     `json:"first"`
	Last  int64     `json:"last"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
}

const (
	skippable   = 0x184d2a5c // one of the 16 magic numbers of skippable frames
	maxPackHead = 4 << 10
)

// packLater packs the finished files in the background.
func (f *files) packLater() {
	f.packs.Go(func() {
		f.turn.Lock()
		defer f.turn.Unlock()
		for {
			seg, ok := f.unpacked()
			if !ok {
				return
			}
			if err := f.pack(seg); err != nil {
				if errors.Is(err, errStopped) {
					return
				}
				f.opts.Logger.Warn("a file of the audit log can't be compressed", "file", seg.name(), "err", err)
				return // tried again after the next rotation
			}
		}
	})
}

// unpacked finds a file to pack.
func (f *files) unpacked() (segment, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.list {
		if !s.active && !s.packed {
			return *s, true
		}
	}
	return segment{}, false
}

// pack compresses one file. It removes the old file when the new one is complete and durable.
func (f *files) pack(seg segment) error {
	in, err := os.Open(f.path(seg.name()))
	if errors.Is(err, os.ErrNotExist) && !f.has(seg.first) {
		return nil // swept away
	}
	if err != nil {
		return err
	}
	defer in.Close()
	tmp, err := os.CreateTemp(f.dir, tempPattern)
	if err != nil {
		return err
	}
	err = writePacked(tmp, stoppable{in, &f.stop}, seg)
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = f.publish(seg, tmp.Name())
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return err
	}
	return atomicfile.SyncDir(f.dir)
}

func (f *files) has(first int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.byFirst(first)
	return ok
}

// byFirst returns the segment that begins with a number. The caller holds f.mu.
func (f *files) byFirst(first int64) (*segment, bool) {
	for _, s := range f.list {
		if s.first == first {
			return s, true
		}
	}
	return nil, false
}

// publish gives a packed file its final name.
func (f *files) publish(seg segment, tmp string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.byFirst(seg.first)
	if !ok {
		return os.Remove(tmp) // swept away meanwhile
	}
	plain := s.name()
	seg.packed = true
	if err := os.Rename(tmp, f.path(seg.name())); err != nil {
		return err
	}
	s.packed = true
	if err := os.Remove(f.path(plain)); err != nil {
		f.opts.Logger.Warn("a file of the audit log can't be removed", "file", plain, "err", err)
	}
	return nil
}

// writePacked writes a packed file.
func writePacked(w io.Writer, r io.Reader, seg segment) error {
	head, err := json.Marshal(packHead{seg.first, seg.last, seg.since, seg.until})
	if err != nil {
		return err
	}
	frame := binary.LittleEndian.AppendUint32(nil, skippable)
	frame = binary.LittleEndian.AppendUint32(frame, uint32(len(head)))
	if _, err := w.Write(append(frame, head...)); err != nil {
		return err
	}
	enc, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20), zstd.WithEncoderCRC(true))
	if err != nil {
		return err
	}
	if _, err = io.Copy(enc, r); err != nil {
		_ = enc.Close()
		return err
	}
	return enc.Close()
}

// readPackHead reads the range of a packed file.
func readPackHead(name string) (segment, error) {
	in, err := os.Open(name)
	if err != nil {
		return segment{}, err
	}
	defer in.Close()
	return parsePackHead(in)
}

func parsePackHead(r io.Reader) (segment, error) {
	var frame [8]byte
	if _, err := io.ReadFull(r, frame[:]); err != nil {
		return segment{}, err
	}
	size := binary.LittleEndian.Uint32(frame[4:])
	if binary.LittleEndian.Uint32(frame[:]) != skippable || size > maxPackHead {
		return segment{}, errors.New("it does not begin with what is in it")
	}
	raw := make([]byte, size)
	if _, err := io.ReadFull(r, raw); err != nil {
		return segment{}, err
	}
	var h packHead
	if err := json.Unmarshal(raw, &h); err != nil {
		return segment{}, err
	}
	if h.First <= 0 || h.Last < h.First || h.Until.Before(h.Since) {
		return segment{}, fmt.Errorf("decisions %d to %d can't be", h.First, h.Last)
	}
	return segment{first: h.First, last: h.Last, since: h.Since, until: h.Until, packed: true}, nil
}

// unpack reads a packed file.
func unpack(r io.Reader) (*zstd.Decoder, error) {
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8<<20))
}
