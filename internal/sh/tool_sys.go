package sh

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"
)

func toolDate(c *call) int {
	format, when := "%a %b %e %H:%M:%S UTC %Y", c.r.m.now().UTC()
	args := c.args
	for len(args) > 0 {
		a := args[0]
		args = args[1:]
		switch {
		case strings.HasPrefix(a, "+"):
			format = a[1:]
		case a == "-u" || a == "--utc":
		case a == "-d" && len(args) > 0 || strings.HasPrefix(a, "--date="):
			text := strings.TrimPrefix(a, "--date=")
			if a == "-d" {
				text, args = args[0], args[1:]
			}
			t, err := parseDate(text, when)
			if err != nil {
				return c.complain(1, "invalid date '%s'", text)
			}
			when = t.UTC()
		case a == "-R":
			format = "%a, %d %b %Y %H:%M:%S %z"
		case strings.HasPrefix(a, "-I") || strings.HasPrefix(a, "--iso-8601"):
			format = "%Y-%m-%d"
			if strings.Contains(a, "s") && strings.HasPrefix(a, "-Is") {
				format = "%Y-%m-%dT%H:%M:%S+00:00"
			}
		default:
			return c.complain(1, "invalid option or operand '%s'", a)
		}
	}
	return c.print(strftime(format, when) + "\n")
}

func toolSeq(c *call) int {
	sep, width := "\n", false
	args := c.args
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' && (args[0][1] < '0' || args[0][1] > '9') && args[0][1] != '.' {
		switch {
		case args[0] == "-s" && len(args) > 1:
			sep, args = args[1], args[1:]
		case strings.HasPrefix(args[0], "-s"):
			sep = args[0][2:]
		case args[0] == "-w":
			width = true
		default:
			return c.complain(1, "invalid option -- '%s'", args[0][1:])
		}
		args = args[1:]
	}
	if len(args) == 0 || len(args) > 3 {
		return c.complain(1, "missing operand")
	}
	var v [3]float64
	prec := 0
	for i, a := range args {
		f, err := strconv.ParseFloat(a, 64)
		if err != nil {
			return c.complain(1, "invalid floating point argument: '%s'", a)
		}
		v[i] = f
		if _, frac, ok := strings.Cut(a, "."); ok {
			prec = max(prec, len(frac))
		}
	}
	first, step, last := 1.0, 1.0, v[0]
	switch len(args) {
	case 2:
		first, last = v[0], v[1]
	case 3:
		first, step, last = v[0], v[1], v[2]
	}
	if step == 0 {
		return c.complain(1, "invalid Zero increment value: '0'")
	}
	w := c.buffered()
	pad := 0
	if width {
		pad = max(len(strconv.FormatFloat(first, 'f', prec, 64)), len(strconv.FormatFloat(last, 'f', prec, 64)))
	}
	for n := 0; c.r.step(); n++ {
		x := first + float64(n)*step
		if step > 0 && x > last+1e-9 || step < 0 && x < last-1e-9 {
			if n > 0 {
				w.WriteByte('\n')
			}
			break
		}
		if n > 0 {
			w.WriteString(sep)
		}
		if _, err := fmt.Fprintf(w, "%0*s", pad, strconv.FormatFloat(x, 'f', prec, 64)); err != nil {
			return 1
		}
	}
	return boolStatus(w.Flush() == nil)
}

func toolYes(c *call) int {
	line := "y\n"
	if len(c.args) > 0 {
		line = strings.Join(c.args, " ") + "\n"
	}
	block := []byte(strings.Repeat(line, max(8192/len(line), 1)))
	for c.r.step() {
		if _, err := c.out.Write(block); err != nil {
			return 1
		}
	}
	return 1
}

func toolWhoami(c *call) int { return c.print(c.r.m.UserName(c.r.cred().UID) + "\n") }

func toolID(c *call) int {
	f, ok := c.flags("ugnGr", "user=u", "group=g", "name=n", "groups=G")
	if !ok {
		return 1
	}
	uid, gid := c.r.cred().UID, c.r.cred().GID
	if len(f.args) > 0 {
		found := false
		for _, a := range c.r.m.Accounts() {
			if a.Name == f.args[0] {
				uid, gid, found = a.UID, a.GID, true
			}
		}
		if !found {
			return c.complain(1, "'%s': no such user", f.args[0])
		}
	}
	user, group := c.r.m.UserName(uid), c.r.m.GroupName(gid)
	num := func(n uint32, name string) string {
		if f.has('n') {
			return name
		}
		return strconv.Itoa(int(n))
	}
	switch {
	case f.has('u'):
		return c.print(num(uid, user) + "\n")
	case f.has('g'), f.has('G'):
		return c.print(num(gid, group) + "\n")
	}
	return c.print(fmt.Sprintf("uid=%d(%s) gid=%d(%s) groups=%d(%s)\n", uid, user, gid, group, gid, group))
}

func toolGroups(c *call) int { return c.print(c.r.m.GroupName(c.r.cred().GID) + "\n") }

func toolUname(c *call) int {
	f, ok := c.flags("asnrvmpio", "all=a")
	if !ok {
		return 1
	}
	parts := []struct {
		l byte
		s string
	}{{'s', "Linux"}, {'n', c.r.m.Hostname()}, {'r', "6.1.0-carrel-sim"}, {'v', "#1 simulated"}, {'m', "x86_64"}, {'o', "GNU/Linux"}}
	var out []string
	for _, p := range parts {
		if f.has('a') || f.has(p.l) || len(f.on) == 0 && p.l == 's' || p.l == 'm' && (f.has('p') || f.has('i')) {
			out = append(out, p.s)
		}
	}
	return c.print(strings.Join(out, " ") + "\n")
}

func toolHostname(c *call) int {
	if len(c.args) > 0 && !strings.HasPrefix(c.args[0], "-") {
		if c.r.cred().UID != 0 {
			return c.complain(1, "you must be root to change the host name")
		}
		c.r.m.SetHostname(c.args[0])
		return 0
	}
	return c.print(c.r.m.Hostname() + "\n")
}

func toolNproc(c *call) int { return c.print(strconv.Itoa(c.r.m.cpus) + "\n") }
func toolArch(c *call) int  { return c.print("x86_64\n") }
func toolClear(c *call) int { return c.print("\x1b[H\x1b[2J\x1b[3J") }

func toolUptime(c *call) int {
	return c.print(c.r.m.now().UTC().Format("15:04:05") + " up, simulated\n")
}

func toolFree(c *call) int {
	used, total := c.r.m.mem.Load(), c.r.m.limits.Memory
	return c.print(fmt.Sprintf("               total        used        free\nMem:     %11d %11d %11d\n", total>>10, used>>10, max(total-used, 0)>>10))
}

func toolPrintenv(c *call) int {
	if len(c.args) == 0 {
		return c.print(strings.Join(append(c.env, ""), "\n"))
	}
	status := 0
	for _, name := range c.args {
		found := false
		for _, kv := range c.env {
			if v, ok := strings.CutPrefix(kv, name+"="); ok {
				c.print(v + "\n")
				found = true
			}
		}
		if !found {
			status = 1
		}
	}
	return status
}

func toolTty(c *call) int {
	if c.r.ttyOf(0) == nil {
		c.print("not a tty\n")
		return 1
	}
	return c.print("/dev/pts/0\n")
}

func toolStty(c *call) int {
	t := c.r.ttyOf(0)
	if t == nil {
		return c.complain(1, "'standard input': Inappropriate ioctl for device")
	}
	args := c.args
	for len(args) > 0 {
		a := args[0]
		args = args[1:]
		cols, rows := t.Size()
		t.mu.Lock()
		switch a {
		case "raw", "-icanon":
			t.raw = true
		case "cooked", "sane", "icanon", "-raw":
			t.raw, t.quiet = false, false
		case "echo":
			t.quiet = false
		case "-echo":
			t.quiet = true
		}
		t.mu.Unlock()
		switch a {
		case "size":
			return c.print(fmt.Sprintf("%d %d\n", rows, cols))
		case "raw", "-icanon", "icanon", "cooked", "sane", "-raw", "echo", "-echo":
		case "rows", "cols", "columns":
			if len(args) == 0 {
				return c.complain(1, "missing argument to '%s'", a)
			}
			n, err := strconv.ParseUint(args[0], 10, 16)
			if err != nil {
				return c.complain(1, "invalid integer argument '%s'", args[0])
			}
			args = args[1:]
			if a == "rows" {
				t.Resize(cols, uint16(n))
			} else {
				t.Resize(uint16(n), rows)
			}
		case "-a":
			c.print(fmt.Sprintf("speed 38400 baud; rows %d; columns %d;\n", rows, cols))
		default:
			return c.complain(1, "invalid argument '%s'", a)
		}
	}
	return 0
}

func toolWhich(c *call) int {
	status := 0
	for _, a := range c.args {
		if strings.HasPrefix(a, "-") {
			continue
		}
		if file := c.r.lookPath(a); file != "" {
			c.print(file + "\n")
		} else {
			status = 1
		}
	}
	return status
}

func toolBase64(c *call) int {
	f, ok := c.flags("dw:i", "decode=d", "wrap=w", "ignore-garbage=i")
	if !ok {
		return 1
	}
	wrap := 76
	if f.has('w') {
		n, err := strconv.Atoi(f.val['w'])
		if err != nil || n < 0 {
			return c.complain(1, "invalid wrap size: '%s'", f.val['w'])
		}
		wrap = n
	}
	return c.eachInput(f.args, func(_ string, in io.Reader) error {
		if f.has('d') {
			data, err := c.slurp(in)
			if err != nil {
				return err
			}
			out, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(data)), ""))
			if _, werr := c.out.Write(out); werr != nil {
				return errStop
			}
			if err != nil {
				return errors.New("invalid input")
			}
			return nil
		}
		w := c.buffered()
		enc := base64.NewEncoder(base64.StdEncoding, &wrapper{w: w, width: wrap})
		if err := copyAll(enc, in); err != nil {
			return err
		}
		if err := enc.Close(); err != nil {
			return errStop
		}
		if wrap > 0 {
			w.WriteByte('\n')
		}
		return w.Flush()
	})
}

// wrapper breaks lines at a width; 0 is never.
type wrapper struct {
	w     io.Writer
	width int
	at    int
}

func (w *wrapper) Write(b []byte) (int, error) {
	total := len(b)
	for w.width > 0 && w.at+len(b) > w.width {
		n := w.width - w.at
		if _, err := w.w.Write(b[:n]); err != nil {
			return 0, err
		}
		if _, err := w.w.Write([]byte{'\n'}); err != nil {
			return 0, err
		}
		b, w.at = b[n:], 0
	}
	w.at += len(b)
	if _, err := w.w.Write(b); err != nil {
		return 0, err
	}
	return total, nil
}

func toolSum(c *call) int {
	f, ok := c.flags("cbt", "check=c", "quiet=b", "status=b")
	if !ok {
		return 1
	}
	if f.has('c') {
		return c.complain(1, "--check is not supported in the simulated tier")
	}
	return c.eachInput(f.args, func(name string, in io.Reader) error {
		var h hash.Hash
		switch base(c.name) {
		case "md5sum":
			h = md5.New()
		case "sha1sum":
			h = sha1.New()
		case "sha512sum":
			h = sha512.New()
		default:
			h = sha256.New()
		}
		if err := copyAll(h, in); err != nil {
			return err
		}
		c.print(hex.EncodeToString(h.Sum(nil)) + "  " + name + "\n")
		return nil
	})
}

// toolExpr evaluates the simple expressions of expr: A op B, length, substr.
func toolExpr(c *call) int {
	a := c.args
	result := ""
	switch {
	case len(a) == 1:
		result = a[0]
	case len(a) == 2 && a[0] == "length":
		result = strconv.Itoa(len([]rune(a[1])))
	case len(a) == 3 && a[1] == ":":
		expr, err := basicRegex(a[2])
		if err != nil {
			return c.complain(2, "%s", err)
		}
		re := c.r.compile("^(?:"+expr+")", false)
		if re == nil {
			return c.complain(2, "invalid regular expression")
		}
		m := re.FindStringSubmatch(a[0])
		switch {
		case len(m) > 1:
			result = m[1]
		case m != nil:
			result = strconv.Itoa(len([]rune(m[0])))
		case re.NumSubexp() == 0:
			result = "0"
		}
	case len(a) >= 3:
		x, err := strconv.ParseInt(a[0], 10, 64)
		for i := 1; i+1 < len(a) && err == nil; i += 2 {
			var y int64
			if y, err = strconv.ParseInt(a[i+1], 10, 64); err != nil {
				break
			}
			if (a[i] == "/" || a[i] == "%") && y == 0 {
				return c.complain(2, "division by zero")
			}
			switch a[i] {
			case "+":
				x += y
			case "-":
				x -= y
			case "*":
				x *= y
			case "/":
				x /= y
			case "%":
				x %= y
			case "<", "<=", ">", ">=":
				x = truth(compareInts(map[string]string{"<": "-lt", "<=": "-le", ">": "-gt", ">=": "-ge"}[a[i]], x, y))
			case "=", "==":
				x = truth(x == y)
			case "!=":
				x = truth(x != y)
			default:
				return c.complain(2, "syntax error: unexpected argument '%s'", a[i])
			}
		}
		if err != nil {
			if a[1] == "=" || a[1] == "!=" {
				result = itoa64(truth((a[0] == a[2]) == (a[1] == "=")))
				break
			}
			return c.complain(2, "non-integer argument")
		}
		result = itoa64(x)
	default:
		return c.complain(2, "missing operand")
	}
	c.print(result + "\n")
	return boolStatus(result != "" && result != "0")
}
