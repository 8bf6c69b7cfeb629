package gitdir

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// stateDirs are the directories in which git keeps the state of a stopped operation, with the names
// that may be in them. "--continue" uses that state whoever wrote it. If a name has a ":", the file
// must pass the check after the colon, or is cleaned so that it does.
var stateDirs = map[string]string{
	"rebase-merge": "git-rebase-todo:todo git-rebase-todo.backup:todo git-rebase-todo.tmp:todo done:todo author-script:author strategy:strategy strategy_opts:options gpg_sign_opt:sign " +
		"message message-squash message-fixup current-fixups head-name onto onto_name orig-head msgnum end interactive stopped-sha amend patch squash-onto quiet verbose signoff autostash " +
		"rewritten-list rewritten-pending refs-to-delete update-refs allow_rerere_autoupdate drop_redundant_commits keep_redundant_commits reschedule-failed-exec no-reschedule-failed-exec " +
		"ignore_date cdate_is_adate dropped",
	"rebase-apply": "apply-opt:apply author-script:author gpg_sign_opt:sign next last keep threeway scissors utf8 sign messageid quiet final-commit abort-safety dirtyindex original-commit rebasing " +
		"applying info patch msg msg-clean head-name onto orig-head no_inbody_headers quoted-cr rewritten autostash allow_rerere_autoupdate empty",
	"sequencer": "todo:todo opts:opts head abort-safety",
}

// stateFiles are such files directly in the repository.
var stateFiles = map[string]string{
	"BISECT_LOG": "bisectlog", "BISECT_NAMES": "plain", "BISECT_TERMS": "plain", "BISECT_START": "plain", "BISECT_RUN": "none",
}

// shapes are patterns for the content of state files that run no program. They are compiled when
// the first such file is looked at. Most boxes end without one, and compiling takes a tenth of
// their time.
var shapes = sync.OnceValue(func() map[string]*regexp.Regexp {
	return map[string]*regexp.Regexp{
		"none":     regexp.MustCompile(`^$`),
		"author":   regexp.MustCompile(`^(GIT_AUTHOR_(NAME|EMAIL|DATE)='([^'\n\x00]|'\\'')*'\n)*$`),
		"strategy": regexp.MustCompile(`^(ort|recursive|resolve|octopus|ours|subtree)?\n?$`),
		"options": regexp.MustCompile(`^( ?'?(--)?(ours|theirs|patience|histogram|minimal|ignore-space-change|ignore-all-space|ignore-space-at-eol|ignore-cr-at-eol|renormalize|no-renormalize|no-renames|` +
			`find-renames(=[0-9]+%?)?|diff-algorithm=[a-z]+)'?)*\n?$`),
		"sign":      regexp.MustCompile(`^(-S[A-Za-z0-9@.+_]*|--no-gpg-sign)?\n?$`),
		"apply":     regexp.MustCompile(`^( ?'?(--whitespace=[a-z-]+|-C[0-9]+|-p[0-9]+|--reject|--ignore-space-change|--ignore-whitespace|--no-[a-z-]+)'?)*\n?$`),
		"plain":     regexp.MustCompile(`^([A-Za-z0-9_./+@:,='\n -]|\\'')*$`),
		"bisectlog": regexp.MustCompile(`^(#[^\n]*\n|git bisect [A-Za-z0-9_./+@:,=' -]*\n)*$`),
	}
})

// todoCommands are the commands in a rebase's list that run no program.
var todoCommands = strings.Fields("pick p revert edit e reword r fixup f squash s drop d label l reset t merge m update-ref u noop break b")

// strategies are the merge strategies that come with git. Any other name is the name of a program.
var strategies = strings.Fields("ort recursive resolve octopus ours subtree")

// State judges a file of a stopped operation, by its path below the repository's directory and its
// content. It returns the part of the content that runs no program. ok is false if the whole file
// must be removed. known is false for files that are no state.
func State(name string, data []byte) (clean []byte, known, ok bool) {
	check, known := stateFiles[name]
	if dir, file, below := strings.Cut(name, "/"); below {
		list, isState := stateDirs[dir]
		if !isState {
			return data, false, true
		}
		known = true
		i := slices.IndexFunc(strings.Fields(list), func(f string) bool { f, _, _ = strings.Cut(f, ":"); return f == file })
		switch {
		case i >= 0:
			_, check, _ = strings.Cut(strings.Fields(list)[i], ":")
		case dir == "rebase-apply" && file != "" && strings.Trim(file, "0123456789") == "": // a patch
		default:
			return nil, true, false
		}
	}
	switch {
	case !known || check == "":
		return data, known, true
	case check == "todo":
		return todo(data), true, true
	case check == "opts":
		return sequencerOptions(data), true, true
	}
	return data, true, shapes()[check].Match(data)
}

// todo keeps the lines of a rebase's list that run no program.
func todo(data []byte) []byte {
	var b strings.Builder
	for line := range strings.Lines(string(data)) {
		text := strings.TrimLeft(line, " \t")
		command := text
		if i := strings.IndexAny(text, " \t\r\n\x00"); i >= 0 {
			command = text[:i]
		}
		if command == "" || command[0] == '#' || slices.Contains(todoCommands, command) {
			b.WriteString(line)
		}
	}
	return []byte(b.String())
}

// sequencerOptions keeps the options of a cherry-pick that run no program. They have the form of a
// configuration.
func sequencerOptions(data []byte) []byte {
	const settled = "no-commit edit allow-empty allow-empty-message drop-redundant-commits keep-redundant-commits signoff record-origin allow-ff mainline allow-rerere-auto default-msg-cleanup commit-use-reference"
	entries, _ := Parse(data)
	var good []Entry
	for _, e := range entries {
		fine := slices.Contains(strings.Fields(settled), e.Key) || e.Key == "strategy" && slices.Contains(strategies, e.Value)
		if e.Section == "options" && !e.HasSub && fine {
			good = append(good, e)
		}
	}
	if len(good) == len(entries) {
		return data
	}
	return Format(good)
}
