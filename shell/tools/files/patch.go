package files

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// patcher is one run of patch.
type patcher struct {
	*tool.Call
	strip                                        int
	reverse, forward, batch, dry, silent, backup bool
	removeEmpty, ignoreSpace                     bool
	fuzz                                         int
	output, reject, dir, suffix, suffixSet       string
	status                                       int
}

// patchLine is a line of a hunk. It has ' ', '-' or '+', and says whether it ends the file without
// a newline.
type patchLine struct {
	op    byte
	text  []byte
	noEnd bool
}

// patchHunk is the change at one place.
type patchHunk struct {
	from, to   int // first line numbers, from 1; 0 in an empty file
	lines      []patchLine
	function   string
	oldN, newN int
	inputLine  int
}

// filePatch is the part of a patch for one file.
type filePatch struct {
	oldName, newName, index string
	oldText, newText        string // of the header, whole
	oldGone, newGone        bool   // the header has a time of 1970, or the name /dev/null
	hunks                   []patchHunk
}

// patch applies differences.
func patch(c *tool.Call) int {
	f, ok := c.Flags("p:RNfti:o:d:r:sbz:B:F:ElucneV:vTY:Z", "strip=p", "reverse=R", "forward=N", "force=f", "batch=t", "input=i", "output=o", "directory=d",
		"reject-file=r", "quiet=s", "silent=s", "backup=b", "suffix=z", "prefix=B", "fuzz=F", "remove-empty-files=E", "ignore-whitespace=l", "unified=u", "context=c", "normal=n",
		"dry-run=\x81", "verbose=\x82", "posix=\x83", "binary=\x84", "merge=\x85::", "no-backup-if-mismatch=\x86", "backup-if-mismatch=\x87", "version-control=V", "set-time=T",
		"read-only=\x88:", "reject-format=\x89:", "quoting-style=\x8a:", "ed=e", "follow-symlinks=\x8b", "set-utc=Z")
	if !ok {
		return 2
	}
	p := &patcher{Call: c, strip: -1, fuzz: 2, suffix: ".orig", reverse: f.Has('R'), forward: f.Has('N'), batch: f.Has('t') || f.Has('f'), dry: f.Has(0x81), silent: f.Has('s'),
		backup: f.Has('b'), removeEmpty: f.Has('E'), ignoreSpace: f.Has('l'), output: f.Value('o', ""), reject: f.Value('r', ""), suffixSet: f.Value('z', "")}
	if p.suffixSet != "" {
		p.suffix = p.suffixSet
	}
	for _, o := range []struct {
		flag byte
		into *int
		what string
	}{{'p', &p.strip, "strip count"}, {'F', &p.fuzz, "fuzz factor"}} {
		if f.Has(o.flag) {
			n, err := strconv.Atoi(f.Value(o.flag, ""))
			if err != nil || n < 0 {
				return c.Errorf(2, "**** %s %s is not a number", o.what, f.Value(o.flag, ""))
			}
			*o.into = n
		}
	}
	if f.Has('e') || f.Has(0x85) {
		return c.Errorf(2, "**** this machine's patch knows no ed scripts and no --merge")
	}
	input := f.Value('i', "-")
	args := f.Args
	if len(args) > 2 {
		return c.Errorf(2, "%s: extra operand", args[2])
	}
	if len(args) == 2 {
		input, args = args[1], args[:1]
	}
	in, err := c.OpenIn(input)
	if err != nil {
		return c.Errorf(2, "**** Can't open patch file %s : %s", input, errText(err))
	}
	data, err := c.ReadAll(in)
	_ = in.Close() // it was read
	if err != nil {
		return 2
	}
	p.dir = f.Value('d', "")
	if p.dir != "" && !isDir(c, p.dir) {
		return c.Errorf(2, "**** Can't change to directory %s : No such file or directory", p.dir)
	}
	patches, garbage := parsePatch(c, data)
	if len(patches) == 0 {
		if len(bytes.TrimSpace(data)) > 0 || garbage {
			return c.Errorf(2, "**** Only garbage was found in the patch input.")
		}
		return 0
	}
	for _, fp := range patches {
		if !c.Step(64) {
			return 2
		}
		name := ""
		if len(args) == 1 {
			name = args[0]
		}
		p.file(fp, name)
		if p.status == 2 {
			return 2
		}
	}
	return p.status
}

func (p *patcher) say(format string, args ...any) {
	if !p.silent {
		fmt.Fprintf(p.Out, format, args...)
	}
}

// path puts -d before a name.
func (p *patcher) path(name string) string {
	if p.dir == "" || strings.HasPrefix(name, "/") {
		return name
	}
	return under(p.dir, name)
}

// stripName applies -p. Without -p it keeps only the last name.
func (p *patcher) stripName(name string) string {
	if name == "" || name == "/dev/null" {
		return name
	}
	if p.strip < 0 {
		return lastName(name)
	}
	for range p.strip {
		at := strings.IndexByte(name, '/')
		if at < 0 {
			return ""
		}
		name = strings.TrimLeft(name[at:], "/")
	}
	return name
}

// safe reports whether a name from a patch may be used: it is not absolute and does not lead out of
// the directory.
func safe(name string) bool {
	if strings.HasPrefix(name, "/") {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return false
		}
	}
	return name != ""
}

// choose finds the file that the patch is for.
func (p *patcher) choose(fp *filePatch) (name string, exists bool) {
	var names []string
	for _, n := range []string{fp.oldName, fp.newName, fp.index} {
		if n = p.stripName(n); n != "" && n != "/dev/null" {
			if !safe(n) {
				p.Errorf(0, "Ignoring potentially dangerous file name %s", n)
				continue
			}
			names = append(names, n)
		}
	}
	best := ""
	for _, n := range names {
		if i, err := statOf(p.Call, p.path(n)); err == nil && i.Mode.IsRegular() {
			if best == "" || strings.Count(n, "/") < strings.Count(best, "/") || strings.Count(n, "/") == strings.Count(best, "/") && (len(lastName(n)) < len(lastName(best)) || len(lastName(n)) == len(lastName(best)) && len(n) < len(best)) {
				best = n
			}
		}
	}
	if best != "" {
		return best, true
	}
	creates := fp.oldGone
	if p.reverse {
		creates = fp.newGone
	}
	if len(names) > 0 && (creates || fp.creates(p.reverse)) {
		best = names[0]
		for _, n := range names {
			if strings.Count(n, "/") < strings.Count(best, "/") || strings.Count(n, "/") == strings.Count(best, "/") && len(n) < len(best) {
				best = n
			}
		}
		return best, false
	}
	return "", false
}

// creates reports whether the file was missing or empty before the patch.
func (fp *filePatch) creates(reverse bool) bool {
	if len(fp.hunks) != 1 {
		return false
	}
	h := fp.hunks[0]
	if reverse {
		return h.newN == 0 && h.to == 0
	}
	return h.oldN == 0 && h.from == 0
}

// file patches one file.
func (p *patcher) file(fp *filePatch, name string) {
	exists := true
	if name == "" {
		if name, exists = p.choose(fp); name == "" {
			p.say("can't find file to patch at input line %d\n", fp.hunks[0].inputLine)
			p.say("Perhaps you used the wrong -p or --strip option?\n")
			p.say("File to patch: \nSkip this patch? [y] \nSkipping patch.\n")
			n := len(fp.hunks)
			word := "hunks"
			if n == 1 {
				word = "hunk"
			}
			p.say("%d out of %d %s ignored\n", n, n, word)
			p.status = max(p.status, 1)
			return
		}
	} else if _, err := statOf(p.Call, p.path(name)); err != nil {
		exists = false
	}
	path := p.path(name)
	var data []byte
	var old vfs.Info
	if exists {
		var err error
		old, _ = statOf(p.Call, path)
		if data, err = readFile(p.Call, path); err != nil {
			p.status = p.Errorf(2, "**** Can't open file %s : %s", name, errText(err))
			return
		}
	}
	verb := "patching"
	if p.dry {
		verb = "checking"
	}
	out := name
	if p.output != "" {
		out = p.output
		p.say("%s file %s (read from %s)\n", verb, out, name)
	} else {
		p.say("%s file %s\n", verb, shellQuote(out, false))
	}
	t := splitText(data)
	job := &patchJob{p: p, t: t, creates: fp.oldGone && !p.reverse || fp.newGone && p.reverse}
	rejected, ok := job.apply(fp)
	if !ok {
		p.status = max(p.status, 2)
		return
	}
	target := path
	if p.output != "" {
		target = p.output
	}
	if len(rejected) > 0 {
		p.status = max(p.status, 1)
	}
	applied := len(rejected) < len(fp.hunks)
	if p.dry {
		if len(rejected) > 0 {
			p.failed(rejected, len(fp.hunks), job.ignored, "")
		}
		return
	}
	if applied || p.output != "" {
		if p.output == "" && exists && (p.backup || job.inexact || len(rejected) > 0) {
			p.writeOut(path+p.suffix, data, old, exists)
		} else if p.backup && p.output == "" && !exists {
			p.writeOut(path+p.suffix, nil, old, false)
		}
		result := job.result()
		gone := fp.newGone
		if p.reverse {
			gone = fp.oldGone
		}
		if len(result) == 0 && p.output == "" && (gone || p.removeEmpty) && len(rejected) == 0 {
			if err := p.FS().Remove(p.Abs(path)); err == nil {
				p.removeParents(path)
			}
		} else {
			_, there := statOf(p.Call, target)
			p.writeOut(target, result, old, exists && p.output == "")
			if p.output != "" && there != nil {
				_ = p.FS().Chmod(p.Abs(target), 0o600) // as GNU's leaves it
			}
		}
	} else if len(rejected) > 0 && exists && p.output == "" && !job.ignored {
		p.writeOut(path+p.suffix, data, old, true)
	}
	if len(rejected) > 0 {
		rej := p.reject
		if rej == "" {
			rej = target + ".rej"
		}
		said := rej
		if p.reject == "" && p.output == "" {
			said = name + ".rej"
		}
		p.failed(rejected, len(fp.hunks), job.ignored, said)
		if rej != "-" {
			p.writeOut(rej, rejectText(fp, rejected, p.reverse), vfs.Info{}, false)
		}
	}
}

func (p *patcher) failed(rejected []patchHunk, n int, ignored bool, rej string) {
	word := "hunks"
	if n == 1 {
		word = "hunk"
	}
	how := "FAILED"
	if ignored {
		how = "ignored"
	}
	p.say("%d out of %d %s %s", len(rejected), n, word, how)
	if rej != "" {
		p.say(" -- saving rejects to file %s", shellQuote(rej, false))
	}
	p.say("\n")
}

// removeParents removes directories that have become empty.
func (p *patcher) removeParents(path string) {
	for dir := parentOf(path); dir != "." && dir != "/"; dir = parentOf(dir) {
		if p.FS().Remove(p.Abs(dir)) != nil {
			return
		}
	}
}

func (p *patcher) writeOut(path string, data []byte, old vfs.Info, exists bool) {
	if dir := parentOf(path); dir != "." {
		_ = p.FS().MkdirAll(p.Abs(dir), 0o777&^p.Umask()) // what is in it fails otherwise
	}
	out, err := p.Open(path, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o666)
	if err == nil {
		_, err = out.Write(data)
		_ = out.Close() // written
	}
	if err != nil {
		p.status = p.Errorf(2, "**** Can't create file %s : %s", path, errText(err))
		return
	}
	if exists {
		_ = p.FS().Chmod(p.Abs(path), old.Mode) // as far as it is allowed
	}
}

// rejectText returns rejected hunks as a unified diff.
func rejectText(fp *filePatch, hunks []patchHunk, reverse bool) []byte {
	var b bytes.Buffer
	oldName, newName := fp.oldText, fp.newText
	if oldName == "" {
		oldName = "/dev/null"
	}
	if newName == "" {
		newName = oldName
	}
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", oldName, newName)
	for _, h := range hunks {
		from, to, oldN, newN := h.from, h.to, h.oldN, h.newN
		if reverse {
			from, to, oldN, newN = to, from, newN, oldN
		}
		r := func(at, n int) string {
			if n == 1 {
				return strconv.Itoa(at)
			}
			return fmt.Sprintf("%d,%d", at, n)
		}
		fmt.Fprintf(&b, "@@ -%s +%s @@%s\n", r(from, oldN), r(to, newN), h.function)
		for _, l := range h.lines {
			op := l.op
			if reverse && op != ' ' {
				op = '+' + '-' - op
			}
			b.WriteByte(op)
			b.Write(l.text)
			b.WriteByte('\n')
			if l.noEnd {
				b.WriteString("\\ No newline at end of file\n")
			}
		}
	}
	return b.Bytes()
}
