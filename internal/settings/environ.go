package settings

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// checkEnv refuses names that no environment can hold, and a name that is both passed and stripped.
func checkEnv(name string, e EnvRules) error {
	for _, list := range []struct {
		key   string
		names []string
	}{{"env.pass", e.Pass}, {"env.strip", e.Strip}, {"env.set", slices.Sorted(maps.Keys(e.Set))}} {
		for i, n := range list.names {
			at := fmt.Sprintf("%s: %s[%d]", name, list.key, i)
			if list.key == "env.set" {
				at = name + ": env.set." + show(n)
			}
			switch {
			case n == "" || strings.ContainsAny(n, "=\x00") || list.key == "env.set" && strings.Contains(n, "*"):
				return invalid(at, "", "%s is no name of a variable", show(n))
			case list.key == "env.set" && strings.IndexByte(e.Set[n], 0) >= 0:
				return invalid(at, "", "the value has a NUL in it")
			case list.key == "env.strip" && slices.Contains(e.Pass, n):
				return invalid(at, "take one of them away", "%s is in env.pass too", show(n))
			}
		}
	}
	return nil
}

// environment decides about each of the caller's variables, and adds the variables that the layers
// set.
func (v *resolver) environment() error {
	seen := map[string]int{}
	var out []EnvVar
	for _, e := range v.Request.Env {
		name, value, ok := strings.Cut(e, "=")
		if !ok || name == "" {
			continue
		}
		x := v.variable(name, value)
		if i, twice := seen[name]; twice {
			out[i] = x // the last one counts, as in a shell
			continue
		}
		seen[name] = len(out)
		out = append(out, x)
	}
	for _, l := range v.layers {
		for name, value := range l.Settings.Env.Set {
			x := EnvVar{Name: name, Kept: true, Value: value, Rule: l.at("env.set", 0), Source: l.Source}
			if !l.flags {
				x.Rule = fmt.Sprintf("%s: env.set", l.Source)
			}
			if v.strippedLater(l, name) {
				continue
			}
			if i, there := seen[name]; there {
				out[i] = x
				continue
			}
			seen[name] = len(out)
			out = append(out, x)
		}
	}
	slices.SortFunc(out, func(a, b EnvVar) int { return strings.Compare(a.Name, b.Name) })
	v.box.Env = out
	return nil
}

// strippedLater reports whether a stronger layer strips a variable that this layer sets.
func (v *resolver) strippedLater(l *layer, name string) bool {
	for _, s := range v.layers[l.place+1:] {
		if _, strip, _ := envRule(s.Settings.Env, name); strip {
			return true
		}
	}
	return false
}

// variable decides about one variable: by the strongest layer that names it, else by the built-in
// list.
func (v *resolver) variable(name, value string) EnvVar {
	for _, l := range slices.Backward(v.layers) {
		pass, strip, i := envRule(l.Settings.Env, name)
		switch {
		case strip:
			return EnvVar{Name: name, Rule: l.at("env.strip", i), Source: l.Source}
		case pass:
			return EnvVar{Name: name, Kept: true, Value: value, Rule: l.at("env.pass", i), Source: l.Source}
		case l.Settings.Env.Clear && !basic(name):
			rule := fmt.Sprintf("%s: env.clear", l.Source)
			if l.flags {
				rule = "--clear-env"
			}
			return EnvVar{Name: name, Rule: rule, Source: l.Source}
		}
	}
	if rule := v.secretEnv(name, value); rule != "" {
		return EnvVar{Name: name, Rule: "built-in: " + rule, Source: "built-in"}
	}
	return EnvVar{Name: name, Kept: true, Value: value, Rule: "built-in: kept", Source: "built-in"}
}

// envRule returns whether a layer passes or strips a name. The longer pattern decides; if two have
// the same length, the one that strips wins.
func envRule(e EnvRules, name string) (pass, strip bool, index int) {
	best := -1
	for i, p := range e.Strip {
		if len(p) > best && matchName(p, name) {
			best, strip, index = len(p), true, i
		}
	}
	for i, p := range e.Pass {
		if len(p) > best && matchName(p, name) {
			best, pass, strip, index = len(p), true, false, i
		}
	}
	return pass, strip, index
}

// basic reports whether a variable stays even if the environment is cleared.
func basic(name string) bool {
	return slices.ContainsFunc(keptNames, func(p string) bool { return matchUpper(p, name) })
}

// secretEnv returns the reason why the built-in list strips a variable, "" if it does not.
func (v *resolver) secretEnv(name, value string) string {
	switch name {
	case "TMPDIR", "TMP", "TEMP":
		if d := strings.TrimSuffix(value, "/"); v.OS == "linux" && !slices.Contains(v.box.Private, d) {
			if a, _ := v.tree.access(v.realDir(d)); a != Writable {
				return "a directory for temporary files that is not the box's"
			}
		}
		return ""
	}
	if basic(name) {
		if reason := secretValue(value); reason != "" {
			return reason
		}
		return ""
	}
	for _, s := range secretNames {
		for _, p := range s.patterns {
			if matchUpper(p, name) {
				if name == "SSH_AUTH_SOCK" && slices.Contains(v.box.Sockets, v.real(value)) {
					return ""
				}
				return s.rule
			}
		}
	}
	if secretByName(strings.ToUpper(name), value) {
		return "looks like a secret"
	}
	return secretValue(value)
}
