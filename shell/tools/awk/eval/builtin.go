package eval

import (
	"math"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/awk/syntax"
)

// builder compiles a call of a built-in function.
type builder func(c *compiler, x *syntax.CallBuiltin) code

// builders are the built-in functions of the language.
var builders map[string]builder

func init() {
	builders = map[string]builder{
		"length": (*compiler).length, "substr": (*compiler).substr, "index": (*compiler).indexOf,
		"split": (*compiler).split, "patsplit": (*compiler).patsplit, "sub": (*compiler).sub,
		"gsub": (*compiler).sub, "gensub": (*compiler).gensub, "match": (*compiler).matchCall,
		"sprintf": (*compiler).sprintf, "typeof": (*compiler).typeof,
		"isarray": (*compiler).isArray, "asort": (*compiler).asort, "asorti": (*compiler).asort,
		"tolower": mapText(lower), "toupper": mapText(upper),
		"sin": mapNum(math.Sin), "cos": mapNum(math.Cos), "exp": mapNum(math.Exp),
		"int": mapNum(math.Trunc), "log": (*compiler).log, "sqrt": (*compiler).sqrt,
		"atan2": (*compiler).atan2, "rand": (*compiler).rand, "srand": (*compiler).srand,
		"system": (*compiler).system, "close": (*compiler).close, "fflush": (*compiler).fflush,
		"systime": (*compiler).systime, "strftime": (*compiler).strftime,
		"mktime": (*compiler).mktime, "strtonum": (*compiler).strtonum,
		"and":   bits("and", func(x, y uint64) uint64 { return x & y }),
		"or":    bits("or", func(x, y uint64) uint64 { return x | y }),
		"xor":   bits("xor", func(x, y uint64) uint64 { return x ^ y }),
		"compl": (*compiler).compl, "lshift": (*compiler).shift, "rshift": (*compiler).shift,
		"mkbool":         (*compiler).mkbool,
		"dcgettext":      func(c *compiler, x *syntax.CallBuiltin) code { return c.expr(x.Args[0]) },
		"dcngettext":     (*compiler).plural,
		"bindtextdomain": (*compiler).bindTextDomain,
	}
}

// builtin compiles a call of a built-in function.
func (c *compiler) builtin(x *syntax.CallBuiltin) code {
	return builders[x.Builtin.Name](c, x)
}

// mapNum makes a built-in from a function of one number.
func mapNum(f func(float64) float64) builder {
	return func(c *compiler, x *syntax.CallBuiltin) code {
		arg := c.expr(x.Args[0]).num
		return ofNum(func(m *machine) float64 { return f(arg(m)) })
	}
}

func (c *compiler) log(x *syntax.CallBuiltin) code {
	arg := c.expr(x.Args[0]).num
	return ofNum(func(m *machine) float64 {
		n := arg(m)
		if n < 0 {
			m.warn("log: received negative argument %g", n)
			return nan()
		}
		return math.Log(n)
	})
}

func (c *compiler) sqrt(x *syntax.CallBuiltin) code {
	arg := c.expr(x.Args[0]).num
	return ofNum(func(m *machine) float64 {
		n := arg(m)
		if n < 0 {
			m.warn("sqrt: called with negative argument %g", n)
			return nan()
		}
		return math.Sqrt(n)
	})
}

func (c *compiler) atan2(x *syntax.CallBuiltin) code {
	a, b := c.expr(x.Args[0]).num, c.expr(x.Args[1]).num
	return ofNum(func(m *machine) float64 { y := a(m); return math.Atan2(y, b(m)) })
}

func (c *compiler) rand(*syntax.CallBuiltin) code {
	return ofNum(func(m *machine) float64 { return m.random.float() })
}

func (c *compiler) srand(x *syntax.CallBuiltin) code {
	if len(x.Args) == 0 {
		return ofNum(func(m *machine) float64 { return m.srand(float64(m.call.Now().Unix())) })
	}
	arg := c.expr(x.Args[0]).num
	return ofNum(func(m *machine) float64 { return m.srand(arg(m)) })
}

func (c *compiler) mkbool(x *syntax.CallBuiltin) code { return ofCond(c.expr(x.Args[0]).cond) }

func (c *compiler) plural(x *syntax.CallBuiltin) code {
	one := c.expr(x.Args[0])
	if len(x.Args) < 3 {
		return one
	}
	many, n := c.expr(x.Args[1]), c.expr(x.Args[2]).num
	return ofStr(func(m *machine) string {
		if n(m) == 1 {
			return one.str(m)
		}
		return many.str(m)
	})
}

func (c *compiler) bindTextDomain(*syntax.CallBuiltin) code {
	return constant(text("")) // there are no translations
}

func (c *compiler) system(x *syntax.CallBuiltin) code {
	arg := c.expr(x.Args[0]).str
	return ofNum(func(m *machine) float64 {
		command := arg(m)
		m.flushAll()
		p, err := m.call.Start(tool.Child{Args: []string{"sh", "-c", command}, Env: m.environ()})
		if err != nil {
			m.fatal("system: %s", tool.ErrText(err))
		}
		return float64(exitOf(p))
	})
}

func (c *compiler) close(x *syntax.CallBuiltin) code {
	name := c.expr(x.Args[0]).str
	half := func(*machine) string { return "" }
	if len(x.Args) > 1 {
		half = c.expr(x.Args[1]).str
	}
	return ofNum(func(m *machine) float64 {
		s := name(m)
		h := half(m)
		if h != "" && h != "to" && h != "from" {
			m.fatal("close: second argument must be `to' or `from'")
		}
		return float64(m.closeNamed(s, h))
	})
}

func (c *compiler) fflush(x *syntax.CallBuiltin) code {
	all := func(m *machine) float64 {
		if m.flushAll() {
			return 0
		}
		return -1
	}
	if len(x.Args) == 0 {
		return ofNum(all)
	}
	name := c.expr(x.Args[0]).str
	return ofNum(func(m *machine) float64 {
		s := name(m)
		switch s {
		case "":
			return all(m)
		case "/dev/stdout", "-":
			m.flush(m.streams.stdout)
			return 0
		case "/dev/stderr":
			return 0
		}
		o := m.streams.out[s]
		if b := m.streams.both[s]; o == nil && b != nil {
			o = b.out
		}
		if o == nil {
			m.warn("fflush: `%s' is not an open file, pipe or co-process", s)
			return -1
		}
		m.flush(o)
		return 0
	})
}

func (c *compiler) systime(*syntax.CallBuiltin) code {
	return ofNum(func(m *machine) float64 { return float64(m.call.Now().Unix()) })
}

func (c *compiler) strftime(x *syntax.CallBuiltin) code {
	args := c.exprs(x.Args)
	return ofStr(func(m *machine) string {
		format, at, zone := defaultTime, m.call.Now(), "UTC"
		if len(args) > 0 {
			format = args[0].str(m)
		}
		if len(args) > 1 {
			n := args[1].num(m)
			if math.IsNaN(n) || math.Abs(n) > 1<<40 {
				m.fatal("strftime: second argument out of range for time_t")
			}
			at = time.Unix(int64(math.Floor(n)), 0)
		}
		if len(args) > 2 && args[2].cond(m) {
			zone = "GMT"
		}
		return m.strftime(format, at.UTC(), zone)
	})
}

func (c *compiler) mktime(x *syntax.CallBuiltin) code {
	args := c.exprs(x.Args)
	return ofNum(func(m *machine) float64 {
		spec := args[0].str(m)
		if len(args) > 1 {
			args[1].num(m) // all times are UTC's
		}
		return mktime(spec)
	})
}

// strtonum reads decimal, octal and hexadecimal numbers.
func (c *compiler) strtonum(x *syntax.CallBuiltin) code {
	arg := c.expr(x.Args[0]).val
	return ofNum(func(m *machine) float64 {
		v := arg(m).settled()
		if v.k == kindNumber || v.k == kindStrnum {
			return v.n
		}
		return anyBase(v.s)
	})
}

// anyBase returns the number at the start of a text: 0x1F, 017 or a decimal.
func anyBase(s string) float64 {
	i := 0
	for i < len(s) && isBlank(s[i]) {
		i++
	}
	sign := 1.0
	rest := s[i:]
	if rest != "" && (rest[0] == '-' || rest[0] == '+') {
		if rest[0] == '-' {
			sign = -1
		}
		rest = rest[1:]
	}
	if len(rest) < 2 || rest[0] != '0' {
		return leadingNumber(s)
	}
	base, n := 8.0, 1
	if rest[1]|0x20 == 'x' {
		base, n = 16, 2
	}
	v, from := 0.0, n
	for ; n < len(rest); n++ {
		d := digitValue(rest[n])
		if d < 0 || float64(d) >= base {
			break
		}
		v = v*base + float64(d)
	}
	if base == 8 && n < len(rest) && (isDigit(rest[n]) || rest[n] == '.' || rest[n]|0x20 == 'e') ||
		n == from && base == 8 {
		return leadingNumber(s)
	}
	return sign * v
}

func digitValue(c byte) int {
	switch {
	case isDigit(c):
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// bits makes a built-in that combines the bits of two or more numbers.
func bits(name string, join func(x, y uint64) uint64) builder {
	return func(c *compiler, x *syntax.CallBuiltin) code {
		args := c.exprs(x.Args)
		return ofNum(func(m *machine) float64 {
			if len(args) < 2 {
				m.fatal("%s: called with less than two arguments", name)
			}
			var v uint64
			for i, a := range args {
				n := a.num(m)
				if n < 0 {
					m.fatal("%s: argument %d negative value %g is not allowed", name, i+1, n)
				}
				if i == 0 {
					v = whole(n)
				} else {
					v = join(v, whole(n))
				}
			}
			return fromBits(v)
		})
	}
}

// whole converts a number to bits. A number that is too large gets all bits.
func whole(n float64) uint64 {
	switch {
	case !(n >= 1):
		return 0
	case n >= 1<<64:
		return math.MaxUint64
	}
	return uint64(n)
}

// fromBits converts bits to a number. If there are more bits than a float64 can hold, it drops the
// highest, so that the others are exact.
func fromBits(v uint64) float64 {
	const exact = 53
	if v < 1<<exact {
		return float64(v)
	}
	// Zeros at the end take no bits of the fraction.
	zeros := 0
	for v>>zeros&1 == 0 {
		zeros++
	}
	if keep := exact + zeros; keep < 64 {
		v &= 1<<keep - 1
	}
	return float64(v)
}

func (c *compiler) compl(x *syntax.CallBuiltin) code {
	arg := c.expr(x.Args[0]).num
	return ofNum(func(m *machine) float64 {
		n := arg(m)
		if n < 0 {
			m.fatal("compl(%f): negative value is not allowed", n)
		}
		return fromBits(^whole(n))
	})
}

func (c *compiler) shift(x *syntax.CallBuiltin) code {
	name := x.Builtin.Name
	a, b := c.expr(x.Args[0]).num, c.expr(x.Args[1]).num
	return ofNum(func(m *machine) float64 {
		n := a(m)
		by := b(m)
		if n < 0 || by < 0 {
			m.fatal("%s(%f, %f): negative values are not allowed", name, n, by)
		}
		s := whole(by) % 64 // as the processor shifts
		if name == "lshift" {
			return fromBits(whole(n) << s)
		}
		return fromBits(whole(n) >> s)
	})
}
