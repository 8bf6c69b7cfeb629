package git

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/carrel-dev/carrel/shell/tool"
)

// putCommit stores a commit.
func (r *repo) putCommit(tree plumbing.Hash, parents []plumbing.Hash, author, committer object.Signature, message string) (plumbing.Hash, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "tree %s\n", tree)
	for _, p := range parents {
		fmt.Fprintf(&b, "parent %s\n", p)
	}
	fmt.Fprintf(&b, "author %s\ncommitter %s\n\n%s", stamp(author), stamp(committer), message)
	return r.putObject(plumbing.CommitObject, b.Bytes())
}

func stamp(s object.Signature) string {
	return fmt.Sprintf("%s <%s> %d %s", s.Name, s.Email, s.When.Unix(), s.When.Format("-0700"))
}

// tidy cleans a message as git does: it removes comments, trailing spaces, empty lines at both ends
// and repeated empty lines.
func tidy(s string, comments bool) string {
	var out []string
	blank := false
	for _, l := range strings.Split(s, "\n") {
		if comments && strings.HasPrefix(l, "#") {
			continue
		}
		l = strings.TrimRight(l, " \t\r\f\v")
		if l == "" {
			blank = len(out) > 0
			continue
		}
		if blank {
			out = append(out, "")
			blank = false
		}
		out = append(out, l)
	}
	if len(out) == 0 {
		return ""
	}
	return strings.Join(out, "\n") + "\n"
}

var nameAndMail = regexp.MustCompile(`^(.*?)\s*<([^<>]*)>$`)

// cmdCommit is git commit.
func cmdCommit(g *git, r *repo) error {
	f, err := r.commitFlags()
	if err != nil {
		return err
	}
	x, err := r.index()
	if err != nil {
		return err
	}
	spec, err := r.pathspec(f.Args)
	if err != nil {
		return err
	}
	if err := r.stageForCommit(f, x, spec); err != nil {
		return err
	}
	branch, at := r.head()
	merging := strings.Fields(r.read("MERGE_HEAD"))
	picked := strings.TrimSpace(r.read("CHERRY_PICK_HEAD"))
	amend := f.Has(0x80)
	parents, old, err := r.commitParents(amend, at, merging)
	if err != nil {
		return err
	}
	was, err := r.treeOf(firstParent(parents))
	if err != nil {
		return err
	}
	now := x.snapshot()
	if len(f.Args) > 0 && !f.Has('i') { // only these paths
		if now, err = r.onlyPaths(x, spec, at); err != nil {
			return err
		}
	}
	if len(changes(was, now)) == 0 && !f.Has(0x81) && len(merging) == 0 && !amend {
		return r.nothingToCommit(f, x)
	}
	author, err := r.identity("AUTHOR")
	if err != nil {
		return err
	}
	committer, err := r.identity("COMMITTER")
	if err != nil {
		return err
	}
	message, err := r.commitMessage(f, old, picked, committer)
	if err != nil {
		return err
	}
	if author, err = r.commitAuthor(f, author, old, picked); err != nil {
		return err
	}
	if message == "" && !f.Has(0x82) {
		g.warnf("Aborting commit due to empty commit message.")
		return exit(1)
	}
	tree, err := r.putTree(now)
	if err != nil {
		return err
	}
	if f.Has(0x86) {
		return nil
	}
	h, err := r.putCommit(tree, parents, author, committer, message)
	if err == nil {
		err = r.save(x)
	}
	if err == nil {
		err = r.moveHead(h)
	}
	if err != nil {
		return err
	}
	r.forget("MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "CHERRY_PICK_HEAD", "REVERT_HEAD", "SQUASH_MSG")
	if f.Has('q') {
		return nil
	}
	return r.announce(branch, h, was, now, author, committer, message, at.IsZero(), amend || author.When.Unix() != committer.When.Unix() && f.Has(0x84))
}

// commitFlags reads the options, and refuses those that are not supported.
func (r *repo) commitFlags() (tool.Flags, error) {
	f, err := r.flags("am:F:qvnseioC:c:pt:S::u::", "all=a", "message=m", "file=F", "quiet=q", "verbose=v", "no-verify=n", "signoff=s", "amend=\x80", "allow-empty=\x81",
		"allow-empty-message=\x82", "author=\x83:", "date=\x84:", "no-edit=\x85", "reuse-message=C", "reedit-message=c", "edit=e", "dry-run=\x86", "fixup=\x87:", "squash=\x88:",
		"reset-author=\x89", "only=o", "include=i", "patch=p", "no-gpg-sign=\x8a", "gpg-sign=S", "cleanup=\x8b:", "short=\x8c", "porcelain=\x8c", "trailer=\x8d:",
		"template=t", "untracked-files=u", "no-status=\x8a", "status=\x8a", "no-post-rewrite=\x8a", "verify=\x8a")
	if err != nil {
		return f, err
	}
	if err := r.needTree(); err != nil {
		return f, err
	}
	if f.Has('p') {
		return f, fatalf("git commit -p needs somebody at a terminal; it is not available here")
	}
	if f.Has('S') {
		return f, fatalf("there are no keys to sign with on this machine")
	}
	return f, nil
}

// stageForCommit adds the changes of commit -a, or of the named paths, to the index. An unresolved
// conflict is an error.
func (r *repo) stageForCommit(f tool.Flags, x *staging, spec *pathspec) error {
	if f.Has('a') && len(f.Args) > 0 {
		return fatalf("paths '%s ...' with -a does not make sense", f.Args[0])
	}
	if f.Has('a') || len(f.Args) > 0 {
		if err := r.stageTracked(x, spec); err != nil {
			return err
		}
		if name, ok := spec.missed(f.Args); ok {
			r.warnf("error: pathspec '%s' did not match any file(s) known to git", name)
			return exit(1)
		}
	}
	if bad := x.unmerged(); len(bad) > 0 {
		for _, n := range (snapshotOf(bad)).names() {
			r.printf("U\t%s\n", n)
		}
		r.warnf("error: Committing is not possible because you have unmerged files.\nhint: settle the conflicts, and tell with git add or git rm which files are done\nfatal: Exiting because of an unresolved conflict.")
		return exit(128)
	}
	return nil
}

// commitParents returns the parents of a new commit. old is the commit that it replaces, if it
// amends one.
func (r *repo) commitParents(amend bool, at plumbing.Hash, merging []string) (parents []plumbing.Hash, old *object.Commit, err error) {
	switch {
	case amend && at.IsZero():
		return nil, nil, fatalf("You have nothing yet to amend.")
	case amend:
		if old, err = r.commit(at); err != nil {
			return nil, nil, err
		}
		return old.ParentHashes, old, nil
	case !at.IsZero():
		parents = []plumbing.Hash{at}
		for _, m := range merging {
			parents = append(parents, plumbing.NewHash(m))
		}
	}
	return parents, nil, nil
}

// firstParent returns the commit to compare with. For a root commit it is the zero hash, which
// means an empty tree.
func firstParent(parents []plumbing.Hash) plumbing.Hash {
	if len(parents) == 0 {
		return plumbing.ZeroHash
	}
	return parents[0]
}

// onlyPaths returns the tree of HEAD with the named paths taken from the index.
func (r *repo) onlyPaths(x *staging, spec *pathspec, at plumbing.Hash) (snapshot, error) {
	now, err := r.treeOf(at)
	if err != nil {
		return nil, err
	}
	for n := range now {
		if spec.match(n) {
			delete(now, n)
		}
	}
	for n, e := range x.snapshot() {
		if spec.match(n) {
			now[n] = e
		}
	}
	return now, nil
}

// nothingToCommit prints that there is nothing to commit, with the state of the work tree.
func (r *repo) nothingToCommit(f tool.Flags, x *staging) error {
	if f.Has('a') {
		_ = r.save(x) // times may have changed
	}
	s, err := r.condition(x, "normal", false)
	if err != nil {
		return err
	}
	if !f.Has('q') {
		r.longStatus(r.w.Write, s, "normal", "", true)
	}
	return exit(1)
}

// commitAuthor returns the author: of the commit that is amended, picked or named, or else the
// configured user.
func (r *repo) commitAuthor(f tool.Flags, author object.Signature, old *object.Commit, picked string) (object.Signature, error) {
	if old != nil && !f.Has(0x89) {
		author = old.Author
	}
	if picked != "" {
		if c, err := r.commit(plumbing.NewHash(picked)); err == nil {
			author = c.Author
		}
	}
	if c := f.Value('C', f.Value('c', "")); c != "" {
		from, err := r.resolveCommit(c)
		if err != nil {
			return author, err
		}
		author = from.Author
	}
	if a := f.Value(0x83, ""); a != "" {
		m := nameAndMail.FindStringSubmatch(a)
		if m == nil {
			return author, fatalf("--author '%s' is not 'Name <email>' and matches no existing author", a)
		}
		author.Name, author.Email = m[1], m[2]
	}
	if d := f.Value(0x84, ""); d != "" {
		t, ok := parseDate(d, r.Now().UTC())
		if !ok {
			return author, fatalf("invalid date format: %s", d)
		}
		author.When = t
	}
	return author, nil
}

// commitMessage returns the commit's message with the lines that options add at its end.
func (r *repo) commitMessage(f tool.Flags, old *object.Commit, picked string, committer object.Signature) (string, error) {
	message, err := r.message(f, old, picked)
	if err != nil {
		return "", err
	}
	if f.Has('s') {
		line := fmt.Sprintf("Signed-off-by: %s <%s>", committer.Name, committer.Email)
		if !strings.Contains(message, line) {
			message = strings.TrimRight(message, "\n") + "\n\n" + line
		}
	}
	for _, t := range f.Values(0x8d) {
		message = strings.TrimRight(message, "\n") + "\n\n" + strings.Replace(t, "=", ": ", 1)
	}
	return tidy(message, f.Value(0x8b, "") == "strip" || !f.Has('m') && !f.Has('F') && !f.Has('C')), nil
}

func snapshotOf(names map[string]int) snapshot {
	out := snapshot{}
	for n := range names {
		out[n] = entry{}
	}
	return out
}

// message is the text of a commit.
func (r *repo) message(f flagSet, old *object.Commit, picked string) (string, error) {
	var parts []string
	for _, o := range f.All {
		if o.Letter == 'm' {
			parts = append(parts, strings.TrimRight(o.Value, "\n"))
		}
	}
	switch {
	case f.Has('F'):
		in, err := r.OpenIn(r.input(f.Value('F', "")))
		if err != nil {
			return "", fatalf("could not read log file '%s': No such file or directory", f.Value('F', ""))
		}
		b, err := r.ReadAll(in)
		_ = in.Close() // it was read
		return string(b), err
	case f.Has(0x87):
		c, err := r.resolveCommit(f.Value(0x87, ""))
		if err != nil {
			return "", err
		}
		return "fixup! " + subject(c.Message) + "\n", nil
	case len(parts) > 0:
		return strings.Join(parts, "\n\n") + "\n", nil
	case f.Has('C') || f.Has('c'):
		c, err := r.resolveCommit(f.Value('C', f.Value('c', "")))
		if err != nil {
			return "", err
		}
		return c.Message, nil
	case old != nil:
		return old.Message, nil
	}
	if text := r.read("MERGE_MSG"); text != "" {
		return tidy(text, true), nil
	}
	editor := r.Getenv("GIT_EDITOR")
	if editor == "" {
		editor = r.conf.get("core.editor")
	}
	if editor == "" {
		editor = r.Getenv("EDITOR")
	}
	if editor == "" {
		r.warnf("error: Terminal is dumb, but EDITOR unset\nPlease supply the message using either -m or -F option.")
		return "", exit(1)
	}
	return r.edit(editor)
}

// announce reports a new commit.
func (r *repo) announce(branch string, h plumbing.Hash, was, now snapshot, author, committer object.Signature, message string, root, date bool) error {
	name := strings.TrimPrefix(branch, "refs/heads/")
	if branch == "" {
		name = "detached HEAD"
	}
	if root {
		name += " (root-commit)"
	}
	r.printf("[%s %s] %s\n", name, r.short(h), subject(message))
	if author.Name != committer.Name || author.Email != committer.Email {
		r.printf(" Author: %s <%s>\n", author.Name, author.Email)
	}
	if date {
		r.printf(" Date: %s\n", gitDate(author.When))
	}
	return r.changed(was, now, &diffOptions{shortstat: true})
}

// subject returns the first paragraph of a message as one line.
func subject(message string) string {
	head, _, _ := strings.Cut(strings.TrimLeft(message, "\n"), "\n\n")
	return strings.ReplaceAll(strings.TrimRight(head, "\n"), "\n", " ")
}
