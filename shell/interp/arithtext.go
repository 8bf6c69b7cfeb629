package interp

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// arithTemplate is the text of an expression, with the places of its expansions.
type arithTemplate struct {
	segs []arithSeg
	text string // when there are no such places
}

type arithSeg struct {
	lit  string
	part syntax.WordPart
}

// templateBuilder makes a template from a parsed expression. It keeps the spaces of the source,
// because they matter in messages and in the keys of associative arrays.
type templateBuilder struct {
	t     arithTemplate
	b     strings.Builder
	at    int // source offset after the written text, -1 at the start
	words bool
}

// arithSource returns the text of an expression after its expansions. With words, it removes
// quotes, as for the arguments of let.
func (r *runner) arithSource(x syntax.ArithmExpr, words bool) (string, bool) {
	if x == nil {
		return "", true
	}
	if w, ok := x.(*syntax.Word); ok && len(w.Parts) == 1 {
		if l, ok := w.Parts[0].(*syntax.Lit); ok && strings.IndexByte(l.Value, '\\') < 0 {
			if raw, ok := rawText(l.Value); ok {
				s := r.expandRaw(raw)
				return s, r.flow == flowNone
			}
			return l.Value, true
		}
	}
	t := r.template(x, words)
	if t.segs == nil {
		return t.text, true
	}
	var b strings.Builder
	for _, s := range t.segs {
		if s.part == nil {
			b.WriteString(s.lit)
			continue
		}
		b.WriteString(joinPieces(r.pieces(nil, []syntax.WordPart{s.part}, true, true)))
		if r.flow != flowNone {
			return "", false
		}
	}
	return b.String(), true
}

// template returns the template of an expression, and makes it the first time.
func (r *runner) template(x syntax.ArithmExpr, words bool) *arithTemplate {
	if t, ok := r.templates[x]; ok {
		return t
	}
	tb := templateBuilder{at: -1, words: words}
	tb.expr(x)
	if len(tb.t.segs) == 0 {
		tb.t.text = tb.b.String()
	} else {
		tb.flush()
	}
	const most = 256
	if r.templates == nil || len(r.templates) >= most {
		r.templates = make(map[syntax.ArithmExpr]*arithTemplate)
	}
	r.templates[x] = &tb.t
	return &tb.t
}

func (t *templateBuilder) flush() {
	if t.b.Len() > 0 {
		t.t.segs = append(t.t.segs, arithSeg{lit: t.b.String()})
		t.b.Reset()
	}
}

// write adds text from the source position pos.
func (t *templateBuilder) write(pos syntax.Pos, s string) {
	t.pad(pos)
	t.b.WriteString(s)
	t.at = int(pos.Offset()) + len(s)
}

func (t *templateBuilder) pad(pos syntax.Pos) {
	if t.at >= 0 && pos.IsValid() {
		const most = 64
		for range min(int(pos.Offset())-t.at, most) {
			t.b.WriteByte(' ')
		}
	}
}

func (t *templateBuilder) expr(x syntax.ArithmExpr) {
	switch x := x.(type) {
	case nil:
	case *syntax.Word:
		for _, p := range x.Parts {
			t.part(p)
		}
	case *syntax.ParenArithm:
		t.write(x.Lparen, "(")
		t.expr(x.X)
		t.write(x.Rparen, ")")
	case *syntax.UnaryArithm:
		if x.Post {
			t.expr(x.X)
			t.write(x.OpPos, x.Op.String())
			return
		}
		t.write(x.OpPos, x.Op.String())
		t.expr(x.X)
	case *syntax.BinaryArithm:
		t.expr(x.X)
		t.write(x.OpPos, x.Op.String())
		t.expr(x.Y)
	default:
		t.b.WriteString("?")
	}
}

func (t *templateBuilder) part(p syntax.WordPart) {
	switch p := p.(type) {
	case *syntax.Lit:
		s := p.Value
		if strings.IndexByte(s, '\\') >= 0 {
			s = strings.ReplaceAll(s, "\\\n", "")
		}
		t.write(p.Pos(), s)
	case *syntax.SglQuoted:
		s := p.Value
		switch {
		case p.Dollar:
			s, _ = unescape(s, escDollar)
		case !t.words:
			s = "'" + s + "'"
		}
		t.write(p.Pos(), s)
	case *syntax.DblQuoted:
		t.pad(p.Pos())
		t.at = int(p.Pos().Offset()) + 1
		for _, q := range p.Parts {
			t.part(q)
		}
	case *syntax.ParamExp:
		if !p.Dollar.IsValid() {
			t.write(p.Param.Pos(), p.Param.Value)
			t.b.WriteByte('[')
			t.at++
			t.expr(p.Index)
			t.b.WriteByte(']')
			t.at = int(p.End().Offset())
			return
		}
		t.dynamic(p)
	default:
		t.dynamic(p)
	}
	t.at = int(p.End().Offset())
}

func (t *templateBuilder) dynamic(p syntax.WordPart) {
	t.pad(p.Pos())
	t.flush()
	t.t.segs = append(t.t.segs, arithSeg{part: p})
	t.at = int(p.End().Offset())
}
