package awk

import (
	"fmt"
	"path"
	"strings"

	"github.com/carrel-dev/carrel/internal/sh/tool"
)

// includes puts the files that @include and -i name in their place, each once.
type includes struct {
	*tool.Call
	seen  map[string]bool
	total int
}

// expand replaces the @include lines of a source. Ends of lines are one character.
func (in *includes) expand(source string) (string, error) {
	source = strings.ReplaceAll(source, "\r\n", "\n")
	if !strings.Contains(source, "@include") {
		return source, nil
	}
	var b strings.Builder
	for line := range strings.Lines(source) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "@include")
		name := ""
		if rest = strings.TrimSpace(rest); ok && strings.HasPrefix(rest, `"`) {
			name, _, _ = strings.Cut(rest[1:], `"`)
		}
		if name == "" {
			b.WriteString(line)
			continue
		}
		text, err := in.file(name)
		if err != nil {
			return "", err
		}
		b.WriteString(text + "\n")
	}
	return b.String(), nil
}

// file reads a file to include: by its name, or in the directories of AWKPATH, also with .awk behind it.
func (in *includes) file(name string) (string, error) {
	dirs := []string{".", "/usr/share/awk"}
	if list := in.Getenv("AWKPATH"); list != "" {
		dirs = strings.Split(list, ":")
	}
	if strings.Contains(name, "/") {
		dirs = []string{"."}
	}
	for _, dir := range dirs {
		for _, file := range []string{name, name + ".awk"} {
			if !path.IsAbs(file) {
				file = path.Join(dir, file)
			}
			f, err := in.OpenIn(file)
			if err != nil {
				continue
			}
			data, err := in.ReadAll(f)
			_ = f.Close() // it was read
			if err != nil {
				return "", err
			}
			if in.seen[in.Abs(file)] {
				return "", nil
			}
			in.seen[in.Abs(file)] = true
			if in.total += len(data); in.total > maxSource {
				return "", fmt.Errorf("program too long")
			}
			return in.expand(string(data))
		}
	}
	return "", noInclude(name)
}

// noInclude is the error of a file that there is none of.
type noInclude string

func (name noInclude) Error() string {
	return fmt.Sprintf("cannot open included file `%s' for reading: No such file or directory", string(name))
}
