package interp

import (
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// ifClause runs if, elif and else.
func (r *runner) ifClause(c *syntax.IfClause) {
	for ; c != nil; c = c.Else {
		if len(c.Cond) > 0 {
			if !r.condition(c.Cond) {
				if r.flow != flowNone {
					return
				}
				continue
			}
		}
		if r.flow == flowNone {
			r.stmts(c.Then)
		}
		return
	}
	r.status = 0
}

// condition runs a list and reports whether it succeeded.
func (r *runner) condition(list []*syntax.Stmt) bool {
	r.noErrExit++
	r.stmts(list)
	r.noErrExit--
	return r.flow == flowNone && r.status == 0
}

// looped runs a loop's body, and reports whether the loop continues.
func (r *runner) looped(body []*syntax.Stmt) bool {
	r.stmts(body)
	switch r.flow {
	case flowBreak, flowContinue:
		if r.flowCount > 1 {
			r.flowCount--
			return false
		}
		goOn := r.flow == flowContinue
		r.flow = flowNone
		return goOn
	}
	return r.flow == flowNone
}

func (r *runner) while(c *syntax.WhileClause) {
	r.loops++
	defer func() { r.loops-- }()
	status := 0
	for r.step() {
		ok := r.condition(c.Cond)
		if r.flow != flowNone {
			if (r.flow == flowBreak || r.flow == flowContinue) && r.looped(nil) && !c.Until {
				continue
			}
			return
		}
		if ok == c.Until {
			break
		}
		goOn := r.looped(c.Do)
		status = r.status
		if !goOn {
			break
		}
	}
	if r.flow == flowNone {
		r.status = status
	}
}

func (r *runner) forClause(c *syntax.ForClause) {
	line := r.line
	r.loops++
	defer func() { r.loops-- }()
	switch l := c.Loop.(type) {
	case *syntax.WordIter:
		items := r.params
		if l.InPos.IsValid() {
			items = r.fields(l.Items)
		}
		if r.flow != flowNone {
			return
		}
		if !isName(l.Name.Value) {
			r.errorf("`%s': not a valid identifier", l.Name.Value)
			r.status = 1
			return
		}
		if len(items) == 0 {
			r.status = 0
		}
		if c.Select {
			r.selectLoop(l.Name.Value, items, c)
			return
		}
		for _, item := range items {
			if !r.step() {
				return
			}
			r.now(c)
			r.line = line
			if len(r.traps) > 0 && !r.debug() {
				continue
			}
			if r.opts.xtrace {
				r.traceFor(l)
			}
			if !r.loopVar(l.Name.Value, item) {
				r.status = 1
				return
			}
			if !r.looped(c.Do) {
				return
			}
		}
	case *syntax.CStyleLoop:
		r.cLoop(c, l, c.Do)
	}
}

// loopVar sets the variable of a loop. If the variable is a name reference, it then refers to the
// next item.
func (r *runner) loopVar(name, item string) bool {
	v, at := r.find(name)
	if v == nil || !v.nameref || v.readonly {
		return r.set(name, item)
	}
	if !isName(item) {
		if _, _, ok := cutSubscript(item); !ok {
			r.errorf("`%s': not a valid identifier", item)
			return false
		}
	}
	v = r.mutable(name, at)
	r.payVar(v, len(item)-len(v.str))
	v.str, v.set = item, true
	return true
}

func (r *runner) traceFor(l *syntax.WordIter) {
	words := make([]string, len(l.Items))
	for i, w := range l.Items {
		words[i] = wordText(w)
	}
	text := "for " + l.Name.Value
	if l.InPos.IsValid() {
		text += " in " + strings.Join(words, " ")
	} else {
		text += ` in "$@"`
	}
	r.writeTrace(text)
}

// arithStep evaluates one expression of for ((;;)).
func (r *runner) arithStep(c *syntax.ForClause, x syntax.ArithmExpr, line uint) (int64, bool) {
	r.line = line
	r.now(c)
	if len(r.traps) > 0 && !r.debug() {
		return 0, false
	}
	if r.opts.xtrace {
		r.writeTrace("(( " + arithSource(x) + " ))")
	}
	n, ok := r.arithNamed("((", x)
	if !ok {
		r.status = 1
	}
	return n, ok
}

func (r *runner) cLoop(c *syntax.ForClause, l *syntax.CStyleLoop, body []*syntax.Stmt) {
	line := r.line
	if l.Init != nil {
		if _, ok := r.arithStep(c, l.Init, line); !ok {
			return
		}
	}
	r.status = 0
	for r.step() {
		if l.Cond != nil {
			if n, ok := r.arithStep(c, l.Cond, line); !ok || n == 0 {
				return
			}
		}
		if !r.looped(body) {
			return
		}
		if l.Post != nil {
			if _, ok := r.arithStep(c, l.Post, line); !ok {
				return
			}
		}
	}
}

// selectLoop is the menu loop.
func (r *runner) selectLoop(name string, items []string, c *syntax.ForClause) {
	if len(items) == 0 {
		return
	}
	show := true
	for r.step() {
		if show {
			r.writeErr(selectMenu(items, r.selectWidth()))
		}
		ps3, ok := r.get("PS3")
		if !ok {
			ps3 = "#? "
		}
		r.writeErr(ps3)
		line, err := r.readLine()
		if err != nil && line == "" {
			r.writeFD(1, []byte("\n"))
			r.status = 1
			return
		}
		line = strings.TrimSuffix(line, "\n")
		r.set("REPLY", line)
		if show = strings.TrimSpace(line) == ""; show {
			continue
		}
		choice := ""
		if n, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && n >= 1 && n <= len(items) {
			choice = items[n-1]
		}
		if !r.set(name, choice) {
			r.status = 1
			return
		}
		if !r.looped(c.Do) {
			return
		}
		if r.str("REPLY") == "" {
			show = true
		}
	}
}

func (r *runner) selectWidth() int {
	if n, err := strconv.Atoi(r.str("COLUMNS")); err == nil && n > 0 {
		return n
	}
	return 80
}

// selectMenu formats items as bash does: in columns, filled from top to bottom.
func selectMenu(items []string, width int) string {
	digits := len(strconv.Itoa(len(items)))
	longest := 0
	for _, it := range items {
		longest = max(longest, len([]rune(it)))
	}
	longest += digits + 2 + 2
	cols := max(width/longest, 1)
	rows := (len(items) + cols - 1) / cols
	cols = (len(items) + rows - 1) / rows
	if rows == 1 {
		rows, cols = cols, 1
	}
	first := len(strconv.Itoa(rows))
	var b strings.Builder
	for row := range rows {
		pos := 0
		for i := row; i < len(items); i += rows {
			w := digits
			if pos == 0 {
				w = first
			}
			num := strconv.Itoa(i + 1)
			b.WriteString(strings.Repeat(" ", max(w-len(num), 0)) + num + ") " + items[i])
			used := len([]rune(items[i])) + w + 2
			if i+rows < len(items) {
				from, to := pos+used, pos+longest
				for from < to {
					if to/8 > from/8 {
						b.WriteByte('\t')
						from += 8 - from%8
					} else {
						b.WriteByte(' ')
						from++
					}
				}
			}
			pos += longest
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (r *runner) caseClause(c *syntax.CaseClause) {
	subject := r.text(c.Word)
	if r.flow != flowNone {
		return
	}
	if r.opts.xtrace {
		r.writeTrace("case " + wordText(c.Word) + " in")
	}
	through, ran := false, false
	for _, item := range c.Items {
		if r.flow != flowNone {
			return
		}
		if !through {
			hit := false
			for _, p := range item.Patterns {
				if hit = r.match(r.pattern(p), subject); hit {
					break
				}
			}
			if !hit {
				continue
			}
		}
		ran = true
		if r.stmts(item.Stmts); len(item.Stmts) == 0 {
			r.status = 0
		}
		switch item.Op {
		case syntax.Fallthrough:
			through = true
		case syntax.Resume, syntax.ResumeKorn:
			through = false
		default:
			return
		}
	}
	if !ran && r.flow == flowNone {
		r.status = 0
	}
}
