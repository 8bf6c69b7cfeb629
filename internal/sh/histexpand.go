package sh

import (
	"path"
	"strconv"
	"strings"
)

// expandHistory replaces !-events in a line, as an interactive shell does before it
// reads the line. The second result is a message when there is no such event.
func (r *runner) expandHistory(line string) (text, bad string) {
	if strings.HasPrefix(line, "^") {
		from, rest, _ := strings.Cut(line[1:], "^")
		to, tail, _ := strings.Cut(rest, "^")
		n := len(r.hist.lines)
		if n == 0 || from == "" || !strings.Contains(r.hist.lines[n-1].text, from) {
			return "", ":s" + line + ": substitution failed"
		}
		return strings.Replace(r.hist.lines[n-1].text, from, strings.TrimSuffix(to, "\n"), 1) + tail, ""
	}
	if strings.IndexByte(line, '!') < 0 {
		return line, ""
	}
	var b strings.Builder
	quote := byte(0)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(line):
			b.WriteString(line[i : i+2])
			i++
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
			b.WriteByte(c)
		case c == quote:
			quote = 0
			b.WriteByte(c)
		case c == '!' && quote != '\'' && i+1 < len(line) && strings.IndexByte(" \t\n=(", line[i+1]) < 0 &&
			(line[i+1] != '"' || quote != '"') && !(i > 0 && (line[i-1] == '$' || line[i-1] == '[' || strings.HasSuffix(line[:i], "${"))):
			event, n, msg := r.historyEvent(line[i:], b.String())
			if msg != "" {
				return "", msg
			}
			if b.WriteString(event); b.Len() > maxSource {
				return "", line[i:i+n] + ": event too long"
			}
			i += n - 1
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), ""
}

// historyEvent reads one event at the front of a text: which line, which of its words,
// and what is done with them. It returns how much of the text that was.
func (r *runner) historyEvent(s, before string) (event string, n int, bad string) {
	last := len(r.hist.lines)
	at := -1
	i := 1
	switch c := s[1]; {
	case c == '!':
		at, i = last-1, 2
	case c == '#':
		event, i = before, 2
	case strings.IndexByte("$^*:", c) >= 0:
		at = last - 1
	case c >= '0' && c <= '9' || c == '-' && len(s) > 2 && s[2] >= '0' && s[2] <= '9':
		for i++; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
		}
		num, _ := strconv.Atoi(s[1:i]) // too large is out of range too
		if at = num - 1 - r.hist.base; c == '-' {
			at = last + num
		}
	default:
		inside := c == '?'
		if inside {
			i = 2
		}
		start := i
		for i < len(s) && (inside && s[i] != '?' && s[i] != '\n' || !inside && strings.IndexByte(" \t\n:;&()|<>^$*\"", s[i]) < 0) {
			i++
		}
		what := s[start:i]
		for at = last - 1; at >= 0; at-- {
			text := r.hist.lines[at].text
			if inside && strings.Contains(text, what) || !inside && strings.HasPrefix(text, what) {
				break
			}
		}
		if inside && i < len(s) && s[i] == '?' {
			i++
		}
	}
	if s[1] != '#' {
		if at < 0 || at >= last {
			return "", 0, s[:i] + ": event not found"
		}
		event = r.hist.lines[at].text
	}
	return r.eventParts(s, i, event)
}

// eventParts applies the word designators and modifiers that follow an event at i.
func (r *runner) eventParts(s string, i int, event string) (text string, n int, bad string) {
	start := i
	if i < len(s) && (strings.IndexByte("^$*", s[i]) >= 0 || s[i] == ':' && i+1 < len(s) && strings.IndexByte("^$*-0123456789", s[i+1]) >= 0) {
		if s[i] == ':' {
			i++
		}
		words := historyWords(event)
		from, to := 0, 0
		number := func() (int, bool) {
			j := i
			for j < len(s) && s[j] >= '0' && s[j] <= '9' {
				j++
			}
			v, err := strconv.Atoi(s[i:j])
			switch {
			case err == nil:
				i = j
				return v, true
			case i < len(s) && s[i] == '$':
				i++
				return len(words) - 1, true
			case i < len(s) && s[i] == '^':
				i++
				return 1, true
			}
			return 0, false
		}
		if s[i] == '*' {
			i++
			from, to = 1, len(words)-1
		} else {
			from, _ = number() // nothing before - is 0
			to = from
			switch {
			case i < len(s) && s[i] == '*':
				i++
				to = len(words) - 1
			case i < len(s) && s[i] == '-':
				i++
				var ok bool
				if to, ok = number(); !ok {
					to = len(words) - 2
				}
			}
		}
		if from >= len(words) && from > to || to >= len(words) || from < 0 || from > to+1 {
			return "", 0, s[start:i] + ": bad word specifier"
		}
		event = strings.Join(words[min(from, len(words)):to+1], " ")
	}
	for i+1 < len(s) && s[i] == ':' {
		all := false
		j := i + 1
		for s[j] == 'g' || s[j] == 'a' {
			if all, j = true, j+1; j == len(s) {
				return event, i, ""
			}
		}
		switch s[j] {
		case 'h':
			if at := strings.LastIndexByte(event, '/'); at > 0 {
				event = event[:at]
			}
		case 't':
			event = event[strings.LastIndexByte(event, '/')+1:]
		case 'r':
			event = strings.TrimSuffix(event, path.Ext(event))
		case 'e':
			event = path.Ext(event)
		case 'q':
			event = quoteAlways(event)
		case 'p':
		case 's':
			if j+1 == len(s) {
				return event, i, ""
			}
			parts := strings.SplitN(strings.TrimSuffix(s[j+2:], "\n"), s[j+1:j+2], 3)
			if len(parts) < 2 || parts[0] == "" || !strings.Contains(event, parts[0]) {
				return "", 0, s[i:] + ": substitution failed"
			}
			count := 1
			if all {
				count = -1
			}
			if len(event)*max(len(parts[1]), 1) < maxSource {
				event = strings.Replace(event, parts[0], strings.ReplaceAll(parts[1], "&", parts[0]), count)
			}
			j += 1 + len(parts[0]) + 1 + len(parts[1])
			if len(parts) > 2 {
				j++
			}
		default:
			return event, i, ""
		}
		i = j + 1
	}
	return event, i, ""
}

// historyWords splits a line into the words that designators count.
func historyWords(line string) []string {
	var words []string
	for i := 0; i < len(line); {
		switch c := line[i]; {
		case c == ' ' || c == '\t' || c == '\n':
			i++
		case strings.IndexByte(";&()|<>", c) >= 0:
			n := 1
			if i+1 < len(line) && line[i+1] == c && c != '(' && c != ')' {
				n = 2
			}
			words = append(words, line[i:i+n])
			i += n
		default:
			end, _ := wordEnd(line, i)
			if end == i {
				end++
			}
			words = append(words, line[i:end])
			i = end
		}
	}
	return words
}
