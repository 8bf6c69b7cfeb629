package audit

import (
	"bufio"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/internal/atomicfile"
)

var fileName = regexp.MustCompile(`^audit-([0-9]{20})\.jsonl(\.zst)?$`)

// tempPattern matches the unfinished packed files of a crash.
const tempPattern = ".audit-*.tmp"

// openFiles finds the files of a directory, repairs them after a crash, and opens the newest for
// writing.
func openFiles(dir string, opts Options) (*files, error) {
	f := &files{dir: dir, opts: opts, change: make(chan struct{})}
	rotated, err := f.find()
	if err != nil {
		return nil, err
	}
	f.list = rotated
	active, err := scanFile(f.path(activeName))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	if info, serr := os.Stat(f.path(activeName)); serr == nil && info.Size() > active.size {
		opts.Logger.Warn("the audit log ends in what is no decision; it is cut off", "bytes", info.Size()-active.size)
	}
	if f.out, err = opts.open(f.path(activeName)); err != nil {
		return nil, err
	}
	// After the whole lines, there may be a part of a line, or garbage after a power loss.
	if err := f.out.Truncate(active.size); err != nil {
		return nil, errors.Join(err, f.out.Close())
	}
	active.active = true
	if active.first == 0 {
		active.first = 1
		if n := len(f.list); n > 0 {
			active.first = f.list[n-1].last + 1
		}
		active.last = active.first - 1
	}
	f.list = append(f.list, &active)
	if err := atomicfile.SyncDir(dir); err != nil {
		return nil, errors.Join(err, f.out.Close())
	}
	f.sweep(opts.Now())
	f.packLater()
	return f, nil
}

// find lists the finished files, oldest first.
func (f *files) find() ([]*segment, error) {
	temps, err := filepath.Glob(f.path(tempPattern))
	if err != nil {
		return nil, err
	}
	for _, name := range temps {
		if err := os.Remove(name); err != nil {
			return nil, err
		}
	}
	entries, err := os.ReadDir(f.dir) // sorted: ….jsonl comes before ….jsonl.zst
	if err != nil {
		return nil, err
	}
	var list []*segment
	for _, e := range entries {
		m := fileName.FindStringSubmatch(e.Name())
		if m == nil || !e.Type().IsRegular() {
			continue
		}
		first, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil || first <= 0 {
			continue
		}
		seg := f.describe(e.Name(), first)
		if n := len(list); n > 0 && list[n-1].first == first {
			// A packed file gets its name only when it is complete. The other file is removed only
			// after that.
			if err := os.Remove(f.path(list[n-1].name())); err != nil {
				return nil, err
			}
			list = list[:n-1]
		}
		list = append(list, &seg)
	}
	return endings(list), nil
}

// describe returns the range of a finished file. An unreadable file is kept until its time comes.
// Its range counts as unknown.
func (f *files) describe(name string, first int64) segment {
	seg, err := segment{}, error(nil)
	packed := strings.HasSuffix(name, packedExt)
	if packed {
		if seg, err = readPackHead(f.path(name)); err != nil {
			f.opts.Logger.Warn("a file of the audit log is damaged", "file", name, "err", err)
			seg, err = scanPacked(f.path(name))
		}
	} else {
		seg, err = scanFile(f.path(name))
	}
	if err == nil && seg.first != first && seg.first != 0 {
		err = errors.New("the numbers in it are not those of its name")
	}
	if err != nil {
		f.opts.Logger.Warn("a file of the audit log is damaged", "file", name, "err", err)
		seg = segment{last: -1, until: time.Unix(math.MaxInt32, 0)}
	}
	seg.first, seg.packed = first, packed
	return seg
}

// endings sets the ends of damaged files: before the next file begins.
func endings(list []*segment) []*segment {
	for i, seg := range slices.Backward(list) {
		if seg.last >= seg.first {
			continue
		}
		seg.last = seg.first
		if i+1 < len(list) {
			seg.last = list[i+1].first - 1
		}
	}
	return list
}

// scanFile reads the range of a file, up to the last whole line.
func scanFile(name string) (segment, error) {
	in, err := os.Open(name)
	if err != nil {
		return segment{}, err
	}
	defer in.Close()
	return scan(in)
}

// scanPacked is scanFile for a packed file, as far as it can be unpacked.
func scanPacked(name string) (segment, error) {
	in, err := os.Open(name)
	if err != nil {
		return segment{}, err
	}
	defer in.Close()
	dec, err := unpack(in)
	if err != nil {
		return segment{}, err
	}
	defer dec.Close()
	seg, err := scan(dec)
	if seg.first > 0 {
		err = nil
	}
	return seg, err
}

// scan reads lines up to the last whole one. For broken lines before it, only their bytes count.
func scan(r io.Reader) (segment, error) {
	var seg segment
	lines := newLineReader(r)
	for offset := int64(0); ; {
		line, n, err := lines.next()
		if errors.Is(err, io.EOF) {
			return seg, nil
		}
		if err != nil {
			return seg, err
		}
		offset += int64(n)
		seq, at, ok := lineHead(line)
		if !ok || seq <= seg.last {
			continue
		}
		if seg.first == 0 {
			seg.first = seq
		}
		seg.take(batch{last: seq, since: at, until: at})
		seg.size = offset
	}
}

// lineReader reads lines. It bounds its memory even for a damaged file with very long lines.
type lineReader struct {
	in  *bufio.Reader
	buf []byte
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{in: bufio.NewReaderSize(r, 64<<10)}
}

// next returns a whole line without its end, and the number of bytes it took. The line is valid
// until the next call. A line that is too long is returned empty. An unfinished last line gives
// io.EOF.
func (l *lineReader) next() (line []byte, n int, err error) {
	l.buf = l.buf[:0]
	for {
		part, err := l.in.ReadSlice('\n')
		n += len(part)
		if err == nil && len(l.buf) == 0 && n == len(part) {
			return part[:len(part)-1], n, nil
		}
		if n <= maxLine {
			l.buf = append(l.buf, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return nil, 0, err
		case n > maxLine:
			return nil, n, nil
		default:
			return l.buf[:len(l.buf)-1], n, nil
		}
	}
}
