package interp

import (
	"strings"
	"syscall"

	"github.com/carrel-dev/carrel/shell/regex"
)

// compile compiles an extended expression and caches it. It returns nil for a wrong expression.
func (r *runner) compile(expr string, fold bool) *regex.Regexp {
	key := expr
	flags := regex.Extended
	if fold {
		key, flags = "(?i)"+expr, flags|regex.IgnoreCase
	}
	if re, ok := r.patterns[key]; ok {
		return re
	}
	var re *regex.Regexp
	err := error(syscall.EINVAL)
	if !badRepeat(expr) {
		re, err = regex.CompileFor(r.stepN, []string{expr}, flags)
	}
	if err != nil {
		re = nil
	} else {
		re.Memory(func(n int64) error {
			if !r.p.charge(n) {
				return syscall.ENOMEM
			}
			return nil
		})
	}
	const most = 32
	if r.patterns == nil || len(r.patterns) >= most {
		for _, old := range r.patterns {
			if old != nil {
				old.Memory(nil)
			}
		}
		r.patterns = make(map[string]*regex.Regexp)
	}
	r.patterns[key] = re
	return re
}

// bracketEnd returns the end of the bracket expression at i, or the length of expr if it has no
// end.
func bracketEnd(expr string, i int) int {
	j := i + 1
	if j < len(expr) && expr[j] == '^' {
		j++
	}
	if j < len(expr) && expr[j] == ']' {
		j++
	}
	for ; j < len(expr) && expr[j] != ']'; j++ {
		if expr[j] == '[' && j+1 < len(expr) && strings.IndexByte(":.=", expr[j+1]) >= 0 {
			if end := strings.Index(expr[j+2:], expr[j+1:j+2]+"]"); end >= 0 {
				j += end + 3
			}
		}
	}
	return min(j, len(expr))
}

// inBrackets reports whether an expression ends inside [ ].
func inBrackets(expr string) bool {
	for i := 0; i < len(expr); i++ {
		switch expr[i] {
		case '\\':
			i++
		case '[':
			if i = bracketEnd(expr, i); i == len(expr) {
				return true
			}
		}
	}
	return false
}

// badRepeat reports whether a repetition has nothing to repeat: *a, (+b), ^*.
func badRepeat(expr string) bool {
	nothing := true // to repeat
	for i := 0; i < len(expr); i++ {
		switch expr[i] {
		case '\\':
			i++
			nothing = false
		case '[':
			i = bracketEnd(expr, i)
			nothing = false
		case '(', '|', '^', '$':
			nothing = true
		case '*', '+', '?', '{':
			if nothing {
				return true
			}
		default:
			nothing = false
		}
	}
	return false
}
