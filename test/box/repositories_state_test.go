package box_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// states are cases in which git outside continues a stopped operation. A box planted or changed the
// state of that operation in an existing repository.
func states() []hostile {
	const (
		repo = `cp -r $SEED .git; git checkout -q -f; for n in b c d; do echo $n >$n.txt; git add .; git commit -q -m $n; done; `
		// A person's rebase, stopped before its last two commits.
		stopped = repo + `GIT_SEQUENCE_EDITOR='sed -i 1s/pick/edit/' git rebase -q -i HEAD~3; `
		// The state of a rebase with nothing left to do, but for the list.
		state  = `mkdir -p G; printf 'refs/heads/main\n' >G/head-name; cat .git/refs/heads/main >G/onto; cat .git/refs/heads/main >G/orig-head; : >G/interactive; : >G/done; echo 0 >G/msgnum; echo 1 >G/end; `
		todo   = `G/git-rebase-todo`
		exec   = `printf 'exec touch %s\n' "$RAN" >>` + todo
		script = `mkdir git-merge-..; printf '#!/bin/sh\ntouch %s\n' "$RAN" >git-merge-../x; chmod 755 git-merge-../x; `
	)
	in := func(dir string, parts ...string) string {
		return strings.ReplaceAll(strings.Join(parts, ""), "G/", dir+"/")
	}
	at := func(dir string, parts ...string) string {
		return strings.ReplaceAll(in(dir, parts...), "-p G;", "-p "+dir+";")
	}
	const merge = ".git/rebase-merge"
	on := []string{"git status", "git rebase --continue"}
	return []hostile{
		{name: "state: a rebase", before: repo, plant: at(merge, state, exec), uses: on},
		{name: "state: added to a rebase", before: stopped, plant: in(merge, exec), uses: on},
		{name: "state: a rebase is skipped", before: stopped, plant: in(merge, exec), uses: []string{"git rebase --skip"}},
		{name: "state: its list is edited", before: stopped, plant: in(merge, exec), uses: []string{"GIT_SEQUENCE_EDITOR=true git rebase --edit-todo", "git rebase --continue"}},
		{name: "state: a short command", before: stopped, plant: in(merge, `printf ' \t x\ttouch %s\n' "$RAN" >`, todo), uses: on},
		{name: "state: between comments", before: stopped, plant: in(merge, `printf '# a\n\nexec touch %s\n# b' "$RAN" >`, todo), uses: on},
		{name: "state: without a last line end", before: stopped, plant: in(merge, `printf 'exec touch %s' "$RAN" >`, todo), uses: on},
		{name: "state: a linked list", before: stopped, plant: in(merge, `printf 'exec touch %s\n' "$RAN" >list; rm `, todo, `; ln -s ../../list `, todo), uses: on},
		{name: "state: a second name of a list", before: stopped, plant: in(merge, `printf 'exec touch %s\n' "$RAN" >list; rm `, todo, `; ln list `, todo), uses: on},
		{name: "state: a list renamed into place", before: stopped, plant: in(merge, `printf 'exec touch %s\n' "$RAN" >list; mv list `, todo), uses: on},
		{name: "state: a linked directory", before: repo, plant: at("s", state, exec) + `; ln -s ../s .git/rebase-merge`, uses: on},
		{name: "state: a directory renamed into place", before: repo, plant: at("s", state, exec) + `; mv s .git/rebase-merge`, uses: on},
		{name: "state: one that was beside it", before: repo + at("s", state, exec), plant: `mv s .git/rebase-merge`, uses: on},
		{name: "state: in a new repository", plant: `cp -r $SEED .git; echo a >a.txt; ` + at(merge, state, exec), uses: on},
		{name: "state: in a worktree", before: repo + `git worktree add -q w`, plant: strings.ReplaceAll(at(".git/worktrees/w/rebase-merge", state, exec), "refs/heads/main\\n", "refs/heads/w\\n"), at: "w", uses: on},
		{name: "state: in a submodule", before: repo + `mkdir -p .git/modules/a; cp -r $SEED .git/modules/a/b; printf '\tworktree = ../../../../s\n' >>.git/modules/a/b/config; mkdir s; echo a >s/a.txt; echo 'gitdir: ../.git/modules/a/b' >s/.git`,
			plant: at(".git/modules/a/b/rebase-merge", strings.ReplaceAll(state, "cat .git/refs", "cat .git/modules/a/b/refs"), exec), at: "s", uses: on},
		// A strategy is the end of a program's name. With slashes in it, the name leads to any
		// program.
		{name: "state: a strategy", before: stopped, plant: script + `echo ../x >.git/rebase-merge/strategy; ` + `printf ort >.git/rebase-merge/strategy_opts`, after: `git commit -q --amend -m other`, uses: on},
		{name: "state: a cherry-pick's strategy", before: repo + `git branch o HEAD; git reset -q --hard HEAD~2; ` + `mkdir .git/sequencer; git rev-parse HEAD >.git/sequencer/head`,
			plant: script + `printf '[options]\n\tstrategy = ../x\n' >.git/sequencer/opts; o=$(cat .git/refs/heads/o); printf 'pick %s\npick %s\n' $o $o >.git/sequencer/todo`, uses: []string{"git cherry-pick --continue"}},
		{name: "state: a bisection's program", before: repo + `git bisect start -q HEAD HEAD~3`, plant: `printf 'touch %s\n' "$RAN" >.git/BISECT_RUN; printf 'git bisect start\ntouch %s\n' "$RAN" >>.git/BISECT_LOG`,
			uses: []string{`sh .git/BISECT_RUN`, "git bisect good", "git bisect replay .git/BISECT_LOG"}},
	}
}

// TestRepositoryStates continues rebases, picks and bisections outside whose state boxes have
// planted.
func TestRepositoryStates(t *testing.T) {
	_, err := exec.LookPath("git")
	testenv.Need(t, "git", err)
	for way, flags := range ways() {
		t.Run(way, func(t *testing.T) {
			bothOr(t, userOf[way], func(t *testing.T, w *world) {
				plantAndUse(t, w, way, flags, states())
			})
		})
	}
}

// TestRepositoriesUnseen hides something that the command could write to from the audit. The run
// must fail and say so, whatever the command's own status is.
func TestRepositoriesUnseen(t *testing.T) {
	_, err := exec.LookPath("git")
	testenv.Need(t, "git", err)
	both(t, func(t *testing.T, w *world) {
		seed(w)
		const hint = "do not use git there"
		// The user may make files in it, and not list it.
		drop := w.project + "/drop"
		w.mkdir(drop)
		const other = 54399
		if os.Getuid() == 0 {
			if err := errors.Join(os.Lchown(drop, other, other), os.Chmod(drop, 0o733)); err != nil {
				t.Fatal(err)
			}
		}
		c := hostile{name: "unseen", plant: `mkdir x; cp -r $SEED x/.git; arm x/.git/config`, at: "../drop/x"}
		w.mkdir(c.dir(w))
		// A box closes such a directory, unless a flag opens it.
		r := w.run(w.box("--write", drop, "-c", hostilePrelude(w, c)+"cd drop; "+c.plant))
		ran, log := useGit(w, c)
		switch told := r.code == 125 && strings.Contains(r.err, hint) && strings.Contains(r.err, drop); {
		case w.uid == stranger && !told:
			t.Errorf("exit %d %s", r.code, r.err)
		case w.uid == 0 && (ran || r.code != 0): // root looks everywhere
			t.Errorf("exit %d %s\n%s", r.code, r.err, log)
		}
		// A path that is longer than the system allows.
		long := `n=$(printf '%0200d' 1); i=0; while [ $i -lt 30 ]; do mkdir $n; cd $n; i=$((i+1)); done; exit 7`
		if r := w.run(w.box("-c", long)); r.code != 125 || !strings.Contains(r.err, hint) || !strings.Contains(r.err, "too long") {
			t.Errorf("exit %d %s", r.code, r.err)
		}
		// If there is nothing to report, the command's own status counts.
		w.sh(w.home, "rm -rf project/0*; rm -rf project/drop")
		if r := w.run(w.box("-c", "mkdir fine; exit 7")); r.code != 7 || strings.Contains(r.err, hint) {
			t.Errorf("exit %d %s", r.code, r.err)
		}
	})
}
