package awk

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/awk/syntax"
)

// includes reads the files of a program: each file of -f, and once each file that @include or -i
// names.
type includes struct {
	*tool.Call
	seen  map[string]bool
	total int
}

// noSource is the error of a program file that can't be read.
type noSource struct {
	name     string
	err      error
	included bool // by @include
}

func (n noSource) Error() string {
	if n.included {
		return fmt.Sprintf("cannot open included file `%s' for reading: %s", n.name,
			tool.ErrText(n.err))
	}
	return fmt.Sprintf("cannot open source file `%s' for reading: %s", n.name, tool.ErrText(n.err))
}

// text reads a file. It converts each line end to one character.
func (in *includes) text(file string) (string, error) {
	f, err := in.OpenIn(file)
	if err != nil {
		return "", err
	}
	data, err := in.ReadAll(f)
	_ = f.Close() // it was read
	if err != nil {
		return "", err
	}
	if in.total += len(data); in.total > maxSource {
		return "", errors.New("program too long")
	}
	return strings.ReplaceAll(string(data), "\r\n", "\n"), nil
}

// dirs returns the directories in which a name is searched.
func (in *includes) dirs(name string) []string {
	if strings.Contains(name, "/") || name == "-" {
		return []string{""}
	}
	if list := in.Getenv("AWKPATH"); list != "" {
		return strings.Split(list, ":")
	}
	return []string{".", "/usr/share/awk"}
}

// find reads a file by its name, or from the directories of AWKPATH. It also tries the name with
// .awk appended.
func (in *includes) find(name string) (file, text string, err error) {
	first := error(nil)
	for _, dir := range in.dirs(name) {
		for _, file := range []string{path.Join(dir, name), path.Join(dir, name+".awk")} {
			if name == "-" {
				file = name
			}
			text, err := in.text(file)
			if err == nil {
				return file, text, nil
			}
			if in.Stopped(err) {
				return "", "", err
			}
			if first == nil {
				first = err
			}
		}
	}
	return "", "", noSource{name: name, err: first}
}

// read returns the unit of -f.
func (in *includes) read(name string) (syntax.Unit, error) {
	file, text, err := in.find(name)
	if err != nil {
		return syntax.Unit{}, err
	}
	in.seen[in.Abs(file)] = true
	return syntax.Unit{Name: name, Text: text}, nil
}

// named is include for @include.
func (in *includes) named(name string) (u syntax.Unit, ok bool, err error) {
	u, ok, err = in.include(name)
	var none noSource
	if errors.As(err, &none) {
		none.included = true
		err = none
	}
	return u, ok, err
}

// include returns the unit that @include or -i names. ok is false when it was read before.
func (in *includes) include(name string) (u syntax.Unit, ok bool, err error) {
	file, text, err := in.find(name)
	if err != nil {
		return u, false, err
	}
	if in.seen[in.Abs(file)] {
		return u, false, nil
	}
	in.seen[in.Abs(file)] = true
	return syntax.Unit{Name: file, Text: text}, true, nil
}
