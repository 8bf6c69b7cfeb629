package policy

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// references lists the ways to write a reference.
var references = []struct {
	prefix string
	token  bool
}{
	{"secrets.", false}, {"tokens.", true}, {"e2b.secrets.", false}, {"e2b.identity.tokens.", true},
}

// checkReferences checks the references in a text of an injection: "${secrets.NAME}",
// "${tokens.NAME}" and E2B's forms of both.
func checkReferences(s string) error {
	for {
		_, rest, ok := strings.Cut(s, "${")
		if !ok {
			return nil
		}
		ref, after, ok := strings.Cut(rest, "}")
		if !ok {
			return fmt.Errorf("%s has no end", clip("${"+rest))
		}
		if err := checkReference(ref); err != nil {
			return err
		}
		s = after
	}
}

func checkReference(ref string) error {
	for _, r := range references {
		name, ok := strings.CutPrefix(ref, r.prefix)
		switch {
		case !ok:
		case r.token && !tokenName(name):
			return fmt.Errorf("%s names no token", clip("${"+ref+"}"))
		case !r.token && checkSecretName("", name) != nil:
			return fmt.Errorf("%s names no secret", clip("${"+ref+"}"))
		default:
			return nil
		}
	}
	return fmt.Errorf("%s is no reference", clip("${"+ref+"}"))
}

func tokenName(s string) bool {
	return s != "" && len(s) <= maxText && utf8.ValidString(s) && !strings.ContainsFunc(s, func(c rune) bool { return unicode.IsControl(c) || c == '{' || c == '}' })
}

// checkSecretName checks the form of a secret's name or ID. Whether the secret exists shows when it
// is used.
func checkSecretName(at, s string) *fault {
	bad := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-'
	}
	switch {
	case strings.HasPrefix(s, "${"):
		return faultf(at, "", "%s: here stands the name alone, without ${…}", clip(s))
	case s == "" || len(s) > maxText || strings.ContainsFunc(s, bad) || strings.Contains("._-", s[:1]):
		// A wrong name may be the value itself, in the wrong place, so the error does not repeat
		// it.
		return faultf(at, "such as openai-api-key; values are given with carrel secret set", "this is no name of a secret: letters, digits, '.', '_' and '-'")
	}
	return nil
}
