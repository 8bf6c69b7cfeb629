package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// ddJob is one run of dd.
type ddJob struct {
	in, out              string
	ibs, obs, cbs        int64
	count, skip, seek    int64
	countB, skipB, seekB bool // in bytes
	conv                 map[string]bool
	iflag, oflag         map[string]bool
	status               string
	inFull, inPart       int64
	outFull, outPart     int64
	bytes                int64
	truncated            int64
}

// maxBlock is the largest block size of dd.
const maxBlock = 256 << 20

// ddNumber reads N, with suffixes and products such as 2x1k.
func ddNumber(s string) (int64, bool) {
	total := int64(1)
	for part := range strings.SplitSeq(s, "x") {
		n, ok := sizeArg(part)
		if !ok || n < 0 || n != 0 && total > math.MaxInt64/n {
			return 0, false
		}
		total *= n
	}
	return total, true
}

// parseDD reads dd's operands.
func parseDD(args []string) (*ddJob, error) {
	j := &ddJob{ibs: 512, obs: 512, count: -1, conv: map[string]bool{}, iflag: map[string]bool{}, oflag: map[string]bool{}}
	bs := int64(0)
	list := func(into map[string]bool, value, known, what string) error {
		for v := range strings.SplitSeq(value, ",") {
			if v == "" || !slices.Contains(strings.Fields(known), v) {
				return fmt.Errorf("invalid %s: %s", what, curly(v))
			}
			into[v] = true
		}
		return nil
	}
	for _, a := range args {
		key, value, ok := strings.Cut(a, "=")
		if !ok {
			return nil, fmt.Errorf("unrecognized operand %s", curly(a))
		}
		var err error
		num := func(into *int64, low int64, inBytes *bool) {
			if inBytes != nil && strings.HasSuffix(value, "B") && !strings.HasSuffix(value, "KB") && !strings.HasSuffix(value, "iB") {
				if b := strings.TrimSuffix(value, "B"); b != "" && digit(b[len(b)-1]) {
					*inBytes = true
				}
			}
			n, good := ddNumber(value)
			if !good || n < low {
				err = fmt.Errorf("invalid number: %s", curly(value))
			}
			*into = n
		}
		const flags = "append direct directory dsync sync fullblock nonblock noatime nocache noctty nofollow count_bytes skip_bytes seek_bytes binary text"
		switch key {
		case "if":
			j.in = value
		case "of":
			j.out = value
		case "bs":
			num(&bs, 1, nil)
		case "ibs":
			num(&j.ibs, 1, nil)
		case "obs":
			num(&j.obs, 1, nil)
		case "cbs":
			num(&j.cbs, 1, nil)
		case "count":
			num(&j.count, 0, &j.countB)
		case "skip", "iseek":
			num(&j.skip, 0, &j.skipB)
		case "seek", "oseek":
			num(&j.seek, 0, &j.seekB)
		case "conv":
			err = list(j.conv, value, "ascii ebcdic ibm block unblock lcase ucase sparse swab sync excl nocreat notrunc noerror fdatasync fsync", "conversion")
		case "iflag":
			err = list(j.iflag, value, flags, "input flag")
		case "oflag":
			err = list(j.oflag, value, flags, "output flag")
		case "status":
			if j.status = value; value != "none" && value != "noxfer" && value != "progress" {
				err = fmt.Errorf("invalid status level: %s", curly(value))
			}
		default:
			err = fmt.Errorf("unrecognized operand %s", curly(a))
		}
		if err != nil {
			return nil, err
		}
	}
	if bs > 0 {
		j.ibs, j.obs = bs, bs
	}
	j.countB = j.countB || j.iflag["count_bytes"]
	j.skipB = j.skipB || j.iflag["skip_bytes"]
	j.seekB = j.seekB || j.oflag["seek_bytes"]
	if j.ibs > maxBlock || j.obs > maxBlock || j.cbs > maxBlock {
		return nil, errors.New("memory exhausted by input buffer: blocks are 256 MiB at most")
	}
	for _, pair := range [][2]string{{"lcase", "ucase"}, {"block", "unblock"}, {"excl", "nocreat"}} {
		if j.conv[pair[0]] && j.conv[pair[1]] {
			return nil, fmt.Errorf("cannot combine %s and %s", pair[0], pair[1])
		}
	}
	if j.conv["ascii"] || j.conv["ebcdic"] || j.conv["ibm"] {
		return nil, errors.New("this machine's dd does not convert EBCDIC")
	}
	for _, b := range []struct {
		n     int64
		bytes bool
		bs    int64
	}{{j.skip, j.skipB, j.ibs}, {j.seek, j.seekB, j.obs}} {
		if !b.bytes && b.n > math.MaxInt64/b.bs {
			return nil, fmt.Errorf("offset too large: %d blocks of %d bytes", b.n, b.bs)
		}
	}
	return j, nil
}

// dd copies and converts.
func dd(c *tool.Call) int {
	j, err := parseDD(c.Args)
	if err != nil {
		return usage(c, 1, "%v", err)
	}
	var in io.Reader = c.In
	var inFile tool.File
	if j.in != "" {
		if inFile, err = c.Open(j.in, vfs.ReadOnly, 0); err != nil {
			return c.Errorf(1, "failed to open %s: %s", quoted(j.in), errText(err))
		}
		defer inFile.Close()
		in = inFile
	}
	seek := j.seek
	if !j.seekB {
		seek *= j.obs
	}
	var out io.Writer = c.Out
	if j.out != "" {
		flags := vfs.WriteOnly
		if !j.conv["nocreat"] {
			flags |= vfs.CreateNew
		}
		if j.conv["excl"] {
			flags |= vfs.Exclusive
		}
		if j.oflag["append"] {
			flags |= vfs.Append
		}
		if !j.conv["notrunc"] && seek == 0 {
			flags |= vfs.Truncate
		}
		f, err := c.Open(j.out, flags, 0o666)
		if err != nil {
			return c.Errorf(1, "failed to open %s: %s", quoted(j.out), errText(err))
		}
		defer f.Close()
		if seek > 0 {
			if !j.conv["notrunc"] {
				if err := f.Truncate(seek); err != nil && !isDevice(f) {
					return c.Errorf(1, "failed to truncate to %d bytes in output file %s: %s", seek, quoted(j.out), errText(err))
				}
			}
			if _, err := f.Seek(seek, io.SeekStart); err != nil {
				return c.Errorf(1, "%s: cannot seek: %s", quoted(j.out), errText(err))
			}
		}
		out = f
	}
	started := c.Now()
	status := 0
	if err := j.skipInput(c, in, inFile); err != nil {
		if c.Stopped(err) {
			return 1
		}
		if err != io.EOF {
			status = c.Errorf(1, "error reading %s: %s", quoted(nameOr(j.in, "standard input")), errText(err))
		} else {
			c.Errorf(0, "%s: cannot skip to specified offset", shellQuote(nameOr(j.in, "standard input"), true))
		}
	} else if err := j.run(c, in, out); err != nil {
		if c.Stopped(err) {
			return 1
		}
		status = c.Errorf(1, "%v", err)
	}
	j.report(c, c.Now().Sub(started))
	return status
}

func isDevice(f tool.File) bool {
	i, err := f.Stat()
	return err == nil && !i.Mode.IsRegular()
}

func nameOr(name, other string) string {
	if name == "" {
		return other
	}
	return name
}

// skipInput skips the start of the input.
func (j *ddJob) skipInput(c *tool.Call, in io.Reader, f tool.File) error {
	n := j.skip
	if !j.skipB {
		n *= j.ibs
	}
	if n == 0 {
		return nil
	}
	if f != nil {
		if i, err := f.Stat(); err == nil && i.Mode.IsRegular() {
			if n > i.Size {
				return io.EOF
			}
			_, err := f.Seek(n, io.SeekStart)
			return err
		}
	}
	buf := make([]byte, min(n, 64<<10))
	for n > 0 {
		if !c.Step(16) {
			return tool.ErrStop
		}
		k, err := in.Read(buf[:min(n, int64(len(buf)))])
		n -= int64(k)
		if err != nil {
			return err
		}
	}
	return nil
}

// run is the loop.
func (j *ddJob) run(c *tool.Call, in io.Reader, out io.Writer) error {
	if err := c.Pay(j.ibs + 2*j.obs); err != nil {
		return err
	}
	buf := make([]byte, j.ibs)
	var pending []byte
	var column int64
	left := j.count
	for left != 0 {
		want := j.ibs
		if j.countB && left > 0 {
			want = min(want, left)
		}
		n, err := j.read(in, buf[:want])
		if n > 0 {
			if !c.Step(2 + n>>9) {
				return tool.ErrStop
			}
			switch {
			case int64(n) == j.ibs:
				j.inFull++
			default:
				j.inPart++
			}
			block := buf[:n]
			if j.conv["sync"] && int64(n) < j.ibs {
				fill := byte(0)
				if j.conv["block"] || j.conv["unblock"] {
					fill = ' '
				}
				block = append(slices.Clone(block), bytes.Repeat([]byte{fill}, int(j.ibs)-n)...)
			}
			block = j.convert(block, &column)
			if j.ibs == j.obs && len(j.conv) == 0 || j.ibs == j.obs && !j.conv["block"] && !j.conv["unblock"] {
				if werr := j.write(out, block); werr != nil {
					return werr
				}
			} else {
				pending = append(pending, block...)
				for int64(len(pending)) >= j.obs {
					if werr := j.write(out, pending[:j.obs]); werr != nil {
						return werr
					}
					pending = pending[j.obs:]
				}
			}
			if left > 0 {
				if j.countB {
					left -= int64(n)
				} else {
					left--
				}
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			if c.Stopped(err) {
				return err
			}
			return fmt.Errorf("error reading %s: %s", quoted(nameOr(j.in, "standard input")), errText(err))
		}
	}
	if j.conv["block"] && column > 0 && column < j.cbs {
		pending = append(pending, bytes.Repeat([]byte{' '}, int(j.cbs-column))...)
	}
	if j.conv["unblock"] && column > 0 {
		pending = append(pending, '\n')
	}
	if len(pending) > 0 {
		return j.write(out, pending)
	}
	return nil
}

// read reads one block: the result of one read, or with iflag=fullblock a full block.
func (j *ddJob) read(in io.Reader, b []byte) (int, error) {
	if !j.iflag["fullblock"] {
		return in.Read(b)
	}
	n, err := io.ReadFull(in, b)
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	return n, err
}

func (j *ddJob) write(out io.Writer, b []byte) error {
	n, err := out.Write(b)
	j.bytes += int64(n)
	if err != nil {
		return fmt.Errorf("error writing %s: %w", quoted(nameOr(j.out, "standard output")), plainError{err})
	}
	if int64(n) == j.obs {
		j.outFull++
	} else if n > 0 {
		j.outPart++
	}
	return nil
}

// plainError formats an error in the kernel's words.
type plainError struct{ error }

func (e plainError) Error() string { return errText(e.error) }
func (e plainError) Unwrap() error { return e.error }

// convert applies conv=. column is the position of block and unblock in a record.
func (j *ddJob) convert(b []byte, column *int64) []byte {
	switch {
	case j.conv["lcase"]:
		shift(b, 'A', 'Z', 32)
	case j.conv["ucase"]:
		shift(b, 'a', 'z', 224)
	}
	if j.conv["swab"] {
		for i := 0; i+1 < len(b); i += 2 {
			b[i], b[i+1] = b[i+1], b[i]
		}
	}
	switch {
	case j.conv["block"] && j.cbs > 0:
		var out []byte
		for _, x := range b {
			switch {
			case x == '\n':
				if *column < j.cbs {
					out = append(out, bytes.Repeat([]byte{' '}, int(j.cbs-*column))...)
				} else if *column > j.cbs {
					j.truncated++
				}
				*column = 0
			default:
				if *column < j.cbs {
					out = append(out, x)
				}
				*column++
			}
		}
		return out
	case j.conv["unblock"] && j.cbs > 0:
		var out []byte
		spaces := int(*column >> 32)
		col := *column & (1<<32 - 1)
		for _, x := range b {
			if col == j.cbs {
				out = append(out, '\n')
				spaces, col = 0, 0
			}
			col++
			if x == ' ' {
				spaces++
				continue
			}
			out = append(append(out, bytes.Repeat([]byte{' '}, spaces)...), x)
			spaces = 0
		}
		*column = int64(spaces)<<32 | col
		return out
	}
	return b
}

// shift adds by to the letters from lo to hi, in place.
func shift(b []byte, lo, hi, by byte) {
	for i, x := range b {
		if x >= lo && x <= hi {
			b[i] = x + by
		}
	}
}

// report writes the statistics.
func (j *ddJob) report(c *tool.Call, took time.Duration) {
	if j.status == "none" {
		return
	}
	fmt.Fprintf(c.Err, "%d+%d records in\n%d+%d records out\n", j.inFull, j.inPart, j.outFull, j.outPart)
	if j.truncated > 0 {
		fmt.Fprintf(c.Err, "%d truncated records\n", j.truncated)
	}
	if j.status == "noxfer" {
		return
	}
	seconds := max(took.Seconds(), 1e-9)
	rate := float64(j.bytes) / seconds
	text := fmt.Sprintf("%d bytes", j.bytes)
	if j.bytes == 1 {
		text = "1 byte"
	}
	if j.bytes >= 1000 {
		text += " (" + siBytes(float64(j.bytes))
		if j.bytes >= 1024 {
			text += ", " + iecBytes(j.bytes)
		}
		text += ")"
	}
	fmt.Fprintf(c.Err, "%s copied, %s s, %s/s\n", text, strconv.FormatFloat(seconds, 'g', 6, 64), siBytes(rate))
}

func siBytes(n float64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB"}
	i := 0
	for n >= 999.5 && i < len(units)-1 {
		n /= 1000
		i++
	}
	if n < 9.95 && i > 0 {
		return fmt.Sprintf("%.1f %s", n, units[i])
	}
	return fmt.Sprintf("%.0f %s", n, units[i])
}

func iecBytes(n int64) string {
	s := human(n, 1024)
	return s[:len(s)-1] + " " + s[len(s)-1:] + "iB"
}
