package trail

import (
	"bufio"
	"errors"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/carrel-dev/carrel"
)

var namePattern = regexp.MustCompile(`^trail-([0-9]{20})\.jsonl$`)

// listFiles returns the numbers of the first records of a directory's files, in their order.
func listFiles(dir string) ([]int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var firsts []int64
	for _, e := range entries {
		m := namePattern.FindStringSubmatch(e.Name())
		if m == nil || !e.Type().IsRegular() {
			continue
		}
		if first, err := strconv.ParseInt(m[1], 10, 64); err == nil && first > 0 {
			firsts = append(firsts, first)
		}
	}
	slices.Sort(firsts)
	return firsts, nil
}

// eachLine passes on the whole lines of a file, without their ends, and the offset behind each. A
// line that is too long is passed on empty. It returns the number of bytes after the last whole line.
func eachLine(in io.Reader, fn func(line []byte, end int64) error) (rest int64, err error) {
	r := bufio.NewReaderSize(in, maxLine)
	var offset int64
	var long int64 // bytes of a line that is too long
	for {
		part, err := r.ReadSlice('\n')
		switch {
		case err == nil:
			offset += long + int64(len(part))
			line := part[:len(part)-1]
			if long > 0 {
				line = nil
			}
			long = 0
			if err := fn(line, offset); err != nil {
				return 0, err
			}
		case errors.Is(err, bufio.ErrBufferFull):
			long += int64(len(part))
		case errors.Is(err, io.EOF):
			return long + int64(len(part)), nil
		default:
			return 0, err
		}
	}
}

// fileEnd is the end of a file's records.
type fileEnd struct {
	seq    int64
	hash   string
	size   int64 // of the whole lines
	egress egressEnds
	seal   bool // there is a seal, which knows the ends of the wire's log
}

// tailBytes is how much of a file's end mostly holds a seal.
const tailBytes = 4 << 20

// scanEnd finds the end of a file's records. A damaged line does not end them: its number and hash
// are taken as they stand, so that a verification shows the damage.
func scanEnd(name string) (fileEnd, error) {
	in, err := os.Open(name)
	if err != nil {
		return fileEnd{}, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return fileEnd{}, err
	}
	if start := info.Size() - tailBytes; start > 0 {
		end, err := scanFrom(in, start)
		if err != nil || end.seal {
			return end, err
		}
	}
	return scanFrom(in, 0)
}

// scanFrom finds the end of the records from an offset on, which may be inside a line.
func scanFrom(in io.ReaderAt, start int64) (end fileEnd, err error) {
	_, err = eachLine(io.NewSectionReader(in, start, 1<<62), func(line []byte, offset int64) error {
		end.size = start + offset
		if r, _, ok := parse(line); ok {
			end.seq, end.hash = r.Seq, r.Hash
			end.egress.record(r)
			end.seal = end.seal || r.Kind == carrel.TrailSeal
		}
		return nil
	})
	return end, err
}

// firstTime returns the time of a file's first record; zero if it has none.
func firstTime(name string) (first time.Time) {
	in, err := os.Open(name)
	if err != nil {
		return first
	}
	defer in.Close()
	_, _ = eachLine(in, func(line []byte, _ int64) error {
		if r, _, ok := parse(line); ok {
			first = r.Time
			return io.EOF
		}
		return nil
	})
	return first
}

// egressEnds are the newest decisions of the wire that the trail knows of.
type egressEnds struct {
	last int64 // the newest that a digest covers
	cut  int64 // the newest that retention removed
}

// record takes in one record.
func (e *egressEnds) record(r carrel.TrailRecord) {
	switch r.Kind {
	case carrel.TrailEgress:
		e.last = max(e.last, r.Last)
	case carrel.TrailEgressCut:
		e.cut = max(e.cut, r.Last)
	case carrel.TrailSeal:
		e.note(egressEnds{last: r.Last, cut: r.First})
	}
}

func (e *egressEnds) note(o egressEnds) {
	e.last, e.cut = max(e.last, o.last), max(e.cut, o.cut)
}
