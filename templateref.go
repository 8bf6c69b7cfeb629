package carrel

import (
	"fmt"
	"strings"
)

// TemplateRef is a text that names the template or snapshot for a new sandbox, and the kind of that
// text. Only [ParseTemplateRef] makes one; the zero value refers to nothing.
//
// The form of a text does not always tell its meaning. A template may have a name that
// looks like a template ID, and a snapshot's name looks like a template's. A service
// therefore tries these meanings in this order, and the first one that the caller may use
// wins:
//
//  1. A text of the form of a snapshot ID means the snapshot with that ID, and nothing else.
//  2. A text of the form of a template ID means the template with that ID.
//  3. A name means the built-in template of that name, then the template of the caller's
//     project, then a public one of the default project. A tag of a template follows its name or
//     its ID: name:tag. The ID of a build may stand for a tag, and means that build's result.
//  4. A name, or name:tag, means the snapshot of the caller's project that has it.
//
// Templates and snapshots that the caller may not use are ignored, as if they did not exist. The
// tags default and latest mean the name itself (see [TemplateRef.Plain]).
type TemplateRef struct {
	kind RefKind
	name string // without the tag
	tag  string // "" is none
}

// RefKind is the kind of a [TemplateRef].
type RefKind string

// The kinds of references.
const (
	// RefName is a name without a tag: of a template or of a snapshot.
	RefName RefKind = "name"
	// RefTagged is name:tag, of a template or of a snapshot.
	RefTagged RefKind = "name:tag"
	// RefTemplateID has the form of a template ID. It may still be a name.
	RefTemplateID RefKind = "template ID"
	// RefSnapshotID has the form of a snapshot ID, which no snapshot's name has.
	RefSnapshotID RefKind = "snapshot ID"
)

// maxTemplateRef bounds a reference, in bytes.
const maxTemplateRef = 256

// ParseTemplateRef says what kind of reference a text is. It looks nothing up. The error's
// Kind is [Invalid] and its Field is "template".
func ParseTemplateRef(s string) (TemplateRef, error) {
	name, tag, tagged := strings.Cut(s, ":")
	switch {
	case s == "":
		return TemplateRef{}, badRef("it is empty")
	case len(s) > maxTemplateRef:
		return TemplateRef{}, badRef("it has %d bytes, longer than %d", len(s), maxTemplateRef)
	case strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return TemplateRef{}, badRef("%s has a space or a control character", clipRef(s))
	case name == "":
		return TemplateRef{}, badRef("%s has no name before its tag", clipRef(s))
	case tagged && tag == "":
		return TemplateRef{}, badRef("%s has nothing after its colon", clipRef(s))
	case !isRefPart(name, "/.-_") || strings.Contains("/.-_", name[:1]):
		return TemplateRef{}, badRef("%s is neither a name nor an ID", clipRef(s))
	case tagged && (!isRefPart(tag, ".-_") || strings.Contains(".-", tag[:1])):
		return TemplateRef{}, badRef("%s has a tag that none can be", clipRef(s))
	}
	r := TemplateRef{kind: RefName, name: name, tag: tag}
	switch {
	case !r.Plain():
		r.kind = RefTagged
	case isSnapshotID(name):
		r.kind = RefSnapshotID
	case len(name) == idLen && strings.Trim(name, idAlphabet) == "":
		r.kind = RefTemplateID
	case tagged:
		r.kind = RefTagged
	}
	return r, nil
}

// Kind returns the kind of the reference; "" for the zero value.
func (r TemplateRef) Kind() RefKind { return r.kind }

// Name returns the name or ID, without a tag.
func (r TemplateRef) Name() string { return r.name }

// Plain reports whether the reference means what its [TemplateRef.Name] alone means: it has
// no tag, or the tag default or latest, which E2B's clients add.
func (r TemplateRef) Plain() bool { return r.tag == "" || r.tag == "default" || r.tag == "latest" }

// SnapshotID returns the snapshot ID if the reference is one.
func (r TemplateRef) SnapshotID() (id SnapshotID, ok bool) {
	if r.kind != RefSnapshotID {
		return "", false
	}
	return SnapshotID(r.name), true
}

// String returns the text that was parsed.
func (r TemplateRef) String() string {
	if r.tag == "" {
		return r.name
	}
	return r.name + ":" + r.tag
}

// NotFound returns the error of operation op for a reference that means nothing to the caller. The
// error is the same whether the thing does not exist or belongs to another project.
func (r TemplateRef) NotFound(op string) error {
	return &Error{Op: op, Kind: NotFound, Field: "template", Err: fmt.Errorf("no template %s", clipRef(r.String())),
		Hint: "'carrel template ls' lists them, 'carrel template import' and 'pull' make more; a snapshot's ID or name will do for a new sandbox: 'carrel snapshot ls'"}
}

// isRefPart reports whether s consists only of ASCII letters, digits and characters of more.
func isRefPart(s, more string) bool {
	for i := range len(s) {
		c := s[i] | 0x20 // the lower case of a letter
		if (c < 'a' || c > 'z') && (s[i] < '0' || s[i] > '9') && strings.IndexByte(more, s[i]) < 0 {
			return false
		}
	}
	return true
}

func badRef(format string, args ...any) error {
	return &Error{Op: "parse template reference", Kind: Invalid, Field: "template", Err: fmt.Errorf(format, args...),
		Hint: "name a template (base), a snapshot (name or name:tag), or the ID of either; names are of letters, digits and . _ - / and begin with a letter or digit"}
}

// clipRef makes a text short and printable for a message.
func clipRef(s string) string {
	const most = 100
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}
