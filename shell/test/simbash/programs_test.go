package simbash

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"mvdan.cc/sh/v3/syntax"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/shell/test/cases"
)

// hostProgram is a line of testdata/programs.txt: a program that cases compare with.
type hostProgram struct {
	pkg   string // Debian's package, or absent
	probe string // a script that succeeds where the program is there; empty: it is in PATH
}

// absent stands for the package of a name that no machine may have.
const absent = "-"

// hostPrograms reads testdata/programs.txt, from which internal/tools/need.sh installs.
var hostPrograms = sync.OnceValues(func() (map[string]hostProgram, error) {
	data, err := os.ReadFile("testdata/programs.txt")
	if err != nil {
		return nil, err
	}
	out := map[string]hostProgram{}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 2 || out[fields[0]].pkg != "" {
			return nil, fmt.Errorf("programs.txt: no package, or a second line for the program: %q", line)
		}
		out[fields[0]] = hostProgram{pkg: fields[1], probe: strings.Join(fields[2:], " ")}
	}
	return out, nil
})

// missing says why the host's program can't be compared with. It looks once for each program.
func missing(name string) error {
	list, err := hostPrograms()
	if err != nil {
		return err
	}
	p, listed := list[name]
	if !listed {
		return fmt.Errorf("program %s: not in testdata/programs.txt", name)
	}
	once, _ := probed.LoadOrStore(name, sync.OnceValue(func() error { return p.look(name) }))
	return once.(func() error)()
}

// probed holds for each program the function that looks for it.
var probed sync.Map

// look says why the program is not as the list says.
func (p hostProgram) look(name string) error {
	probe := p.probe
	if probe == "" {
		probe = `case $(type -P -- "$0") in "") exit 1;; esac`
	}
	place, err := os.MkdirTemp("", "simbash-") // some leave something in the home directory
	if err != nil {
		return err
	}
	defer os.RemoveAll(place)
	cmd := exec.Command("bash", "-c", probe, name)
	cmd.Env = cases.Environ(filepath.Join(place, "work"))
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &exit):
		return err
	case p.pkg == absent && err == nil:
		return fmt.Errorf("program %s: the host has it, and cases want a name that is not there", name)
	case p.pkg == absent || err == nil:
		return nil
	}
	return fmt.Errorf("program %s is missing here; on Debian it is in the package %s", name, p.pkg)
}

// TestProgramsListed fails for a program that a case names and programs.txt does not: nothing would
// install it, and its absence would look like a difference.
func TestProgramsListed(t *testing.T) {
	shellNames := bashNames(t)
	list, err := hostPrograms()
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	all, err := cases.ReadAll("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		for _, name := range slices.Concat(programsOf(c.Text, shellNames), c.Need) {
			used[name] = true
			if list[name].pkg == "" {
				t.Errorf("%s: program %s is not in testdata/programs.txt", c.ID(), name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if !used[name] {
			t.Errorf("programs.txt: no case names %s", name)
		}
	}
}

// TestProgramsFound shows what counts as a program of the host: the list would be worth little if
// names slipped by.
func TestProgramsFound(t *testing.T) {
	shellNames := bashNames(t)
	for text, want := range map[string]string{
		"echo x | rsync -a . there":                          "rsync",
		"x=$(rsync a b) && ! tar c":                          "rsync tar",
		"f() { sort; }; f":                                   "sort",
		"alias ll='ls -l'; ll":                               "ls",
		"eval 'g() { uniq; }'; g":                            "uniq",
		"printf 'x' > bin/tool; chmod +x bin/tool; tool":     "chmod",
		"./tool; $x; dir/tool; cd /":                         "",
		"/usr/bin/time -p sort":                              "sort time",
		"seq 3 | xargs -n 1 expr 1 +":                        "expr seq xargs",
		"xargs -I{} cp {} there":                             "cp xargs",
		"find . -name x -exec wc -l {} + -execdir nl {} \\;": "find nl wc",
		"env -i A=1 timeout -s KILL 2 stdbuf -oL cut":        "cut env stdbuf timeout",
		"exec -a name sed p; command -p tac":                 "sed tac",
		"command -v nowhere; exec 3>&1":                      "",
		"bash -c 'fold x' ; sh -ec \"rev\"":                  "bash fold rev sh",
		"trap 'fmt x' EXIT":                                  "fmt",
		`\nl x`:                                              "nl",
		"cut x\nif fi\njoin y":                               "cut join",
	} {
		if got := strings.Join(programsOf(text, shellNames), " "); got != want {
			t.Errorf("%s\n got %q\nwant %q", text, got, want)
		}
	}
}

// TestProgramMissing shows that a program which the host lacks is named, and that a made-up name is
// noticed when it exists.
func TestProgramMissing(t *testing.T) {
	bashNames(t)
	err := hostProgram{pkg: "some-package"}.look("no-such-program")
	if err == nil || !strings.Contains(err.Error(), "program no-such-program is missing") || !strings.Contains(err.Error(), "some-package") {
		t.Errorf("a missing program is reported as %v", err)
	}
	if err := (hostProgram{pkg: absent}).look("bash"); err == nil {
		t.Error("bash as a name that no machine has is not refused")
	}
	if err := missing("no-such-program"); err == nil {
		t.Error("a program outside the list is not refused")
	}
}

// bashNames are bash's own words: its builtins and keywords.
func bashNames(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("bash", "-c", "compgen -b; compgen -k").Output()
	testenv.Need(t, "simbash", err)
	return strings.Fields(string(out))
}

// programName leaves out words that only look like commands where a text does not parse. Names of
// one letter are functions.
var programName = regexp.MustCompile(`^[a-z\[][\w.+-]+$`)

// programsOf lists the programs of the host that a script names, in order: the commands that are
// neither of the shell nor made by the script itself.
func programsOf(text string, shellNames []string) []string {
	c := commands{names: map[string]bool{}, files: map[string]bool{}, made: map[string]bool{}}
	c.script(text)
	out := slices.Collect(maps.Keys(c.files))
	for name := range c.names {
		if programName.MatchString(name) && !slices.Contains(shellNames, name) && !c.made[name] && !defines(text, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// defines reports whether a script makes a function or an alias of that name, in whatever text.
func defines(text, name string) bool {
	q := regexp.QuoteMeta(name)
	return regexp.MustCompile(`(^|[^\w-])` + q + `\s*\(\s*\)|function\s+` + q + `\s|alias\s.*` + q + `=`).MatchString(text)
}

// commands collects from scripts the names of commands, those given as /usr/bin/NAME, and the files
// that a script makes, which could be commands too.
type commands struct {
	names, files, made map[string]bool
}

// script collects from a text. Of one that does not parse, and some cases are about that, the lines
// count that do.
func (c *commands) script(text string) {
	f, err := syntax.NewParser().Parse(strings.NewReader(text), "")
	if err == nil {
		c.walk(f)
		return
	}
	for line := range strings.Lines(text) {
		if f, err := syntax.NewParser().Parse(strings.NewReader(line), ""); err == nil {
			c.walk(f)
		}
	}
}

func (c *commands) walk(f *syntax.File) {
	syntax.Walk(f, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CallExpr:
			words := make([]string, len(n.Args))
			for i, w := range n.Args {
				words[i] = literal(w)
			}
			c.call(words)
		case *syntax.Redirect:
			if n.Word != nil {
				c.made[filepath.Base(literal(n.Word))] = true
			}
		}
		return true
	})
}

// literal is the text of a word without its quotes; "" when a part is known only when the script
// runs.
func literal(w *syntax.Word) string {
	var b strings.Builder
	for _, part := range w.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			b.WriteString(part.Value)
		case *syntax.SglQuoted:
			b.WriteString(part.Value)
		case *syntax.DblQuoted:
			for _, inner := range part.Parts {
				lit, ok := inner.(*syntax.Lit)
				if !ok {
					return ""
				}
				b.WriteString(lit.Value)
			}
		default:
			return ""
		}
	}
	return b.String()
}

// wrappers are the commands whose arguments hold another command, with their options that take a
// word of their own.
var wrappers = map[string]string{
	"command": "", "builtin": "", "exec": "a", "nohup": "", "nice": "n", "setsid": "", "env": "uCS", "timeout": "sk",
	"stdbuf": "ioe", "xargs": "nILPsdaE", "time": "fo",
}

// makers are the commands whose arguments become files.
var makers = []string{"cp", "ln", "mv", "install", "touch", "chmod", "tee", "hash"}

// call collects from one command.
func (c *commands) call(words []string) {
	if len(words) == 0 || words[0] == "" {
		return
	}
	name := strings.ReplaceAll(words[0], `\`, "") // written so, it is no alias
	switch dir, base := filepath.Split(name); dir {
	case "":
		c.names[name] = true
	case "/bin/", "/usr/bin/":
		name = base
		c.files[name] = true
	default:
		return // a file of the case
	}
	if slices.Contains(makers, name) {
		for _, w := range words[1:] {
			c.made[filepath.Base(w)] = true
		}
	}
	if takes, ok := wrappers[name]; ok {
		c.call(wrapped(name, takes, words[1:]))
	}
	switch name {
	case "find":
		for i, w := range words[:len(words)-1] {
			if slices.Contains([]string{"-exec", "-execdir", "-ok", "-okdir"}, w) {
				c.call(words[i+1:])
			}
		}
	case "bash", "sh":
		for i, w := range words[:len(words)-1] {
			if strings.HasPrefix(w, "-") && !strings.HasPrefix(w, "--") && strings.HasSuffix(w, "c") {
				c.script(words[i+1])
				break
			}
		}
	case "alias":
		for _, w := range words[1:] {
			_, value, _ := strings.Cut(w, "=")
			c.script(value)
		}
	case "eval":
		c.script(strings.Join(words[1:], " "))
	case "trap":
		if len(words) > 2 && !strings.HasPrefix(words[1], "-") {
			c.script(words[1])
		}
	}
}

// wrapped is the command within the arguments of a wrapper.
func wrapped(name, takes string, words []string) []string {
	for len(words) > 0 {
		w := words[0]
		switch {
		case name == "command" && (w == "-v" || w == "-V"):
			return nil // only asks
		case len(w) == 2 && w[0] == '-' && strings.Contains(takes, w[1:]):
			words = words[min(2, len(words)):]
		case strings.HasPrefix(w, "-"), name == "env" && strings.Contains(w, "="), w == "":
			words = words[1:]
		case name == "timeout":
			return words[1:] // the first is how long
		default:
			return words
		}
	}
	return nil
}
