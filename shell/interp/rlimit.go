package interp

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// unlimited is the value that means no limit.
const unlimited = math.MaxInt64

// rlimits are the values that ulimit has set: soft and hard limits by letter, in the printed unit.
// Forks share them. Code that changes them copies them first.
type rlimits struct{ soft, hard map[byte]int64 }

// limitNames are the limits of ulimit -a, in its order, with their units and defaults.
var limitNames = []struct {
	letter     byte
	name, unit string
	value      int64
}{
	{'R', "real-time non-blocking time ", "microseconds", unlimited},
	{'c', "core file size             ", "blocks", 0},
	{'d', "data seg size              ", "kbytes", unlimited},
	{'e', "scheduling priority        ", "", 0},
	{'f', "file size                  ", "blocks", unlimited},
	{'i', "pending signals            ", "", 4096},
	{'l', "max locked memory          ", "kbytes", 64},
	{'m', "max memory size            ", "kbytes", unlimited},
	{'n', "open files                 ", "", 1024},
	{'p', "pipe size                  ", "512 bytes", 8},
	{'q', "POSIX message queues       ", "bytes", 819200},
	{'r', "real-time priority         ", "", 0},
	{'s', "stack size                 ", "kbytes", 8192},
	{'t', "cpu time                   ", "seconds", unlimited},
	{'u', "max user processes         ", "", unlimited},
	{'v', "virtual memory             ", "kbytes", unlimited},
	{'x', "file locks                 ", "", unlimited},
}

// limit returns a limit.
func (r *runner) limit(letter byte, hard bool) int64 {
	if r.limits != nil {
		set := r.limits.soft
		if hard {
			set = r.limits.hard
		}
		if v, ok := set[letter]; ok {
			return v
		}
	}
	switch letter {
	case 'n':
		return int64(r.m.limits.FDs)
	case 'u':
		if r.m.limits.Procs > 0 {
			return int64(r.m.limits.Procs)
		}
	case 'm', 'v':
		if r.m.limits.Memory > 0 {
			return r.m.limits.Memory >> 10
		}
	}
	for _, l := range limitNames {
		if l.letter == letter {
			return l.value
		}
	}
	return unlimited
}

// maxFDs is the most descriptors that the process may have.
func (r *runner) maxFDs() int { return int(min(r.limit('n', false), int64(r.m.limits.FDs))) }

// maxFile is the longest file that the process may write, in bytes; 0 is no limit.
func (r *runner) maxFile() int64 {
	if r.limits == nil {
		return 0
	}
	const block = 1024
	if n := r.limit('f', false); n < unlimited/block {
		return max(n*block, 1)
	}
	return 0
}

func limitText(v int64) string {
	if v == unlimited {
		return "unlimited"
	}
	return strconv.FormatInt(v, 10)
}

// biUlimit shows and lowers limits. They can't be raised above the machine's own limits.
func biUlimit(c *call) int {
	args := c.args
	soft, hard, all := false, false, false
	var letters []byte
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		a := args[0]
		args = args[1:]
		if a == "--" {
			break
		}
		for _, l := range []byte(a[1:]) {
			switch {
			case l == 'S':
				soft = true
			case l == 'H':
				hard = true
			case l == 'a':
				all = true
			case strings.IndexByte("Rcdefilmnpqrstuvx", l) >= 0:
				letters = append(letters, l)
			default:
				c.fail(2, "-%c: invalid option", l)
				c.r.writeErr("ulimit: usage: ulimit [-SHabcdefiklmnpqrstuvxPRT] [limit]\n")
				return 2
			}
		}
	}
	if all {
		var b strings.Builder
		for _, l := range limitNames {
			b.WriteString(limitLine(l.letter, c.r.limit(l.letter, hard && !soft)))
		}
		return c.print(b.String())
	}
	if len(letters) == 0 {
		letters = []byte{'f'}
	}
	if len(args) == 0 {
		for _, l := range letters {
			v := c.r.limit(l, hard && !soft)
			if len(letters) > 1 {
				c.print(limitLine(l, v))
				continue
			}
			c.print(limitText(v) + "\n")
		}
		return 0
	}
	status := 0
	for _, l := range letters {
		if code := c.r.setLimit(c, l, args[0], soft || !hard, hard || !soft); code != 0 {
			status = code
		}
	}
	return status
}

// limitLine is one line of ulimit -a.
func limitLine(letter byte, v int64) string {
	for _, l := range limitNames {
		if l.letter == letter {
			unit := fmt.Sprintf("(-%c) ", l.letter)
			if l.unit != "" {
				unit = fmt.Sprintf("(%s, -%c) ", l.unit, l.letter)
			}
			return fmt.Sprintf("%-20s %20s%s\n", strings.TrimRight(l.name, " "), unit, limitText(v))
		}
	}
	return ""
}

func (r *runner) setLimit(c *call, letter byte, text string, soft, hard bool) int {
	var v int64
	switch text {
	case "unlimited":
		v = unlimited
	case "soft":
		v = r.limit(letter, false)
	case "hard":
		v = r.limit(letter, true)
	default:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return c.fail(1, "%s: invalid number", text)
		}
		v = n
	}
	name := ""
	for _, l := range limitNames {
		if l.letter == letter {
			name = strings.TrimSpace(l.name)
		}
	}
	top := r.limit(letter, true)
	if hard && v > top || !hard && v > top {
		text := "Operation not permitted"
		if !hard {
			text = "Invalid argument"
		}
		return c.fail(1, "%s: cannot modify limit: %s", name, text)
	}
	next := &rlimits{soft: map[byte]int64{}, hard: map[byte]int64{}}
	if r.limits != nil {
		for k, v := range r.limits.soft {
			next.soft[k] = v
		}
		for k, v := range r.limits.hard {
			next.hard[k] = v
		}
	}
	if soft {
		next.soft[letter] = v
	}
	if hard {
		next.hard[letter] = v
	}
	r.limits = next
	return 0
}
