package interp

import (
	"maps"
	"slices"
	"strings"
)

// keyFunctions are the editing functions that bind knows, with their keys in Emacs mode. It has
// only those that scripts ask for.
var keyFunctions = map[string]string{
	"abort": `"\C-g"`, "accept-line": `"\C-j" "\C-m"`, "backward-char": `"\C-b"`, "backward-delete-char": `"\C-h" "\C-?"`,
	"backward-kill-line": "", "backward-kill-word": `"\e\C-h" "\e\C-?"`, "backward-word": `"\eb"`, "beginning-of-history": `"\e<"`,
	"beginning-of-line": `"\C-a"`, "capitalize-word": `"\ec"`, "clear-screen": `"\C-l"`, "complete": `"\C-i"`, "delete-char": `"\C-d"`,
	"delete-horizontal-space": `"\e\\"`, "downcase-word": `"\el"`, "edit-and-execute-command": `"\C-x\C-e"`, "end-of-history": `"\e>"`,
	"end-of-line": `"\C-e"`, "forward-char": `"\C-f"`, "forward-search-history": `"\C-s"`, "forward-word": `"\ef"`,
	"history-search-backward": "", "history-search-forward": "", "kill-line": `"\C-k"`, "kill-region": "", "kill-whole-line": "",
	"kill-word": `"\ed"`, "menu-complete": "", "menu-complete-backward": "", "next-history": `"\C-n"`, "possible-completions": `"\e="`,
	"previous-history": `"\C-p"`, "quoted-insert": `"\C-q" "\C-v"`, "re-read-init-file": `"\C-x\C-r"`, "redraw-current-line": "",
	"reverse-search-history": `"\C-r"`, "revert-line": `"\e\C-r"`, "self-insert": "", "shell-expand-line": `"\e\C-e"`, "tab-insert": `"\e\C-i"`,
	"transpose-chars": `"\C-t"`, "transpose-words": `"\et"`, "undo": `"\C-x\C-u" "\C-_"`, "universal-argument": "",
	"unix-line-discard": `"\C-u"`, "unix-word-rubout": `"\C-w"`, "upcase-word": `"\eu"`, "vi-editing-mode": "", "vi-subst": "",
	"yank": `"\C-y"`, "yank-last-arg": `"\e." "\e_"`, "yank-nth-arg": `"\e\C-y"`, "yank-pop": `"\ey"`,
}

// editVariables are the settings of the line editor.
var editVariables = map[string]string{
	"bell-style": "audible", "bind-tty-special-chars": "on", "blink-matching-paren": "off", "byte-oriented": "off", "colored-completion-prefix": "off",
	"colored-stats": "off", "completion-ignore-case": "off", "completion-map-case": "off", "completion-query-items": "100", "convert-meta": "on",
	"disable-completion": "off", "echo-control-characters": "on", "editing-mode": "emacs", "enable-bracketed-paste": "on", "enable-keypad": "off",
	"expand-tilde": "off", "history-preserve-point": "off", "history-size": "0", "horizontal-scroll-mode": "off", "input-meta": "off",
	"keymap": "emacs", "keyseq-timeout": "500", "mark-directories": "on", "mark-modified-lines": "off", "mark-symlinked-directories": "off",
	"match-hidden-files": "on", "menu-complete-display-prefix": "off", "output-meta": "off", "page-completions": "on", "prefer-visible-bell": "on",
	"revert-all-at-newline": "off", "show-all-if-ambiguous": "off", "show-all-if-unmodified": "off", "show-mode-in-prompt": "off",
	"skip-completed-text": "off", "visible-stats": "off",
}

// bindings are the changes that bind has made. They can be listed and removed, but have no effect:
// the keys of this shell's editor are fixed.
type bindings struct {
	keys   map[string]map[string]string // keymap, key: function or macro
	shells map[string]map[string]string // keymap, key: command of bind -x
	vars   map[string]string
}

func (b *bindings) clone() *bindings {
	if b == nil {
		return nil
	}
	c := &bindings{map[string]map[string]string{}, map[string]map[string]string{}, maps.Clone(b.vars)}
	for k, m := range b.keys {
		c.keys[k] = maps.Clone(m)
	}
	for k, m := range b.shells {
		c.shells[k] = maps.Clone(m)
	}
	return c
}

func (b *bindings) put(of map[string]map[string]string, keymap, key, value string) {
	if of[keymap] == nil {
		of[keymap] = map[string]string{}
	}
	of[keymap][key] = value
}

// keysOf lists the keys of a function.
func (b *bindings) keysOf(keymap, name string) []string {
	var keys []string
	for _, k := range strings.Fields(keyFunctions[name]) {
		if other, changed := b.keys[keymap][k]; !changed || other == name {
			keys = append(keys, k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(b.keys[keymap])) {
		if b.keys[keymap][k] == name && !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// biBind shows and stores key bindings.
func biBind(c *call) int {
	r := c.r
	if r.term == nil && !r.interactive {
		c.fail(0, "warning: line editing not enabled")
	}
	keymap := "emacs"
	type todo struct {
		what  byte
		value string
	}
	var work []todo
	args, ok := c.letters("lvpVPsSXf:q:u:m:r:x:", func(l byte, v string) {
		if l == 'm' {
			keymap = strings.TrimSuffix(strings.TrimSuffix(v, "-standard"), "-insert")
			return
		}
		work = append(work, todo{l, v})
	})
	if !ok {
		return 2
	}
	switch keymap {
	case "emacs", "emacs-meta", "emacs-ctlx", "vi", "vi-move", "vi-command":
	default:
		return c.fail(1, "`%s': invalid keymap name", keymap)
	}
	b := r.binds.clone()
	if b == nil {
		b = &bindings{map[string]map[string]string{}, map[string]map[string]string{}, map[string]string{}}
	}
	status := 0
	for _, w := range work {
		if !c.bindOne(b, keymap, w.what, w.value) {
			status = 1
		}
	}
	for _, a := range args {
		key, value, ok := strings.Cut(a, ":")
		if name, set := strings.CutPrefix(a, "set "); set {
			name, value, _ = strings.Cut(strings.TrimSpace(name), " ")
			b.vars[name] = value
			continue
		}
		if !ok || !strings.HasPrefix(key, `"`) && strings.Contains(key, " ") {
			continue
		}
		b.put(b.keys, keymap, strings.TrimSpace(key), strings.TrimSpace(value))
		r.pay(len(a))
	}
	r.binds = b
	return status
}

// bindOne carries out one option.
func (c *call) bindOne(b *bindings, keymap string, what byte, value string) bool {
	var out strings.Builder
	switch what {
	case 'l', 'v', 'V', 'p', 'P', 's', 'S', 'X':
		out.WriteString(b.listing(keymap, what))
	case 'q':
		if _, ok := keyFunctions[value]; !ok {
			c.fail(1, "`%s': unknown function name", value)
			return false
		}
		keys := b.keysOf(keymap, value)
		if len(keys) == 0 {
			c.print(value + " is not bound to any keys.\n")
			return false
		}
		out.WriteString(value + " can be invoked via " + strings.Join(keys, ", ") + ".\n")
	case 'u':
		if _, ok := keyFunctions[value]; !ok {
			c.fail(1, "`%s': unknown function name", value)
			return false
		}
		for _, k := range b.keysOf(keymap, value) {
			b.put(b.keys, keymap, k, "")
		}
	case 'r':
		key := `"` + strings.Trim(value, `"`) + `"`
		b.put(b.keys, keymap, key, "")
		delete(b.shells[keymap], key)
	case 'x':
		key, cmd, ok := strings.Cut(value, ":")
		if !ok || !strings.HasPrefix(key, `"`) {
			c.fail(1, "%s: first non-whitespace character is not `\"'", value)
			return false
		}
		c.r.pay(len(value))
		b.put(b.shells, keymap, key, strings.Trim(strings.TrimSpace(cmd), `"`))
	case 'f':
		if _, err := c.r.readFile(c.r.abs(value)); err != nil {
			c.fail(1, "%s: cannot read: %s", value, errText(err))
			return false
		}
	}
	return c.print(out.String()) == 0
}

// listing returns the list that an option of bind prints: functions (l), variables (v, V),
// functions with their keys (p, P), keys with their texts (s, S) or with their commands (X). A
// small letter lists in the form of input for bind.
func (b *bindings) listing(keymap string, what byte) string {
	var out strings.Builder
	names := slices.Sorted(maps.Keys(keyFunctions))
	switch what {
	case 'l':
		out.WriteString(strings.Join(names, "\n") + "\n")
	case 'v', 'V':
		for _, n := range slices.Sorted(maps.Keys(editVariables)) {
			v := editVariables[n]
			if changed, ok := b.vars[n]; ok {
				v = changed
			}
			if what == 'v' {
				out.WriteString("set " + n + " " + v + "\n")
			} else {
				out.WriteString(n + " is set to `" + v + "'\n")
			}
		}
	case 'p', 'P':
		for _, n := range names {
			keys := b.keysOf(keymap, n)
			switch {
			case what == 'p' && len(keys) == 0:
				out.WriteString("# " + n + " (not bound)\n")
			case what == 'p':
				for _, k := range keys {
					out.WriteString(k + ": " + n + "\n")
				}
			case len(keys) == 0:
				out.WriteString(n + " is not bound to any keys\n")
			default:
				out.WriteString(n + " can be found on " + strings.Join(keys, ", ") + ".\n")
			}
		}
	case 's', 'S':
		for _, k := range slices.Sorted(maps.Keys(b.keys[keymap])) {
			if v := b.keys[keymap][k]; strings.HasPrefix(v, `"`) && what == 's' {
				out.WriteString(k + ": " + v + "\n")
			} else if strings.HasPrefix(v, `"`) {
				out.WriteString(strings.Trim(k, `"`) + " outputs " + strings.Trim(v, `"`) + "\n")
			}
		}
	case 'X':
		for _, k := range slices.Sorted(maps.Keys(b.shells[keymap])) {
			out.WriteString(k + ": " + `"` + b.shells[keymap][k] + "\"\n")
		}
	}
	return out.String()
}
