package trail

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"github.com/carrel-dev/carrel"
)

// maxProblems bounds a report.
const maxProblems = 100

// Lines reads the lines of the wire's audit log, in their order: the number of each, and its bytes
// with the line's end.
type Lines func(ctx context.Context, fn func(seq int64, line []byte) error) error

// VerifyOptions configures a verification.
type VerifyOptions struct {
	// Key is the public key; nil is the one in the trail's directory.
	Key ed25519.PublicKey
	// Anchors are hashes of records that were kept elsewhere, by their numbers.
	Anchors map[int64]string
	// Lines reads the wire's audit log; nil does not check it.
	Lines Lines
}

// Verify checks the trail in a directory, which a daemon may be writing to. It changes nothing. An
// error says that the trail could not be read. What is wrong with it is in the report.
func Verify(ctx context.Context, dir string, opts VerifyOptions) (carrel.TrailReport, error) {
	v := &verifier{opts: opts, prev: zeroHash, last: -1}
	if err := v.open(dir); err != nil {
		return v.report, verifyError(err)
	}
	firsts, err := listFiles(dir)
	if err != nil {
		return v.report, verifyError(err)
	}
	for i, first := range firsts {
		in, err := os.Open(filepath.Join(dir, fileName(first)))
		if errors.Is(err, os.ErrNotExist) && v.last < 0 {
			continue // retention removed it since
		}
		if err != nil {
			return v.report, verifyError(err)
		}
		err = v.file(ctx, in, i == len(firsts)-1)
		_ = in.Close()
		if err != nil {
			return v.report, verifyError(err)
		}
	}
	if err := v.finish(ctx); err != nil {
		return v.report, verifyError(err)
	}
	return v.report, nil
}

// VerifyLines checks records that were exported, without head.json.
func VerifyLines(ctx context.Context, in io.Reader, opts VerifyOptions) (carrel.TrailReport, error) {
	v := &verifier{opts: opts, prev: zeroHash, last: -1, exported: true}
	if opts.Key == nil {
		return v.report, &carrel.Error{Op: "verify audit trail", Kind: carrel.Invalid, Field: "public-key",
			Err: errors.New("an export says nothing of the key that signed it"), Hint: "give the daemon's trail/key.pub"}
	}
	v.report.Key = Fingerprint(opts.Key)
	if err := v.file(ctx, in, true); err != nil {
		return v.report, verifyError(err)
	}
	return v.report, verifyError(v.finish(ctx))
}

func verifyError(err error) error {
	if err == nil {
		return nil
	}
	kind := carrel.Internal
	switch {
	case errors.Is(err, os.ErrNotExist):
		kind = carrel.NotFound
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		kind = carrel.Unavailable
	}
	return &carrel.Error{Op: "verify audit trail", Kind: kind, Err: err}
}

// verifier goes through the records once.
type verifier struct {
	opts     VerifyOptions
	report   carrel.TrailReport
	exported bool
	head     head
	headed   bool

	last     int64  // Seq of the record before; -1 before the first
	prev     string // its hash
	first    string // the hash before the first record
	cuts     map[int64]string
	egress   []carrel.TrailRecord
	gone     int64 // decisions of the wire that retention removed
	headSeen bool
}

// open reads the key and the head. The head is read before the records, which only grow.
func (v *verifier) open(dir string) (err error) {
	if v.opts.Key == nil {
		if v.opts.Key, err = ReadPublicKey(filepath.Join(dir, publicName)); err != nil {
			return err
		}
	}
	v.report.Key = Fingerprint(v.opts.Key)
	h, ok, err := readHead(dir, v.opts.Key)
	switch {
	case err != nil:
		v.problem(0, "forged", "head.json, the signed end of the trail, is damaged: %v", err)
	case ok:
		v.head, v.headed = h, true
	}
	return nil
}

func (v *verifier) problem(seq int64, what, format string, args ...any) {
	if len(v.report.Problems) < maxProblems {
		v.report.Problems = append(v.report.Problems, carrel.TrailProblem{Seq: seq, What: what, Text: fmt.Sprintf(format, args...)})
	}
}

func (v *verifier) note(format string, args ...any) {
	if len(v.report.Notes) < maxProblems {
		v.report.Notes = append(v.report.Notes, fmt.Sprintf(format, args...))
	}
}

// file checks the records of one file.
func (v *verifier) file(ctx context.Context, in io.Reader, newest bool) error {
	n := 0
	rest, err := eachLine(in, func(line []byte, _ int64) error {
		if n++; n%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		r, whole, ok := parse(line)
		if !ok {
			v.problem(v.last+1, "changed", "the line after record %d is no record", max(v.last, 0))
			return nil
		}
		v.record(r, whole)
		return nil
	})
	switch {
	case err != nil:
		return err
	case rest > 0 && newest:
		v.note("the newest line is not finished (%d bytes): it is being written, or the daemon died", rest)
	case rest > 0:
		v.problem(v.last, "changed", "a file ends in the middle of the line after record %d", v.last)
	}
	return nil
}

// record checks one record against the one before.
func (v *verifier) record(r carrel.TrailRecord, whole bool) {
	v.report.Records++
	if v.last < 0 {
		v.report.First, v.first = r.Seq, r.Prev
		if r.Seq == 1 && r.Prev != zeroHash {
			v.problem(1, "forged", "the first record follows something")
		}
	}
	switch {
	case !whole:
		v.problem(r.Seq, "changed", "record %d is not the one that was written: its hash is another", r.Seq)
	case v.last < 0:
	case r.Seq <= v.last:
		v.problem(r.Seq, "reordered", "record %d stands after record %d", r.Seq, v.last)
	case r.Seq == v.last+2:
		v.problem(v.last+1, "removed", "record %d is missing", v.last+1)
	case r.Seq > v.last+2:
		v.problem(v.last+1, "removed", "records %d to %d are missing", v.last+1, r.Seq-1)
	case r.Prev != v.prev:
		v.problem(r.Seq, "changed", "record %d does not follow the record %d that is there", r.Seq, v.last)
	}
	if want, ok := v.opts.Anchors[r.Seq]; ok && want != r.Hash {
		v.problem(r.Seq, "forged", "record %d is not the one whose hash was kept elsewhere", r.Seq)
	}
	v.signature(r, whole)
	if v.headed && r.Seq == v.head.Seq {
		v.headSeen = true
		if r.Hash != v.head.Hash {
			v.problem(r.Seq, "forged", "record %d is not the one that head.json signs", r.Seq)
		}
	}
	v.contents(r)
	v.last, v.prev = r.Seq, r.Hash
}

// signature checks a record that must be signed.
func (v *verifier) signature(r carrel.TrailRecord, whole bool) {
	if r.Kind != carrel.TrailSeal && r.Kind != carrel.TrailCut {
		return
	}
	if !whole {
		return // told already
	}
	if !signed(r, v.opts.Key) {
		v.problem(r.Seq, "forged", "the signature of record %d is wrong: records %d to %d are not the daemon's", r.Seq,
			max(v.report.SignedTo+1, v.report.First), r.Seq)
		return
	}
	v.report.SignedTo = r.Seq
}

// contents takes in what a record says of the trail itself.
func (v *verifier) contents(r carrel.TrailRecord) {
	switch r.Kind {
	case carrel.TrailCut:
		if v.cuts == nil {
			v.cuts = map[int64]string{}
		}
		v.cuts[r.Last] = r.Digest
	case carrel.TrailTorn:
		v.note("record %d: an unfinished line of %d bytes was cut off after a crash", r.Seq, r.Bytes)
	case carrel.TrailLost:
		v.note("record %d: %d records could not be written", r.Seq, r.Repeats)
	case carrel.TrailEgress:
		v.egress = append(v.egress, carrel.TrailRecord{Seq: r.Seq, First: r.First, Last: r.Last, Digest: r.Digest})
	case carrel.TrailEgressCut:
		v.gone = max(v.gone, r.Last)
	case carrel.TrailSeal:
		v.gone = max(v.gone, r.First)
	}
}

// finish checks the ends.
func (v *verifier) finish(ctx context.Context) error {
	r := &v.report
	r.Last, r.Head = max(v.last, 0), v.prev
	if r.First > 1 && !v.exported {
		switch hash, ok := v.cuts[r.First-1]; {
		case !ok:
			v.problem(r.First, "removed", "records 1 to %d are missing, and no signed cut names %d", r.First-1, r.First-1)
		case hash != v.first:
			v.problem(r.First, "forged", "record %d does not follow the one that the signed cut names", r.First)
		default:
			v.note("records 1 to %d were removed because of their age or number", r.First-1)
		}
	}
	for seq := range v.opts.Anchors {
		if seq > r.Last {
			v.problem(seq, "truncated", "record %d, whose hash was kept elsewhere, is missing", seq)
		}
	}
	switch {
	case v.exported:
	case !v.headed && len(r.Problems) == 0: // otherwise it was told
		v.problem(0, "truncated", "head.json, the signed end of the trail, is missing")
	case v.headed && v.head.Seq > r.Last:
		v.problem(v.head.Seq, "truncated", "records %d to %d are missing: the signed end of the trail is %d", r.Last+1, v.head.Seq, v.head.Seq)
	case v.headed && !v.headSeen && v.head.Seq >= max(r.First, 1):
		v.problem(v.head.Seq, "removed", "record %d, which head.json signs, is missing", v.head.Seq)
	}
	if r.Last > r.SignedTo {
		v.note("records %d to %d are not signed yet", max(r.SignedTo+1, r.First), r.Last)
	}
	if v.opts.Lines != nil {
		if err := v.wire(ctx); err != nil {
			return err
		}
	}
	r.OK = len(r.Problems) == 0
	return nil
}

// wire checks the wire's audit log against the digests in the trail.
func (v *verifier) wire(ctx context.Context) error {
	var sum hash.Hash
	i, next := 0, int64(0)
	begin := func() {
		sum = sha256.New()
		if i < len(v.egress) {
			next = v.egress[i].First
		}
	}
	begin()
	end := func() { // of range i
		e := v.egress[i]
		switch {
		case e.Last <= v.gone:
		case next == e.Last+1 && hex.EncodeToString(sum.Sum(nil)) == e.Digest:
			v.report.Egress += e.Last - e.First + 1
		case e.First <= v.gone: // cut through: the rest can't be compared
		case next == e.First:
			v.problem(e.Seq, "egress", "decisions %d to %d of the wire are missing", e.First, e.Last)
		default:
			v.problem(e.Seq, "egress", "decisions %d to %d of the wire are not the ones that were written", e.First, e.Last)
		}
		i++
		begin()
	}
	err := v.opts.Lines(ctx, func(seq int64, line []byte) error {
		for i < len(v.egress) && seq > v.egress[i].Last {
			end()
		}
		if i < len(v.egress) && seq == next {
			sum.Write(line)
			next++
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i < len(v.egress) {
		end()
	}
	return nil
}
