package files

import (
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/shell/regex"
)

// regexTypes are the syntaxes of -regextype. The value says whether operators are written without a
// backslash.
var regexTypes = map[string]bool{"findutils-default": false, "ed": false, "emacs": false, "gnu-awk": true, "grep": false, "posix-awk": true, "awk": true,
	"posix-basic": false, "posix-egrep": true, "egrep": true, "posix-extended": true, "posix-minimal-basic": false, "sed": false}

func regexTypeNames() string {
	var names []string
	for n := range regexTypes {
		names = append(names, curly(n))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// compileFind compiles an expression that must match a whole path.
func compileFind(pattern, kind string, fold bool) (func(string) bool, error) {
	flags := regex.Flags(0)
	if regexTypes[kind] {
		flags |= regex.Extended
	} else if kind == "findutils-default" || kind == "emacs" {
		pattern, flags = fromEmacs(pattern), regex.Extended
	}
	if fold {
		flags |= regex.IgnoreCase
	}
	whole := "^(" + pattern + ")$"
	if flags&regex.Extended == 0 {
		whole = `^\(` + pattern + `\)$`
	}
	re, err := regex.Compile(whole, flags)
	if err != nil {
		return nil, err
	}
	return func(s string) bool { return re.Match([]byte(s)) }, nil
}

// fromEmacs converts an expression of Emacs to an extended one. In Emacs + and ? are operators, but
// \( \) \| need their backslash.
func fromEmacs(p string) string {
	var b strings.Builder
	for i := 0; i < len(p); i++ {
		switch {
		case p[i] == '\\' && i+1 < len(p):
			i++
			if strings.IndexByte("()|", p[i]) < 0 {
				b.WriteByte('\\')
			}
			b.WriteByte(p[i])
		case p[i] == '[':
			end := i + 1
			if end < len(p) && p[end] == '^' {
				end++
			}
			if end < len(p) && p[end] == ']' {
				end++
			}
			for end < len(p) && p[end] != ']' {
				if strings.HasPrefix(p[end:], "[:") {
					if at := strings.Index(p[end:], ":]"); at > 0 {
						end += at + 1
					}
				}
				end++
			}
			b.WriteString(p[i:min(end+1, len(p))])
			i = end
		case strings.IndexByte("(){}|", p[i]) >= 0:
			b.WriteByte('\\')
			b.WriteByte(p[i])
		default:
			b.WriteByte(p[i])
		}
	}
	return b.String()
}
