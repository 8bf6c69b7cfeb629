package interp

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/internal/sh/tools/awk/goawk/internal/compiler"
	"github.com/carrel-dev/carrel/internal/sh/tools/awk/goawk/internal/resolver"
)

// place is where an array is.
type place struct {
	scope resolver.Scope
	index int
}

// setArray puts another array in one's place.
func (p *interp) setArray(scope resolver.Scope, index int, array map[string]value) {
	if scope == resolver.Held {
		p.into, p.held = p.held[len(p.held)-1], p.held[:len(p.held)-1]
		scope = resolver.Sub
	}
	if scope != resolver.Sub {
		p.replaceArray(p.arrayIndex(scope, index), array)
		return
	}
	p.drop(p.into)
	p.pay(weigh(array))
	clear(p.into)
	maps.Copy(p.into, array)
}

// enter goes into an array in an array, which is made if there is none.
func (p *interp) enter(array map[string]value, path []value) error {
	for _, index := range path {
		key := p.toString(index)
		v := array[key]
		switch v.typ {
		case typeArray:
		case typeNull:
			v = value{typ: typeArray, arr: map[string]value{}}
			p.put(array, key, v)
		default:
			return newError("attempt to use scalar `[%q]' as an array", key)
		}
		array = v.arr
	}
	p.into = array
	return nil
}

// scalarOf is called when an element that is an array is used as a scalar.
func (p *interp) scalarOf(index string) {
	if p.broke == nil {
		p.broke = newError("attempt to use array `[%q]' in a scalar context", index)
	}
}

// pin makes an array an argument that keeps being what it is, whatever is put into it.
func (p *interp) pin(array map[string]value) int {
	i := len(p.arrays)
	p.arrays = append(p.arrays, array)
	if p.pinned == nil {
		p.pinned = map[int]bool{}
	}
	p.pinned[i] = true
	return i
}

// invoke calls a function. Its scalar arguments are on the stack, arrays are the first of its arrays, and what is above base
// of the program's arrays goes with the call.
func (p *interp) invoke(f *compiler.Function, arrays []int, base int) error {
	if p.callDepth >= maxCallDepth {
		return newError("calling %q exceeded maximum call depth of %d", f.Name, maxCallDepth)
	}

	// Set up frame for scalar arguments
	oldFrame := p.frame
	p.frame = p.peekSlice(f.NumScalars)
	for _, v := range p.frame {
		p.keep(null(), v)
	}
	for len(arrays) < f.NumArrays {
		arrays = append(arrays, len(p.arrays))
		p.arrays = append(p.arrays, make(map[string]value))
	}
	p.localArrays = append(p.localArrays, arrays)

	// Execute the function!
	p.callDepth++
	err := p.execute(f.Body)
	p.callDepth--

	// Pop the locals off the stack
	for _, v := range p.frame {
		p.keep(v, null())
	}
	for i := base; i < len(p.arrays); i++ {
		if p.pinned[i] {
			delete(p.pinned, i)
		} else {
			p.drop(p.arrays[i])
		}
	}
	p.popSlice(f.NumScalars)
	p.frame = oldFrame
	p.localArrays = p.localArrays[:len(p.localArrays)-1]
	p.arrays = p.arrays[:base]

	if r, ok := err.(returnValue); ok {
		p.push(r.Value)
	} else if err != nil {
		return err
	} else {
		p.push(null())
	}
	return nil
}

// userFunction is the function of a name, nil if there is none.
func (p *interp) userFunction(name string) *compiler.Function {
	if name == "" || name[0] == '@' {
		return nil
	}
	for i := range p.functions {
		if p.functions[i].Name == name {
			return &p.functions[i]
		}
	}
	return nil
}

// call calls a function with values, some of which may be arrays.
func (p *interp) call(f *compiler.Function, args ...value) (value, error) {
	if len(args) > len(f.Params) {
		return null(), newError("function `%s' called with more arguments than declared", f.Name)
	}
	base := len(p.arrays)
	var arrays []int
	for i := range f.Params {
		v := null()
		if i < len(args) {
			v = args[i]
		}
		switch {
		case !f.Arrays[i]:
			if v.typ == typeArray {
				return null(), newError("attempt to use array `%s' in a scalar context", f.Params[i])
			}
			p.push(v)
		case v.typ == typeArray && v.n > 0:
			arrays = append(arrays, int(v.n)-1)
		case v.typ == typeArray:
			arrays = append(arrays, p.pin(v.arr))
		case v.typ == typeNull:
			arrays = append(arrays, len(p.arrays))
			p.arrays = append(p.arrays, make(map[string]value))
		default:
			return null(), newError("attempt to use scalar `%s' as an array", f.Params[i])
		}
	}
	if err := p.invoke(f, arrays, base); err != nil {
		return null(), err
	}
	return p.pop(), nil
}

// indirect calls the function that the top of the stack names.
func (p *interp) indirect(n int) error {
	name := p.toString(p.pop())
	args := slices.Clone(p.popSlice(n))
	if f := p.userFunction(name); f != nil {
		v, err := p.call(f, args...)
		if err == nil {
			p.push(v)
		}
		return err
	}
	if info, ok := p.program.LookupFunc(name); ok && info.Native {
		v, err := p.callNative(info.Index, args)
		if err == nil {
			p.push(v)
		}
		return err
	}
	op, ok := builtins[name+"/"+strconv.Itoa(n)]
	if !ok {
		if name == "sprintf" && n > 0 {
			s, err := p.sprintf(p.toString(args[0]), args[1:])
			p.push(str(s))
			return err
		}
		return newError("function called indirectly through `%s' does not exist", name)
	}
	for _, v := range args {
		p.push(v)
	}
	return p.callBuiltin(op)
}

// builtins are those that may be called indirectly, by name and number of arguments.
var builtins = map[string]compiler.BuiltinOp{"atan2/2": compiler.BuiltinAtan2, "close/1": compiler.BuiltinClose, "cos/1": compiler.BuiltinCos,
	"exp/1": compiler.BuiltinExp, "index/2": compiler.BuiltinIndex, "int/1": compiler.BuiltinInt, "length/0": compiler.BuiltinLength,
	"length/1": compiler.BuiltinLengthArg, "log/1": compiler.BuiltinLog, "match/2": compiler.BuiltinMatch, "rand/0": compiler.BuiltinRand,
	"sin/1": compiler.BuiltinSin, "sqrt/1": compiler.BuiltinSqrt, "srand/0": compiler.BuiltinSrand, "srand/1": compiler.BuiltinSrandSeed,
	"substr/2": compiler.BuiltinSubstr, "substr/3": compiler.BuiltinSubstrLength, "system/1": compiler.BuiltinSystem,
	"tolower/1": compiler.BuiltinTolower, "toupper/1": compiler.BuiltinToupper, "typeof/1": compiler.BuiltinTypeof,
	"isarray/1": compiler.BuiltinIsarray, "fflush/0": compiler.BuiltinFflushAll, "fflush/1": compiler.BuiltinFflush}

// typeName is what typeof says.
func typeName(v value) string {
	switch v.typ {
	case typeNum:
		return "number"
	case typeStr:
		return "string"
	case typeNumStr:
		if _, text := v.isTrueStr(); text {
			return "string"
		}
		return "strnum"
	case typeRegex:
		return "regexp"
	case typeArray:
		return "array"
	}
	return "untyped"
}

// blanks fills seps with what is around fields that blanks separate: what comes first is the 0th.
func blanks(s string, parts []string, seps map[string]value) {
	at := 0
	for i, part := range parts {
		next := at + strings.Index(s[at:], part)
		if i > 0 || next > at {
			seps[strconv.Itoa(i)] = str(s[at:next])
		}
		at = next + len(part)
	}
	if at < len(s) {
		seps[strconv.Itoa(len(parts))] = str(s[at:])
	}
}

// sortFolded sorts indexes by values, letters of any case being the same.
func (p *interp) sortFolded(keys []string, array map[string]value, desc bool) {
	slices.SortFunc(keys, func(a, b string) int {
		x, y := array[a], array[b]
		_, xs := x.isTrueStr()
		_, ys := y.isTrueStr()
		c := 0
		if xs && ys {
			c = cmp.Compare(strings.ToLower(x.s), strings.ToLower(y.s))
		} else {
			c = order(x, y)
		}
		if desc {
			c = -c
		}
		if c == 0 {
			c = strings.Compare(a, b)
		}
		return c
	})
}
