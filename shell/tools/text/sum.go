package text

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"

	"golang.org/x/crypto/blake2b"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// digests are the checksum programs: the algorithm's name in the BSD format, and its constructor.
var digests = map[string]struct {
	tag  string
	make func(bits int) hash.Hash
}{
	"md5sum":    {"MD5", func(int) hash.Hash { return md5.New() }},
	"sha1sum":   {"SHA1", func(int) hash.Hash { return sha1.New() }},
	"sha224sum": {"SHA224", func(int) hash.Hash { return sha256.New224() }},
	"sha256sum": {"SHA256", func(int) hash.Hash { return sha256.New() }},
	"sha384sum": {"SHA384", func(int) hash.Hash { return sha512.New384() }},
	"sha512sum": {"SHA512", func(int) hash.Hash { return sha512.New() }},
	"b2sum": {"BLAKE2b", func(bits int) hash.Hash {
		h, err := blake2b.New(bits/8, nil)
		if err != nil {
			return nil
		}
		return h
	}},
}

// summer is one run of a checksum program.
type summer struct {
	c                                                  *tool.Call
	w                                                  io.Writer
	algo, tag                                          string
	bits                                               int
	bsd, zero, binary, base64                          bool
	status, quiet, warn, strict, ignoreMissing, failed bool
}

var sumLong = []string{"binary=b", "check=c", "tag=\x81", "text=t", "zero=z", "ignore-missing=\x82", "quiet=\x83", "status=\x84", "strict=\x85", "warn=w"}

func digest(algo string) tool.Command {
	return func(c *tool.Call) int {
		long, short := sumLong, "bctzw\x81\x82\x83\x84\x85"
		if algo == "b2sum" {
			long, short = append([]string{"length=l"}, long...), short+"l:"
		}
		f, ok := c.Flags(short, long...)
		if !ok {
			return 1
		}
		s := &summer{c: c, algo: algo, tag: digests[algo].tag, bits: 512, bsd: f.Has('\x81'), zero: f.Has('z'), binary: f.Last("bt") == 'b',
			status: f.Has('\x84'), quiet: f.Has('\x83'), warn: f.Has('w'), strict: f.Has('\x85'), ignoreMissing: f.Has('\x82')}
		if l := f.Value('l', "0"); l != "0" {
			n, err := atoi(l)
			if err != nil || n%8 != 0 || n > 512 {
				return c.Errorf(1, "invalid length: ‘%s’", l)
			}
			s.bits = n
		}
		return s.run(f)
	}
}

func (s *summer) run(f tool.Flags) int {
	c := s.c
	w := c.Buffered()
	s.w = w
	if f.Has('c') {
		if s.bsd {
			c.Errorf(1, "the --tag option is meaningless when verifying checksums")
			return usage.Try(c, 1)
		}
		status := usage.Inputs(c, f.Args, "%s", 1, func(name string, in io.Reader) error { return s.check(name, in) })
		if s.failed {
			status = 1
		}
		return c.Flush(w, status)
	}
	for _, o := range f.All {
		if strings.IndexByte("\x82\x83\x84\x85w", o.Letter) >= 0 {
			name := o.Long
			if name == "" {
				name = "warn"
			}
			c.Errorf(1, "the --%s option is meaningful only when verifying checksums", name)
			return usage.Try(c, 1)
		}
	}
	status := usage.Inputs(c, f.Args, "%s", 1, func(name string, in io.Reader) error {
		sum, err := s.sum(in)
		if err != nil {
			return err
		}
		s.print(sum, name)
		return nil
	})
	return c.Flush(w, status)
}

// sum reads in to its end and returns the digest.
func (s *summer) sum(in io.Reader) ([]byte, error) {
	h := digests[s.algo].make(s.bits)
	buf := make([]byte, 64<<10)
	for {
		n, err := in.Read(buf)
		if !s.c.Step(1 + n>>5) {
			return nil, tool.ErrStop
		}
		_, _ = h.Write(buf[:n]) // never fails
		if err == io.EOF {
			return h.Sum(nil), nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// print prints a line with checksum and name. If a name contains a line end, it is escaped, and the
// line begins with a backslash.
func (s *summer) print(sum []byte, name string) {
	end, shown := "\n", name
	if s.zero {
		end = "\x00"
	} else if strings.ContainsAny(name, "\n\\\r") {
		shown = strings.NewReplacer("\\", `\\`, "\n", `\n`, "\r", `\r`).Replace(name)
		_, _ = io.WriteString(s.w, `\`) // the last one reports
	}
	text := hex.EncodeToString(sum)
	if s.base64 {
		text = base64.StdEncoding.EncodeToString(sum)
	}
	if s.bsd {
		tag := s.tag
		if s.algo == "b2sum" && s.bits != 512 {
			tag += "-" + strconv.Itoa(s.bits)
		}
		fmt.Fprintf(s.w, "%s (%s) = %s%s", tag, shown, text, end)
		return
	}
	mark := " "
	if s.binary {
		mark = "*"
	}
	fmt.Fprintf(s.w, "%s %s%s%s", text, mark, shown, end)
}

// parse parses a line of a checksum file.
func (s *summer) parse(l string) (sum []byte, name string, ok bool) {
	escaped := strings.HasPrefix(l, `\`)
	l = strings.TrimPrefix(strings.TrimLeft(l, " \t"), `\`)
	size := digests[s.algo].make(s.bits).Size()
	if rest, found := strings.CutPrefix(l, s.tag); found && s.tag != "" {
		if s.algo == "b2sum" && strings.HasPrefix(rest, "-") {
			num, more, _ := strings.Cut(rest[1:], " ")
			n, err := strconv.Atoi(num)
			if err != nil || n <= 0 || n%8 != 0 || n > 512 {
				return nil, "", false
			}
			size, s.bits, rest = n/8, n, " "+more
		}
		rest = strings.TrimPrefix(rest, " ")
		at := strings.LastIndex(rest, ")")
		if !strings.HasPrefix(rest, "(") || at < 0 {
			return nil, "", false
		}
		name = rest[1:at]
		eq, found := strings.CutPrefix(strings.TrimLeft(rest[at+1:], " \t"), "=")
		if !found {
			return nil, "", false
		}
		l = strings.Trim(eq, " \t")
		if sum, ok = decodeSum(l, size); !ok {
			return nil, "", false
		}
	} else {
		n := 0
		for n < len(l) && isHexDigit(l[n]) {
			n++
		}
		if s.algo == "b2sum" && n > 0 && n%2 == 0 && n <= 128 {
			size, s.bits = n/2, n*4
		}
		if n != 2*size || n+1 >= len(l) || l[n] != ' ' && l[n] != '\t' {
			return nil, "", false
		}
		if sum, ok = decodeSum(l[:n], size); !ok {
			return nil, "", false
		}
		name = l[n+1:]
		if len(name) > 1 && (name[0] == ' ' || name[0] == '*') {
			name = name[1:]
		}
	}
	if escaped {
		name = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "\r").Replace(name)
	}
	return sum, name, name != ""
}

func isHexDigit(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

func decodeSum(s string, size int) ([]byte, bool) {
	if b, err := hex.DecodeString(s); err == nil && len(b) == size {
		return b, true
	}
	b, err := base64.StdEncoding.DecodeString(s)
	return b, err == nil && len(b) == size
}

// check verifies the files that a checksum file lists.
func (s *summer) check(list string, in io.Reader) error {
	shownList := list
	if list == "-" {
		shownList = "standard input"
	}
	var bad, mismatch, unread, fine, matched int
	n := 0
	err := s.c.Lines(in, '\n', func(l []byte, _ bool) error {
		n++
		l = bytes.TrimSuffix(l, []byte("\r"))
		if len(l) == 0 || l[0] == '#' {
			return nil
		}
		want, name, ok := s.parse(string(l))
		if !ok {
			bad++
			if s.warn {
				s.c.Errorf(1, "%s: %d: improperly formatted %s checksum line", shownList, n, s.tag)
			}
			return nil
		}
		fine++
		shown, esc := name, ""
		if strings.Contains(name, "\n") {
			shown, esc = strings.NewReplacer("\\", `\\`, "\n", `\n`).Replace(name), `\`
		}
		var got []byte
		file, err := usage.Open(s.c, name)
		if err == nil {
			got, err = s.sum(file)
			_ = file.Close() // only read
		}
		switch {
		case err != nil && s.c.Stopped(err):
			return err
		case err != nil && s.ignoreMissing && tool.ErrText(err) == "No such file or directory":
		case err != nil:
			unread++
			s.c.Errorf(1, "%s: %s", shown, tool.ErrText(err))
			if !s.status {
				fmt.Fprintf(s.w, "%s%s: FAILED open or read\n", esc, shown)
			}
		case bytes.Equal(got, want):
			matched++
			if !s.status && !s.quiet {
				fmt.Fprintf(s.w, "%s%s: OK\n", esc, shown)
			}
		default:
			mismatch++
			if !s.status {
				fmt.Fprintf(s.w, "%s%s: FAILED\n", esc, shown)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if fine == 0 {
		s.failed = true
		s.c.Errorf(1, "%s: no properly formatted checksum lines found", shownList)
		return nil
	}
	if !s.status {
		s.warning(bad, "line is", "lines are", "improperly formatted")
		s.count(unread, "listed file could not be read", "listed files could not be read")
		s.count(mismatch, "computed checksum did NOT match", "computed checksums did NOT match")
		if s.ignoreMissing && matched == 0 {
			s.c.Errorf(1, "%s: no file was verified", shownList)
		}
	}
	if mismatch > 0 || unread > 0 || s.strict && bad > 0 || s.ignoreMissing && matched == 0 {
		s.failed = true
	}
	return nil
}

func (s *summer) warning(n int, one, many, what string) {
	s.count(n, one+" "+what, many+" "+what)
}

func (s *summer) count(n int, one, many string) {
	switch {
	case n == 1:
		s.c.Errorf(0, "WARNING: 1 %s", one)
	case n > 1:
		s.c.Errorf(0, "WARNING: %d %s", n, many)
	}
}
