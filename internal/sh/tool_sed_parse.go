package sh

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// sedParser reads a script.
type sedParser struct {
	src      string
	pos      int
	extended bool
}

func (p *sedParser) peek() byte {
	if p.pos < len(p.src) {
		return p.src[p.pos]
	}
	return 0
}

func (p *sedParser) skip(set string) {
	for p.pos < len(p.src) && strings.IndexByte(set, p.src[p.pos]) >= 0 {
		p.pos++
	}
}

func (p *sedParser) parse() ([]*sedCmd, error) {
	var out []*sedCmd
	for {
		p.skip(" \t\n;")
		if p.pos >= len(p.src) {
			return out, nil
		}
		if p.peek() == '#' {
			for p.peek() != 0 && p.peek() != '\n' {
				p.pos++
			}
			continue
		}
		cmd := &sedCmd{}
		var err error
		if cmd.from, err = p.addr(); err != nil {
			return nil, err
		}
		if cmd.from != nil && p.peek() == ',' {
			p.pos++
			if cmd.to, err = p.addr(); err != nil {
				return nil, err
			}
			if cmd.to == nil {
				return nil, errors.New("unexpected `,'")
			}
		}
		p.skip(" \t")
		if p.peek() == '!' {
			cmd.not = true
			p.pos++
			p.skip(" \t")
		}
		if cmd.verb = p.peek(); cmd.verb == 0 {
			return nil, errors.New("missing command")
		}
		p.pos++
		if err := p.body(cmd); err != nil {
			return nil, err
		}
		out = append(out, cmd)
	}
}

func (p *sedParser) addr() (*sedAddr, error) {
	switch c := p.peek(); {
	case c >= '0' && c <= '9':
		start := p.pos
		p.skip("0123456789")
		n, err := strconv.Atoi(p.src[start:p.pos])
		return &sedAddr{line: n}, err
	case c == '$':
		p.pos++
		return &sedAddr{last: true}, nil
	case c == '/':
		p.pos++
		text, err := p.until('/')
		if err != nil {
			return nil, errors.New("unterminated address regex")
		}
		re, err := p.regex(text, "")
		return &sedAddr{re: re}, err
	}
	return nil, nil
}

// until reads up to an unescaped delimiter.
func (p *sedParser) until(delim byte) (string, error) {
	var b strings.Builder
	inSet := false
	for p.pos < len(p.src) {
		c := p.src[p.pos]
		p.pos++
		switch {
		case c == '\\' && p.pos < len(p.src):
			if p.src[p.pos] == delim && delim != '|' {
				b.WriteByte(delim)
			} else {
				b.WriteByte(c)
				b.WriteByte(p.src[p.pos])
			}
			p.pos++
			continue
		case c == '[' && !inSet:
			inSet = true
		case c == ']':
			inSet = false
		case c == delim:
			return b.String(), nil
		}
		b.WriteByte(c)
	}
	return "", errors.New("unterminated")
}

func (p *sedParser) regex(text, flags string) (*regexp.Regexp, error) {
	conv := basicRegex
	if p.extended {
		conv = extendedRegex
	}
	expr, err := conv(text)
	if err != nil {
		return nil, err
	}
	re, err := regexp.Compile(flags + expr)
	if err != nil {
		return nil, errors.New("invalid regular expression")
	}
	return re, nil
}

// body reads what follows a command's letter.
func (p *sedParser) body(cmd *sedCmd) error {
	switch cmd.verb {
	case 'p', 'd', 'q', '=', 'D', 'N', 'n', 'G', 'H', 'h', 'g', 'x':
		if strings.IndexByte("DNnGHhgx", cmd.verb) >= 0 {
			return fmt.Errorf("the command `%c' is not supported in the simulated tier", cmd.verb)
		}
		if cmd.verb == 'q' {
			p.skip(" ")
			start := p.pos
			p.skip("0123456789")
			cmd.nth, _ = strconv.Atoi(p.src[start:p.pos]) // nothing is 0
		}
		return nil
	case 's':
		return p.substitution(cmd)
	case 'y':
		delim := p.peek()
		p.pos++
		from, err := p.until(delim)
		if err != nil {
			return errors.New("unterminated `y' command")
		}
		to, err := p.until(delim)
		if err != nil || len(from) != len(to) {
			return errors.New("strings for `y' command are different lengths")
		}
		cmd.with = from + to
		return nil
	case 'a', 'i', 'c':
		p.skip(" \t")
		if p.peek() == '\\' {
			p.pos++
			p.skip(" \t\n")
		}
		end := strings.IndexByte(p.src[p.pos:], '\n')
		if end < 0 {
			end = len(p.src) - p.pos
		}
		cmd.with = p.src[p.pos : p.pos+end]
		p.pos += end
		return nil
	}
	return fmt.Errorf("unknown command: `%c'", cmd.verb)
}

func (p *sedParser) substitution(cmd *sedCmd) error {
	delim := p.peek()
	p.pos++
	pat, err := p.until(delim)
	if err != nil {
		return errors.New("unterminated `s' command")
	}
	with, err := p.until(delim)
	if err != nil {
		return errors.New("unterminated `s' command")
	}
	flags := ""
	for {
		switch c := p.peek(); {
		case c == 'g':
			cmd.all = true
		case c == 'p':
			cmd.print = true
		case c == 'i' || c == 'I':
			flags = "(?i)"
		case c >= '1' && c <= '9':
			cmd.nth = int(c - '0')
		default:
			cmd.with = with
			cmd.re, err = p.regex(pat, flags)
			return err
		}
		p.pos++
	}
}
