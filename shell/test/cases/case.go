package cases

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
)

// Case is one script.
type Case struct {
	Area string // the file that it stands in
	Name string // unique in its area
	Text string
	Need []string // programs of the host
}

// ID names a case among all.
func (c Case) ID() string { return c.Area + "/" + c.Name }

// Root is the directory of the cases in recorded outcomes. A run in another directory gives the
// same output if its path is as long as Root. The length matters because programs align columns and
// count bytes.
const Root = "/tmp/simbash-000000000"

// Dir returns the working directory of a case below root. It depends only on the case's name, so
// that new cases do not change the output of others. HOME is "home" in the same directory.
func (c Case) Dir(root string) string {
	sum := fnv.New32a()
	fmt.Fprint(sum, c.ID())
	return fmt.Sprintf("%s/%08x/work", root, sum.Sum32())
}

// ReadAll reads every file AREA.cases of a directory.
func ReadAll(dir string) ([]Case, error) {
	lists, err := filepath.Glob(filepath.Join(dir, "*.cases"))
	if err != nil {
		return nil, err
	}
	if len(lists) == 0 {
		return nil, fmt.Errorf("no cases in %s", dir)
	}
	var all []Case
	places := map[string]string{}
	for _, list := range lists {
		read, err := readList(list)
		if err != nil {
			return nil, err
		}
		for _, c := range read {
			place := c.Dir("")
			if other, taken := places[place]; taken {
				return nil, fmt.Errorf("cases %s and %s share a directory: rename one", other, c.ID())
			}
			places[place] = c.ID()
		}
		all = append(all, read...)
	}
	return all, nil
}

// readList reads one file of cases.
func readList(file string) ([]Case, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	area := strings.TrimSuffix(filepath.Base(file), ".cases")
	var read []Case
	for _, s := range sections(string(data)) {
		if s.name == "" {
			return nil, fmt.Errorf("%s: a case without a name", file)
		}
		c := Case{Area: area, Name: s.name, Text: strings.TrimRight(s.text, "\n") + "\n"}
		if first, rest, _ := strings.Cut(c.Text, "\n"); strings.HasPrefix(first, "# need:") {
			c.Need, c.Text = strings.Fields(first[len("# need:"):]), rest
		}
		read = append(read, c)
	}
	return read, nil
}

// section is a line "-- name" and the text below it.
type section struct{ name, text string }

// sections splits a file at its lines "-- name". It leaves out the text before the first one.
func sections(data string) []section {
	parts := strings.Split("\n"+data, "\n-- ")
	found := make([]section, 0, len(parts)-1)
	for _, part := range parts[1:] {
		name, text, _ := strings.Cut(part, "\n")
		found = append(found, section{strings.TrimSpace(name), text})
	}
	return found
}

// Exceptions is a list of cases that differ from the others, with a reason each.
type Exceptions struct {
	Reason    map[string]string // by ID
	Sometimes map[string]bool   // names after "~": these cases differ only sometimes
}

// ReadExceptions reads a list of exceptions. Each name in it must be the ID of a case.
func ReadExceptions(file string, all []Case) (Exceptions, error) {
	list := Exceptions{Reason: map[string]string{}, Sometimes: map[string]bool{}}
	data, err := os.ReadFile(file)
	if err != nil {
		return list, err
	}
	exists := make(map[string]bool, len(all))
	for _, c := range all {
		exists[c.ID()] = true
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, reason, ok := strings.Cut(strings.TrimPrefix(line, "~"), ": ")
		if !ok || reason == "" {
			return list, fmt.Errorf("%s: no reason in %q", file, line)
		}
		if !exists[name] {
			return list, fmt.Errorf("%s: there is no case %s", file, name)
		}
		list.Reason[name], list.Sometimes[name] = reason, line[0] == '~'
	}
	return list, nil
}
