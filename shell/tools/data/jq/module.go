package jq

import (
	"errors"
	"fmt"
	"io"
	filepath "path"
	"slices"
	"strings"

	"github.com/itchyny/gojq"
)

// module is a file of definitions, or the program itself, with its imports.
type module struct {
	dir  string          // search paths are relative to it
	defs map[string]*def // by name/arity, imported ones by alias::name/arity
	vars map[string]any  // imported data, by $name and $name::name
	own  []string        // names of its own definitions
}

func newModule(dir string) *module {
	return &module{dir: dir, defs: map[string]*def{}, vars: map[string]any{}}
}

const maxModules = 100

// home includes ~/.jq if that is a file.
func (c *compiler) home() error {
	if c.m.opts.Load == nil || c.m.opts.Home == "" {
		return nil
	}
	file := filepath.Join(c.m.opts.Home, ".jq")
	text, err := c.m.opts.Load(file)
	if err != nil {
		return nil // it is missing, or a directory
	}
	m, err := c.parseModule(file, text)
	if err == nil {
		c.mod.take(m, "")
	}
	return err
}

// take adds another module's definitions, with a prefix if there is an alias.
func (m *module) take(from *module, alias string) {
	if alias != "" {
		alias += "::"
	}
	for _, name := range from.own {
		m.defs[alias+name] = from.defs[name]
	}
}

// imports loads a module's imports in order.
func (c *compiler) imports(into *module, list []*gojq.Import) error {
	for _, i := range list {
		data := strings.HasPrefix(i.ImportAlias, "$")
		name := i.ImportPath
		if name == "" {
			name = i.IncludePath
		}
		file, text, err := c.find(into, name, i.Meta, data)
		if err != nil {
			return err
		}
		if data {
			list, err := c.m.all(text)
			if err != nil {
				return compileErrorf("%s: %v", file, err)
			}
			into.vars[i.ImportAlias] = list
			into.vars[i.ImportAlias+"::"+i.ImportAlias[1:]] = list
			continue
		}
		m, err := c.parseModule(file, text)
		if err != nil {
			return err
		}
		into.take(m, i.ImportAlias)
	}
	return nil
}

// all reads all values of a text.
func (m *vm) all(text string) ([]any, error) {
	out := []any{}
	d := NewDecoder(strings.NewReader(text), m.Budget)
	for {
		v, err := d.Next()
		switch {
		case err == nil:
			out = append(out, v)
		case errors.Is(err, io.EOF):
			return out, m.value(out)
		default:
			return nil, err
		}
	}
}

// find returns a module's file: NAME.jq or NAME/NAME.jq, with .json for data.
func (c *compiler) find(into *module, name string, meta *gojq.ConstObject, data bool) (file, text string, err error) {
	o := c.m.opts
	if o.Load == nil {
		return "", "", &CompileError{"modules are not supported here"}
	}
	if slices.Contains(strings.Split(name, "/"), "..") {
		return "", "", compileErrorf("invalid module path: Relative paths to modules may not traverse to parent directories (%s)", name)
	}
	dirs := o.Paths
	if meta != nil {
		s, _ := constObject(meta).Get("search")
		switch s := s.(type) {
		case string:
			dirs = []string{s}
		case []any:
			dirs = nil
			for _, d := range s {
				if d, ok := d.(string); ok {
					dirs = append(dirs, d)
				}
			}
		}
	}
	ext := ".jq"
	if data {
		ext = ".json"
	}
	for _, d := range dirs {
		switch {
		case d == "~" || strings.HasPrefix(d, "~/"):
			d = o.Home + d[1:]
		case !filepath.IsAbs(d):
			base := "."
			if meta != nil && into.dir != "" {
				base = into.dir
			}
			d = filepath.Join(base, d)
		}
		for _, f := range []string{name + ext, name + "/" + filepath.Base(name) + ext} {
			file = filepath.Join(d, f)
			if err := c.m.step(4); err != nil {
				return "", "", err
			}
			if text, err := o.Load(file); err == nil {
				return file, text, nil
			}
		}
	}
	return "", "", compileErrorf("module not found: %s\n", name)
}

// parseModule compiles the definitions of a file. It does so once per file.
func (c *compiler) parseModule(file, text string) (*module, error) {
	if m := c.loaded[file]; m != nil {
		return m, nil
	}
	if len(c.loaded) >= maxModules {
		return nil, &CompileError{"too many modules"}
	}
	if len(text) > maxSource {
		return nil, compileErrorf("%s is too long", file)
	}
	q, err := gojq.Parse(text + "\n.")
	if err != nil {
		return nil, compileErrorf("syntax error: %v in %s", err, file)
	}
	m := newModule(filepath.Dir(file))
	c.loaded[file] = m // a module that imports itself gets its definitions so far
	if err := c.imports(m, q.Imports); err != nil {
		return nil, err
	}
	defer func(m *module) { c.mod = m }(c.mod)
	c.mod = m
	for _, src := range q.FuncDefs {
		d := &def{src: src}
		d.in = &scope{nil, src.Name, len(src.Args), d}
		if err := c.body(d); err != nil {
			return nil, err
		}
		name := fmt.Sprintf("%s/%d", src.Name, len(src.Args))
		m.defs[name] = d
		if !slices.Contains(m.own, name) {
			m.own = append(m.own, name)
		}
	}
	return m, nil
}

// moduleMeta is modulemeta: a module's metadata, imports and definitions.
func (m *vm) moduleMeta(v any, _ []any) (any, error) {
	name, ok := v.(string)
	if !ok {
		return nil, errorf("modulemeta input module name must be a string")
	}
	c := &compiler{m: m}
	_, text, err := c.find(newModule("."), name, nil, false)
	if err != nil {
		return nil, errorf("%s", err.Error())
	}
	q, err := gojq.Parse(text + "\n.")
	if err != nil {
		return nil, errorf("syntax error: %v", err)
	}
	out := constObject(q.Meta)
	deps, defs := []any{}, []any{}
	for _, i := range q.Imports {
		d := constObject(i.Meta)
		if i.ImportAlias != "" {
			d.Set("as", strings.TrimPrefix(i.ImportAlias, "$"))
		}
		d.Set("is_data", strings.HasPrefix(i.ImportAlias, "$"))
		d.Set("relpath", i.ImportPath+i.IncludePath)
		deps = append(deps, d)
	}
	for _, d := range q.FuncDefs {
		if name := fmt.Sprintf("%s/%d", d.Name, len(d.Args)); !slices.Contains(defs, any(name)) {
			defs = append(defs, name)
		}
	}
	out.Set("deps", deps)
	out.Set("defs", defs)
	return out, m.value(out)
}

// constObject converts an object of the syntax tree, with its keys in source order.
func constObject(o *gojq.ConstObject) *Object {
	if o == nil {
		return NewObject(4)
	}
	out := NewObject(len(o.KeyVals))
	for _, kv := range o.KeyVals {
		out.Set(kv.Key+kv.KeyString, constTerm(kv.Val))
	}
	return out
}

func constTerm(t *gojq.ConstTerm) any {
	switch {
	case t.Object != nil:
		return constObject(t.Object)
	case t.Array != nil:
		out := []any{}
		for _, x := range t.Array.Elems {
			out = append(out, constTerm(x))
		}
		return out
	case t.Number != "":
		n, _ := parseNumber(t.Number)
		return n
	case t.Null:
		return nil
	case t.True:
		return true
	case t.False:
		return false
	}
	return t.Str
}

// syntaxError returns the error for a program that can't be parsed. It has special messages for
// unexpected tokens in a module's header.
func syntaxError(src string, err error) error {
	rest := strings.TrimSpace(src)
	word := rest
	if i := strings.IndexAny(rest, " \t\n\"({["); i >= 0 {
		word, rest = rest[:i], strings.TrimSpace(rest[i:])
	}
	switch word {
	case "import", "include":
		switch {
		case strings.HasPrefix(rest, `"\(`):
			return &CompileError{"Import path must be constant"}
		case strings.HasPrefix(rest, `"\`):
			s := rest[:max(strings.IndexByte(rest[1:], '"')+2, 2)]
			return compileErrorf("Invalid escape at line 1, column %d (while parsing '%s')", len(s), s)
		case strings.HasPrefix(rest, `"`):
			rest = strings.TrimSpace(rest[strings.IndexByte(rest[1:], '"')+2:])
		}
		fallthrough
	case "module":
		switch {
		case rest == "" || rest[0] == '{' || rest[0] == ';':
		case strings.IndexByte(`["-0123456789ntf`, rest[0]) >= 0:
			return &CompileError{"Module metadata must be an object"}
		default:
			return &CompileError{"Module metadata must be constant"}
		}
	}
	return &CompileError{"syntax error: " + err.Error()}
}

// builtins lists the functions that can be called without a definition.
func builtins(m *vm, _ any, _ []any) (any, error) {
	out := []any{}
	add := func(name string) {
		if name[0] != '_' {
			out = append(out, name)
		}
	}
	for name := range m.natives {
		add(name)
	}
	for name := range library() {
		add(name)
	}
	for name, build := range specials {
		for n := range 4 {
			if build(&vm{}, n, nil) != nil {
				add(fmt.Sprintf("%s/%d", name, n))
			}
		}
	}
	slices.SortFunc(out, Compare)
	return slices.CompactFunc(out, func(a, b any) bool { return a == b }), nil
}
