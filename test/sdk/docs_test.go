package sdk

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pages are the documents whose blocks are run. README.md has a test of its own.
var pages = []string{"agent", "cli", "install", "policy", "pool", "run", "sim", "templates"}

// aside has shell lines and blocks (by their first line) that TestDocs does not run, with the
// reasons. Everything else is run and must succeed.
var aside = map[string]string{
	"sh install.sh":                 "test/install runs it, from real artefacts",
	"dpkg -i carrel_V":              "test/install runs it, on a root filesystem of its own",
	"systemctl status":              "no systemd runs here; test/install checks the unit",
	"carrel sim --allow api":        "nothing is outside of this machine; test/net has hosts of its own",
	"carrel create --policy record": "test/net learns from a sandbox whose work reaches something",
	"carrel policy learn ID":        "the same",
	"carrel sim --mcp":              "no such server is here; testdata/sim_tools.txt in test/script has one",
	"FROM debian:12":                "nothing here builds images; test/install starts the one that is shipped",
	`{"max_calls": 100`:             "testdata/sim_tools.txt in test/script has rules of each kind",
	"○ s47a3dgg":                    "IDs and times are never the same; internal/cli draws such trees in tests",
	"carrel: over the":              "the message of a program, which shell/ tests",
}

// instead replaces the reader's own names on the pages with names that exist in the test.
var instead = strings.NewReplacer(
	"carrel backup FILE", "carrel backup kept.carrel", "carrel restore FILE --data-dir DIR", "carrel restore kept.carrel --data-dir restored",
	"import py DIR", "import py root",
	// Only one daemon can run. The settings of another one are checked as serve checks them.
	"carrel serve", "carrel config",
)

// checks says how to check a block of settings or rules. A block is known by a line in it.
var checks = []struct{ line, command string }{
	{"max-sandboxes:", "carrel config --config FILE"},
	{"presets:\n", "carrel config --presets FILE"},
	{"# .carrel.yaml", "mkdir -p boxed && cp FILE boxed/.carrel.yaml && (cd boxed && carrel run --dry-run -- true)"},
	{"", "carrel policy check FILE"},
}

// TestDocs runs the commands on the pages in docs/, from top to bottom, in one session with a real
// daemon, and gives each block of settings to the command that reads it. A block of a session must
// show just what its commands print. With -short, the pages whose commands make templates and copy
// the base are left out.
func TestDocs(t *testing.T) {
	t.Parallel()
	bin := needBuild(t)
	home, err := os.MkdirTemp("/srv", "carrel-docs.")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	work := filepath.Join(home, "work")
	prepare(t, home, work)
	if err := os.MkdirAll(work+"/root/bin", 0o755); err != nil {
		t.Fatal(err)
	}
	d := &docs{t: t, work: work, unused: map[string]bool{}}
	pages := pages
	if testing.Short() { // others make templates, and copy the whole base
		pages = []string{"agent", "cli", "policy", "run", "sim"}
	}
	for line := range aside {
		d.unused[line] = true
	}
	d.script.WriteString(prologue + "carrel serve >daemon.log 2>&1 &\ncarrel create --tier sim\n")
	for _, page := range pages {
		for _, b := range blocksOf(t, "../../docs/"+page+".md") {
			d.add(page, b)
		}
	}
	for line := range d.unused {
		if testing.Short() {
			break // it may be on a page that is left out
		}
		t.Errorf("aside has %q, with which nothing on the pages begins", line)
	}
	out := session(t, home, work, bin, d.script.String())
	for i, step := range d.steps {
		_, after, _ := strings.Cut(out, fmt.Sprintf("\n== step %d\n", i))
		got, status, _ := strings.Cut(after, "\n== status ")
		status, _, _ = strings.Cut(status, "\n")
		switch {
		case step.want == "" && status != "0":
			t.Errorf("docs/%s.md: %s: status %s\n%s", step.page, step.command, status, got)
		case step.want != "" && strings.TrimSpace(got) != strings.TrimSpace(step.want):
			t.Errorf("docs/%s.md: %s prints\n%s\nand the page says\n%s", step.page, step.command, got, step.want)
		}
	}
	if len(d.steps) < 30 {
		t.Errorf("only %d commands are run", len(d.steps))
	}
}

// step is one command of a page.
type step struct {
	page, command string
	want          string // the expected output; "" is any output, with success
}

// docs collects what is run.
type docs struct {
	t      *testing.T
	work   string
	script strings.Builder
	steps  []step
	unused map[string]bool
}

// apart reports whether a line is not run.
func (d *docs) apart(line string) bool {
	for prefix := range aside {
		if strings.HasPrefix(line, prefix) {
			delete(d.unused, prefix)
			return true
		}
	}
	return false
}

// add adds the steps of a block.
func (d *docs) add(page string, b block) {
	d.t.Helper()
	if b.language != "sh" && d.apart(b.text) { // the shell's are looked at line by line
		return
	}
	switch b.language {
	case "sh":
		for line := range strings.Lines(b.text) {
			if line = strings.TrimSpace(line); line != "" && !d.apart(line) {
				d.run(step{page: page, command: instead.Replace(line)})
			}
		}
	case "console":
		for part := range strings.SplitSeq("\n"+b.text, "\n$ ") {
			if command, want, ok := strings.Cut(part, "\n"); ok && command != "" {
				d.run(step{page: page, command: command, want: want})
			}
		}
	case "yaml":
		file := fmt.Sprintf("block%d.yaml", len(d.steps))
		if page == "policy" && !slices.ContainsFunc(d.steps, func(s step) bool { return s.page == page }) {
			file = "policy.yaml" // the session below it uses this name
		}
		if err := os.WriteFile(filepath.Join(d.work, file), []byte(b.text), 0o600); err != nil {
			d.t.Fatal(err)
		}
		for _, c := range checks {
			if strings.Contains(b.text, c.line) {
				d.run(step{page: page, command: strings.ReplaceAll(c.command, "FILE", file)})
				return
			}
		}
	default:
		d.t.Errorf("docs/%s.md has a block in %s: nobody says how it is run, or why not\n%s", page, b.language, b.text)
	}
}

// run adds one command. The commands after it run even if it fails.
func (d *docs) run(s step) {
	fmt.Fprintf(&d.script, "printf '\\n== step %d\\n'\nset +e\n%s\nstatus=$?\necho; echo \"== status $status\"\nset -e\n", len(d.steps), strings.TrimSuffix(redirected(s.command), "\n"))
	d.steps = append(d.steps, s)
}

// redirected joins a command's two streams. It makes no subshell, because the command may set a
// variable.
func redirected(command string) string { return "{ " + command + "\n} 2>&1" }
