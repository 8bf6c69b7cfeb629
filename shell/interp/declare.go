package interp

import (
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// change says whether an attribute is left alone, set or removed.
type change int8

const (
	keep change = iota
	setIt
	clearIt
)

func (c change) apply(b *bool) {
	if c != keep {
		*b = c == setIt
	}
}

// declared holds the options of declare and its relatives.
type declared struct {
	name                                                             string // of the builtin
	export, readonly, integer, nameref, upper, lower, capital, trace change
	indexed, assoc, unindexed                                        bool
	global, local, print, funcs, funcNames, inherit                  bool
}

// declArg is an expanded argument.
type declArg struct {
	name, sub string
	elem      bool
	index     syntax.ArithmExpr
	value     string
	has       bool // there is a value
	add       bool
	array     []arrayElem
	isArray   bool
	text      string // its text, for messages
}

// decl runs declare, local, export, readonly and typeset where the parser recognizes them.
func (r *runner) decl(c *syntax.DeclClause) {
	d := declared{name: c.Variant.Value}
	r.status, r.substStatus = 0, 0
	var args []declArg
	options := true
	for _, a := range c.Args {
		if a.Name == nil { // an option, or a word with an expansion
			for _, word := range r.field(nil, a.Value) {
				if options && len(word) > 1 && (word[0] == '-' || word[0] == '+') {
					if word == "--" {
						options = false
					} else if !d.option(r, word) {
						return
					}
					continue
				}
				options = false
				args = append(args, textArg(word))
			}
		} else {
			options = false
			args = append(args, r.declArg(a))
		}
		if r.flow != flowNone {
			return
		}
	}
	r.traceDecl(c, args)
	defer r.declLast(c, args)
	r.declareAll(d, args)
}

// declArg expands one assignment of a declaration.
func (r *runner) declArg(a *syntax.Assign) declArg {
	arg := declArg{name: a.Name.Value, add: a.Append, has: !a.Naked, text: a.Name.Value}
	if a.Index != nil {
		arg.elem, arg.index = true, a.Index
	}
	switch {
	case a.Array != nil:
		arg.isArray, arg.array = true, r.arrayElems(a.Array)
	case !a.Naked:
		arg.value = r.assignValue(a.Value)
		arg.text += "=" + arg.value
	}
	return arg
}

// textArg parses an argument that is the result of an expansion.
func textArg(word string) declArg {
	arg := declArg{text: word}
	eq := strings.IndexByte(word, '=')
	if open := strings.IndexByte(word, '['); open > 0 && (eq < 0 || open < eq) { // an = inside a subscript
		if end := skipSubscript(word, open); end > 0 {
			eq = strings.IndexByte(word[end:], '=')
			if eq >= 0 {
				eq += end
			}
		}
	}
	arg.name = word
	if eq >= 0 {
		arg.name, arg.value, arg.has = word[:eq], word[eq+1:], true
		if strings.HasSuffix(arg.name, "+") {
			arg.name, arg.add = arg.name[:len(arg.name)-1], true
		}
	}
	if base, sub, ok := cutSubscript(arg.name); ok {
		arg.name, arg.sub, arg.elem = base, sub, true
	}
	return arg
}

// biDeclare runs a declaration builtin where the parser does not recognize it, as in "command
// export x=1".
func biDeclare(c *call) int {
	d := declared{name: c.name}
	c.r.status = 0
	args := c.args
	for len(args) > 0 && len(args[0]) > 1 && (args[0][0] == '-' || args[0][0] == '+') {
		a := args[0]
		args = args[1:]
		if a == "--" {
			break
		}
		if !d.option(c.r, a) {
			return c.r.status
		}
	}
	list := make([]declArg, len(args))
	for i, a := range args {
		list[i] = textArg(a)
	}
	c.r.declareAll(d, list)
	return c.r.status
}

// option applies a bundle of option letters. It reports false when one of them is wrong.
func (d *declared) option(r *runner, word string) bool {
	on := setIt
	if word[0] == '+' {
		on = clearIt
	}
	letters := "aAfFgiIlnprtuxc"
	switch d.name {
	case "export":
		letters = "fnp"
	case "readonly":
		letters = "aAfp"
	}
	for i := 1; i < len(word); i++ {
		l := word[i]
		if strings.IndexByte(letters, l) < 0 {
			r.errorf("%s: %c%c: invalid option", d.name, word[0], l)
			r.errUsage(d.name)
			r.status = 2
			return false
		}
		switch l {
		case 'x':
			d.export = on
		case 'n':
			if d.name == "export" {
				d.export = clearIt
			} else {
				d.nameref = on
			}
		case 'r':
			d.readonly = on
		case 'i':
			d.integer = on
		case 't':
			d.trace = on
		case 'a':
			if on == clearIt {
				d.unindexed = true
			} else {
				d.indexed = true
			}
		case 'A':
			if on == clearIt {
				d.unindexed = true
			} else {
				d.assoc = true
			}
		case 'u':
			d.upper = on
			if on == setIt {
				d.lower, d.capital = clearIt, clearIt
			}
		case 'l':
			d.lower = on
			if on == setIt {
				d.upper, d.capital = clearIt, clearIt
			}
		case 'c':
			d.capital = on
			if on == setIt {
				d.upper, d.lower = clearIt, clearIt
			}
		case 'g':
			d.global = on == setIt
		case 'I':
			d.inherit = true
		case 'p':
			d.print = on == setIt
		case 'f':
			d.funcs = true
		case 'F':
			d.funcs, d.funcNames = true, true
		}
	}
	return true
}

func (r *runner) errUsage(name string) {
	if u := usages[name]; u != "" {
		r.writeErr(name + ": usage: " + u + "\n")
	}
}

// declareAll carries a declaration out.
func (r *runner) declareAll(d declared, args []declArg) {
	switch d.name {
	case "export":
		if d.export == keep {
			d.export = setIt
		}
	case "readonly":
		d.readonly = setIt
	case "local":
		if !r.inFunc() {
			r.errorf("local: can only be used in a function")
			r.status = 1
			return
		}
		d.local = true
	case "nameref":
		d.nameref = setIt
	default:
		d.local = r.inFunc() && !d.global
	}
	if d.global {
		d.local = false
	}
	if len(args) == 0 {
		r.printAll(d)
		return
	}
	status := 0
	for _, a := range args {
		switch {
		case d.funcs:
			if !r.declareFunc(d, a) {
				status = 1
			}
		case d.print && (d.name != "export" && d.name != "readonly"):
			if !r.printOne(d, a) {
				status = 1
			}
		case d.name == "local" && a.text == "-":
			sc := r.own(r.localScope())
			if sc.saved == nil {
				o := r.opts
				sc.saved = &o
			}
		case !r.declareOne(d, a):
			status = 1
		}
		if r.flow != flowNone {
			return
		}
	}
	r.status = status
}

// declareFunc prints a function or changes its attributes.
func (r *runner) declareFunc(d declared, a declArg) bool {
	f := r.funcs[a.name]
	if f == nil {
		if d.name == "export" || d.name == "readonly" {
			r.errorf("%s: %s: not a function", d.name, a.name)
		}
		return false
	}
	if d.export == keep && d.readonly == keep && d.trace == keep {
		switch {
		case d.funcNames && r.opts.extdebug:
			r.out(a.name + " " + strconv.Itoa(int(f.line)) + " " + f.file + "\n")
		case d.funcNames && d.print:
			r.out("declare -f " + a.name + "\n")
		case d.funcNames:
			r.out(a.name + "\n")
		default:
			r.out(r.functionText(a.name) + "\n")
		}
		return true
	}
	c := *f
	d.export.apply(&c.exported)
	d.trace.apply(&c.traced)
	if d.readonly == setIt {
		c.readonly = true
	}
	r.setFunc(a.name, &c)
	return true
}

// setFunc defines a function. Forks share the table of functions with their parent until one of
// them changes it.
func (r *runner) setFunc(name string, f *function) bool {
	if old := r.funcs[name]; old != nil && old.readonly && (f == nil || f.body != old.body) {
		r.errorf("%s: readonly function", name)
		return false
	}
	r.ownFuncs()
	if f == nil {
		delete(r.funcs, name)
	} else {
		r.funcs[name] = f
	}
	return true
}

func (r *runner) ownFuncs() {
	if r.funcsShared {
		m := make(map[string]*function, len(r.funcs)+1)
		for k, v := range r.funcs {
			m[k] = v
		}
		r.funcs, r.funcsShared = m, false
	}
}

// declareOne applies attributes and an assignment to one variable.
func (r *runner) declareOne(d declared, a declArg) bool {
	if !isName(a.name) {
		r.errorf("%s: `%s': not a valid identifier", d.name, a.text)
		return false
	}
	if a.elem && (d.name == "export" || d.name == "readonly") {
		if a.index != nil {
			a.text = a.name + "[" + arithString(a.index) + "]"
		} else {
			a.text = a.name + "[" + a.sub + "]"
		}
		r.errorf("%s: `%s': not a valid identifier", d.name, a.text)
		return false
	}
	v, name, ok := r.declTarget(d, a)
	if !ok {
		return false
	}
	if v == nil {
		return r.declareRef(d, a)
	}
	if v.readonly {
		if a.has || d.readonly == clearIt || d.integer != keep && d.name != "export" || d.assoc && v.assoc == nil || d.indexed && v.arr == nil {
			r.errorf("%s%s: readonly variable", declPrefix(d.name), name)
			return false
		}
	}
	switch {
	case d.assoc && v.arr != nil:
		r.errorf("%s: %s: cannot convert indexed to associative array", d.name, name)
		return false
	case d.indexed && v.assoc != nil:
		r.errorf("%s: %s: cannot convert associative to indexed array", d.name, name)
		return false
	case d.unindexed && v.isArray():
		r.errorf("%s: %s: cannot destroy array variables in this way", d.name, name)
		return false
	}
	d.integer.apply(&v.integer)
	d.upper.apply(&v.upper)
	d.lower.apply(&v.lower)
	d.capital.apply(&v.capital)
	d.trace.apply(&v.trace)
	if d.name == "readonly" && !a.has && !v.set && !v.isArray() {
		d.assoc, d.indexed = false, false // bash makes no array here
	}
	if d.assoc && v.assoc == nil {
		v.assoc = newAssoc()
		if v.set {
			v.assoc.put("0", v.str)
			v.str = ""
		}
	}
	if d.indexed && !v.isArray() {
		v.toArray()
	}
	if a.elem && !v.isArray() {
		v.toArray()
		if !a.has {
			v.set = false
		}
	}
	if a.has && !r.declareValue(d, a, name, v) {
		return false
	}
	d.export.apply(&v.exported)
	if d.readonly == setIt {
		v.readonly = true
	}
	if a.has && r.opts.allexport {
		v.exported = true
	}
	r.assigned(name)
	return true
}

func declPrefix(name string) string {
	if name == "export" || name == "readonly" {
		return ""
	}
	return name + ": "
}

// declareValue performs a declaration's assignment.
func (r *runner) declareValue(d declared, a declArg, name string, v *variable) bool {
	switch {
	case a.isArray:
		if a.elem {
			r.errorf("%s[%s]: cannot assign list to array member", name, a.sub)
			return false
		}
		return r.fillArray(name, v, a.array, a.add)
	case a.elem:
		sub := a.sub
		if a.index != nil {
			if v.assoc != nil {
				sub = r.indexText(a.index)
			} else {
				s, ok := r.arithSource(a.index, false)
				if !ok {
					return false
				}
				sub = s
			}
		} else if v.assoc != nil {
			sub = r.expandSubscript(sub)
		}
		return r.storeElem(name, v, sub, a.value, a.add)
	case v.isArray() || d.indexed || d.assoc:
		if elems, ok := r.textElems(a.value); ok {
			return r.fillArray(name, v, elems, a.add)
		}
	}
	return r.store(name, v, a.value, a.add)
}

// declTarget finds or makes the variable of a declaration. A nil variable without an error means
// that the declaration is about a name reference.
func (r *runner) declTarget(d declared, a declArg) (*variable, string, bool) {
	at := 0
	if d.local {
		at = r.localScope()
		for i := len(r.scopes) - 1; i > at; i-- { // an assignment before eval
			if r.scopes[i].get(a.name) != nil {
				at = i
				break
			}
		}
	}
	if d.nameref == setIt && (d.assoc || d.indexed) && a.has && !a.isArray && r.lookupRaw(a.name) == nil {
		return r.place(at, a.name, &variable{}), a.name, true // an array it is
	}
	if d.nameref != keep {
		return nil, a.name, true
	}
	if d.local || d.global {
		old := r.scopes[at].get(a.name)
		if old != nil && !(old.nameref && old.str != "") {
			return r.mutable(a.name, at), a.name, true
		}
		if old != nil { // a reference: what it leads to
			p := r.resolve(a.name)
			if p.elem {
				r.errorf("%s: `%s': not a valid identifier", d.name, old.str)
				return nil, "", false
			}
			if p.v == nil {
				if !isName(p.name) {
					r.errorf("`%s': not a valid identifier", p.name)
					return nil, "", false
				}
				return r.place(at, p.name, &variable{}), p.name, true
			}
			return r.mutable(p.name, p.at), p.name, true
		}
		if d.local {
			return r.newLocal(d, a, at)
		}
		if handled, _ := r.special(a.name, a.value); handled && a.has {
			return &variable{}, a.name, true
		}
		return r.place(at, a.name, r.fromDynamic(a.name)), a.name, true
	}
	p := r.resolve(a.name)
	switch {
	case p.elem && !a.has && (d.name == "export" || d.name == "readonly"):
		return &variable{}, p.name, true
	case p.elem && !a.has && p.v != nil:
		return r.mutable(p.name, p.at), p.name, true
	case p.elem:
		r.errorf("%s: `%s[%s]': not a valid identifier", d.name, p.name, p.sub)
		return nil, "", false
	}
	if p.bad {
		return nil, "", false
	}
	if p.v == nil && a.has && !a.isArray && !a.elem {
		if handled, ok := r.special(p.name, a.value); handled {
			return &variable{}, p.name, ok
		}
	}
	if p.v == nil {
		return r.place(0, p.name, r.fromDynamic(p.name)), p.name, true
	}
	return r.mutable(p.name, p.at), p.name, true
}

// fromDynamic returns a new variable with the value that the shell computed for it.
func (r *runner) fromDynamic(name string) *variable {
	if d := r.dynamic(name); d != nil {
		return d
	}
	return &variable{}
}

// newLocal makes a local variable.
func (r *runner) newLocal(d declared, a declArg, at int) (*variable, string, bool) {
	outer, from := r.find(a.name)
	if outer != nil && outer.readonly && (from == 0 || outer.readonly) {
		r.errorf("%s: %s: readonly variable", d.name, a.name)
		return nil, "", false
	}
	v := &variable{}
	if outer != nil {
		v.exported = outer.exported
	}
	switch {
	case outer == nil:
	case d.inherit || r.shopted("localvar_inherit"):
		v = outer.copy()
		v.nameref = false
		v.own()
	case from > at || from > 0 && !r.scopes[from].fn && from == at-1: // an assignment before the call
		v = outer.copy()
	}
	if r.opts.allexport && a.has {
		v.exported = true
	}
	return r.place(at, a.name, v), a.name, true
}

// declareRef makes a variable a name reference, or makes a reference an ordinary variable.
func (r *runner) declareRef(d declared, a declArg) bool {
	at := 0
	if d.local {
		at = r.localScope()
	}
	v := r.scopes[at].get(a.name)
	if v == nil && !d.local {
		if _, from := r.find(a.name); from >= 0 && !d.global {
			at, v = from, r.scopes[from].get(a.name)
		}
	}
	if d.nameref == clearIt {
		if v != nil && v.nameref {
			r.mutable(a.name, at).nameref = false
		}
		if a.has {
			d.nameref = keep
			return r.declareOne(d, a)
		}
		return true
	}
	if v != nil && v.readonly {
		r.errorf("%s: %s: readonly variable", d.name, a.name)
		return false
	}
	if v != nil && v.isArray() || d.indexed || d.assoc || a.isArray || a.elem {
		if a.elem || a.isArray && v == nil {
			r.errorf("%s: %s: reference variable cannot be an array", d.name, a.text)
		} else {
			r.errorf("%s: %s: reference variable cannot be an array", d.name, a.name)
		}
		return false
	}
	value := a.value
	if !a.has && v != nil && v.set {
		value = v.str
	}
	if a.has || value != "" {
		base, _, elem := cutSubscript(value)
		switch {
		case value == "" && !a.has:
		case !isName(value) && !elem:
			r.errorf("%s: `%s': invalid variable name for name reference", d.name, value)
			return false
		case value == a.name && at == 0 && a.has, elem && base == a.name && at == 0:
			r.errorf("%s: %s: nameref variable self references not allowed", d.name, a.name)
			return false
		case value == a.name:
			r.errorf("warning: %s: circular name reference", a.name)
		}
	}
	if v == nil {
		v = r.place(at, a.name, &variable{})
	} else {
		v = r.mutable(a.name, at)
	}
	v.nameref = true
	if a.has {
		if a.add {
			value = v.str + value
		}
		v.str, v.set = value, true
	}
	d.export.apply(&v.exported)
	if d.readonly == setIt {
		v.readonly = true
	}
	return true
}

// traceDecl prints a declaration under set -x.
func (r *runner) traceDecl(c *syntax.DeclClause, args []declArg) {
	if !r.opts.xtrace {
		return
	}
	words := []string{c.Variant.Value}
	for _, a := range c.Args {
		if a.Name == nil {
			words = append(words, wordText(a.Value))
		}
	}
	for _, a := range args {
		switch {
		case a.isArray:
		case a.has:
			words = append(words, a.name+"="+quoteTrace(a.value))
		default:
			words = append(words, a.text)
		}
	}
	r.writeTrace(strings.Join(words, " "))
}

// out prints on standard output.
func (r *runner) out(s string) { _ = r.writeFD(1, []byte(s)) }

// printAll lists variables, or functions.
func (r *runner) printAll(d declared) {
	if d.funcs {
		for _, name := range sortedFuncs(r.funcs) {
			f := r.funcs[name]
			if d.export == setIt && !f.exported || d.readonly == setIt && !f.readonly {
				continue
			}
			if d.funcNames {
				flags := "-f"
				if f.readonly {
					flags += "r"
				}
				if f.traced {
					flags += "t"
				}
				if f.exported {
					flags += "x"
				}
				r.out("declare " + flags + " " + name + "\n")
				continue
			}
			r.out(r.functionText(name) + "\n")
		}
		return
	}
	want := func(v *variable) bool {
		switch {
		case d.export == setIt && !v.exported, d.readonly == setIt && !v.readonly, d.integer == setIt && !v.integer,
			d.nameref == setIt && !v.nameref, d.upper == setIt && !v.upper, d.lower == setIt && !v.lower, d.trace == setIt && !v.trace,
			d.indexed && v.arr == nil, d.assoc && v.assoc == nil:
			return false
		}
		return true
	}
	plain := !d.print && d.export == keep && d.readonly == keep && d.integer == keep && d.nameref == keep && d.upper == keep && d.lower == keep &&
		d.trace == keep && !d.indexed && !d.assoc
	if d.name == "local" {
		r.printLocals(want)
		return
	}
	if plain && d.name != "export" && d.name != "readonly" {
		r.listSet()
		return
	}
	for _, name := range r.namesWhere("", want) {
		v := r.lookupRaw(name)
		if v == nil {
			v = r.dynamic(name)
		}
		if v != nil {
			r.out("declare " + v.flags() + " " + name + v.literal() + "\n")
		}
	}
}

func (r *runner) printLocals(want func(*variable) bool) {
	sc := r.scopes[r.localScope()]
	var lines []string
	sc.each(func(name string, v *variable) {
		if want(v) {
			lines = append(lines, "declare "+v.flags()+" "+name+v.literal()+"\n")
		}
	})
	slices.Sort(lines)
	r.out(strings.Join(lines, ""))
}

// listSet lists the variables that are set, and the functions, as set does.
func (r *runner) listSet() {
	var b strings.Builder
	for _, n := range r.names("") {
		v := r.lookupRaw(n)
		if v == nil {
			v = r.dynamic(n)
		}
		switch {
		case v == nil:
		case v.isArray():
			b.WriteString(n + "=" + v.compound() + "\n")
		default:
			b.WriteString(n + "=" + quoteSet(v.str) + "\n")
		}
	}
	for _, name := range sortedFuncs(r.funcs) {
		b.WriteString(r.functionText(name) + "\n")
	}
	r.out(b.String())
}

func sortedFuncs(m map[string]*function) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// printOne prints one variable in a form that the shell can read.
func (r *runner) printOne(d declared, a declArg) bool {
	v := r.lookupRaw(a.name)
	if v == nil {
		v = r.dynamic(a.name)
	}
	if v == nil || a.elem || a.has || d.local && d.name == "local" && r.scopes[r.localScope()].get(a.name) == nil {
		r.errorf("%s: %s: not found", d.name, a.text)
		return false
	}
	r.out("declare " + v.flags() + " " + a.name + v.literal() + "\n")
	return true
}

// usages are the usage lines that are printed after a wrong option.
var usages = map[string]string{
	"declare":  "declare [-aAfFgiIlnrtux] [name[=value] ...] or declare -p [-aAfFilnrtux] [name ...]",
	"typeset":  "typeset [-aAfFgiIlnrtux] name[=value] ... or typeset -p [-aAfFilnrtux] [name ...]",
	"local":    "local [option] name[=value] ...",
	"export":   "export [-fn] [name[=value] ...] or export -p",
	"readonly": "readonly [-aAf] [name[=value] ...] or readonly -p",
	"unset":    "unset [-f] [-v] [-n] [name ...]",
	"printf":   "printf [-v var] format [arguments]",
	"getopts":  "getopts optstring name [arg ...]",
	"type":     "type [-afptP] name [name ...]",
	"command":  "command [-pVv] command [arg ...]",
	"hash":     "hash [-lr] [-p pathname] [-dt] [name ...]",
	"mapfile":  "mapfile [-d delim] [-n count] [-O origin] [-s count] [-t] [-u fd] [-C callback] [-c quantum] [array]",
	"caller":   "caller [expr]",
	"help":     "help [-dms] [pattern ...]",
	"jobs":     "jobs [-lnprs] [jobspec ...] or jobs -x command [args]",
	"echo":     "echo [-neE] [arg ...]",
	"eval":     "eval [arg ...]",
	"pwd":      "pwd [-LP]",
	"cd":       "cd [-L|[-P [-e]] [-@]] [dir]",
	"pushd":    "pushd [-n] [+N | -N | dir]",
	"history":  "history [-c] [-d offset] [n] or history -anrw [filename] or history -ps arg [arg...]",
	"fc":       "fc [-e ename] [-lnr] [first] [last] or fc -s [pat=rep] [command]",
	"bind":     "bind [-lpsvPSVX] [-m keymap] [-f filename] [-q name] [-u name] [-r keyseq] [-x keyseq:shell-command] [keyseq:readline-function or readline-command]",
	"complete": "complete [-abcdefgjksuv] [-pr] [-DEI] [-o option] [-A action] [-G globpat] [-W wordlist] [-F function] [-C command] [-X filterpat] [-P prefix] [-S suffix] [name ...]",
	"compgen":  "compgen [-abcdefgjksuv] [-o option] [-A action] [-G globpat] [-W wordlist] [-F function] [-C command] [-X filterpat] [-P prefix] [-S suffix] [word]",
}

// declLast sets $_ after a declaration.
func (r *runner) declLast(c *syntax.DeclClause, args []declArg) {
	switch n := len(c.Args); {
	case len(args) > 0:
		a := args[len(args)-1]
		if r.lastArg = a.text; a.isArray {
			r.lastArg = a.name
		}
	case n > 0 && c.Args[n-1].Value != nil:
		r.lastArg = wordText(c.Args[n-1].Value)
	default:
		r.lastArg = c.Variant.Value
	}
}
