package dockerfile

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"github.com/carrel-dev/carrel"
)

// Bounds of one Dockerfile.
const (
	maxBytes     = 1 << 20
	maxStages    = 200
	maxSteps     = 5000
	maxWordBytes = 1 << 20 // of one expanded word: variables can double it with each line
)

// File is a parsed Dockerfile. It is never changed and safe for concurrent use.
type File struct {
	text     string
	warnings []Warning
}

// Warning is advice that a build prints and that does not stop it.
type Warning struct {
	Line int // from 1; 0 where it is about no line
	Text string
}

// String returns the warning as a build prints it.
func (w Warning) String() string {
	if w.Line == 0 {
		return w.Text
	}
	return fmt.Sprintf("line %d: %s", w.Line, w.Text)
}

// Parse reads a Dockerfile. Every instruction is checked; words that need variables are checked by
// Plan. Errors: Invalid, Unsupported (another frontend), Exhausted (too long).
func Parse(text string) (*File, error) {
	f := &File{text: text}
	tree, err := f.parse(func(w Warning) { f.warnings = append(f.warnings, w) })
	if err != nil {
		return nil, err
	}
	for i := range tree.stages {
		for _, c := range tree.stages[i].Commands {
			if err := checkCommand(c); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

// Warnings returns the advice that parsing gave.
func (f *File) Warnings() []Warning { return f.warnings }

// Stages returns the names of the stages, in the order of the file. A stage without a name has its
// number, from 0.
func (f *File) Stages() []string {
	tree, err := f.parse(nil)
	if err != nil {
		return nil
	}
	names := make([]string, len(tree.stages))
	for i := range tree.stages {
		names[i] = stageName(tree.stages, i)
	}
	return names
}

// tree is one reading of a file. Expanding words changes it, so that each plan makes its own.
type tree struct {
	stages []instructions.Stage
	meta   []instructions.ArgCommand
	escape rune
}

func (f *File) parse(warn func(Warning)) (t *tree, err error) {
	// The parser is not ours, and what it reads is a stranger's.
	defer func() {
		if p := recover(); p != nil {
			t, err = nil, lineError(carrel.Invalid, 0, "the parser gave up: %v", p)
		}
	}()
	if err := checkText(f.text); err != nil {
		return nil, err
	}
	read, err := parser.Parse(strings.NewReader(f.text))
	if err != nil {
		return nil, parseError(err)
	}
	lint := linter.New(&linter.Config{SkipAll: warn == nil,
		Warn: func(_, _, _, text string, at []parser.Range) {
			warn(Warning{Line: lineOf(at), Text: text})
		}})
	stages, meta, err := instructions.Parse(read.AST, lint)
	if err != nil {
		return nil, parseError(err)
	}
	if warn != nil {
		for _, w := range read.Warnings {
			line := 0
			if w.Location != nil {
				line = w.Location.Start.Line
			}
			warn(Warning{Line: line, Text: w.Short})
		}
	}
	return bounded(&tree{stages: stages, meta: meta, escape: read.EscapeToken})
}

// bounded refuses a file with too many stages or steps.
func bounded(t *tree) (*tree, error) {
	steps := 0
	for i := range t.stages {
		steps += 1 + len(t.stages[i].Commands)
	}
	switch {
	case len(t.stages) == 0:
		return nil, hinted(lineError(carrel.Invalid, 0, "there is no FROM"),
			"begin with FROM and an image")
	case len(t.stages) > maxStages:
		return nil, lineError(carrel.Exhausted, 0, "%d stages, and at most %d are read", len(t.stages),
			maxStages)
	case steps > maxSteps:
		return nil, lineError(carrel.Exhausted, 0, "%d instructions, and at most %d are read", steps,
			maxSteps)
	}
	return t, nil
}

// checkText refuses bytes that cannot be a Dockerfile, and languages that are none.
func checkText(text string) error {
	switch {
	case len(text) > maxBytes:
		return lineError(carrel.Exhausted, 0, "it has %d bytes, and at most %d are read", len(text),
			maxBytes)
	case strings.TrimSpace(text) == "":
		return hinted(lineError(carrel.Invalid, 0, "it is empty"), "begin with FROM and an image")
	case !utf8.ValidString(text):
		return lineError(carrel.Invalid, 1+strings.Count(validPrefix(text), "\n"), "it is not UTF-8 text")
	case strings.ContainsRune(text, 0):
		return lineError(carrel.Invalid, 1+strings.Count(text[:strings.IndexByte(text, 0)], "\n"),
			"a zero byte")
	}
	syntax, _, at, ok := parser.DetectSyntax([]byte(text))
	if !ok || ownSyntax.MatchString(syntax) {
		return nil
	}
	return hinted(lineError(carrel.Unsupported, lineOf(at),
		"the frontend %q of the syntax directive is not run", syntax),
		"only the language of docker/dockerfile is built; remove the directive if the file is written in it")
}

// ownSyntax matches the frontends whose language this package knows.
var ownSyntax = regexp.MustCompile(
	`^([\w.:-]+/)?(library/)?docker/dockerfile(-upstream)?([:@].*)?$`)

// validPrefix returns the text before the first byte that is not UTF-8.
func validPrefix(text string) string {
	for i, r := range text {
		if r != utf8.RuneError {
			continue
		}
		if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
			return text[:i]
		}
	}
	return text
}

// stageName returns the name of a stage, or its number.
func stageName(stages []instructions.Stage, i int) string {
	if stages[i].Name != "" {
		return stages[i].Name
	}
	return strconv.Itoa(i)
}

// parseError makes an error of ours of one of BuildKit's, which know their line in two ways.
func parseError(err error) error {
	line := 0
	var located *parser.LocationError
	if errors.As(err, &located) && len(located.Locations) > 0 {
		line = lineOf(located.Locations[0])
	}
	text := err.Error()
	if m := parserPrefix.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = text[len(m[0]):]
	}
	return lineError(carrel.Invalid, line, "%s", text)
}

// parserPrefix is how BuildKit's errors begin that carry their line in the text.
var parserPrefix = regexp.MustCompile(`^[dD]ockerfile parse error on line (\d+): `)

// lineError is an error about a line of a Dockerfile; 0 is none.
func lineError(kind carrel.Kind, line int, format string, args ...any) *carrel.Error {
	err := &located{line: line, text: fmt.Sprintf(format, args...)}
	return &carrel.Error{Op: "Dockerfile", Kind: kind, Err: err}
}

// located is an error that knows its line.
type located struct {
	line  int // 0 is none
	text  string
	cause error // may be nil
}

func (e *located) Error() string {
	if e.line == 0 {
		return e.text
	}
	return fmt.Sprintf("line %d: %s", e.line, e.text)
}

// Unwrap returns the cause.
func (e *located) Unwrap() error { return e.cause }

// FileLine returns the line of the Dockerfile, for package build, which does not know this one.
func (e *located) FileLine() int { return e.line }

// hinted adds to an error what a person can do.
func hinted(err *carrel.Error, hint string) *carrel.Error {
	err.Hint = hint
	return err
}

// lineOf returns the first line of a location, or 0.
func lineOf(at []parser.Range) int {
	if len(at) == 0 {
		return 0
	}
	return at[0].Start.Line
}

// sourceText returns the text of an instruction for logs and errors: as it was written, on one
// line, and not for ever long.
func sourceText(text string) string {
	const most = 400
	text = strings.Join(strings.Fields(string(bytes.ToValidUTF8([]byte(text), nil))), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
