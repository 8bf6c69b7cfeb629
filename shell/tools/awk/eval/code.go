package eval

// code is a compiled expression. It has four functions, one for each form of the result that may be
// needed. All four do the same work.
type code struct {
	val  func(m *machine) value
	num  func(m *machine) float64
	str  func(m *machine) string
	cond func(m *machine) bool
	// isNum and isStr say that the result is always a number, or always a string.
	isNum, isStr bool
}

// ofNum makes code from a function that returns numbers.
func ofNum(num func(m *machine) float64) code {
	return code{num: num, isNum: true,
		val:  func(m *machine) value { return value{n: num(m), k: kindNumber} },
		str:  func(m *machine) string { return m.numberText(num(m)) },
		cond: func(m *machine) bool { return num(m) != 0 }}
}

// ofStr makes code from a function that returns strings.
func ofStr(str func(m *machine) string) code {
	return code{str: str, isStr: true,
		val:  func(m *machine) value { return value{s: str(m), k: kindString} },
		num:  func(m *machine) float64 { return leadingNumber(str(m)) },
		cond: func(m *machine) bool { return str(m) != "" }}
}

// ofVal makes code from a function that returns any value.
func ofVal(val func(m *machine) value) code {
	return code{val: val,
		num: func(m *machine) float64 { return val(m).num() },
		str: func(m *machine) string {
			v := val(m)
			if v.k == kindNumber {
				return m.numberText(v.n)
			}
			return v.s
		},
		cond: func(m *machine) bool { return val(m).truth() }}
}

// ofCond makes code from a function that returns a truth value. As a number it is 1 or 0.
func ofCond(cond func(m *machine) bool) code {
	return code{cond: cond, isNum: true,
		val: func(m *machine) value { return boolean(cond(m)) },
		num: func(m *machine) float64 {
			if cond(m) {
				return 1
			}
			return 0
		},
		str: func(m *machine) string {
			if cond(m) {
				return "1"
			}
			return "0"
		}}
}
