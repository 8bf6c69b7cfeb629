package gitdir

import (
	"slices"
	"strings"
)

// settled lists, by section, the settings of a repository that run no program. A name with a ":" is
// harmless only if its value passes the check after the colon.
var settled = map[string]string{
	"core": "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks autocrlf eol safecrlf quotepath " +
		"compression loosecompression bigfilethreshold sparsecheckout sparsecheckoutcone longpaths untrackedcache preloadindex " +
		"fsmonitor:bool worktree:worktree abbrev whitespace sharedrepository:word trustctime checkstat:word multipackindex commitgraph fscache splitindex",
	"extensions":  "objectformat refstorage partialclone worktreeconfig noop compatobjectformat relativeworktrees preciousobjects",
	"remote":      "pushdefault:url",
	"user":        "name email signingkey useconfigonly",
	"author":      "name email",
	"committer":   "name email",
	"submodule":   "active recurse fetchjobs",
	"init":        "defaultbranch defaultobjectformat defaultrefformat",
	"pull":        "rebase:word ff:word octopus:word twohead:word",
	"push":        "default:word autosetupremote followtags useforceifincludes recursesubmodules:word",
	"fetch":       "prune prunetags parallel recursesubmodules:word writecommitgraph output:word fsckobjects",
	"clone":       "defaultremotename filtersubmodules",
	"merge":       "ff:word conflictstyle:word log renames renamelimit stat autostash directoryrenames:word",
	"rebase":      "autostash autosquash updaterefs abbreviatecommands missingcommitscheck:word stat",
	"commit":      "gpgsign verbose status cleanup:word",
	"tag":         "gpgsign sort forcesignannotated",
	"gpg":         "format:word",
	"gc":          "auto autodetach autopacklimit pruneexpire reflogexpire reflogexpireunreachable worktreepruneexpire",
	"pack":        "threads window windowmemory depth usesparse writereverseindex",
	"index":       "version threads sparse skiphash",
	"feature":     "manyfiles experimental",
	"maintenance": "auto strategy:word",
	"protocol":    "version",
	"receive":     "denycurrentbranch:word denydeletes denynonfastforwards autogc fsckobjects advertisepushoptions",
	"transfer":    "fsckobjects hiderefs",
	"uploadpack":  "allowfilter allowanysha1inwant allowreachablesha1inwant allowtipsha1inwant",
	"http":        "postbuffer version:word",
	"rerere":      "enabled autoupdate",
	"diff":        "renames renamelimit algorithm:word mnemonicprefix noprefix colormoved:word colormovedws:word submodule:word indentheuristic context interhunkcontext statgraphwidth ignoresubmodules:word",
	"log":         "date decorate:word abbrevcommit follow",
	"status":      "showuntrackedfiles:word branch short relativepaths submodulesummary aheadbehind renames",
	"branch":      "autosetupmerge:word autosetuprebase:word sort",
	"checkout":    "defaultremote:word guess workers",
	"worktree":    "guessremote userelativepaths",
	"i18n":        "commitencoding:word logoutputencoding:word filesencoding:word",
	"grep":        "linenumber column extendedregexp patterntype:word fullname",
	"apply":       "whitespace:word ignorewhitespace:word",
	"color":       "ui:word status:word branch:word diff:word grep:word interactive:word advice:word",
	"lfs":         "repositoryformatversion",
	"advice":      "*",
}

// settledSub is the same list for sections with a subsection.
var settledSub = map[string]string{
	"remote":    "url:url pushurl:url fetch push tagopt:tagopt prune prunetags mirror promisor partialclonefilter skipdefaultupdate skipfetchall followremotehead:word gh-resolved:word",
	"branch":    "remote:url merge rebase:word pushremote:url description vscode-merge-base gh-merge-base github-pr-owner-number",
	"submodule": "url:url active branch ignore:word fetchrecursesubmodules:word update:update shallow",
	"color":     "*",
	"filter":    "clean:lfs smudge:lfs process:lfs required",
	"lfs":       "access:word locksverify",
	"diff":      "binary",
}

// checks are about values.
var checks = map[string]func(string) bool{
	"bool": func(v string) bool {
		return slices.Contains([]string{"true", "false", "1", "0", "yes", "no", "on", "off", ""}, strings.ToLower(v))
	},
	"word": func(v string) bool {
		return v == "" || letter(v[0]) && v[0] != '-' && !strings.ContainsAny(v, "/\\$`!|;&<>()'\"")
	},
	"url":    plainURL,
	"tagopt": func(v string) bool { return v == "--tags" || v == "--no-tags" },
	"update": func(v string) bool { return slices.Contains([]string{"checkout", "rebase", "merge", "none"}, v) },
	// "git lfs install --local" writes these. The program is the user's own.
	"lfs": func(v string) bool {
		return slices.Contains([]string{"git-lfs clean -- %f", "git-lfs smudge -- %f", "git-lfs smudge --skip -- %f", "git-lfs filter-process", "git-lfs filter-process --skip"}, v)
	},
}

// plainURL reports whether git handles an address of this kind without a helper program that the
// address names.
func plainURL(v string) bool {
	i := 0
	for i < len(v) && (letter(v[i]) || v[i] == '+' || v[i] == '.') {
		i++
	}
	switch scheme := strings.ToLower(v[:i]); {
	case strings.HasPrefix(v, "-"), strings.HasPrefix(v[i:], "::"):
		return false
	case strings.HasPrefix(v[i:], "://"):
		return slices.Contains([]string{"http", "https", "ssh", "git", "git+ssh", "ssh+git", "file", "ftp", "ftps"}, scheme)
	}
	return true
}

// Options are for judging a configuration.
type Options struct {
	// Worktree reports whether a value of core.worktree is the repository's own: git writes it for
	// a submodule. If it is nil, the answer is no.
	Worktree func(value string) bool
}

// allowed reports whether a setting runs no program.
func (o Options) allowed(section string, sub bool, key, value string) bool {
	list := settled[section]
	if sub {
		list = settledSub[section]
	}
	for name := range strings.FieldsSeq(list) {
		name, check, has := strings.Cut(name, ":")
		if name != key && name != "*" {
			continue
		}
		switch {
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' && r != '\n' || r == 0x7f }):
			return false
		case check == "worktree":
			return o.Worktree != nil && o.Worktree(value)
		}
		return !has || checks[check](value)
	}
	return false
}

// Settled reports whether a setting runs no program. It may have any other effect.
func Settled(e Entry) bool {
	return Options{Worktree: func(string) bool { return true }}.allowed(e.Section, e.HasSub, e.Key, e.Value)
}

// Sanitise keeps the settings of a configuration that run no program, and returns the names of the
// others.
func Sanitise(data []byte, o Options) (kept []byte, out []string) {
	entries, _ := Parse(data)
	var good []Entry
	for _, e := range entries {
		if o.allowed(e.Section, e.HasSub, e.Key, e.Value) && !strings.ContainsAny(e.Sub, "\n\x00") {
			good = append(good, e)
		} else if name := e.Name(); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return Format(good), out
}

// Harmless reports whether a configuration holds only settings that are known to run no program,
// however git reads it. A configuration written in an unusual way is not harmless; [Sanitise]
// writes it anew.
func Harmless(data []byte, o Options) bool {
	section, sub := "", false
	for line := range strings.Lines(string(data)) {
		line = strings.Trim(line, " \t\r\n")
		if strings.HasPrefix(line, "[") {
			var ok bool
			if section, sub, ok = plainHeader(line); !ok {
				return false
			}
			continue
		}
		if line == "" || line[0] == '#' || line[0] == ';' {
			if strings.HasSuffix(line, `\`) {
				return false
			}
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		value = strings.Trim(value, " \t")
		if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
			value = value[1 : len(value)-1]
		}
		if strings.ContainsAny(value, "\"\\\r#;") || !o.allowed(section, sub, strings.ToLower(strings.Trim(key, " \t")), value) {
			return false
		}
	}
	return true
}

// plainHeader reads a line that is a section's header and nothing else.
func plainHeader(line string) (section string, sub, ok bool) {
	name, ok := strings.CutSuffix(line[1:], "]")
	if !ok {
		return "", false, false
	}
	name, quoted, sub := strings.Cut(name, " ")
	if sub {
		if len(quoted) < 2 || quoted[0] != '"' || quoted[len(quoted)-1] != '"' || strings.ContainsAny(quoted[1:len(quoted)-1], "\"\\\r") {
			return "", false, false
		}
	}
	for i := range len(name) {
		if !letter(name[i]) {
			return "", false, false
		}
	}
	return strings.ToLower(name), sub, name != ""
}
