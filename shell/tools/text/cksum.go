package text

import (
	"fmt"
	"io"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// crcTable is the table of POSIX's cksum: the polynomial 0x04c11db7, highest bit first.
var crcTable = func() (t [256]uint32) {
	for i := range t {
		c := uint32(i) << 24
		for range 8 {
			if c&(1<<31) != 0 {
				c = c<<1 ^ 0x04c11db7
			} else {
				c <<= 1
			}
		}
		t[i] = c
	}
	return t
}()

// eachBlock calls fn with the content of in, block by block, and returns its length.
func eachBlock(c *tool.Call, in io.Reader, fn func(b []byte)) (int64, error) {
	buf := make([]byte, 64<<10)
	total := int64(0)
	for {
		n, err := in.Read(buf)
		if !c.Step(1 + n>>6) {
			return total, tool.ErrStop
		}
		total += int64(n)
		fn(buf[:n])
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// posixCRC is cksum's own algorithm.
func posixCRC(c *tool.Call, in io.Reader) (uint32, int64, error) {
	crc := uint32(0)
	n, err := eachBlock(c, in, func(b []byte) {
		for _, x := range b {
			crc = crc<<8 ^ crcTable[byte(crc>>24)^x]
		}
	})
	for l := n; l != 0; l >>= 8 {
		crc = crc<<8 ^ crcTable[byte(crc>>24)^byte(l)]
	}
	return ^crc, n, err
}

// bsdSum and sysvSum are the algorithms of sum.
func bsdSum(c *tool.Call, in io.Reader) (uint32, int64, error) {
	s := uint32(0)
	n, err := eachBlock(c, in, func(b []byte) {
		for _, x := range b {
			s = (s>>1 + s&1<<15 + uint32(x)) & 0xffff
		}
	})
	return s, n, err
}

func sysvSum(c *tool.Call, in io.Reader) (uint32, int64, error) {
	s := uint32(0)
	n, err := eachBlock(c, in, func(b []byte) {
		for _, x := range b {
			s += uint32(x)
		}
	})
	r := s&0xffff + s>>16
	return r&0xffff + r>>16, n, err
}

func cksum(c *tool.Call) int {
	f, ok := c.Flags("a:bcl:tzw\x81\x82\x83\x84\x85\x86\x87\x88", append([]string{"algorithm=a", "length=l", "untagged=\x86", "base64=\x87", "raw=\x88"}, sumLong...)...)
	if !ok {
		return 1
	}
	algo := f.Value('a', "crc")
	switch algo {
	case "crc", "bsd", "sysv":
		if f.Has('c') {
			if f.Has('a') {
				return c.Errorf(1, "--check is not supported with --algorithm={bsd,sysv,crc}")
			}
			return checkTagged(c, f)
		}
		return oldSums(c, f.Args, algo, f.Has('z'), algo == "crc")
	}
	name := algo + "sum"
	if algo == "blake2b" {
		name = "b2sum"
	}
	d, known := digests[name]
	if !known {
		return usage.Argument(c, 1, algo, "--algorithm", "bsd", "sysv", "crc", "md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b", "sm3")
	}
	s := &summer{c: c, algo: name, tag: d.tag, bits: 512, bsd: !f.Has('\x86') && !f.Has('c'), zero: f.Has('z'), base64: f.Has('\x87'), binary: f.Last("bt") == 'b',
		status: f.Has('\x84'), quiet: f.Has('\x83'), warn: f.Has('w'), strict: f.Has('\x85'), ignoreMissing: f.Has('\x82')}
	if l := f.Value('l', "0"); l != "0" {
		n, err := atoi(l)
		if err != nil || n%8 != 0 || n > 512 || algo != "blake2b" {
			return c.Errorf(1, "invalid length: ‘%s’", l)
		}
		s.bits = n
	}
	return s.run(f)
}

// checkTagged checks a list whose lines name their algorithm.
func checkTagged(c *tool.Call, f tool.Flags) int {
	w := c.Buffered()
	failed := false
	status := usage.Inputs(c, f.Args, "%s", 1, func(name string, in io.Reader) error {
		purse := usage.NewPurse(c)
		defer purse.Free()
		data, err := purse.ReadAll(in)
		if err != nil {
			return err
		}
		algo := ""
		for n, d := range digests {
			if strings.HasPrefix(string(data), d.tag+" (") || strings.HasPrefix(string(data), d.tag+"-") {
				algo = n
			}
		}
		if algo == "" {
			failed = true
			c.Errorf(1, "%s: no properly formatted checksum lines found", name)
			return nil
		}
		s := &summer{c: c, w: w, algo: algo, tag: digests[algo].tag, bits: 512, status: f.Has('\x84'), quiet: f.Has('\x83'), warn: f.Has('w'),
			strict: f.Has('\x85'), ignoreMissing: f.Has('\x82')}
		err = s.check(name, strings.NewReader(string(data)))
		failed = failed || s.failed
		return err
	})
	if failed {
		status = 1
	}
	return c.Flush(w, status)
}

// oldSums prints checksum, size and name.
func oldSums(c *tool.Call, names []string, algo string, zero, crc bool) int {
	w := c.Buffered()
	end := "\n"
	if zero {
		end = "\x00"
	}
	status := usage.Inputs(c, names, "%s", 1, func(name string, in io.Reader) error {
		shown := " " + name
		if len(names) == 0 {
			shown = ""
		}
		switch algo {
		case "crc":
			v, n, err := posixCRC(c, in)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "%d %d%s%s", v, n, shown, end)
		case "bsd":
			v, n, err := bsdSum(c, in)
			if err != nil {
				return err
			}
			if len(names) < 2 && !crc {
				shown = map[bool]string{true: shown, false: ""}[len(names) > 0]
			}
			fmt.Fprintf(w, "%05d %5d%s%s", v, (n+1023)/1024, shown, end)
		default:
			v, n, err := sysvSum(c, in)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "%d %d%s%s", v, (n+511)/512, shown, end)
		}
		return nil
	})
	return c.Flush(w, status)
}

func sum(c *tool.Call) int {
	f, ok := c.Flags("rs", "sysv=s")
	if !ok {
		return 1
	}
	if f.Last("rs") == 's' {
		return oldSums(c, f.Args, "sysv", false, false)
	}
	return oldSums(c, f.Args, "bsd", false, false)
}
