package files

import (
	"bufio"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// treeRun is one run of tree.
type treeRun struct {
	*tool.Call
	w         *bufio.Writer
	f         tool.Flags
	depth     int
	match     []string
	ignore    []string
	color     *lister
	dirs, all int
	limit     int
	sizes     int64
}

// tree draws trees of directories.
func tree(c *tool.Call) int {
	f, ok := c.Flags("adlfxL:P:I:ipsughDFJCnNqQoUvtcrXRSA", "dirsfirst=\x81", "filesfirst=\x82", "noreport=\x83", "prune=\x84", "du=\x85", "matchdirs=\x86", "ignore-case=\x87",
		"charset=\x88:", "filelimit=\x89:", "sort=\x8a:", "si=\x8b", "inodes=\x8c", "device=\x8d", "fromfile=\x8e", "gitignore=\x8f", "timefmt=\x90:", "info=\x91", "level=L", "color=C")
	if !ok {
		return 1
	}
	t := &treeRun{Call: c, w: c.Buffered(), f: f, depth: 1 << 30}
	if f.Has('L') {
		n, err := strconv.Atoi(f.Value('L', ""))
		if err != nil || n < 1 {
			return c.Errorf(1, "Invalid level, must be greater than 0.")
		}
		t.depth = n
	}
	if f.Has('X') || f.Has(0x8e) || f.Has(0x8f) {
		return c.Errorf(1, "this machine's tree does not know -X, --fromfile and --gitignore")
	}
	for _, p := range f.Values('P') {
		t.match = append(t.match, strings.Split(p, "|")...)
	}
	for _, p := range f.Values('I') {
		t.ignore = append(t.ignore, strings.Split(p, "|")...)
	}
	if f.Has('C') {
		t.color = &lister{color: colors(c.Getenv("LS_COLORS")), blankColor: true}
	}
	t.limit, _ = strconv.Atoi(f.Value(0x89, "0"))
	args := f.Args
	if len(args) == 0 {
		args = []string{"."}
	}
	if f.Has('J') {
		t.w.WriteString("[\n")
	}
	status := 0
	for n, name := range args {
		i, err := statOf(c, name)
		if f.Has('J') && n > 0 {
			t.w.WriteString(",")
		}
		if err != nil || !i.Mode.IsDir() {
			status = 2
			if err == nil {
				t.all++
			}
			if f.Has('J') {
				fmt.Fprintf(t.w, "  {\"type\":\"%s\",\"name\":%s,\"error\":\"error opening dir\"}\n", "directory", jsonText(name))
				continue
			}
			fmt.Fprintf(t.w, "%s  [error opening dir]\n", t.name(name))
			continue
		}
		t.dirs++
		if f.Has('J') {
			t.json(name, i)
		} else {
			t.draw(name, i)
		}
	}
	t.report()
	return flush(c, t.w, status)
}

func (t *treeRun) report() {
	plural := func(n int, one, many string) string {
		if n == 1 {
			return "1 " + one
		}
		return fmt.Sprintf("%d %s", n, many)
	}
	if t.f.Has('J') {
		if !t.f.Has(0x83) {
			fmt.Fprintf(t.w, ",\n  {\"type\":\"report\",\"directories\":%d", t.dirs)
			if !t.f.Has('d') {
				fmt.Fprintf(t.w, ",\"files\":%d", t.all)
			}
			t.w.WriteString("}\n")
		}
		t.w.WriteString("]\n")
		return
	}
	if t.f.Has(0x83) {
		return
	}
	t.w.WriteByte('\n')
	if t.f.Has(0x85) {
		size := fmt.Sprintf("%11d bytes", t.sizes)
		if t.f.Has('h') {
			size = fmt.Sprintf("%4s", human(t.sizes, 1024))
		}
		fmt.Fprintf(t.w, " %s used in ", size)
	}
	t.w.WriteString(plural(t.dirs, "directory", "directories"))
	if !t.f.Has('d') {
		t.w.WriteString(", " + plural(t.all, "file", "files"))
	}
	t.w.WriteByte('\n')
}

// entries returns the entries of a directory that are shown, sorted.
func (t *treeRun) entries(dir string, depth int) ([]vfs.Info, bool) {
	list, err := t.FS().ReadDir(t.Abs(dir))
	if err != nil {
		return nil, false
	}
	if t.Pay(int64(len(list))*costEntry) != nil || !t.Step(len(list)+4) {
		return nil, true
	}
	flags := 0
	if t.f.Has(0x87) {
		flags = globFold
	}
	list = slices.DeleteFunc(list, func(i vfs.Info) bool {
		isdir := i.Mode.IsDir()
		if isLink(i.Mode) && t.f.Has('l') {
			if s, err := statOf(t.Call, under(dir, i.Name)); err == nil {
				isdir = s.Mode.IsDir()
			}
		}
		matches := func(p string) bool {
			return globMatch(strings.TrimSuffix(p, "/"), i.Name, flags) && (isdir || !strings.HasSuffix(p, "/"))
		}
		switch {
		case strings.HasPrefix(i.Name, ".") && !t.f.Has('a'), t.f.Has('d') && !isdir, slices.ContainsFunc(t.ignore, matches):
			return true
		case len(t.match) > 0 && (!isdir || t.f.Has(0x86)):
			return !slices.ContainsFunc(t.match, matches)
		}
		return false
	})
	t.sort(list)
	return list, true
}

func (t *treeRun) sort(list []vfs.Info) {
	by := t.f.Value(0x8a, "")
	slices.SortStableFunc(list, func(a, b vfs.Info) int {
		if t.f.Has(0x81) && a.Mode.IsDir() != b.Mode.IsDir() {
			return boolCompare(b.Mode.IsDir(), a.Mode.IsDir())
		}
		if t.f.Has(0x82) && a.Mode.IsDir() != b.Mode.IsDir() {
			return boolCompare(a.Mode.IsDir(), b.Mode.IsDir())
		}
		d := 0
		switch {
		case t.f.Has('t') || by == "mtime" || t.f.Has('c') || by == "ctime":
			d = a.Modified.Compare(b.Modified)
		case by == "size":
			d = int(max(min(b.Size-a.Size, 1), -1))
		case t.f.Has('v') || by == "version":
			d = versionCompare(a.Name, b.Name)
		}
		if d == 0 && !t.f.Has('U') {
			d = strings.Compare(a.Name, b.Name)
		}
		if t.f.Has('r') {
			d = -d
		}
		return d
	})
}

// name returns a name as it is printed.
func (t *treeRun) name(s string) string {
	if t.f.Has('Q') {
		return quoteC(s, true)
	}
	if t.f.Has('N') {
		return s
	}
	return strings.ReplaceAll(quoteC(strings.ReplaceAll(s, " ", "\x00"), false), `\000`, " ")
}

// facts returns the facts about a file that the options select, in brackets.
func (t *treeRun) facts(i vfs.Info) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if t.f.Has(0x8c) {
		add("%7d", i.Ino)
	}
	if t.f.Has('p') {
		add("%s", modeString(i.Mode))
	}
	if t.f.Has('u') {
		add("%-8.32s", t.Machine().UserName(i.UID))
	}
	if t.f.Has('g') {
		add("%-8.32s", t.Machine().GroupName(i.GID))
	}
	size := i.Size
	switch {
	case t.f.Has('h'):
		if size < 1024 {
			add("%4d", size)
		} else {
			add("%4s", treeSize(size, 1024))
		}
	case t.f.Has(0x8b):
		add("%4s", treeSize(size, 1000))
	case t.f.Has('s') || t.f.Has(0x85):
		add("%11d", size)
	}
	if t.f.Has('D') || t.f.Has(0x90) {
		switch {
		case t.f.Has(0x90):
			add("%s", strftime(t.f.Value(0x90, ""), i.Modified))
		case t.Now().Sub(i.Modified).Hours() > 24*182:
			add("%s", i.Modified.Format("Jan _2  2006"))
		default:
			add("%s", i.Modified.Format("Jan _2 15:04"))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "[" + strings.Join(parts, " ") + "]  "
}

// treeSize returns a size in the format of tree -h.
func treeSize(n, base int64) string {
	const units = "KMGTPE"
	x := float64(n)
	unit := -1
	for x >= float64(base) && unit < len(units)-1 {
		x /= float64(base)
		unit++
	}
	if unit < 0 {
		return strconv.FormatInt(n, 10)
	}
	if x < 10 {
		return fmt.Sprintf("%3.1f%c", x, units[unit])
	}
	return fmt.Sprintf("%3.0f%c", x, units[unit])
}

// label returns a file's name with its facts, color and link target.
func (t *treeRun) label(path string, i vfs.Info, said string) string {
	name := t.name(said)
	if t.f.Has('f') && path != "" {
		name = t.name(path)
	}
	if t.color != nil {
		name = t.color.colored(name, i.Mode, item{Info: i, target: t.targetOf(path, i)})
	}
	if t.f.Has('F') {
		name += (&lister{classes: 'F'}).indicator(i.Mode)
	}
	if isLink(i.Mode) {
		name += " -> " + t.name(i.Target)
	}
	return t.facts(i) + name
}

func (t *treeRun) targetOf(path string, i vfs.Info) *vfs.Info {
	if !isLink(i.Mode) {
		return nil
	}
	if s, err := statOf(t.Call, path); err == nil {
		return &s
	}
	return nil
}

// treeFrame is a directory that is being drawn.
type treeFrame struct {
	path   string
	list   []vfs.Info
	at     int
	prefix string
	ino    uint64
}

// charset returns the pieces of the drawing.
func (t *treeRun) charset() (tee, end, bar, gap string) {
	if cs := strings.ToLower(t.f.Value(0x88, "utf-8")); cs == "ascii" || cs == "us-ascii" {
		return "|-- ", "`-- ", "|   ", "    "
	}
	return "├── ", "└── ", "│\u00a0\u00a0 ", "    "
}

// draw draws one tree without recursion.
func (t *treeRun) draw(name string, root vfs.Info) {
	tee, end, bar, gap := t.charset()
	if t.f.Has('i') {
		tee, end, bar, gap = "", "", "", ""
	}
	if t.f.Has(0x85) {
		root.Size = t.total(name, root)
		t.sizes += root.Size
	}
	t.w.WriteString(t.label("", root, name) + "\n")
	list, ok := t.entries(name, 1)
	if !ok {
		t.w.WriteString("  [error opening dir]\n")
	}
	if t.f.Has(0x84) {
		list = t.pruned(name, list)
	}
	stack := []treeFrame{{path: name, list: list, ino: root.Ino}}
	for len(stack) > 0 {
		if !t.Step(4) {
			return
		}
		top := &stack[len(stack)-1]
		if top.at >= len(top.list) {
			stack = stack[:len(stack)-1]
			continue
		}
		i := top.list[top.at]
		top.at++
		last := top.at == len(top.list)
		path := under(top.path, i.Name)
		branch, next := tee, top.prefix+bar
		if last {
			branch, next = end, top.prefix+gap
		}
		if t.f.Has(0x85) && i.Mode.IsDir() {
			i.Size = t.total(path, i)
		}
		t.w.WriteString(top.prefix + branch + t.label(path, i, i.Name))
		dir, note := i.Mode.IsDir(), ""
		var ino = i.Ino
		if s := t.targetOf(path, i); s != nil && s.Mode.IsDir() {
			t.dirs++
			if dir = t.f.Has('l'); dir {
				t.dirs--
				ino = s.Ino
				if slices.ContainsFunc(stack, func(f treeFrame) bool { return f.ino == ino }) {
					dir, note = false, "  [recursive, not followed]"
					t.dirs++
				}
			}
		} else if !dir {
			t.all++
		}
		if dir {
			t.dirs++
			if len(stack) < t.depth {
				below, ok := t.entries(path, len(stack)+1)
				switch {
				case !ok:
					note = "  [error opening dir]"
				case t.limit > 0 && len(below) > t.limit:
					note = fmt.Sprintf("  [%d entries exceeds filelimit, not opening dir]", len(below))
				default:
					if t.f.Has(0x84) {
						below = t.pruned(path, below)
					}
					stack = append(stack, treeFrame{path: path, list: below, prefix: next, ino: ino})
				}
			}
		}
		t.w.WriteString(note + "\n")
	}
}

// pruned removes directories in which nothing is shown.
func (t *treeRun) pruned(dir string, list []vfs.Info) []vfs.Info {
	return slices.DeleteFunc(list, func(i vfs.Info) bool {
		if !i.Mode.IsDir() {
			return false
		}
		empty := true
		walk(t.Call, under(dir, i.Name), followNone, func(v visit) next {
			if v.post || v.err != nil || v.depth == 0 {
				return goOn
			}
			if strings.HasPrefix(v.info.Name, ".") && !t.f.Has('a') {
				return skip
			}
			if slices.ContainsFunc(t.ignore, func(p string) bool { return globMatch(p, v.info.Name, 0) }) {
				return skip
			}
			if !v.info.Mode.IsDir() && (len(t.match) == 0 || slices.ContainsFunc(t.match, func(p string) bool { return globMatch(p, v.info.Name, 0) })) {
				empty = false
				return stop
			}
			return goOn
		})
		return empty
	})
}

// total returns the size of a directory's contents, for --du.
func (t *treeRun) total(path string, i vfs.Info) int64 {
	var sum int64
	walk(t.Call, path, followNone, func(v visit) next {
		if v.post || v.err != nil {
			return goOn
		}
		if v.depth > 0 && strings.HasPrefix(v.info.Name, ".") && !t.f.Has('a') {
			return skip
		}
		sum += v.info.Size
		return goOn
	})
	return sum
}

func jsonText(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(b)
}

// json writes one tree as JSON.
func (t *treeRun) json(name string, root vfs.Info) {
	open := func(path, said string, i vfs.Info, indent int) {
		shown := said
		if t.f.Has('f') && path != "" {
			shown = path
		}
		kind := map[byte]string{'d': "directory", 'l': "link", 'p': "fifo", 's': "socket", 'c': "char", 'b': "block", '-': "file"}[typeLetter(i.Mode)]
		fmt.Fprintf(t.w, "%s{\"type\":\"%s\",\"name\":%s", strings.Repeat("  ", indent), kind, jsonText(shown))
		if isLink(i.Mode) {
			fmt.Fprintf(t.w, ",\"target\":%s", jsonText(i.Target))
		}
		if t.f.Has('p') {
			fmt.Fprintf(t.w, ",\"mode\":\"%04o\",\"prot\":\"%s\"", permBits(i.Mode), modeString(i.Mode))
		}
		if t.f.Has('u') {
			fmt.Fprintf(t.w, ",\"user\":%s", jsonText(t.Machine().UserName(i.UID)))
		}
		if t.f.Has('g') {
			fmt.Fprintf(t.w, ",\"group\":%s", jsonText(t.Machine().GroupName(i.GID)))
		}
		if t.f.Has('s') || t.f.Has('h') {
			fmt.Fprintf(t.w, ",\"size\":%d", i.Size)
		}
	}
	open("", name, root, 1)
	list, _ := t.entries(name, 1)
	stack := []treeFrame{{path: name, list: list}}
	t.w.WriteString(",\"contents\":[")
	first := true
	for len(stack) > 0 {
		if !t.Step(4) {
			return
		}
		top := &stack[len(stack)-1]
		if top.at >= len(top.list) {
			stack = stack[:len(stack)-1]
			if len(top.list) > 0 {
				t.w.WriteString("\n" + strings.Repeat("  ", len(stack)+1))
			}
			t.w.WriteString("]}")
			first = false
			continue
		}
		i := top.list[top.at]
		top.at++
		if !first {
			t.w.WriteString(",")
		}
		t.w.WriteString("\n")
		path := under(top.path, i.Name)
		open(path, i.Name, i, len(stack)+1)
		first = false
		if !i.Mode.IsDir() {
			t.all++
			t.w.WriteString("}")
			continue
		}
		t.dirs++
		below, _ := t.entries(path, len(stack)+1)
		if len(stack) < t.depth && len(below) > 0 {
			t.w.WriteString(",\"contents\":[")
			stack = append(stack, treeFrame{path: path, list: below})
			first = true
			continue
		}
		t.w.WriteString("}")
	}
	t.w.WriteString("\n")
}
