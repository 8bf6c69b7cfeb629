package files

import (
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// primary reads one primary of the expression. Its name has been read.
func (f *finder) primary(name string) (test, error) {
	switch name {
	case "-true":
		f.tests = true
		return func(*found) bool { return true }, nil
	case "-false":
		f.tests = true
		return func(*found) bool { return false }, nil
	case "-depth", "-d":
		f.global(name)
		f.depth = true
		return always, nil
	case "-xdev", "-mount":
		f.global(name)
		f.xdev = true
		return always, nil
	case "-follow":
		f.links = followAll
		return always, nil
	case "-daystart":
		f.daystart = true
		return always, nil
	case "-noleaf", "-ignore_readdir_race", "-noignore_readdir_race":
		return always, nil
	case "-warn", "-nowarn":
		f.warn = name == "-warn"
		return always, nil
	case "-maxdepth", "-mindepth":
		a, err := f.arg(name)
		if err != nil {
			return nil, err
		}
		n, nerr := strconv.Atoi(a)
		if nerr != nil || n < 0 || a[0] == '+' {
			return nil, errUsage(fmt.Sprintf("Expected a positive decimal integer argument to %s, but got %s", name, curly(a)))
		}
		f.global(name)
		if name == "-maxdepth" {
			f.max = n
		} else {
			f.min = n
		}
		return always, nil
	case "-regextype":
		a, err := f.arg(name)
		if err != nil {
			return nil, err
		}
		if _, ok := regexTypes[a]; !ok {
			return nil, errUsage(fmt.Sprintf("Unknown regular expression type %s; valid types are %s.", curly(a), regexTypeNames()))
		}
		f.regex = a
		return always, nil
	case "-files0-from":
		a, err := f.arg(name)
		if err != nil {
			return nil, err
		}
		if len(f.roots) > 0 {
			return nil, errUsage(fmt.Sprintf("extra operand %s\nfind: file operands cannot be combined with -files0-from", curly(f.roots[0])))
		}
		f.rootsFrom = a
		return always, nil
	}
	f.tests = true
	if t, ok, err := f.action(name); ok || err != nil {
		return t, err
	}
	if t, ok, err := f.nameTest(name); ok || err != nil {
		return t, err
	}
	if t, ok, err := f.timeTest(name); ok || err != nil {
		return t, err
	}
	if t, ok, err := f.fileTest(name); ok || err != nil {
		return t, err
	}
	return nil, errUsage(fmt.Sprintf("unknown predicate `%s'", name))
}

func always(*found) bool { return true }

// nameTest reads tests of names.
func (f *finder) nameTest(name string) (test, bool, error) {
	flags := 0
	what := strings.TrimPrefix(name, "-")
	switch what {
	case "iname", "ipath", "ilname", "iwholename", "iregex":
		flags, what = globFold, what[1:]
	}
	switch what {
	case "name", "path", "wholename", "lname", "regex":
	default:
		return nil, false, nil
	}
	pattern, err := f.arg(name)
	if err != nil {
		return nil, true, err
	}
	switch what {
	case "name":
		if strings.Contains(pattern, "/") && pattern != "/" && f.warn {
			fmt.Fprintf(f.Err, "find: warning: %s looks at names without directories, and a pattern with %s is never one: try %s\n",
				curly(name), curly("/"), curly("-"+strings.Replace(name[1:], "name", "wholename", 1)))
		}
		return func(e *found) bool { return globMatch(pattern, e.base(), flags) }, true, nil
	case "lname":
		return func(e *found) bool { return isLink(e.info.Mode) && globMatch(pattern, e.info.Target, flags) }, true, nil
	case "regex":
		re, err := compileFind(pattern, f.regex, flags != 0)
		if err != nil {
			return nil, true, errUsage(fmt.Sprintf("failed to compile regular expression '%s': %v", pattern, err))
		}
		return func(e *found) bool { return re(e.path) }, true, nil
	}
	return func(e *found) bool { return globMatch(pattern, e.path, flags) }, true, nil
}

// timeTest reads tests of times.
func (f *finder) timeTest(name string) (test, bool, error) {
	which := map[byte]func(vfs.Info) time.Time{'a': accessed, 'c': changed, 'm': modified, 'B': modified}
	base := f.now
	if f.daystart {
		y, m, d := f.now.Date()
		base = time.Date(y, m, d, 0, 0, 0, 0, f.now.Location()).AddDate(0, 0, 1)
	}
	switch name {
	case "-mtime", "-atime", "-ctime", "-mmin", "-amin", "-cmin":
		cmp, err := f.fraction(name)
		if err != nil {
			return nil, true, err
		}
		of := which[name[1]]
		unit := 24 * time.Hour
		if strings.HasSuffix(name, "min") {
			unit = time.Minute
		}
		return func(e *found) bool {
			age := base.Sub(of(e.info))
			switch {
			case cmp.op == '-':
				return float64(age) < cmp.x*float64(unit)
			case cmp.op == '+' && unit == time.Minute:
				return float64(age) > cmp.x*float64(unit)
			case cmp.op == '+':
				return math.Floor(float64(age)/float64(unit)) > cmp.x
			case unit == time.Minute:
				return float64(age) > (cmp.x-1)*float64(unit) && float64(age) <= cmp.x*float64(unit)
			}
			return math.Floor(float64(age)/float64(unit)) == math.Floor(cmp.x)
		}, true, nil
	case "-newer", "-anewer", "-cnewer":
		ref, err := f.arg(name)
		if err != nil {
			return nil, true, err
		}
		i, serr := f.reference(ref)
		if serr != nil {
			return nil, true, errUsage(fmt.Sprintf("%s: %s", curly(ref), errText(serr)))
		}
		of := modified
		if name != "-newer" {
			of = which[name[1]]
		}
		return func(e *found) bool { return of(e.info).After(i.Modified) }, true, nil
	case "-used":
		cmp, err := f.compareArg(name)
		return func(e *found) bool { return cmp.holds(int64(accessed(e.info).Sub(changed(e.info)) / (24 * time.Hour))) }, true, err
	}
	if len(name) == 8 && strings.HasPrefix(name, "-newer") && which[name[6]] != nil && strings.IndexByte("aBcmt", name[7]) >= 0 {
		ref, err := f.arg(name)
		if err != nil {
			return nil, true, err
		}
		of := which[name[6]]
		var limit time.Time
		if name[7] == 't' {
			var ok bool
			if limit, ok = parseDate(ref, f.now); !ok {
				return nil, true, errUsage(fmt.Sprintf("I cannot figure out how to interpret %s as a date or time", curly(ref)))
			}
		} else {
			i, serr := f.reference(ref)
			if serr != nil {
				return nil, true, errUsage(fmt.Sprintf("%s: %s", curly(ref), errText(serr)))
			}
			limit = which[name[7]](i)
		}
		return func(e *found) bool { return of(e.info).After(limit) }, true, nil
	}
	return nil, false, nil
}

func modified(i vfs.Info) time.Time { return i.Modified }

func (f *finder) reference(name string) (vfs.Info, error) {
	if f.links == followNone {
		return lstat(f.Call, name)
	}
	return statOf(f.Call, name)
}

type compareFloat struct {
	op byte
	x  float64
}

func (f *finder) fraction(name string) (c compareFloat, err error) {
	a, err := f.arg(name)
	if err != nil {
		return c, err
	}
	s := a
	if s != "" && (s[0] == '+' || s[0] == '-') {
		c.op, s = s[0], s[1:]
	}
	x, perr := strconv.ParseFloat(s, 64)
	if perr != nil || strings.ContainsAny(s, "+-iInN") {
		return c, errUsage(fmt.Sprintf("invalid argument `%s' to `%s'", a, name))
	}
	c.x = x
	return c, nil
}

// fileTest reads tests of the fields of stat.
func (f *finder) fileTest(name string) (test, bool, error) {
	switch name {
	case "-type", "-xtype":
		a, err := f.arg(name)
		if err != nil {
			return nil, true, err
		}
		if err := checkTypes(name, a); err != nil {
			return nil, true, err
		}
		a = strings.ReplaceAll(a, "f", "-")
		if name == "-xtype" {
			return func(e *found) bool {
				i := e.info
				if isLink(i.Mode) {
					if t, err := statOf(f.Call, e.path); err == nil {
						i = t
					}
				} else if f.links == followAll {
					i, _ = lstat(f.Call, e.path)
				}
				return strings.IndexByte(a, typeLetter(i.Mode)) >= 0
			}, true, nil
		}
		return func(e *found) bool { return strings.IndexByte(a, typeLetter(e.info.Mode)) >= 0 }, true, nil
	case "-empty":
		return func(e *found) bool {
			if e.info.Mode.IsDir() {
				l, err := f.FS().ReadDir(f.Abs(e.path))
				return err == nil && len(l) == 0
			}
			return e.info.Mode.IsRegular() && e.info.Size == 0
		}, true, nil
	case "-size":
		return f.size(name)
	case "-links":
		cmp, err := f.compareArg(name)
		return func(e *found) bool { return cmp.holds(int64(e.info.Links)) }, true, err
	case "-inum":
		cmp, err := f.compareArg(name)
		return func(e *found) bool { return cmp.holds(int64(e.info.Ino)) }, true, err
	case "-uid":
		cmp, err := f.compareArg(name)
		return func(e *found) bool { return cmp.holds(int64(e.info.UID)) }, true, err
	case "-gid":
		cmp, err := f.compareArg(name)
		return func(e *found) bool { return cmp.holds(int64(e.info.GID)) }, true, err
	case "-user", "-group":
		a, err := f.arg(name)
		if err != nil {
			return nil, true, err
		}
		if name == "-user" {
			uid, _, ok := lookupUser(f.Call, a)
			if !ok {
				return nil, true, errUsage(fmt.Sprintf("%s is not the name of a known user", curly(a)))
			}
			return func(e *found) bool { return e.info.UID == uid }, true, nil
		}
		gid, ok := lookupGroup(f.Call, a)
		if !ok {
			return nil, true, errUsage(fmt.Sprintf("%s is not the name of an existing group", curly(a)))
		}
		return func(e *found) bool { return e.info.GID == gid }, true, nil
	case "-nouser":
		return func(e *found) bool { return f.Machine().UserName(e.info.UID) == strconv.Itoa(int(e.info.UID)) }, true, nil
	case "-nogroup":
		return func(e *found) bool { return f.Machine().GroupName(e.info.GID) == strconv.Itoa(int(e.info.GID)) }, true, nil
	case "-readable", "-writable", "-executable":
		want := map[string]fs.FileMode{"-readable": vfs.MayRead, "-writable": vfs.MayWrite, "-executable": vfs.MayExec}[name]
		return func(e *found) bool { return f.FS().Access(f.Abs(e.path), want) == nil }, true, nil
	case "-samefile":
		a, err := f.arg(name)
		if err != nil {
			return nil, true, err
		}
		i, serr := f.reference(a)
		if serr != nil {
			return nil, true, errUsage(fmt.Sprintf("%s: %s", curly(a), errText(serr)))
		}
		return func(e *found) bool { return e.info.Ino == i.Ino }, true, nil
	case "-perm":
		return f.perm(name)
	case "-fstype":
		a, err := f.arg(name)
		return func(*found) bool { return a == diskKind }, true, err
	case "-context":
		_, err := f.arg(name)
		return func(*found) bool { return false }, true, err
	}
	return nil, false, nil
}

func checkTypes(name, a string) error {
	if a == "" {
		return errUsage(fmt.Sprintf("Arguments to %s should contain at least one letter", name))
	}
	for i := range len(a) {
		if i%2 == 1 {
			if a[i] != ',' {
				return errUsage(fmt.Sprintf("Must separate multiple arguments to %s using: ','", name))
			}
			if i == len(a)-1 {
				return errUsage(fmt.Sprintf("Last file type in list argument to %s is missing, i.e., list is ending on: ','", name))
			}
			continue
		}
		if strings.IndexByte("bcdpflsD", a[i]) < 0 {
			return errUsage(fmt.Sprintf("Unknown argument to %s: %c", name, a[i]))
		}
		if strings.Contains(a[:i], a[i:i+1]) {
			return errUsage(fmt.Sprintf("Duplicate file type '%c' in the argument list to %s.", a[i], name))
		}
	}
	return nil
}

func (f *finder) size(name string) (test, bool, error) {
	a, err := f.arg(name)
	if err != nil {
		return nil, true, err
	}
	bad := errUsage(fmt.Sprintf("Invalid argument `%s' to -size", a))
	s, unit := a, int64(512)
	if s == "" {
		return nil, true, errUsage("invalid null argument to -size")
	}
	if at := strings.IndexByte("bcwkMG", s[len(s)-1]); at >= 0 {
		unit = []int64{512, 1, 2, 1 << 10, 1 << 20, 1 << 30}[at]
		s = s[:len(s)-1]
	} else if !digit(s[len(s)-1]) {
		return nil, true, errUsage(fmt.Sprintf("invalid -size type `%c'", s[len(s)-1]))
	}
	cmp, ok := parseCompare(s)
	if !ok {
		return nil, true, bad
	}
	return func(e *found) bool { return cmp.holds(inUnits(e.info.Size, unit)) }, true, nil
}

func (f *finder) perm(name string) (test, bool, error) {
	a, err := f.arg(name)
	if err != nil {
		return nil, true, err
	}
	how, s := byte(0), a
	if s != "" && (s[0] == '-' || s[0] == '/') {
		how, s = s[0], s[1:]
	}
	m, ok := parseMode(s)
	if !ok {
		return nil, true, errUsage(fmt.Sprintf("invalid mode %s", curly(a)))
	}
	want := permBits(m.apply(0, 0, false))
	wantDir := permBits(m.apply(0, 0, true))
	return func(e *found) bool {
		w := want
		if e.info.Mode.IsDir() {
			w = wantDir
		}
		p := permBits(e.info.Mode)
		switch how {
		case '-':
			return p&w == w
		case '/':
			return w == 0 || p&w != 0
		}
		return p == w
	}, true, nil
}
