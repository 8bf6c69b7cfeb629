package interp

import (
	"path"
	"strconv"
	"strings"
)

// expandHistory replaces !-events in a line, as an interactive shell does before it parses the
// line. The second result is a message for an event that does not exist.
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

// historyEvent reads one event at the start of a text: the line, the words of that line, and the
// modifiers. n is the length of the event in the text.
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

// eventParts applies the word designators and modifiers that follow an event. They begin at i.
func (r *runner) eventParts(s string, i int, event string) (text string, n int, bad string) {
	if i < len(s) && (strings.IndexByte("^$*", s[i]) >= 0 || s[i] == ':' && i+1 < len(s) && strings.IndexByte("^$*-0123456789", s[i+1]) >= 0) {
		words := eventWords{s: s, at: i, words: historyWords(event)}
		if event, bad = words.chosen(); bad != "" {
			return "", 0, bad
		}
		i = words.at
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
			changed, length, ok := eventReplaced(event, s[j+1:], all)
			if !ok {
				return "", 0, s[i:] + ": substitution failed"
			}
			event = changed
			j += length
		default:
			return event, i, ""
		}
		i = j + 1
	}
	return event, i, ""
}

// eventWords chooses words of an event by a word designator: :2, :1-3, ^, $ or *.
type eventWords struct {
	s     string
	at    int // moves behind what was read
	words []string
}

// chosen reads the designator and returns the words.
func (e *eventWords) chosen() (text, bad string) {
	start := e.at
	if e.s[e.at] == ':' {
		e.at++
	}
	from, to := 0, 0
	if e.s[e.at] == '*' {
		e.at++
		from, to = 1, len(e.words)-1
	} else {
		from, _ = e.number() // nothing before - is 0
		to = from
		switch {
		case e.at < len(e.s) && e.s[e.at] == '*':
			e.at++
			to = len(e.words) - 1
		case e.at < len(e.s) && e.s[e.at] == '-':
			e.at++
			var ok bool
			if to, ok = e.number(); !ok {
				to = len(e.words) - 2
			}
		}
	}
	if from >= len(e.words) && from > to || to >= len(e.words) || from < 0 || from > to+1 {
		return "", e.s[start:e.at] + ": bad word specifier"
	}
	return strings.Join(e.words[min(from, len(e.words)):to+1], " "), ""
}

// number reads the number of a word.
func (e *eventWords) number() (int, bool) {
	j := e.at
	for j < len(e.s) && e.s[j] >= '0' && e.s[j] <= '9' {
		j++
	}
	v, err := strconv.Atoi(e.s[e.at:j])
	switch {
	case err == nil:
		e.at = j
		return v, true
	case e.at < len(e.s) && e.s[e.at] == '$':
		e.at++
		return len(e.words) - 1, true
	case e.at < len(e.s) && e.s[e.at] == '^':
		e.at++
		return 1, true
	}
	return 0, false
}

// eventReplaced does the substitution /old/new/ at the start of spec, with any delimiter. length is
// the length of the substitution. ok is false when the event does not contain old.
func eventReplaced(event, spec string, all bool) (changed string, length int, ok bool) {
	parts := strings.SplitN(strings.TrimSuffix(spec[1:], "\n"), spec[:1], 3)
	if len(parts) < 2 || parts[0] == "" || !strings.Contains(event, parts[0]) {
		return event, 0, false
	}
	count := 1
	if all {
		count = -1
	}
	if len(event)*max(len(parts[1]), 1) < maxSource {
		event = strings.Replace(event, parts[0], strings.ReplaceAll(parts[1], "&", parts[0]), count)
	}
	length = 1 + len(parts[0]) + 1 + len(parts[1])
	if len(parts) > 2 {
		length++
	}
	return event, length, true
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
