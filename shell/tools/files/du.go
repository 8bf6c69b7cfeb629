package files

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
)

// sum is the disk usage of a directory.
type sum struct {
	size    int64
	inodes  int64
	below   int64 // of directories below, for -S
	belowIn int64
}

// du measures trees.
func du(c *tool.Call) int {
	f, ok := c.Flags("0aB:bcd:DhHklLmPsSt:xX:", "all=a", "apparent-size=\x81", "block-size=B", "bytes=b", "total=c", "dereference-args=D", "dereference=L",
		"max-depth=d", "human-readable=h", "inodes=\x82", "count-links=l", "no-dereference=P", "separate-dirs=S", "si=\x83", "summarize=s", "threshold=t",
		"time=\x84::", "time-style=\x85:", "exclude-from=X", "exclude=\x86:", "one-file-system=x", "null=0", "files0-from=\x87:")
	if !ok {
		return 1
	}
	unit, humanBase, apparent := int64(1024), int64(0), f.Has(0x81)
	for _, o := range f.All {
		switch o.Letter {
		case 'b':
			unit, humanBase, apparent = 1, 0, true
		case 'k':
			unit, humanBase = 1024, 0
		case 'm':
			unit, humanBase = 1<<20, 0
		case 'h':
			humanBase = 1024
		case 0x83:
			humanBase = 1000
		case 'B':
			n, good := sizeArg(o.Value)
			if !good || n == 0 {
				return c.Errorf(1, "invalid -B argument %s", quoted(o.Value))
			}
			unit, humanBase = n, 0
		}
	}
	depth := 1 << 30
	if f.Has('d') {
		n, err := strconv.Atoi(f.Value('d', ""))
		if err != nil || n < 0 {
			return usage(c, 1, "invalid maximum depth %s", quoted(f.Value('d', "")))
		}
		depth = n
	}
	if f.Has('s') {
		if f.Has('a') {
			return usage(c, 1, "cannot both summarize and show all entries")
		}
		if f.Has('d') && depth != 0 {
			return usage(c, 1, "warning: summarizing conflicts with --max-depth=%d", depth)
		}
		depth = 0
	}
	exclude := f.Values(0x86)
	for _, name := range f.Values('X') {
		data, err := readFile(c, name)
		if err != nil {
			return c.Errorf(1, "%s: %s", name, errText(err))
		}
		exclude = append(exclude, strings.Fields(string(data))...)
	}
	threshold := int64(0)
	if f.Has('t') {
		v := f.Value('t', "")
		n, good := sizeArg(strings.TrimPrefix(v, "-"))
		if !good {
			return c.Errorf(1, "invalid --threshold argument %s", quoted(v))
		}
		if threshold = n; strings.HasPrefix(v, "-") {
			threshold = -n
		}
	}
	names := f.Args
	if f.Has(0x87) {
		data, err := readFile(c, f.Value(0x87, ""))
		if err != nil {
			return c.Errorf(1, "cannot open %s for reading: %s", quoted(f.Value(0x87, "")), errText(err))
		}
		names = strings.FieldsFunc(string(data), func(r rune) bool { return r == 0 })
	}
	if len(names) == 0 {
		names = []string{"."}
	}
	links := followNone
	switch f.Last("LPDH") {
	case 'L':
		links = followAll
	case 'D', 'H':
		links = followOperands
	}
	out := c.Buffered()
	end := byte('\n')
	if f.Has('0') {
		end = 0
	}
	print := func(size, inodes int64, path string) {
		n := size
		if f.Has(0x82) {
			n = inodes
		}
		if threshold > 0 && n < threshold || threshold < 0 && n > -threshold {
			return
		}
		text := strconv.FormatInt(inUnits(n, unit), 10)
		switch {
		case humanBase > 0 && n == 0:
			text = "0"
		case humanBase > 0:
			text = human(n, humanBase)
		case f.Has(0x82):
			text = strconv.FormatInt(n, 10)
		}
		stamp := ""
		fmt.Fprintf(out, "%s\t%s%s%c", text, stamp, path, end)
	}
	status := 0
	var grand sum
	seen := map[uint64]bool{}
	for _, name := range names {
		var stack []sum
		if err := c.Pay(0); err != nil {
			return 1
		}
		walk(c, name, links, func(v visit) next {
			if v.err != nil {
				_ = out.Flush()
				if v.dir {
					status = c.Errorf(1, "cannot read directory %s: %s", quoted(v.path), errText(v.err))
				} else {
					status = c.Errorf(1, "cannot access %s: %s", quoted(v.path), errText(v.err))
				}
				return goOn
			}
			size := blocks(v.info) * 512
			if apparent {
				if size = v.info.Size; f.Has(0x81) && v.info.Mode.IsDir() && false {
					size = 0
				}
			}
			if v.post {
				top := stack[len(stack)-1]
				stack = stack[:len(stack)-1]
				if v.depth <= depth {
					if f.Has('S') {
						print(top.size-top.below, top.inodes-top.belowIn, v.path)
					} else {
						print(top.size, top.inodes, v.path)
					}
				}
				if len(stack) > 0 {
					up := &stack[len(stack)-1]
					up.size += top.size
					up.inodes += top.inodes
					up.below += top.size
					up.belowIn += top.inodes
				} else {
					grand.size += top.size
					grand.inodes += top.inodes
				}
				return goOn
			}
			for _, p := range exclude {
				if globMatch(p, v.info.Name, 0) || globMatch(p, v.path, 0) {
					return skip
				}
			}
			if (v.info.Links > 1 && !v.info.Mode.IsDir() || v.depth == 0) && !f.Has('l') {
				if seen[v.info.Ino] {
					return skip
				}
				seen[v.info.Ino] = true
			}
			if v.info.Mode.IsDir() {
				if v.loop {
					return skip
				}
				stack = append(stack, sum{size: size, inodes: 1})
				return goOn
			}
			if len(stack) > 0 {
				stack[len(stack)-1].size += size
				stack[len(stack)-1].inodes++
			} else {
				grand.size += size
				grand.inodes++
			}
			if v.depth == 0 || f.Has('a') && v.depth <= depth {
				print(size, 1, v.path)
			}
			return goOn
		})
	}
	if f.Has('c') {
		print(grand.size, grand.inodes, "total")
	}
	return flush(c, out, status)
}

// df shows the usage of the disk.
func df(c *tool.Call) int {
	f, ok := c.Flags("aB:hHiklmPTt:x:v", "all=a", "block-size=B", "human-readable=h", "si=H", "inodes=i", "local=l", "portability=P", "print-type=T", "type=t",
		"exclude-type=x", "output=\x81::", "total=\x82", "sync=\x83", "no-sync=\x84")
	if !ok {
		return 1
	}
	unit, base := int64(1024), int64(0)
	for _, o := range f.All {
		switch o.Letter {
		case 'h':
			base = 1024
		case 'H':
			base = 1000
		case 'k':
			unit, base = 1024, 0
		case 'm':
			unit, base = 1<<20, 0
		case 'B':
			n, good := sizeArg(o.Value)
			if !good || n == 0 {
				return c.Errorf(1, "invalid -B argument %s", quoted(o.Value))
			}
			unit, base = n, 0
		}
	}
	status, show := 0, len(f.Args) == 0
	lines := 0
	for _, name := range f.Args {
		if _, err := statOf(c, name); err != nil {
			status = c.Errorf(1, "%s: %s", name, errText(err))
			continue
		}
		lines++
		show = true
	}
	if f.Has('t') && f.Value('t', "") != diskKind || f.Value('x', "") == diskKind {
		return c.Errorf(1, "no file systems processed")
	}
	if !show {
		return status
	}
	size := func(n int64) string {
		if base > 0 {
			return human(n, base)
		}
		return strconv.FormatInt(inUnits(n, unit), 10)
	}
	used, total := diskUse(c)
	percent := strconv.FormatInt((used*100+total-1)/total, 10) + "%"
	const inodes, inodesUsed = 1 << 20, 48576
	values := map[string][2]string{
		"source": {"Filesystem", "sim"}, "fstype": {"Type", diskKind}, "size": {sizeHeader(unit, base, f.Has('P')), size(total)}, "used": {"Used", size(used)},
		"avail": {"Avail", size(total - used)}, "pcent": {"Use%", percent}, "target": {"Mounted on", "/"}, "file": {"File", nameOr(strings.Join(f.Args[:min(1, len(f.Args))], ""), "-")},
		"itotal": {"Inodes", strconv.Itoa(inodes)}, "iused": {"IUsed", strconv.Itoa(inodesUsed)}, "iavail": {"IFree", strconv.Itoa(inodes - inodesUsed)}, "ipcent": {"IUse%", "5%"},
	}
	columns := []string{"source", "size", "used", "avail", "pcent", "target"}
	if base == 0 {
		values["avail"] = [2]string{"Available", size(total - used)}
	}
	if f.Has('P') {
		values["pcent"] = [2]string{"Capacity", percent}
	}
	if f.Has('i') {
		columns = []string{"source", "itotal", "iused", "iavail", "ipcent", "target"}
	}
	if f.Has('T') {
		columns = append([]string{"source", "fstype"}, columns[1:]...)
	}
	if f.Has(0x81) {
		columns = []string{"source", "fstype", "itotal", "iused", "iavail", "ipcent", "size", "used", "avail", "pcent", "file", "target"}
		values["avail"] = [2]string{"Avail", size(total - used)}
		if v := f.Value(0x81, ""); v != "" {
			columns = strings.Split(v, ",")
		}
		for _, col := range columns {
			if values[col][0] == "" {
				return usage(c, 1, "option --output: field %s unknown", quoted(col))
			}
		}
	}
	rows := [][]string{{}, {}}
	for _, col := range columns {
		rows[0], rows[1] = append(rows[0], values[col][0]), append(rows[1], values[col][1])
	}
	for range lines - 1 {
		rows = append(rows, rows[1])
	}
	if f.Has(0x82) {
		t := append([]string{}, rows[1]...)
		for n, col := range columns {
			switch col {
			case "source":
				t[n] = "total"
			case "target", "fstype":
				t[n] = "-"
			}
		}
		rows = append(rows, t)
	}
	out := c.Buffered()
	for _, row := range rows {
		line := ""
		for n, col := range columns {
			w := 0
			for _, r := range rows {
				w = max(w, len(r[n]))
			}
			switch {
			case n > 0:
				line += " "
			}
			switch col {
			case "source":
				line += fmt.Sprintf("%-*s", max(w, 14), row[n])
			case "fstype", "file", "target":
				line += fmt.Sprintf("%-*s", w, row[n])
			default:
				line += fmt.Sprintf("%*s", max(w, 5), row[n])
			}
		}
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return flush(c, out, status)
}

func sizeHeader(unit, base int64, posix bool) string {
	switch {
	case base > 0:
		return "Size"
	case posix:
		return fmt.Sprintf("%d-blocks", unit)
	case unit >= 1<<30 && unit%(1<<30) == 0:
		return fmt.Sprintf("%dG-blocks", unit>>30)
	case unit >= 1<<20 && unit%(1<<20) == 0:
		return fmt.Sprintf("%dM-blocks", unit>>20)
	case unit >= 1<<10 && unit%(1<<10) == 0:
		return fmt.Sprintf("%dK-blocks", unit>>10)
	}
	return fmt.Sprintf("%dB-blocks", unit)
}
