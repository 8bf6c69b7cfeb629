package backup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The audit trail signs digests of the wire's decisions that are in the directory audit. Both grow
// while a backup is made. A trail that is newer than the decisions beside it would tell, in the
// restored directory, of decisions that somebody removed. So the trail is taken first, as long as it
// is at that moment. All that it signs is then in the decisions, which are taken afterwards.

const (
	trailDir  = "trail"
	auditDir  = "audit"
	auditFile = "audit.jsonl" // the one that grows; the others have a number in their name
)

// takeTrail takes the trail. Its head, which names a record, comes before the records: the names
// are read in their order.
func (s *stage) takeTrail(dataDir string) error {
	from, to := filepath.Join(dataDir, trailDir), filepath.Join(s.dir, trailDir)
	entries, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	last := ""
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "trail-") {
			last = e.Name()
		}
	}
	for _, e := range entries {
		name := e.Name()
		if !e.Type().IsRegular() || name == ".lock" {
			continue
		}
		take := os.Link
		if name == last { // it still grows
			take = copyLines
		}
		err := take(filepath.Join(from, name), filepath.Join(to, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// copyLines copies the whole lines that a file has now.
func copyLines(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	size, err := io.Copy(out, io.LimitReader(in, info.Size()))
	if err == nil {
		size, err = wholeLines(out, size)
	}
	if err == nil {
		err = out.Truncate(size)
	}
	return errors.Join(err, out.Close())
}

// wholeLines returns the size of a file without the unfinished line at its end.
func wholeLines(f io.ReaderAt, size int64) (int64, error) {
	const step = 64 << 10
	for size > 0 {
		start := max(0, size-step)
		part := make([]byte, size-start)
		if _, err := f.ReadAt(part, start); err != nil && err != io.EOF {
			return 0, err
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			return start + int64(i) + 1, nil
		}
		size = start
	}
	return 0, nil
}

// takeAudit takes the wire's decisions a second time. Between the first walk's look at the names and
// its links, the file that grows may have got its number. The second walk finds it then. If both
// walks found it, its first name goes.
func (s *stage) takeAudit(ctx context.Context, dataDir string) error {
	if err := s.link(ctx, dataDir, auditDir); err != nil {
		return err
	}
	dir := filepath.Join(s.dir, auditDir)
	growing, err := os.Stat(filepath.Join(dir, auditFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		if e.Name() != auditFile && os.SameFile(info, growing) {
			return os.Remove(filepath.Join(dir, auditFile))
		}
	}
	return nil
}
