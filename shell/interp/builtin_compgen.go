package interp

import (
	"maps"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// completion is one setting of complete for a command.
type completion struct{ name, text string }

// generator is one run of compgen.
type generator struct {
	actions                                     []string
	words, glob, fn, filter, prefix, suffix     string
	cmd                                         string
	options                                     []string // of -o
	hasWords, hasFilter, hasGlob, hasFn, hasCmd bool
}

// actionLetters are the actions with a letter.
var actionLetters = map[byte]string{'a': "alias", 'b': "builtin", 'c': "command", 'd': "directory", 'e': "export", 'f': "file", 'g': "group",
	'j': "job", 'k': "keyword", 's': "service", 'u': "user", 'v': "variable"}

var actionNames = []string{"alias", "arrayvar", "binding", "builtin", "command", "directory", "disabled", "enabled", "export", "file", "function",
	"group", "helptopic", "hostname", "job", "keyword", "running", "service", "setopt", "shopt", "signal", "stopped", "user", "variable"}

func (g *generator) option(l byte, v string) {
	switch l {
	case 'A':
		g.actions = append(g.actions, v)
	case 'W':
		g.words, g.hasWords = v, true
	case 'G':
		g.glob, g.hasGlob = v, true
	case 'F':
		g.fn, g.hasFn = v, true
	case 'C':
		g.cmd, g.hasCmd = v, true
	case 'o':
		g.options = append(g.options, v)
	case 'X':
		g.filter, g.hasFilter = v, true
	case 'P':
		g.prefix = v
	case 'S':
		g.suffix = v
	default:
		if a := actionLetters[l]; a != "" {
			g.actions = append(g.actions, a)
		}
	}
}

func biCompgen(c *call) int {
	var g generator
	args, ok := c.letters("abcdefgjksuvA:C:F:G:o:P:S:V:W:X:", g.option)
	if !ok {
		return 2
	}
	for _, a := range g.actions {
		if !slices.Contains(actionNames, a) {
			return c.fail(2, "%s: invalid action name", a)
		}
	}
	word := ""
	if len(args) > 0 {
		word = args[0]
	}
	found := c.r.complete(&g, word)
	if len(found) == 0 {
		return 1
	}
	var b strings.Builder
	for _, f := range found {
		b.WriteString(f + "\n")
	}
	return c.print(b.String())
}

// complete lists the completions of a word.
func (r *runner) complete(g *generator, word string) []string {
	var found []string
	for _, a := range g.actions {
		found = append(found, r.completeAction(a, word)...)
	}
	if g.hasGlob {
		found = append(found, r.glob(g.glob)...)
	}
	if g.hasWords {
		ps := r.pieces(nil, r.parsedWord(hideSyntax(g.words)), false, false)
		for i := range ps {
			if ps[i].kind == literal {
				ps[i] = piece{expanded, showSyntax(ps[i].s)}
			}
		}
		noglob := r.opts.noglob
		r.opts.noglob = true
		for _, w := range r.split(nil, ps) {
			if strings.HasPrefix(w, word) {
				found = append(found, w)
			}
		}
		r.opts.noglob = noglob
	}
	if g.hasFn {
		if f := r.funcs[g.fn]; f != nil {
			r.errorf("compgen: warning: -F option may not work as you expect")
			r.unset("COMPREPLY")
			for name, value := range map[string]string{"COMP_CWORD": "-1", "COMP_LINE": "", "COMP_POINT": "0", "COMP_KEY": "0", "COMP_TYPE": "0"} {
				r.set(name, value)
			}
			r.target("COMP_WORDS").setArray(nil)
			r.function(g.fn, f, []string{"compgen", word, ""})
			found = append(found, r.lookup("COMPREPLY").list()...)
		}
	}
	if g.hasCmd {
		r.errorf("compgen: warning: -C option may not work as you expect")
		if stmts, err := parse(g.cmd + " compgen " + quoteAlways(word) + " ''"); err == nil {
			for line := range strings.SplitSeq(r.substitute(stmts), "\n") {
				if line != "" {
					found = append(found, line)
				}
			}
		}
	}
	if g.hasFilter {
		pat, keep := g.filter, false
		if strings.HasPrefix(pat, "!") {
			pat, keep = pat[1:], true
		}
		pat = strings.ReplaceAll(pat, "&", escapePattern(word))
		found = slices.DeleteFunc(found, func(s string) bool { return r.match(pat, s) != keep })
	}
	if g.prefix != "" || g.suffix != "" {
		for i, f := range found {
			found[i] = g.prefix + f + g.suffix
		}
	}
	if len(found) == 0 && (slices.Contains(g.options, "default")) {
		found = r.completeFile(word, false)
	}
	if len(found) == 0 && slices.Contains(g.options, "dirnames") || slices.Contains(g.options, "plusdirs") {
		found = append(found, r.completeFile(word, true)...)
	}
	return found
}

func (r *runner) completeAction(action, word string) []string {
	var all []string
	switch action {
	case "alias":
		all = slices.Sorted(maps.Keys(r.aliases))
	case "arrayvar":
		all = r.namesWhere(word, func(v *variable) bool { return v.isArray() })
	case "builtin", "enabled", "helptopic":
		for n := range r.m.builtins {
			all = append(all, n)
		}
	case "keyword":
		all = strings.Fields(keywords)
		return withPrefix(all, word)
	case "command":
		return r.completeCommand(word)
	case "directory", "file":
		return r.completeFile(word, action == "directory")
	case "export":
		all = r.namesWhere(word, func(v *variable) bool { return v.exported && v.set })
	case "function":
		all = sortedFuncs(r.funcs)
	case "setopt":
		all = optionNames(setTable)
	case "shopt":
		all = optionNames(shoptTable)
	case "signal":
		for _, n := range signalOrder() {
			all = append(all, "SIG"+signalNames[n])
		}
		return withPrefix(all, word)
	case "user":
		for _, a := range r.m.Accounts() {
			all = append(all, a.Name)
		}
		return withPrefix(all, word)
	case "variable":
		all = r.names(word)
	}
	all = withPrefix(all, word)
	slices.Sort(all)
	return all
}

func signalOrder() []int {
	nums := make([]int, 0, len(signalNames))
	for n := range signalNames {
		nums = append(nums, n)
	}
	slices.Sort(nums)
	return nums
}

func withPrefix(all []string, word string) []string {
	var out []string
	for _, s := range all {
		if strings.HasPrefix(s, word) {
			out = append(out, s)
		}
	}
	return out
}

func (r *runner) completeCommand(word string) []string {
	all := append(r.completeAction("alias", word), withPrefix(strings.Fields(keywords), word)...)
	all = append(all, r.completeAction("function", word)...)
	all = append(all, r.completeAction("builtin", word)...)
	for dir := range strings.SplitSeq(r.str("PATH"), ":") {
		entries, err := r.view.ReadDir(r.abs(dir))
		if err != nil || !r.step() {
			continue
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name, word) && !e.Mode.IsDir() && r.view.Access(r.abs(dir)+"/"+e.Name, vfs.MayExec) == nil {
				all = append(all, e.Name)
			}
		}
	}
	return all
}

func (r *runner) completeFile(word string, dirs bool) []string {
	base, name := "", word
	if at := strings.LastIndexByte(word, '/'); at >= 0 {
		base, name = word[:at+1], word[at+1:]
	}
	dir := base
	if strings.HasPrefix(base, "~") {
		if home, rest, ok := r.tilde(base, true, false); ok {
			dir = home + rest
		}
	}
	if dir == "" {
		dir = "."
	}
	entries, err := r.view.ReadDir(r.abs(dir))
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name, name) || e.Name == "." || e.Name == ".." {
			continue
		}
		if dirs {
			if i, err := r.view.Stat(r.abs(base + e.Name)); err != nil || !i.Mode.IsDir() {
				continue
			}
		}
		out = append(out, base+e.Name)
	}
	return out
}

// biComplete stores its settings. This shell does not use them when a person types.
func biComplete(c *call) int {
	var print, remove bool
	var g generator
	var words []string
	args, ok := c.letters("abcdefgjksuvprDEIA:C:F:G:o:P:S:V:W:X:", func(l byte, v string) {
		switch l {
		case 'p':
			print = true
		case 'r':
			remove = true
		case 'D', 'E', 'I':
			words = append(words, "-"+string(l))
		default:
			g.option(l, v)
			if l == 'A' {
				for letter, action := range actionLetters {
					if action == v {
						l, v = letter, ""
					}
				}
			}
			words = append(words, "-"+string(l))
			if strings.IndexByte("CGPSWX", l) >= 0 {
				words = append(words, quoteSingle(v))
				return
			}
			if v != "" || strings.IndexByte("ACFGoPSVWX", l) >= 0 {
				words = append(words, quoteTrace(v))
			}
		}
	})
	if !ok {
		return 2
	}
	for _, a := range g.actions {
		if !slices.Contains(actionNames, a) {
			return c.fail(2, "%s: invalid action name", a)
		}
	}
	r := c.r
	switch {
	case remove && len(args) == 0:
		r.completions = nil
	case remove:
		r.completions = slices.DeleteFunc(slices.Clone(r.completions), func(k completion) bool { return slices.Contains(args, k.name) })
	case print || len(args) == 0 && len(words) == 0:
		status := 0
		for _, a := range args {
			if !slices.ContainsFunc(r.completions, func(k completion) bool { return k.name == a }) {
				status = c.fail(1, "%s: no completion specification", a)
			}
		}
		for _, k := range r.completions {
			if len(args) == 0 || slices.Contains(args, k.name) {
				c.print(k.text + "\n")
			}
		}
		return status
	case len(args) == 0 && !slices.ContainsFunc(words, func(w string) bool { return w == "-D" || w == "-E" || w == "-I" }):
		c.r.errUsage("complete")
		return 2
	default:
		list := slices.DeleteFunc(slices.Clone(r.completions), func(k completion) bool { return slices.Contains(args, k.name) })
		for _, a := range args {
			list = append(list, completion{a, strings.Join(append(append([]string{"complete"}, words...), a), " ")})
		}
		r.completions = list
	}
	return 0
}

func biCompopt(c *call) int {
	wrong := ""
	args, ok := c.letters("o:DEI", func(l byte, v string) {
		if l == 'o' && !slices.Contains(completeOptions, v) {
			wrong = v
		}
	})
	if !ok {
		return 2
	}
	if wrong != "" {
		return c.fail(2, "%s: invalid option name", wrong)
	}
	if len(args) > 0 {
		status := 0
		for _, a := range args {
			if !slices.ContainsFunc(c.r.completions, func(k completion) bool { return k.name == a }) {
				status = c.fail(1, "%s: no completion specification", a)
			}
		}
		return status
	}
	return c.fail(1, "not currently executing completion function")
}

// completeOptions are the names that -o accepts.
var completeOptions = []string{"bashdefault", "default", "dirnames", "filenames", "noquote", "nosort", "nospace", "plusdirs"}
