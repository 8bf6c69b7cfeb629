package interp

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/internal/sh/tools/awk/goawk/internal/compiler"
	"github.com/carrel-dev/carrel/internal/sh/tools/awk/goawk/internal/resolver"
)

// keys returns the indexes of an array in the order of a for loop: as PROCINFO["sorted_in"] says, otherwise numbers before
// other strings, ascending.
func (p *interp) keys(array map[string]value) []string {
	out := make([]string, 0, len(array))
	for k := range array {
		out = append(out, k)
	}
	p.host.Step(len(out) / 4)
	how := ""
	if i, ok := p.arrayIndexes["PROCINFO"]; ok {
		how = p.toString(p.array(resolver.Global, i)["sorted_in"])
	}
	if how == "@unsorted" {
		how = ""
	}
	p.sortKeys(out, array, how)
	return out
}

// order compares values as gawk's "by type": numbers, then strings.
func order(a, b value) int {
	an, as := a.isTrueStr()
	bn, bs := b.isTrueStr()
	switch {
	case !as && !bs:
		switch {
		case an < bn:
			return -1
		case an > bn:
			return 1
		}
		return 0
	case a.typ == typeArray || b.typ == typeArray: // behind all others
		return cmp.Compare(a.typ, b.typ)
	case as != bs:
		if as {
			return 1
		}
		return -1
	}
	return strings.Compare(a.s, b.s)
}

// sortKeys sorts indexes in one of gawk's predefined orders.
func (p *interp) sortKeys(keys []string, array map[string]value, how string) {
	number := func(s string) value { return num(numStr(s).num()) }
	if f := p.userFunction(how); f != nil {
		slices.SortFunc(keys, func(a, b string) int {
			n, err := p.call(f, numStr(a), array[a], numStr(b), array[b])
			if err != nil && p.broke == nil {
				p.broke = err
			}
			return int(max(min(n.num(), 1), -1))
		})
		return
	}
	var less func(a, b string) int
	byIndex := func(a, b string) int {
		if c := order(numStr(a), numStr(b)); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	}
	switch strings.TrimSuffix(strings.TrimSuffix(how, "_asc"), "_desc") {
	case "@ind_str":
		less = strings.Compare
	case "@ind_num":
		less = func(a, b string) int {
			if c := order(number(a), number(b)); c != 0 {
				return c
			}
			return strings.Compare(a, b)
		}
	case "@val_num", "@val_type":
		less = func(a, b string) int {
			x, y := array[a], array[b]
			if strings.HasPrefix(how, "@val_num") {
				x, y = num(x.num()), num(y.num())
			}
			if c := order(x, y); c != 0 {
				return c
			}
			return byIndex(a, b)
		}
	case "@val_str":
		less = func(a, b string) int {
			if c := strings.Compare(p.toString(array[a]), p.toString(array[b])); c != 0 {
				return c
			}
			return byIndex(a, b)
		}
	default:
		less = byIndex
	}
	slices.SortFunc(keys, less)
	if strings.HasSuffix(how, "_desc") {
		slices.Reverse(keys)
	}
}

// callArrays runs the functions that fill arrays.
func (p *interp) callArrays(which int, a, b place) error {
	switch which {
	case compiler.ArraysMatch:
		sv, rv := p.peekPop()
		s := p.toString(sv)
		re, err := p.compileRegex(p.toString(rv))
		if err != nil {
			return err
		}
		array := map[string]value{}
		loc := re.FindStringSubmatchIndex(s)
		p.matchStart, p.matchLength = 0, -1
		if loc != nil {
			p.matchStart, p.matchLength = utf8.RuneCountInString(s[:loc[0]])+1, utf8.RuneCountInString(s[loc[0]:loc[1]])
			for i := 0; i < len(loc); i += 2 {
				if loc[i] < 0 {
					continue
				}
				key := strconv.Itoa(i / 2)
				text := s[loc[i]:loc[i+1]]
				array[key] = numStr(text)
				array[key+p.subscriptSep+"start"] = num(float64(utf8.RuneCountInString(s[:loc[i]]) + 1))
				array[key+p.subscriptSep+"length"] = num(float64(utf8.RuneCountInString(text)))
			}
		}
		p.setArray(a.scope, a.index, array)
		p.replaceTop(num(float64(p.matchStart)))
	case compiler.ArraysPatsplit:
		sv, rv := p.peekPop()
		s := p.toString(sv)
		re, err := p.compileRegex(p.toString(rv))
		if err != nil {
			return err
		}
		array, seps := map[string]value{}, map[string]value{}
		last := 0
		re.All([]byte(s), false, func(loc []int) bool {
			seps[strconv.Itoa(len(array))] = str(s[last:loc[0]])
			array[strconv.Itoa(len(array)+1)] = numStr(s[loc[0]:loc[1]])
			last = loc[1]
			return true
		})
		if seps[strconv.Itoa(len(array))] = str(s[last:]); b.index >= 0 {
			p.setArray(b.scope, b.index, seps)
		}
		p.setArray(a.scope, a.index, array)
		p.replaceTop(num(float64(len(array))))
	default:
		how := p.toString(p.peekTop())
		fold := p.ignoreCase()
		from := p.array(a.scope, a.index)
		keys := make([]string, 0, len(from))
		for k := range from {
			keys = append(keys, k)
		}
		if !p.host.Step(len(keys)) {
			return ErrStopped
		}
		if how == "" {
			how = "@val_type_asc"
			if which == compiler.ArraysSortIndex {
				how = "@ind_str_asc"
			}
		}
		if fold && strings.HasPrefix(how, "@val_type") {
			p.sortFolded(keys, from, strings.HasSuffix(how, "_desc"))
		} else {
			p.sortKeys(keys, from, how)
		}
		if p.broke != nil {
			return p.broke
		}
		array := make(map[string]value, len(keys))
		for i, k := range keys {
			v := from[k]
			if which == compiler.ArraysSortIndex {
				v = str(k)
			}
			array[strconv.Itoa(i+1)] = v
		}
		p.setArray(b.scope, b.index, array)
		p.replaceTop(num(float64(len(keys))))
	}
	return nil
}

// Line returns $0.
func (p *Interpreter) Line() string { return p.interp.line }

// Gensub is gawk's function of that name.
func (p *Interpreter) Gensub(regex, repl, how, target string) (string, error) {
	re, err := p.interp.compileRegex(regex)
	if err != nil {
		return "", err
	}
	nth := 1
	global := strings.HasPrefix(how, "g") || strings.HasPrefix(how, "G")
	if !global {
		nth = max(int(numStr(how).num()), 1)
	}
	var out []byte
	last, n := 0, 0
	re.All([]byte(target), true, func(loc []int) bool {
		if n++; !global && n < nth {
			return true
		}
		out = append(out, target[last:loc[0]]...)
		for i := 0; i < len(repl); i++ {
			switch c := repl[i]; {
			case c == '&':
				out = append(out, target[loc[0]:loc[1]]...)
			case c == '\\' && i+1 < len(repl):
				i++
				if d := repl[i]; d >= '0' && d <= '9' {
					if g := 2 * int(d-'0'); g+1 < len(loc) && loc[g] >= 0 {
						out = append(out, target[loc[g]:loc[g+1]]...)
					}
				} else if d == '&' || d == '\\' {
					out = append(out, d)
				} else {
					out = append(out, '\\', d)
				}
			default:
				out = append(out, c)
			}
		}
		last = loc[1]
		if len(out) > maxString || n&63 == 0 && !p.interp.host.Step(64) {
			err = ErrStopped
		}
		return global && err == nil
	})
	if err != nil {
		return "", err
	}
	return string(append(out, target[last:]...)), p.interp.work(len(out))
}

// errno sets ERRNO, if the program asks for it.
func (p *interp) errno(err error) {
	i, ok := p.gawkVars["ERRNO"]
	if !ok {
		return
	}
	text := ""
	if err != nil {
		text = p.host.ErrText(err)
	}
	p.globals[i] = str(text)
}

// procInfo fills PROCINFO, if the program has it.
func (p *interp) procInfo() {
	i, ok := p.arrayIndexes["PROCINFO"]
	if !ok {
		return
	}
	a := p.arrays[i]
	for k, v := range map[string]string{"FS": "FS", "version": "5.2.1", "platform": "posix", "strftime": "%a %b %e %H:%M:%S %Z %Y"} {
		p.put(a, k, str(v))
	}
	for k, v := range p.host.IDs() {
		p.put(a, k, num(float64(v)))
	}
}
