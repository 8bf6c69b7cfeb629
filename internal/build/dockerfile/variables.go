package dockerfile

import (
	"slices"

	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/build/plan"
)

// proxyArgs are arguments that every RUN may get without an ARG, as in Docker.
var proxyArgs = []string{
	"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "FTP_PROXY", "ftp_proxy",
	"NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy",
}

// variables are names and values in the order in which they were first set.
type variables struct {
	names  []string
	values map[string]string
}

func newVariables() *variables { return &variables{values: map[string]string{}} }

func (v *variables) set(name, value string) {
	if _, ok := v.values[name]; !ok {
		v.names = append(v.names, name)
	}
	v.values[name] = value
}

// unset forgets a name.
func (v *variables) unset(name string) {
	if _, ok := v.values[name]; ok {
		delete(v.values, name)
		v.names = slices.DeleteFunc(v.names, func(n string) bool { return n == name })
	}
}

// Get returns a value. It is part of BuildKit's interface of an environment.
func (v *variables) Get(name string) (string, bool) {
	value, ok := v.values[name]
	return value, ok
}

// Keys returns the names. It is part of BuildKit's interface of an environment.
func (v *variables) Keys() []string { return v.names }

// scope is what words of a stage see: ENV first, then ARG.
type scope struct{ env, args *variables }

// Get returns a value.
func (s scope) Get(name string) (string, bool) {
	if value, ok := s.env.Get(name); ok {
		return value, true
	}
	return s.args.Get(name)
}

// Keys returns the names.
func (s scope) Keys() []string { return append(slices.Clone(s.env.names), s.args.names...) }

// list returns the variables for a configuration.
func (v *variables) list() []plan.Variable {
	var all []plan.Variable
	for _, name := range v.names {
		all = append(all, plan.Variable{Name: name, Value: v.values[name]})
	}
	return all
}

// variablesOf reads those of a configuration. The later of two wins.
func variablesOf(list []plan.Variable) *variables {
	v := newVariables()
	for _, x := range list {
		v.set(x.Name, x.Value)
	}
	return v
}

// expandWord fills in the variables of one word.
func expandWord(lex *shell.Lex, word string, env shell.EnvGetter, line int) (string, error) {
	out, _, err := lex.ProcessWord(word, env)
	if err != nil {
		return "", lineError(carrel.Invalid, line, "%v", err)
	}
	if len(out) > maxWordBytes {
		return "", lineError(carrel.Exhausted, line,
			"a word is longer than %d bytes once its variables are filled in", maxWordBytes)
	}
	return out, nil
}
