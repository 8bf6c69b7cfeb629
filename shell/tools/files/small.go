package files

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"syscall"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// link makes one hard link.
func link(c *tool.Call) int {
	f, ok := c.Flags("")
	if !ok {
		return 1
	}
	if missingOperand(c, f.Args, 2) {
		return 1
	}
	if len(f.Args) > 2 {
		return usage(c, 1, "extra operand %s", curly(f.Args[2]))
	}
	if err := c.FS().Link(c.Abs(f.Args[0]), c.Abs(f.Args[1])); err != nil {
		return c.Errorf(1, "cannot create link %s to %s: %s", quoted(f.Args[1]), quoted(f.Args[0]), errText(err))
	}
	return 0
}

// unlink removes one file.
func unlink(c *tool.Call) int {
	f, ok := c.Flags("")
	if !ok {
		return 1
	}
	if missingOperand(c, f.Args, 1) {
		return 1
	}
	if len(f.Args) > 1 {
		return usage(c, 1, "extra operand %s", curly(f.Args[1]))
	}
	i, err := lstat(c, f.Args[0])
	if err == nil && i.Mode.IsDir() {
		err = syscall.EISDIR
	}
	if err == nil {
		err = c.FS().Remove(c.Abs(f.Args[0]))
	}
	if err != nil {
		return c.Errorf(1, "cannot unlink %s: %s", quoted(f.Args[0]), errText(err))
	}
	return 0
}

// mkfifo makes named pipes.
func mkfifo(c *tool.Call) int {
	f, ok := c.Flags("m:Z", "mode=m", "context=\x81::")
	if !ok {
		return 1
	}
	if missingOperand(c, f.Args, 1) {
		return 1
	}
	perm := 0o666 &^ c.Umask()
	if f.Has('m') {
		change, ok := parseMode(f.Value('m', ""))
		if !ok {
			return c.Errorf(1, "invalid mode")
		}
		perm = change.apply(0o666, c.Umask(), false)
	}
	status := 0
	for _, name := range f.Args {
		if err := c.FS().Mkfifo(c.Abs(name), perm); err != nil {
			status = c.Errorf(1, "cannot create fifo %s: %s", quoted(name), errText(err))
		}
	}
	return status
}

// mknod makes devices of the kinds that the machine has.
func mknod(c *tool.Call) int {
	f, ok := c.Flags("m:Z", "mode=m", "context=\x81::")
	if !ok {
		return 1
	}
	if missingOperand(c, f.Args, 2) {
		return 1
	}
	name, kind := f.Args[0], f.Args[1]
	switch kind {
	case "p":
		c.Args = []string{name}
		return mkfifo(c)
	case "c", "u":
		if len(f.Args) < 4 {
			return usage(c, 1, "missing operand after %s", curly(f.Args[len(f.Args)-1]))
		}
		devices := map[string]string{"1 3": "null", "1 5": "zero", "1 7": "full", "1 8": "random", "1 9": "random"}
		if device, ok := devices[f.Args[2]+" "+f.Args[3]]; ok {
			if err := c.FS().Device(c.Abs(name), device); err != nil {
				return c.Errorf(1, "%s: %s", shellQuote(name, false), errText(err))
			}
			return 0
		}
		return c.Errorf(1, "%s: this simulated machine has no such device", shellQuote(name, false))
	case "b":
		return c.Errorf(1, "%s: this simulated machine has no block devices", shellQuote(name, false))
	}
	return usage(c, 1, "invalid device type %s", curly(kind))
}

// shred overwrites files and, with -u, removes them.
func shred(c *tool.Call) int {
	f, ok := c.Flags("fn:s:uvxz", "force=f", "iterations=n", "size=s", "remove=\x81::", "verbose=v", "exact=x", "zero=z", "random-source=\x82:")
	if !ok {
		return 1
	}
	if len(f.Args) == 0 {
		return usage(c, 1, "missing file operand")
	}
	passes, err := strconv.Atoi(f.Value('n', "3"))
	if err != nil || passes < 0 {
		return c.Errorf(1, "invalid number of passes: %s", quoted(f.Value('n', "")))
	}
	status := 0
	for _, name := range f.Args {
		if err := overwrite(c, name, passes, f); err != nil {
			if c.Stopped(err) {
				return 1
			}
			status = c.Errorf(1, "%s: failed to open for writing: %s", shellQuote(name, false), errText(err))
			continue
		}
		if f.Has('u') || f.Has(0x81) {
			if f.Has('v') {
				c.Errorf(0, "%s: removing", shellQuote(name, false))
			}
			if err := c.FS().Remove(c.Abs(name)); err != nil {
				status = c.Errorf(1, "%s: failed to remove: %s", shellQuote(name, false), errText(err))
			} else if f.Has('v') {
				c.Errorf(0, "%s: removed", shellQuote(name, false))
			}
		}
	}
	return status
}

func overwrite(c *tool.Call, name string, passes int, f tool.Flags) error {
	out, err := c.Open(name, vfs.WriteOnly, 0)
	if err != nil {
		return err
	}
	defer out.Close()
	i, err := out.Stat()
	if err != nil {
		return err
	}
	size := i.Size
	if !f.Has('x') {
		size = (size + 4095) / 4096 * 4096
	}
	if f.Has('s') {
		n, ok := sizeArg(f.Value('s', ""))
		if !ok {
			return errors.New("invalid file size")
		}
		size = n
	}
	total := passes
	if f.Has('z') {
		total++
	}
	buf := make([]byte, 64<<10)
	for pass := range total {
		if f.Has('v') {
			kind := "random"
			if pass == passes {
				kind = "000000"
			}
			c.Errorf(0, "%s: pass %d/%d (%s)...", shellQuote(name, false), pass+1, total, kind)
		}
		if _, err := out.Seek(0, io.SeekStart); err != nil {
			return err
		}
		for left := size; left > 0; {
			if !c.Step(64) {
				return tool.ErrStop
			}
			b := buf[:min(left, int64(len(buf)))]
			if pass == passes {
				clear(b)
			} else {
				c.Random(b)
			}
			if _, err := out.Write(b); err != nil {
				return err
			}
			left -= int64(len(b))
		}
	}
	return nil
}

// truncate sets the sizes of files.
func truncate(c *tool.Call) int {
	f, ok := c.Flags("cor:s:", "no-create=c", "io-blocks=o", "reference=r", "size=s")
	if !ok {
		return 1
	}
	if !f.Has('s') && !f.Has('r') {
		return usage(c, 1, "you must specify either %s or %s", curly("--size"), curly("--reference"))
	}
	var base int64 = -1
	if f.Has('r') {
		i, err := statOf(c, f.Value('r', ""))
		if err != nil {
			return c.Errorf(1, "cannot stat %s: %s", quoted(f.Value('r', "")), errText(err))
		}
		base = i.Size
	}
	op, n := byte(0), base
	if f.Has('s') {
		spec := strings.TrimLeft(f.Value('s', ""), " \t")
		if spec != "" && strings.IndexByte("+-<>/%", spec[0]) >= 0 {
			op, spec = spec[0], strings.TrimLeft(spec[1:], " \t")
		}
		if n, ok = sizeArg(spec); !ok {
			return c.Errorf(1, "Invalid number: %s", curly(spec))
		}
		if (op == '/' || op == '%') && n == 0 {
			return c.Errorf(1, "division by zero")
		}
		if f.Has('r') && op == 0 {
			return usage(c, 1, "you must specify a relative %s with %s", curly("--size"), curly("--reference"))
		}
		if f.Has('o') {
			n *= 4096
		}
	}
	if len(f.Args) == 0 {
		return usage(c, 1, "missing file operand")
	}
	status := 0
	for _, name := range f.Args {
		if err := resize(c, name, op, n, base, f.Has('c')); err != nil {
			if errors.Is(err, syscall.EFBIG) || errors.Is(err, syscall.EINVAL) {
				status = c.Errorf(1, "failed to truncate %s at %d bytes: %s", quoted(name), n, errText(err))
				continue
			}
			status = c.Errorf(1, "cannot open %s for writing: %s", quoted(name), errText(err))
		}
	}
	return status
}

func resize(c *tool.Call, name string, op byte, n, base int64, noCreate bool) error {
	flags := vfs.WriteOnly | vfs.CreateNew
	if noCreate {
		flags = vfs.WriteOnly
	}
	out, err := c.Open(name, flags, 0o666)
	if err != nil {
		if noCreate && notExist(err) {
			return nil
		}
		return err
	}
	defer out.Close()
	i, err := out.Stat()
	if err != nil {
		return err
	}
	size := i.Size
	if base >= 0 {
		size = base
	}
	switch op {
	case '+':
		if n > 1<<62-size {
			return syscall.EFBIG
		}
		n = size + n
	case '-':
		n = max(size-n, 0)
	case '<':
		n = min(size, n)
	case '>':
		n = max(size, n)
	case '/':
		n = size / n * n
	case '%':
		n = (size + n - 1) / n * n
	}
	return out.Truncate(n)
}
