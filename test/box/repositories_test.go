package box_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// hostile is a repository that a command makes to have git outside run a planted program.
type hostile struct {
	name string
	// before is a script that runs outside before the box, plant one that runs in the box. Both
	// begin in the case's own directory. $SEED is a repository's directory to copy. $RAN is the
	// file that the planted program makes. "arm FILE" adds a setting that makes that file to a
	// configuration.
	before, plant string
	// at is the directory for git, below the case's directory. uses are the git commands; the
	// default is gitUses.
	at   string
	uses []string
	// after is a script that runs outside before git.
	after string
	// plain limits a case to a plain box, and to the run without a box.
	plain bool // only in a plain box
}

// gitUses are git commands of people and shell prompts.
var gitUses = []string{"git status", "git log -p -1", "git diff", "git add -A", "git commit -q --allow-empty -m x"}

// hostiles are the cases.
func hostiles() []hostile {
	const rebase = `mkdir G/rebase-merge; printf 'exec touch %s\n' "$RAN" >G/rebase-merge/git-rebase-todo; printf 'refs/heads/main\n' >G/rebase-merge/head-name; cat G/refs/heads/main >G/rebase-merge/onto; ` +
		`cat G/refs/heads/main >G/rebase-merge/orig-head; : >G/rebase-merge/interactive; : >G/rebase-merge/done; echo 0 >G/rebase-merge/msgnum; echo 1 >G/rebase-merge/end`
	in := func(dir, script string) string { return strings.ReplaceAll(script, "G/", dir+"/") }
	hook := `mkdir -p G/hooks; printf '#!/bin/sh\ntouch %s\n' "$RAN" >G/hooks/pre-commit; cp G/hooks/pre-commit G/hooks/post-index-change; chmod 755 G/hooks/*`
	return []hostile{
		{name: "a new repository", plant: `cp -r $SEED .git; arm .git/config`},
		{name: "bare-shaped without .git", plant: `cp -r $SEED x; arm x/config; printf '\tbare = false\n\tworktree = .\n' >>x/config`, at: "x"},
		{name: "a .git file", plant: `cp -r $SEED store; arm store/config; mkdir w; echo 'gitdir: ../store' >w/.git`, at: "w"},
		{name: "a .git file into objects", plant: `cp -r $SEED .git; cp -r $SEED .git/objects/ab; arm .git/objects/ab/config; mkdir w; echo 'gitdir: ../.git/objects/ab' >w/.git`, at: "w"},
		{name: "a .git file into what looks like nothing", plant: `cp -r $SEED common; rm common/HEAD; arm common/config; mkdir g w; cp $SEED/HEAD $SEED/index g; echo ../common >g/commondir; echo 'gitdir: ../g' >w/.git`, at: "w"},
		{name: "a .git file through a link", plant: `cp -r $SEED store; arm store/config; mkdir w; ln -s ../store w/l; echo 'gitdir: l' >w/.git`, at: "w"},
		{name: "moved", plant: `mkdir a; cp -r $SEED a/.git; arm a/.git/config; mv a b`, at: "b"},
		{name: "renamed into place", plant: `cp -r $SEED x; arm x/config; mv x .git`},
		{name: "260 decoys", plant: `i=0; while [ $i -lt 260 ]; do mkdir -p d/$i/.git; echo >d/$i/.git/config; i=$((i+1)); done; mkdir z; cp -r $SEED z/.git; arm z/.git/config`, at: "z"},
		{name: "deep", plant: `mkdir -p 1/2/3/4/5/6/7/8/9; cp -r $SEED 1/2/3/4/5/6/7/8/9/.git; arm 1/2/3/4/5/6/7/8/9/.git/config`, at: "1/2/3/4/5/6/7/8/9"},
		{name: "in node_modules", plant: `mkdir -p node_modules/p; cp -r $SEED node_modules/p/.git; arm node_modules/p/.git/config`, at: "node_modules/p"},
		{name: "in a repository", plant: `cp -r $SEED .git; mkdir .git/w; cp -r $SEED .git/w/.git; arm .git/w/.git/config`, at: ".git/w"},
		{name: "hooks", plant: `cp -r $SEED .git; ` + in(".git", hook)},
		{name: "linked hooks", plant: `cp -r $SEED .git; ` + in("h", hook) + `; rm -rf .git/hooks; ln -s ../h/hooks .git/hooks`},
		{name: "an include", plant: `cp -r $SEED .git; arm evil; printf '[include]\n\tpath = ../evil\n' >>.git/config`},
		{name: "a conditional include", plant: `cp -r $SEED .git; arm evil; printf '[includeIf "gitdir:**"]\n\tpath = ../evil\n' >>.git/config`},
		{name: "a linked configuration", plant: `cp -r $SEED .git; cat .git/config >evil; arm evil; rm .git/config; ln -s ../evil .git/config`},
		{name: "a second name of a configuration", plant: `cp -r $SEED .git; cat .git/config >evil; arm evil; rm .git/config; ln evil .git/config`},
		{name: "a linked .git", plant: `cp -r $SEED store; arm store/config; ln -s store .git`},
		{name: "a worktree's own configuration", plant: `cp -r $SEED .git; printf '[extensions]\n\tworktreeConfig = true\n' >>.git/config; arm .git/config.worktree`},
		{name: "a worktree elsewhere", plant: `cp -r $SEED .git; printf '[extensions]\n\tworktreeConfig = true\n' >>.git/config; mkdir -p .git/worktrees/w w; cp $SEED/HEAD $SEED/index .git/worktrees/w; echo ../.. >.git/worktrees/w/commondir; ` +
			`echo "$PWD/w/.git" >.git/worktrees/w/gitdir; echo 'gitdir: ../.git/worktrees/w' >w/.git; arm .git/worktrees/w/config.worktree`, at: "w"},
		{name: "a submodule", plant: `cp -r $SEED .git; mkdir -p .git/modules/a/b w; cp -r $SEED .git/modules/a/b/c; arm .git/modules/a/b/c/config; printf '\tworktree = ../../../../../w\n' >>.git/modules/a/b/c/config; echo 'gitdir: ../.git/modules/a/b/c' >w/.git`, at: "w"},
		{name: "unusual syntax", plant: `cp -r $SEED .git; printf '[core]FsMonitor="touch '"$RAN"'\\\n; false"' >>.git/config`},
		{name: "after a mark", plant: `cp -r $SEED .git; printf '\357\273\277[core]\r\n\tfsmonitor = "touch '"$RAN"'; false"' >.git/config`},
		{name: "an alias", plant: `cp -r $SEED .git; printf '[alias]\n\tst = "!touch %s"\n' "$RAN" >>.git/config`, uses: []string{"git st"}},
		{name: "a filter", plant: `cp -r $SEED .git; printf '[filter "x"]\n\tclean = "touch %s; cat"\n' "$RAN" >>.git/config; echo '* filter=x' >.gitattributes; echo new >a.txt`},
		{name: "an external diff", plant: `cp -r $SEED .git; printf '[diff]\n\texternal = "touch %s; true"\n' "$RAN" >>.git/config; echo new >a.txt`},
		{name: "a text conversion", plant: `cp -r $SEED .git; printf '[diff "x"]\n\ttextconv = "touch %s; cat"\n' "$RAN" >>.git/config; echo '* diff=x' >.gitattributes; echo new >a.txt`},
		{name: "a way to a remote", plant: `cp -r $SEED .git; printf '[core]\n\tsshCommand = "touch %s; false"\n[remote "origin"]\n\turl = ssh://x.example/x\n' "$RAN" >>.git/config`, uses: []string{"git fetch"}},
		{name: "a remote's program", plant: `cp -r $SEED .git; printf '[remote "origin"]\n\turl = .\n\tuploadpack = "touch %s; false"\n' "$RAN" >>.git/config`, uses: []string{"git fetch"}},
		{name: "a credential helper", plant: `cp -r $SEED .git; printf '[credential]\n\thelper = "!touch %s; true"\n' "$RAN" >>.git/config`, uses: []string{"printf 'protocol=https\nhost=x.example\n\n' | GIT_TERMINAL_PROMPT=0 git credential fill"}},
		{name: "a signature", plant: `cp -r $SEED .git; printf '[commit]\n\tgpgsign = true\n[gpg]\n\tprogram = %s\n' "$PWD/sign" >>.git/config; printf '#!/bin/sh\ntouch %s\n' "$RAN" >sign; chmod 755 sign`},
		{name: "an editor", plant: `cp -r $SEED .git; printf '[core]\n\teditor = "touch %s; true"\n' "$RAN" >>.git/config`, uses: []string{"unset GIT_EDITOR; EDITOR=true git commit --allow-empty -e -m x"}},
		{name: "a submodule's update", plant: `cp -r $SEED .git; printf '[submodule "s"]\n\turl = %s\n\tupdate = "!touch %s;"\n\tactive = true\n' "$SEED" "$RAN" >>.git/config; printf '[submodule "s"]\n\tpath = s\n\turl = %s\n' "$SEED" >.gitmodules`,
			after: `git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),s`, uses: []string{"git -c protocol.file.allow=always submodule update"}},
		{name: "a rebase", plant: `cp -r $SEED .git; echo a >a.txt; ` + in(".git", rebase), uses: []string{"git rebase --continue"}},
		{name: "a closed directory", plant: `mkdir c; cp -r $SEED c/.git; arm c/.git/config; chmod 000 c`, after: `chmod 755 c`, at: "c", plain: true},
		{name: "a name with a new line", plant: `d=$(printf 'a\nb'); mkdir "$d"; cp -r $SEED "$d/.git"; arm "$d/.git/config"`, at: "a\nb"},
		{name: "a path that is too long", plant: `n=$(printf '%0200d' 1); i=0; while [ $i -lt 30 ]; do mkdir $n; cd $n; i=$((i+1)); done; cp -r $SEED .git; arm .git/config`,
			after: `d=$PWD; n=$(printf '%0200d' 1); i=0; while [ $i -lt 15 ]; do cd $n || exit; i=$((i+1)); done; mv $n $d/top`, at: "top",
			uses: []string{`n=$(printf '%0200d' 1); while cd $n 2>/dev/null; do :; done; git status`}, plain: true},
		{name: "there before, renamed into place", before: `cp -r $SEED fixture; arm fixture/config; printf '\tbare = false\n' >>fixture/config`, plant: `mkdir w; mv fixture w/.git`, at: "w"},
		{name: "there before, moved", before: `mkdir -p node_modules/p; cp -r $SEED node_modules/p/.git; arm node_modules/p/.git/config`, plant: `mv node_modules/p q`, at: "q"},
		{name: "there before, as a hook", before: `cp -r $SEED store; mkdir h; printf '#!/bin/sh\ntouch %s\n' "$RAN" >h/pre-commit; chmod 755 h/pre-commit`, plant: `cp -r store .git; rm -rf .git/hooks; mv h .git/hooks`},
	}
}

// hostilePrelude is the beginning of each script: the functions and variables of a case.
func hostilePrelude(w *world, c hostile) string {
	return fmt.Sprintf("export SEED=%s/seed RAN=%s; arm() { printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = \"touch %%s; false\"\\n' \"$RAN\" >>\"$1\"; }\n", w.project, c.ran(w))
}

func (c hostile) word() string {
	return strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(c.name)
}
func (c hostile) dir(w *world) string   { return w.project + "/" + c.word() }
func (c hostile) ran(w *world) string   { return w.home + "/ran/" + c.word() }
func (c hostile) seen(w *world) bool    { _, err := os.Lstat(c.ran(w)); return err == nil }
func (c hostile) suits(way string) bool { return !c.plain || way == "plain" || way == "unboxed" }

// seed makes a repository's directory for the cases to copy.
func seed(w *world) {
	w.t.Helper()
	w.write(w.home+"/.gitconfig", "[user]\n\tname = Ann\n\temail = ann@example.com\n[init]\n\tdefaultBranch = main\n")
	w.mkdir(w.home + "/ran")
	w.write(w.home+"/made/a.txt", "a\n")
	w.sh(w.home+"/made", `git init -q . && git add . && git commit -q -m first && rm -rf .git/hooks/* .git/logs && mv .git ../project/seed`)
}

// sh runs a script outside, as the user, without this process's git variables.
func (w *world) sh(dir, script string) result {
	w.t.Helper()
	cmd := w.command("/bin/sh", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(cmd.Env, "GIT_EDITOR=true", "GIT_TERMINAL_PROMPT=0")
	r := w.run(cmd)
	return r
}

// plantAll runs the cases' scripts in one box, or without one.
func plantAll(w *world, way string, flags []string, cases []hostile) {
	w.t.Helper()
	var script strings.Builder
	for _, c := range cases {
		w.mkdir(c.dir(w))
		if c.before != "" {
			if r := w.sh(c.dir(w), hostilePrelude(w, c)+c.before); r.code != 0 {
				w.t.Fatalf("%s: %s", c.name, r.all())
			}
		}
		fmt.Fprintf(&script, "( cd '%s'; %s%s\n) || echo 'planting failed: %s'\n", c.dir(w), hostilePrelude(w, c), c.plant, c.word())
	}
	var r result
	if way == "unboxed" {
		r = w.sh(w.project, script.String())
	} else {
		r = w.run(w.box(append(flags, "-c", script.String())...))
	}
	for _, c := range cases {
		// A box may refuse to move files that existed before.
		if strings.Contains(r.all(), "planting failed: "+c.word()+"\n") && (c.before == "" || way == "unboxed") {
			w.t.Errorf("%s was not planted: exit %d\n%.4000s", c.name, r.code, r.all())
		}
	}
	w.t.Logf("exit %d after %v\n%.1500s", r.code, r.took, r.all())
}

// useGit does the case's work outside, and reports whether the planted program ran.
func useGit(w *world, c hostile) (ran bool, log string) {
	var out strings.Builder
	dir := filepath.Join(c.dir(w), c.at)
	if c.after != "" {
		r := w.sh(c.dir(w), c.after)
		out.WriteString(r.all())
	}
	if _, err := os.Stat(dir); err != nil {
		return false, err.Error()
	}
	uses := c.uses
	if uses == nil {
		uses = gitUses
	}
	var script strings.Builder // one shell for all
	for _, use := range uses {
		fmt.Fprintf(&script, "( %s\n); echo \"exit $?\"; [ ! -e '%s' ] || { echo 'it ran'; exit; }\n", use, c.ran(w))
	}
	r := w.sh(dir, script.String())
	fmt.Fprintf(&out, "%q\n%.2000s\n", uses, r.all())
	return c.seen(w), out.String()
}

// userOf is the user of a way with -short; "" means both.
var userOf = map[string]string{"unboxed": "user", "plain": "", "overlay": "user", "gvisor": "root", "sim": "user"}

// shortStep says for each way that with -short one in so many cases is planted.
var shortStep = map[string]int{"unboxed": 2, "plain": 2, "overlay": 4, "gvisor": 4, "sim": 4}

// ways are the kinds of boxes that leave files behind.
func ways() map[string][]string {
	return map[string][]string{"unboxed": nil, "plain": nil, "overlay": {"--overlay", "--apply"}, "gvisor": {"--tier", "gvisor"}, "sim": {"--tier", "sim"}}
}

// plantAndUse has a box of one kind plant the cases that suit it, and uses git on each one outside.
// A planted program may run only if there was no box. With -short, only a plain box has all cases,
// half of them for each user; what follows it is the same after all kinds of boxes.
func plantAndUse(t *testing.T, w *world, way string, flags []string, all []hostile) {
	seed(w)
	cases := slices.DeleteFunc(all, func(c hostile) bool { return !c.suits(way) })
	if testing.Short() {
		from, step := 0, shortStep[way]
		if way == "plain" && w.uid != 0 && os.Getuid() == 0 {
			from = 1
		} else if way == "plain" && os.Getuid() != 0 {
			step = 1 // the only user
		}
		var some []hostile
		for i := from; i < len(cases); i += step {
			some = append(some, cases[i])
		}
		cases = some
	}
	plantAll(w, way, flags, cases)
	for _, c := range cases {
		w.sub(t, c.word(), func(t *testing.T) {
			ran, log := useGit(w, c)
			if want := way == "unboxed"; ran != want {
				t.Errorf("the planted program ran: %v, want %v\n%s", ran, want, log)
			}
		})
	}
}

// TestRepositories runs the real git in the files that a box left. No planted program may run.
func TestRepositories(t *testing.T) {
	_, err := exec.LookPath("git")
	testenv.Need(t, "git", err)
	t.Run("planted", func(t *testing.T) {
		for way, flags := range ways() {
			t.Run(way, func(t *testing.T) {
				bothOr(t, userOf[way], func(t *testing.T, w *world) {
					plantAndUse(t, w, way, flags, hostiles())
				})
			})
		}
	})
	t.Run("protected", protectedRepositories)
	t.Run("usable", usableRepositories)
}

// protectedRepositories tries to change the files that existing repositories take orders from.
func protectedRepositories(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		seed(w)
		w.sh(w.project, `cp -r seed .git; mkdir -p tools hooks .git/modules/a/b/c; cp -r seed .git/modules/a/b/c/d; mkdir -p .git/modules/a/b/c/d/modules/x; cp -r seed .git/modules/a/b/c/d/modules/x/y
			for f in hooks/pre-commit tools/monitor tools/diff tools/clean tools/conv tools/alias; do printf '#!/bin/sh\n' >$f; chmod 755 $f; done
			printf '[x]\n' >tools/include; printf '[x]\n' >tools/if
			git config core.hooksPath hooks; git config core.fsmonitor tools/monitor; git config diff.external tools/diff; git config filter.x.clean tools/clean; git config diff.x.textconv tools/conv
			git config alias.x '!tools/alias'; git config include.path ../tools/include; git config includeIf.gitdir:/.path ../tools/if`)
		files := []string{
			".git/modules/a/b/c/d/config", ".git/modules/a/b/c/d/hooks/pre-commit", ".git/modules/a/b/c/d/modules/x/y/config", ".git/modules/a/b/c/d/modules/x/y/hooks/pre-commit",
			"hooks/pre-commit", "hooks/new", "tools/monitor", "tools/diff", "tools/clean", "tools/conv", "tools/alias", "tools/include", "tools/if",
		}
		for _, f := range files {
			w.run(w.box("-c", "mkdir -p $(dirname "+f+"); echo planted >>"+f+"; cp "+f+" t; mv -f t "+f))
			if strings.Contains(w.sh(w.project, "cat "+f).all(), "planted") {
				t.Errorf("%s was changed", f)
			}
		}
	})
}

// usableRepositories makes repositories in the box, and finishes a rebase in one. git must work
// with them outside.
func usableRepositories(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		seed(w)
		r := w.run(w.box("-c", `export GIT_CONFIG_GLOBAL=/dev/null GIT_EDITOR=true; set -e
			git init -q -b main made; cd made; git config user.name Bob; git config user.email bob@example.com; git remote add origin https://example.com/x.git
			for n in 1 2 3; do echo $n >$n; git add .; git commit -q -m $n; done
			GIT_SEQUENCE_EDITOR='printf "exec touch ran\n" >>' git rebase -q -i HEAD~2; test -e ran; git branch -q other; cd ..
			git clone -q made copy`))
		if r.code != 0 {
			t.Fatalf("exit %d: %s", r.code, r.all())
		}
		out := w.sh(w.project, `cd made && git config user.name && git remote get-url origin && git log --oneline | wc -l && git rev-parse -q --verify other && git fsck && cd ../copy && git status && git remote get-url origin && git commit -q --allow-empty -m y`)
		if out.code != 0 || !strings.Contains(out.all(), "Bob\nhttps://example.com/x.git\n") {
			t.Errorf("exit %d: %s", out.code, out.all())
		}
	})
}
