package interp

import (
	"fmt"
	"strconv"
	"strings"
)

// biUmask shows and sets the mode bits that new files must not have.
func biUmask(c *call) int {
	args, symbolic, reusable := c.args, false, false
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' && strings.Trim(args[0][1:], "Sp-") == "" {
		symbolic = symbolic || strings.Contains(args[0], "S")
		reusable = reusable || strings.Contains(args[0], "p")
		args = args[1:]
	}
	if len(args) > 0 {
		mask, err := parseUmask(args[0], c.r.umask)
		if err != nil {
			return c.fail(1, "%v", err)
		}
		c.r.umask = mask
		if !symbolic {
			return 0
		}
	}
	text := fmt.Sprintf("%04o", c.r.umask)
	if symbolic {
		text = umaskText(c.r.umask)
	}
	switch {
	case reusable && symbolic:
		text = "umask -S " + text
	case reusable:
		text = "umask " + text
	}
	return c.print(text + "\n")
}

func umaskText(mask uint32) string {
	var b strings.Builder
	for i, who := range "ugo" {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(string(who) + "=")
		bits := ^mask >> (6 - 3*uint(i))
		for j, l := range "rwx" {
			if bits&(4>>uint(j)) != 0 {
				b.WriteRune(l)
			}
		}
	}
	return b.String()
}

// parseUmask reads an octal mask, or symbolic permissions. Symbolic permissions name the allowed
// bits.
func parseUmask(s string, old uint32) (uint32, error) {
	if s != "" && s[0] >= '0' && s[0] <= '9' {
		n, err := strconv.ParseUint(s, 8, 32)
		if err != nil || n > 0o777 {
			return 0, fmt.Errorf("%s: octal number out of range", s)
		}
		return uint32(n), nil
	}
	allowed := ^old & 0o777
	for clause := range strings.SplitSeq(s, ",") {
		i := 0
		var who uint32
		for ; i < len(clause) && strings.IndexByte("ugoa", clause[i]) >= 0; i++ {
			who |= map[byte]uint32{'u': 0o700, 'g': 0o070, 'o': 0o007, 'a': 0o777}[clause[i]]
		}
		if who == 0 {
			who = 0o777
		}
		if i == len(clause) || strings.IndexByte("+-=", clause[i]) < 0 {
			c := ""
			if i < len(clause) {
				c = clause[i : i+1]
			}
			return 0, fmt.Errorf("`%s': invalid symbolic mode operator", c)
		}
		for i < len(clause) {
			op := clause[i]
			if strings.IndexByte("+-=", op) < 0 {
				return 0, fmt.Errorf("`%c': invalid symbolic mode operator", op)
			}
			var perm uint32
			for i++; i < len(clause) && strings.IndexByte("+-=", clause[i]) < 0; i++ {
				switch clause[i] {
				case 'r':
					perm |= 0o444
				case 'w':
					perm |= 0o222
				case 'x':
					perm |= 0o111
				case 'X':
					if allowed&0o111 != 0 {
						perm |= 0o111
					}
				case 'u':
					perm |= allowed >> 6 & 7 * 0o111
				case 'g':
					perm |= allowed >> 3 & 7 * 0o111
				case 'o':
					perm |= allowed & 7 * 0o111
				default:
					return 0, fmt.Errorf("`%c': invalid symbolic mode character", clause[i])
				}
			}
			switch op {
			case '+':
				allowed |= perm & who
			case '-':
				allowed &^= perm & who
			default:
				allowed = allowed&^who | perm&who
			}
		}
	}
	return ^allowed & 0o777, nil
}

// biTimes shows processor times, which the simulation does not measure.
func biTimes(c *call) int { return c.print("0m0.000s 0m0.000s\n0m0.000s 0m0.000s\n") }
