package box_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// protected are names below a working directory that programs outside would run or obey later.
var protected = []string{".git/hooks/pre-commit", ".git/config", ".gitmodules", ".gitconfig", ".bashrc", ".bash_profile", ".zshrc", ".zprofile", ".profile", ".ripgreprc", ".mcp.json",
	".vscode/tasks.json", ".idea/workspace.xml", ".claude/commands/x.md", ".claude/agents/x.md", ".claude/settings.json", ".carrel.yaml"}

// nameAttacks create or change files that would be run outside later.
func nameAttacks() []attack {
	var all []attack
	for _, name := range protected {
		all = append(all, plantCase("create "+name, name, false), plantCase("change "+name, name, true))
	}
	moved := plantCase("create in a repository below", "sub/lib/.mcp.json", false)
	moved.gap = everybody("a repository can be taken away, and what is made in its place is none")
	return append(all,
		moved,
		plantCase("create a hook of a repository below", "sub/lib/.git/hooks/pre-commit", false),
		plantCase("change the configuration of a repository below", "sub/lib/.git/config", true),
		attack{name: "swap the repository", program: "gitswap", prepare: repository, harmed: hooked},
	)
}

// plantCase is the case for one name, which exists before or not.
func plantCase(title, name string, there bool) attack {
	p := func(w *world) string { return filepath.Join(w.project, name) }
	return attack{name: strings.ReplaceAll(title, "/", " "), program: "plant", prepare: func(w *world) []string {
		if strings.Contains(name, ".git/") {
			w.write(filepath.Join(w.project, strings.SplitAfter(name, ".git/")[0], "HEAD"), "ref: refs/heads/main\n")
		}
		if strings.HasPrefix(name, "sub/lib/") {
			w.write(w.project+"/sub/lib/.git/HEAD", "ref: refs/heads/main\n")
			w.mkdir(w.project + "/sub/lib/.git/objects")
			w.mkdir(w.project + "/sub/lib/.git/refs")
		}
		if there {
			w.write(p(w), "# as it was\n{}\n")
		}
		return []string{"paths=" + p(w)}
	}, harmed: func(w *world) string {
		data, err := os.ReadFile(p(w))
		switch {
		case there && string(data) != "# as it was\n{}\n":
			return fmt.Sprintf("%s is now %q, %v", p(w), data, err)
		case !there && err == nil && len(data) > 0:
			return fmt.Sprintf("%s was created: %q", p(w), data)
		}
		if info, err := os.Lstat(p(w)); err == nil && info.Mode()&os.ModeSymlink != 0 {
			return p(w) + " is a link"
		}
		return ""
	}}
}

// repository makes the project a git repository.
func repository(w *world) []string {
	w.git("init", "-q", "-b", "main")
	w.git("add", ".")
	w.git("commit", "-q", "-m", "first")
	return nil
}

// git runs git as the user, outside.
func (w *world) git(args ...string) string {
	w.t.Helper()
	r := w.run(w.command("git", append([]string{"-c", "user.name=Ann", "-c", "user.email=ann@example.com"}, args...)...))
	if r.code != 0 {
		w.t.Fatalf("git %v: %s", args, r.all())
	}
	return r.out
}

// hooked runs git as a person would do afterwards, and reports whether git obeyed the attack.
func hooked(w *world) string {
	for _, p := range []string{".git/hooks/post-checkout", ".git/config"} {
		if strings.Contains(w.read(filepath.Join(w.project, p)), "attack") {
			return p + " is the attack's"
		}
	}
	if info, err := os.Lstat(w.project + "/.git"); err != nil || !info.IsDir() {
		return fmt.Sprint(".git is no directory any more: ", err)
	}
	return ""
}

// raceAttacks change files while the box looks at them.
func raceAttacks() []attack {
	ms := "ms=300"
	if !testing.Short() {
		ms = "ms=4000"
	}
	args := []string{ms}
	return []attack{
		{name: "reading through a link that turns", program: "raceread", args: args},
		{name: "reading a denied file beside, through a link that turns", program: "raceread", args: args, prepare: secretBelow("project/closed/secret.txt"), flags: []string{"--no-read", "{project}/closed"}},
		{name: "writing through a link that turns", program: "racewrite", args: args},
		{name: "moving a denied file's parent", program: "raceparent", args: args, prepare: secretBelow("project/a/b/secret.txt"), flags: []string{"--no-read", "{project}/a/b/secret.txt"}},
		{name: "moving the parent of a glob", program: "raceparent", args: args, prepare: secretBelow("project/a/b/.env")},
		{name: "a name that changes", program: "racename", args: append([]string{"good=xmcp.json", "path=.mcp.json"}, args...), harmed: planted(".mcp.json")},
		{name: "a hook's name that changes", program: "racename", args: append([]string{"good=.git/hookz/pre-commit", "path=.git/hooks/pre-commit"}, args...), prepare: func(w *world) []string {
			repository(w)
			w.mkdir(w.project + "/.git/hookz")
			return nil
		}, harmed: planted(".git/hooks/pre-commit")},
		{name: "a directory's name that changes", program: "racename", args: append([]string{"good=.git/hookz", "path=.git/hooks"}, args...), prepare: func(w *world) []string {
			repository(w)
			if err := os.RemoveAll(w.project + "/.git/hooks"); err != nil {
				w.t.Fatal(err)
			}
			return nil
		}, harmed: planted(".git/hooks")},
		{name: "a socket's name that changes", program: "racesocket", args: append([]string{"good=own.sock"}, args...), prepare: func(w *world) []string {
			listenUnix(w, "unix", w.outside+"/app.sock")
			return []string{"path=" + w.outside + "/app.sock"}
		}},
		{name: "a socket's name that changes, in the working directory", program: "racesocket", args: append([]string{"good=own.sock"}, args...), prepare: func(w *world) []string {
			listenUnix(w, "unix", w.project+"/app.sock")
			return []string{"path=" + w.project + "/app.sock"}
		}},
	}
}

// planted looks for a file that the attack made in the project.
func planted(name string) func(*world) string {
	return func(w *world) string {
		p := filepath.Join(w.project, name)
		if info, err := os.Lstat(p); err == nil {
			return fmt.Sprintf("%s is there: %v %q", p, info.Mode(), w.read(p))
		}
		return ""
	}
}

// bombAttacks use up resources. Each has its own bound.
func bombAttacks() []attack {
	return []attack{
		{name: "processes", program: "fork", args: []string{"count=300"}, flags: []string{"--pids", "100"}},
		{name: "memory", program: "memory", args: []string{"mb=600"}, flags: []string{"--memory", "100M"}, dies: true},
		{name: "memory of many", program: "memory", args: []string{"mb=400", "count=8"}, flags: []string{"--memory", "100M"}, dies: true},
		{name: "disk in tmp", program: "disk", args: []string{"mb=100", "paths=/tmp"}, flags: []string{"--tmp-size", "20M"}},
		{name: "file size", program: "disk", args: []string{"mb=60", "paths={project}"}, flags: []string{"--file-size", "20M"}, dies: true},
		{name: "open files", program: "open", args: []string{"count=300"}, flags: []string{"--open-files", "100"}},
	}
}
