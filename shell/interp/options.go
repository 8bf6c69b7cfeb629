package interp

import "strings"

// options are the shell's switches: the options of set -o and of shopt.
type options struct {
	allexport, braceexpand, emacs, errexit, errtrace, functrace, hashall, histexpand, history, ignoreEOF, interactiveComments, keyword, monitor, noclobber, noexec, noglob, nolog, notify, nounset, onecmd, physical, pipefail, posix, privileged, verbose, vi, xtrace bool

	autocd, assocExpandOnce, cdableVars, cdspell, checkhash, checkjobs, checkwinsize, cmdhist                             bool
	compat31, compat32, compat40, compat41, compat42, compat43, compat44, completeFullquote                               bool
	direxpand, dirspell, dotglob, execfail, expandAliases, extdebug, extglob, extquote                                    bool
	failglob, forceFignore, globasciiranges, globskipdots, globstar, gnuErrfmt, histappend, histreedit                    bool
	histverify, hostcomplete, huponexit, inheritErrexit, lastpipe, lithist, localvarInherit, localvarUnset                bool
	loginShell, mailwarn, noEmptyCmdCompletion, nocaseglob, nocasematch, noexpandTranslation, nullglob, patsubReplacement bool
	progcomp, progcompAlias, promptvars, restrictedShell, shiftVerbose, sourcepath, varredirClose, xpgEcho                bool
}

// optionName is one option and its name.
type optionName struct {
	name   string
	letter byte // of set; 0 has none
	at     func(o *options) *bool
}

// setTable are the options of set -o, in bash's order.
var setTable = []optionName{
	{"allexport", 'a', func(o *options) *bool { return &o.allexport }},
	{"braceexpand", 'B', func(o *options) *bool { return &o.braceexpand }},
	{"emacs", 0, func(o *options) *bool { return &o.emacs }},
	{"errexit", 'e', func(o *options) *bool { return &o.errexit }},
	{"errtrace", 'E', func(o *options) *bool { return &o.errtrace }},
	{"functrace", 'T', func(o *options) *bool { return &o.functrace }},
	{"hashall", 'h', func(o *options) *bool { return &o.hashall }},
	{"histexpand", 'H', func(o *options) *bool { return &o.histexpand }},
	{"history", 0, func(o *options) *bool { return &o.history }},
	{"ignoreeof", 0, func(o *options) *bool { return &o.ignoreEOF }},
	{"interactive-comments", 0, func(o *options) *bool { return &o.interactiveComments }},
	{"keyword", 'k', func(o *options) *bool { return &o.keyword }},
	{"monitor", 'm', func(o *options) *bool { return &o.monitor }},
	{"noclobber", 'C', func(o *options) *bool { return &o.noclobber }},
	{"noexec", 'n', func(o *options) *bool { return &o.noexec }},
	{"noglob", 'f', func(o *options) *bool { return &o.noglob }},
	{"nolog", 0, func(o *options) *bool { return &o.nolog }},
	{"notify", 'b', func(o *options) *bool { return &o.notify }},
	{"nounset", 'u', func(o *options) *bool { return &o.nounset }},
	{"onecmd", 't', func(o *options) *bool { return &o.onecmd }},
	{"physical", 'P', func(o *options) *bool { return &o.physical }},
	{"pipefail", 0, func(o *options) *bool { return &o.pipefail }},
	{"posix", 0, func(o *options) *bool { return &o.posix }},
	{"privileged", 'p', func(o *options) *bool { return &o.privileged }},
	{"verbose", 'v', func(o *options) *bool { return &o.verbose }},
	{"vi", 0, func(o *options) *bool { return &o.vi }},
	{"xtrace", 'x', func(o *options) *bool { return &o.xtrace }},
}

// shoptTable are the options of shopt, in bash's order.
var shoptTable = []optionName{
	{"autocd", 0, func(o *options) *bool { return &o.autocd }},
	{"assoc_expand_once", 0, func(o *options) *bool { return &o.assocExpandOnce }},
	{"cdable_vars", 0, func(o *options) *bool { return &o.cdableVars }},
	{"cdspell", 0, func(o *options) *bool { return &o.cdspell }},
	{"checkhash", 0, func(o *options) *bool { return &o.checkhash }},
	{"checkjobs", 0, func(o *options) *bool { return &o.checkjobs }},
	{"checkwinsize", 0, func(o *options) *bool { return &o.checkwinsize }},
	{"cmdhist", 0, func(o *options) *bool { return &o.cmdhist }},
	{"compat31", 0, func(o *options) *bool { return &o.compat31 }},
	{"compat32", 0, func(o *options) *bool { return &o.compat32 }},
	{"compat40", 0, func(o *options) *bool { return &o.compat40 }},
	{"compat41", 0, func(o *options) *bool { return &o.compat41 }},
	{"compat42", 0, func(o *options) *bool { return &o.compat42 }},
	{"compat43", 0, func(o *options) *bool { return &o.compat43 }},
	{"compat44", 0, func(o *options) *bool { return &o.compat44 }},
	{"complete_fullquote", 0, func(o *options) *bool { return &o.completeFullquote }},
	{"direxpand", 0, func(o *options) *bool { return &o.direxpand }},
	{"dirspell", 0, func(o *options) *bool { return &o.dirspell }},
	{"dotglob", 0, func(o *options) *bool { return &o.dotglob }},
	{"execfail", 0, func(o *options) *bool { return &o.execfail }},
	{"expand_aliases", 0, func(o *options) *bool { return &o.expandAliases }},
	{"extdebug", 0, func(o *options) *bool { return &o.extdebug }},
	{"extglob", 0, func(o *options) *bool { return &o.extglob }},
	{"extquote", 0, func(o *options) *bool { return &o.extquote }},
	{"failglob", 0, func(o *options) *bool { return &o.failglob }},
	{"force_fignore", 0, func(o *options) *bool { return &o.forceFignore }},
	{"globasciiranges", 0, func(o *options) *bool { return &o.globasciiranges }},
	{"globskipdots", 0, func(o *options) *bool { return &o.globskipdots }},
	{"globstar", 0, func(o *options) *bool { return &o.globstar }},
	{"gnu_errfmt", 0, func(o *options) *bool { return &o.gnuErrfmt }},
	{"histappend", 0, func(o *options) *bool { return &o.histappend }},
	{"histreedit", 0, func(o *options) *bool { return &o.histreedit }},
	{"histverify", 0, func(o *options) *bool { return &o.histverify }},
	{"hostcomplete", 0, func(o *options) *bool { return &o.hostcomplete }},
	{"huponexit", 0, func(o *options) *bool { return &o.huponexit }},
	{"inherit_errexit", 0, func(o *options) *bool { return &o.inheritErrexit }},
	{"interactive_comments", 0, func(o *options) *bool { return &o.interactiveComments }},
	{"lastpipe", 0, func(o *options) *bool { return &o.lastpipe }},
	{"lithist", 0, func(o *options) *bool { return &o.lithist }},
	{"localvar_inherit", 0, func(o *options) *bool { return &o.localvarInherit }},
	{"localvar_unset", 0, func(o *options) *bool { return &o.localvarUnset }},
	{"login_shell", 0, func(o *options) *bool { return &o.loginShell }},
	{"mailwarn", 0, func(o *options) *bool { return &o.mailwarn }},
	{"no_empty_cmd_completion", 0, func(o *options) *bool { return &o.noEmptyCmdCompletion }},
	{"nocaseglob", 0, func(o *options) *bool { return &o.nocaseglob }},
	{"nocasematch", 0, func(o *options) *bool { return &o.nocasematch }},
	{"noexpand_translation", 0, func(o *options) *bool { return &o.noexpandTranslation }},
	{"nullglob", 0, func(o *options) *bool { return &o.nullglob }},
	{"patsub_replacement", 0, func(o *options) *bool { return &o.patsubReplacement }},
	{"progcomp", 0, func(o *options) *bool { return &o.progcomp }},
	{"progcomp_alias", 0, func(o *options) *bool { return &o.progcompAlias }},
	{"promptvars", 0, func(o *options) *bool { return &o.promptvars }},
	{"restricted_shell", 0, func(o *options) *bool { return &o.restrictedShell }},
	{"shift_verbose", 0, func(o *options) *bool { return &o.shiftVerbose }},
	{"sourcepath", 0, func(o *options) *bool { return &o.sourcepath }},
	{"varredir_close", 0, func(o *options) *bool { return &o.varredirClose }},
	{"xpg_echo", 0, func(o *options) *bool { return &o.xpgEcho }},
}

// defaultOptions are the switches of a new shell.
func defaultOptions() options {
	return options{
		braceexpand: true, hashall: true, interactiveComments: true,
		checkwinsize: true, cmdhist: true, completeFullquote: true, extquote: true, forceFignore: true, globasciiranges: true, globskipdots: true, hostcomplete: true, patsubReplacement: true, progcomp: true, promptvars: true, sourcepath: true,
	}
}

// named returns the option of set -o with this name, or nil when there is none.
func (o *options) named(name string) *bool { return find(setTable, o, name) }

// shopt returns the option of shopt with this name, or nil when there is none.
func (o *options) shopt(name string) *bool { return find(shoptTable, o, name) }

func find(table []optionName, o *options, name string) *bool {
	for i := range table {
		if table[i].name == name {
			return table[i].at(o)
		}
	}
	return nil
}

// letter returns the option with this letter, or nil when there is none.
func (o *options) letter(l byte) *bool {
	for i := range setTable {
		if setTable[i].letter == l {
			return setTable[i].at(o)
		}
	}
	return nil
}

// list returns the names of the options that are on, in the form of SHELLOPTS and BASHOPTS.
func (o *options) list(table []optionName) string {
	var on []string
	for i := range table {
		if *table[i].at(o) {
			on = append(on, table[i].name)
		}
	}
	return strings.Join(on, ":")
}

// flagOrder is the order of letters in $-.
const flagOrder = "abefhkmnptuvxBCEHPT"

// flagLetters is the value of $-.
func (r *runner) flagLetters() string {
	var b strings.Builder
	for i := range len(flagOrder) {
		if l := flagOrder[i]; *r.opts.letter(l) {
			b.WriteByte(l)
		}
		if flagOrder[i] == 'h' && r.interactive {
			b.WriteByte('i')
		}
	}
	switch {
	case r.fromArg:
		b.WriteByte('c')
	case r.fromStdin:
		b.WriteByte('s')
	}
	return b.String()
}
