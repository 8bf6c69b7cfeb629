package box_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// agentState has, for each agent, commands that save state as the agent does. The first run finds
// nothing.
var agentState = map[string]string{
	"claude-code": `mkdir ~/.claude.json.lock; touch -d @7 ~/.claude.json.lock; printf '{"n":1}' >~/.claude.json.tmp.$$.1; chmod 600 ~/.claude.json.tmp.$$.1; mv -f ~/.claude.json.tmp.$$.1 ~/.claude.json
		cp ~/.claude.json ~/.claude.json.backup; rmdir ~/.claude.json.lock; mkdir -p ~/.claude/projects/x ~/.claude/todos; echo h >>~/.claude/history.jsonl; echo {} >~/.claude/.credentials.json; grep -q n ~/.claude.json; printf ' ' >>~/.claude.json`,
	"codex":      `mkdir -p ~/.codex/sessions; echo m >~/.codex/.tmp1; mv -f ~/.codex/.tmp1 ~/.codex/config.toml; echo {} >~/.codex/auth.json; echo h >>~/.codex/history.jsonl`,
	"gemini-cli": `mkdir -p ~/.gemini/tmp/x; echo {} >~/.gemini/oauth_creds.json; echo {} >~/.gemini/settings.json; echo {} >~/.gemini/google_accounts.json`,
	"qwen-code":  `mkdir -p ~/.qwen/tmp; echo {} >~/.qwen/oauth_creds.json; echo {} >~/.qwen/settings.json`,
	"aider":      `echo h >>.aider.chat.history.md; echo h >>.aider.input.history; mkdir -p ~/.aider/caches; echo x >~/.aider/analytics.json; ! mkdir .aider.tags.cache.v4 2>/dev/null; ! echo x >.aider.conf.yml`,
	"cursor":     `echo {} >~/.cursor/cli-config.json.tmp; mv -f ~/.cursor/cli-config.json.tmp ~/.cursor/cli-config.json; echo {} >~/.config/cursor/auth.json`,
	"opencode":   `for d in share state; do mkdir -p ~/.local/$d/opencode; echo x >~/.local/$d/opencode/x; done; mkdir -p ~/.cache/opencode ~/.config/opencode; echo {} >~/.local/share/opencode/auth.json; ! echo {} >~/.config/opencode/opencode.json`,
	"copilot":    `mkdir -p ~/.copilot/logs; echo {} >~/.copilot/config.json`,
	"goose":      `mkdir -p ~/.config/goose ~/.local/share/goose/sessions ~/.local/state/goose/logs; echo x >~/.config/goose/config.yaml`,
	"amp":        `mkdir -p ~/.config/amp ~/.local/share/amp ~/.cache/amp/logs; echo {} >~/.local/share/amp/secrets.json`,
	"crush":      `mkdir -p .crush/logs; echo x >.crush/crush.db; mkdir -p ~/.local/share/crush; echo {} >~/.local/share/crush/crush.json`,
}

// TestAgentState saves the state of each agent in a box, in a home that has none yet, and once
// more.
func TestAgentState(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		for profile, script := range agentState {
			for n := range 2 {
				if r := w.run(w.box("--profile", profile, "--", "bash", "-ec", "exec 2>&1; set -x; "+script)); r.code != 0 {
					t.Errorf("%s, run %d: exit %d\n%s", profile, n+1, r.code, r.all())
				}
			}
		}
		if got := w.read(w.home + "/.claude.json"); got != `{"n":1} ` {
			t.Errorf("Claude's state outside is %q", got)
		}
		if out := w.sh(w.home, "stat -c '%a %u' .claude.json").out; out != fmt.Sprintf("600 %d\n", w.uid) {
			t.Errorf("its mode and owner are %s", out)
		}
	})
}

// TestReplacedFile tries to use the names beside a replaced file for more than replacing that file.
func TestReplacedFile(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		w.write(w.home+"/.claude.json", "old")
		w.write(w.home+"/.bashrc", "# mine\n")
		w.write(w.home+"/.claude.json.d/x", "x")
		w.write(w.home+"/dots/kept", "kept")
		for _, script := range []string{
			`echo planted >~/.claude.jsonx`, `echo planted >~/x.claude.json`, `echo planted >>~/.bashrc`, `mv -f ~/.claude.json ~/.bashrc`, `mv ~/.bashrc ~/.claude.json.x`,
			`ln -s ~/.bashrc ~/.claude.json.x && echo planted >>~/.claude.json.x`, `ln ~/.bashrc ~/.claude.json.x && echo planted >>~/.claude.json.x`, `mknod ~/.claude.json.x p`,
			`echo planted >~/.claude.json.d/x`, `mv ~/.claude.json.d ~/other`, `cd ~/.claude.json.d && echo planted >../.bashrc`, `mkdir ~/.claude.json.e && echo planted >~/.claude.json.e/../.bashrc`,
			`rm -f ~/.bashrc`, `touch ~/.claude.json.x/`, `echo planted >dots/kept`, `exec 3<~/.claude.json.d; cd /proc/self/fd/3/.. && echo planted >.bashrc`,
			`exec 3>>~/.claude.json.x; cd /proc/self/fd/3/.. && echo planted >.bashrc`, `exec 3<>~/.claude.json.x; echo planted >/proc/self/fd/3/../.bashrc`,
			`echo x >~/.claude.json.s; chmod 4755 ~/.claude.json.s && test -u ~/.claude.json.s`,
		} {
			r := w.run(w.box("--profile", "claude-code", "-c", script))
			if r.code == 0 {
				t.Errorf("%s succeeds", script)
			}
		}
		for name, want := range map[string]string{".bashrc": "# mine\n", ".claude.json": "old", ".claude.json.d/x": "x", "dots/kept": "kept"} {
			if got := w.read(w.home + "/" + name); got != want {
				t.Errorf("%s is %q", name, got)
			}
		}
		// No hint suggests opening the whole home.
		if r := w.run(w.box("-c", "echo x >~/.alone")); r.code == 0 || !strings.Contains(r.err, "--write "+w.home+"/.alone\n") {
			t.Errorf("exit %d %s", r.code, r.err)
		}
		// Without namespaces the guard works the same. A box that can't have a network says what to
		// do.
		if r := w.run(w.box("--light", "--profile", "claude-code", "-c", "true")); r.code != 125 || !strings.Contains(r.err, "--host-network") {
			t.Errorf("light: exit %d %s", r.code, r.err)
		}
		light := w.box("--light", "--host-network", "--profile", "claude-code", "-c", `printf old >~/.claude.json.tmp && mv -f ~/.claude.json.tmp ~/.claude.json; echo planted >>~/.bashrc`)
		if r := w.run(light); r.code == 0 || w.read(w.home+"/.claude.json") != "old" || w.read(w.home+"/.bashrc") != "# mine\n" {
			t.Errorf("light: exit %d %s", r.code, r.all())
		}
		// A path that a person closes stays closed, and so does a path that no profile names.
		for _, flags := range [][]string{{"--profile", "claude-code", "--no-write", w.home + "/.claude.json"}, nil, {"--profile", "claude-code", "--overlay"}} {
			if r := w.run(w.box(append(flags, "-c", `echo new >~/.claude.json.tmp && mv -f ~/.claude.json.tmp ~/.claude.json`)...)); r.code == 0 || w.read(w.home+"/.claude.json") != "old" {
				t.Errorf("%v: exit %d %s", flags, r.code, r.all())
			}
		}
		// If the file is a link to the person's own place for it, that file is replaced.
		w.sh(w.home, `mv .claude.json dots/claude.json && ln -s dots/claude.json .claude.json`)
		r := w.run(w.box("--profile", "claude-code", "-c", `printf new >~/dots/claude.json.tmp && mv -f ~/dots/claude.json.tmp ~/dots/claude.json && printf er >>~/.claude.json`))
		if got := w.read(w.home + "/dots/claude.json"); r.code != 0 || got != "newer" {
			t.Errorf("exit %d: %q\n%s", r.code, got, r.all())
		}
	})
}

// TestReplacedFileRace changes the name in memory while the guard looks at it. Only names of the
// file may be made, whatever the guard reads.
func TestReplacedFileRace(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		race := []string{"racename", "ms=500", "good=../.claude.json.x", "path=../.profile.stole"}
		made := func() (names []string) {
			list, err := os.ReadDir(w.home)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range list {
				if strings.HasPrefix(e.Name(), ".c") || strings.HasPrefix(e.Name(), ".p") {
					names = append(names, e.Name())
				}
			}
			return names
		}
		// The good name is there only now and then. On a busy machine half a second may pass
		// without.
		var r result
		for range 20 {
			r = w.run(w.box(append([]string{"--profile", "claude-code", "--", w.attack}, race...)...))
			if !strings.Contains(r.out, "rounds ") || slices.Contains(made(), ".claude.json.x") {
				break
			}
		}
		if !strings.Contains(r.out, "rounds ") || !slices.Contains(made(), ".claude.json.x") {
			t.Fatalf("exit %d %.2000s", r.code, r.all())
		}
		for _, name := range made() {
			if name != ".cache" && name != ".claude" && !strings.HasPrefix(name, ".claude.json.") {
				t.Errorf("it made %s", name)
			}
		}
		w.sh(w.home, "rm -rf .claude.json.*")
		w.run(w.command(w.attack, race...))
		if !slices.ContainsFunc(made(), func(name string) bool { return strings.HasPrefix(name, ".profile") }) {
			t.Errorf("the race is no race: without a box it made %v", made())
		}
	})
}

// TestCaches shows that a refused write into a tool's cache names the profile that opens it, and
// that the tool works with that profile.
func TestCaches(t *testing.T) {
	_, err := exec.LookPath("npm")
	testenv.Need(t, "node", err)
	both(t, func(t *testing.T, w *world) {
		for script, profile := range map[string]string{
			"mkdir ~/.npm": "node", "mkdir -p ~/.cache/pip/http": "python", "mkdir -p ~/.cargo/registry": "rust", "mkdir -p ~/.m2/repository/org": "java", "mkdir -p ~/go/pkg/mod": "go", "mkdir -p ~/.cache/go-build": "go",
			"mkdir -p ~/.gradle/caches": "java", "mkdir -p ~/.bundle/cache": "ruby", "mkdir -p ~/.nuget/packages": "dotnet", "mkdir -p ~/.cache/composer": "php", "mkdir -p ~/.cache/ccache": "cpp", "npm cache verify": "node",
		} {
			r := w.run(w.box("-c", script))
			if r.code == 0 || !regexp.MustCompile(`--profile (\w+\|)*`+profile+`\b`).MatchString(r.err) {
				t.Errorf("%s: exit %d\n%s", script, r.code, r.all())
			}
		}
		w.write(w.project+"/thing/package.json", `{"name": "thing", "version": "1.0.0"}`)
		r := w.run(w.box("--profile", "node", "-c", "npm pack --silent ./thing && npm cache add thing-1.0.0.tgz && npm install --offline --no-audit --no-fund ./thing-1.0.0.tgz && ls node_modules/thing/package.json"))
		if r.code != 0 || strings.Contains(r.err, "  write ") {
			t.Errorf("exit %d\n%s", r.code, r.all())
		}
		w.write(w.project+"/go.mod", "module thing\n")
		// A package without imports: otherwise Go compiles its runtime, which takes long.
		w.write(w.project+"/thing.go", "package thing\n\nfunc One() int { return 1 }\n")
		if r := w.run(w.box("--profile", "go", "--env", "GOTOOLCHAIN=local", "-c", "go vet .")); r.code != 0 {
			t.Errorf("exit %d\n%s", r.code, r.all())
		}
		if out := w.sh(w.home, "ls -A .npm .cache/go-build").out; !strings.Contains(out, "_cacache") || !strings.Contains(out, "00") {
			t.Errorf("the caches outside have %s", fmt.Sprintf("%.300q", out))
		}
	})
}
