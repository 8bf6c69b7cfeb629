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
	probe string // a script that succeeds if the program exists; "" means: it must be in PATH
}

// absent stands in the place of a package for a name that no machine may have.
const absent = "-"

// hostPrograms reads testdata/programs.txt. internal/tools/need.sh installs the programs from the
// same file.
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

// missing returns an error if the host's program can't be used for comparison. It checks each
// program once.
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

// probed holds, for each program, the function that checks for it.
var probed sync.Map

// look returns an error if the program differs from its line in the list.
func (p hostProgram) look(name string) error {
	probe := p.probe
	if probe == "" {
		probe = `case $(type -P -- "$0") in "") exit 1;; esac`
	}
	place, err := os.MkdirTemp("", "simbash-") // some programs write files in the home directory
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

// TestProgramsListed fails for a program that a case names but programs.txt does not. Nothing would
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

// TestProgramsFound shows which words count as programs of the host. If it missed names, the list
// would be useless.
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

// TestProgramMissing shows that a program that the host lacks is reported, and that a made-up name
// that exists is reported too.
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

// bashNames returns bash's builtins and keywords.
func bashNames(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("bash", "-c", "compgen -b; compgen -k").Output()
	testenv.Need(t, "simbash", err)
	return strings.Fields(string(out))
}

// programName excludes words that only look like commands in a text that does not parse. Names of
// one letter are functions.
var programName = regexp.MustCompile(`^[a-z\[][\w.+-]+$`)

// programsOf lists the host programs that a script names, in order. It leaves out the shell's own
// commands and those that the script defines.
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

// defines reports whether a script defines a function or an alias with that name, in any of its
// texts.
func defines(text, name string) bool {
	q := regexp.QuoteMeta(name)
	return regexp.MustCompile(`(^|[^\w-])` + q + `\s*\(\s*\)|function\s+` + q + `\s|alias\s.*` + q + `=`).MatchString(text)
}

// commands collects names from scripts: commands, programs given as /usr/bin/NAME, and files that a
// script makes, because a file may be a command too.
type commands struct {
	names, files, made map[string]bool
}

// script collects names from a text. Some cases have a text that does not parse; then it uses the
// lines that do.
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

// literal returns the text of a word without its quotes. It returns "" when a part is known only at
// run time.
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

// wrappers are the commands whose arguments contain another command, with those of their options
// that take an argument.
var wrappers = map[string]string{
	"command": "", "builtin": "", "exec": "a", "nohup": "", "nice": "n", "setsid": "", "env": "uCS", "timeout": "sk",
	"stdbuf": "ioe", "xargs": "nILPsdaE", "time": "fo",
}

// makers are the commands whose arguments may become files.
var makers = []string{"cp", "ln", "mv", "install", "touch", "chmod", "tee", "hash"}

// call collects names from one command.
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

// wrapped returns the command within the arguments of a wrapper.
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
