package git

import (
	"fmt"
	"slices"
	"strings"
)

func (r *repo) upstreamText(branch string) string {
	up, _ := r.upstream(branch)
	if up == "" {
		return ""
	}
	name := strings.TrimPrefix(strings.TrimPrefix(up, "refs/remotes/"), "refs/heads/")
	ahead, behind, ok := r.distance(branch, up)
	switch {
	case !ok:
		return fmt.Sprintf("Your branch is based on '%s', but the upstream is gone.\n  (use \"git branch --unset-upstream\" to fixup)\n", name)
	case ahead == 0 && behind == 0:
		return fmt.Sprintf("Your branch is up to date with '%s'.\n", name)
	case behind == 0:
		return fmt.Sprintf("Your branch is ahead of '%s' by %s.\n  (use \"git push\" to publish your local commits)\n", name, plural(ahead, "commit"))
	case ahead == 0:
		return fmt.Sprintf("Your branch is behind '%s' by %s, and can be fast-forwarded.\n  (use \"git pull\" to update your local branch)\n", name, plural(behind, "commit"))
	}
	return fmt.Sprintf("Your branch and '%s' have diverged,\nand have %d and %d different commits each, respectively.\n  (use \"git pull\" to merge the remote branch into yours)\n", name, ahead, behind)
}

var longNames = map[byte]string{'A': "new file:   ", 'M': "modified:   ", 'D': "deleted:    ", 'R': "renamed:    ", 'T': "typechange: "}

var longConflicts = map[int]string{1: "both deleted:    ", 2: "added by us:     ", 4: "added by them:   ", 3: "deleted by them: ", 5: "deleted by us:   ", 6: "both added:      ", 7: "both modified:   "}

// longStatus writes the status in words. Each line may have a prefix, for a commit's message.
func (r *repo) longStatus(write func([]byte) (int, error), s *condition, mode, prefix string, committing bool) {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	branch, at := r.head()
	first := at.IsZero()
	if branch == "" {
		p("HEAD detached at %s\n", r.short(at))
	} else {
		p("On branch %s\n", strings.TrimPrefix(branch, "refs/heads/"))
	}
	if up := r.upstreamText(branch); up != "" {
		p("%s\n", up)
	}
	merging := r.read("MERGE_HEAD") != ""
	picking := r.read("CHERRY_PICK_HEAD") != ""
	p("%s", r.mergeStatus(s, merging, picking))
	if first {
		if committing {
			p("\nInitial commit\n\n")
		} else {
			p("\nNo commits yet\n\n")
		}
	}
	unstage := "  (use \"git restore --staged <file>...\" to unstage)\n"
	if first {
		unstage = "  (use \"git rm --cached <file>...\" to unstage)\n"
	}
	if len(s.staged) > 0 {
		p("Changes to be committed:\n")
		if !merging {
			p("%s", unstage)
		}
		for _, c := range s.staged {
			name := quotePath(r.shown(c.new))
			if c.kind == 'R' {
				name = quotePath(r.shown(c.old)) + " -> " + name
			}
			p("\t%s%s\n", longNames[c.kind], name)
		}
		p("\n")
	}
	if len(s.unmerged) > 0 {
		about := ""
		if !merging && !picking && r.read("REVERT_HEAD") == "" {
			about = unstage
		}
		p("%s", r.unmergedStatus(s, about))
	}
	if len(s.unstaged) > 0 {
		add := "git add <file>..."
		if slices.ContainsFunc(s.unstaged, func(c change) bool { return c.kind == 'D' }) {
			add = "git add/rm <file>..."
		}
		p("Changes not staged for commit:\n  (use \"%s\" to update what will be committed)\n  (use \"git restore <file>...\" to discard changes in working directory)\n", add)
		for _, c := range s.unstaged {
			p("\t%s%s\n", longNames[c.kind], quotePath(r.shown(c.new)))
		}
		p("\n")
	}
	list := func(title, verb string, names []string) {
		if len(names) == 0 {
			return
		}
		p("%s files:\n  (use \"%s <file>...\" to include in what will be committed)\n", title, verb)
		for _, n := range names {
			p("\t%s\n", quotePath(r.shown(n)))
		}
		p("\n")
	}
	list("Untracked", "git add", s.untracked)
	list("Ignored", "git add -f", s.ignored)
	if mode == "no" && len(s.staged)+len(s.unstaged) > 0 {
		p("Untracked files not listed (use -u option to show untracked files)\n")
	}
	p("%s", s.lastWords(mode, merging, first))
	text := b.String()
	if prefix != "" {
		lines := strings.SplitAfter(text, "\n")
		for i, l := range lines {
			if l != "" {
				lines[i] = prefix + l
			}
		}
		text = strings.Join(lines, "")
	}
	_, _ = write([]byte(text)) // said at the end
}

// mergeStatus describes an unfinished merge or cherry-pick.
func (r *repo) mergeStatus(s *condition, merging, picking bool) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	switch {
	case merging && len(s.unmerged) > 0:
		p("You have unmerged paths.\n  (fix conflicts and run \"git commit\")\n  (use \"git merge --abort\" to abort the merge)\n\n")
	case merging:
		p("All conflicts fixed but you are still merging.\n  (use \"git commit\" to conclude merge)\n\n")
	case picking:
		h := strings.TrimSpace(r.read("CHERRY_PICK_HEAD"))
		p("You are currently cherry-picking commit %s.\n", h[:min(7, len(h))])
		if len(s.unmerged) > 0 {
			p("  (fix conflicts and run \"git cherry-pick --continue\")\n")
		} else {
			p("  (all conflicts fixed: run \"git cherry-pick --continue\")\n")
		}
		p("  (use \"git cherry-pick --skip\" to skip this patch)\n  (use \"git cherry-pick --abort\" to cancel the cherry-pick operation)\n\n")
	}
	return b.String()
}

// unmergedStatus lists the files with conflicts. unstage is the command that removes them from the
// index; "" prints no such hint.
func (r *repo) unmergedStatus(s *condition, unstage string) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	hint := "(use \"git add <file>...\" to mark resolution)"
	for _, bits := range s.unmerged {
		if bits != 7 && bits != 6 {
			hint = "(use \"git add/rm <file>...\" as appropriate to mark resolution)"
		}
	}
	p("Unmerged paths:\n")
	p("%s", unstage)
	p("  %s\n", hint)
	var names []string
	for n := range s.unmerged {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		p("\t%s%s\n", longConflicts[s.unmerged[n]], quotePath(r.shown(n)))
	}
	p("\n")
	return b.String()
}

// lastWords returns the end of the long status when there is nothing to commit.
func (s *condition) lastWords(mode string, merging, first bool) string {
	switch {
	case len(s.staged) > 0, merging && len(s.unmerged) == 0 && len(s.unstaged) == 0:
		return ""
	case len(s.unstaged) > 0 || len(s.unmerged) > 0:
		return "no changes added to commit (use \"git add\" and/or \"git commit -a\")\n"
	case len(s.untracked) > 0:
		return "nothing added to commit but untracked files present (use \"git add\" to track)\n"
	case first && mode != "no":
		return "nothing to commit (create/copy files and use \"git add\" to track)\n"
	case mode == "no":
		return "nothing to commit (use -u to show untracked files)\n"
	}
	return "nothing to commit, working tree clean\n"
}
