package gnudate

import (
	"strings"
)

// kind is what a token is.
type kind byte

const (
	kEnd     kind = iota
	kNumber       // digits
	kSigned       // digits with a sign
	kDecimal      // digits with a fraction
	kPunct        // one character
	kMonth
	kDay
	kUnit
	kOrdinal
	kShift // yesterday, today, now, tomorrow
	kAgo
	kMeridian
	kZone
	kDST
	kUnknown
)

// token is a word or number of a date.
type token struct {
	kind   kind
	n      int64 // the number, or the value of the word
	digits int
	nsec   int // of a decimal
	neg    bool
	signed bool
	ch     byte
	word   string
}

var dayNames = []string{"SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY"}
var monthNames = []string{"JANUARY", "FEBRUARY", "MARCH", "APRIL", "MAY", "JUNE", "JULY", "AUGUST", "SEPTEMBER", "OCTOBER", "NOVEMBER", "DECEMBER"}
var ordinals = map[string]int64{"LAST": -1, "THIS": 0, "NEXT": 1, "FIRST": 1, "THIRD": 3, "FOURTH": 4, "FIFTH": 5, "SIXTH": 6, "SEVENTH": 7,
	"EIGHTH": 8, "NINTH": 9, "TENTH": 10, "ELEVENTH": 11, "TWELFTH": 12}
var shifts = map[string]int64{"TOMORROW": 1, "YESTERDAY": -1, "TODAY": 0, "NOW": 0}

// The units of relative dates.
const (
	uYear = iota
	uMonth
	uDay
	uFortnight
	uWeek
	uHour
	uMinute
	uSecond
)

var units = map[string]int64{"YEAR": uYear, "MONTH": uMonth, "FORTNIGHT": uFortnight, "WEEK": uWeek, "DAY": uDay, "HOUR": uHour, "MINUTE": uMinute, "MIN": uMinute,
	"SECOND": uSecond, "SEC": uSecond}

// zoneMinutes are the named zones that GNU date knows, including daylight saving time.
var zoneMinutes = map[string]int64{"GMT": 0, "UT": 0, "UTC": 0, "WET": 0, "WEST": 60, "BST": 60, "ART": -180, "BRT": -180, "BRST": -120, "NST": -210, "NDT": -150,
	"AST": -240, "ADT": -180, "CLT": -240, "CLST": -180, "EST": -300, "EDT": -240, "CST": -360, "CDT": -300, "MST": -420, "MDT": -360, "PST": -480, "PDT": -420,
	"AKST": -540, "AKDT": -480, "HST": -600, "HAST": -600, "HADT": -540, "SST": -720, "WAT": 60, "CET": 60, "CEST": 120, "MET": 60, "MEZ": 60, "MEST": 120,
	"MESZ": 120, "EET": 120, "EEST": 180, "CAT": 120, "SAST": 120, "EAT": 180, "MSK": 180, "MSD": 240, "IST": 330, "SGT": 480, "KST": 540, "JST": 540, "GST": 600,
	"NZST": 720, "NZDT": 780}

// lex takes a date apart.
func lex(s string) (out []token) {
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == ' ' || c >= '\t' && c <= '\r':
			i++
		case c == '(':
			depth := 0
			for ; i < len(s); i++ {
				if s[i] == '(' {
					depth++
				} else if s[i] == ')' {
					if depth--; depth == 0 {
						i++
						break
					}
				}
			}
		case c >= '0' && c <= '9' || c == '-' || c == '+':
			t := token{kind: kNumber}
			if c == '-' || c == '+' {
				t.kind, t.signed, t.neg = kSigned, true, c == '-'
				for i++; i < len(s) && (s[i] == ' ' || s[i] >= '\t' && s[i] <= '\r'); i++ {
				}
				if i == len(s) || s[i] < '0' || s[i] > '9' {
					continue // a sign alone means nothing
				}
			}
			for ; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
				if t.n > 1<<58 {
					out = append(out, token{kind: kUnknown})
					return out
				}
				t.n = t.n*10 + int64(s[i]-'0')
				t.digits++
			}
			if i+1 < len(s) && (s[i] == '.' || s[i] == ',') && s[i+1] >= '0' && s[i+1] <= '9' {
				t.kind = kDecimal
				scale := 100_000_000
				for i++; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
					t.nsec += int(s[i]-'0') * scale
					scale /= 10
				}
			}
			if t.neg {
				t.n, t.nsec = -t.n, -t.nsec
			}
			out = append(out, t)
		case c|0x20 >= 'a' && c|0x20 <= 'z':
			start := i
			for i < len(s) && (s[i]|0x20 >= 'a' && s[i]|0x20 <= 'z' || s[i] == '.') {
				i++
			}
			out = append(out, word(s[start:i]))
		default:
			out = append(out, token{kind: kPunct, ch: c})
			i++
		}
	}
	return out
}

// word looks a word up.
func word(s string) token {
	w := strings.ToUpper(s)
	switch w {
	case "AM", "A.M.":
		return token{kind: kMeridian, n: 0}
	case "PM", "P.M.":
		return token{kind: kMeridian, n: 1}
	case "AGO":
		return token{kind: kAgo, n: -1}
	case "DST":
		return token{kind: kDST}
	}
	short := len(w) == 3 || len(w) == 4 && w[3] == '.'
	for i, n := range monthNames {
		if w == n || short && w[:3] == n[:3] || w == "SEPT" && i == 8 {
			return token{kind: kMonth, n: int64(i + 1), word: w}
		}
	}
	for i, n := range dayNames {
		if w == n || short && w[:3] == n[:3] || w == "TUES" && i == 2 || w == "WEDNES" && i == 3 || (w == "THUR" || w == "THURS") && i == 4 {
			return token{kind: kDay, n: int64(i), word: w}
		}
	}
	if m, ok := zoneMinutes[w]; ok {
		return token{kind: kZone, n: m, word: w}
	}
	for _, n := range []string{w, strings.TrimSuffix(w, "S")} {
		if u, ok := units[n]; ok {
			return token{kind: kUnit, n: u, word: w}
		}
	}
	if d, ok := shifts[w]; ok {
		return token{kind: kShift, n: d}
	}
	if o, ok := ordinals[w]; ok {
		return token{kind: kOrdinal, n: o}
	}
	if len(w) == 1 { // the military's zones
		switch c := int64(w[0]); {
		case c == 'T':
			return token{kind: kPunct, ch: 'T'}
		case c == 'Z':
			return token{kind: kZone, n: 0, word: w}
		case c >= 'A' && c <= 'I':
			return token{kind: kZone, n: (c - 'A' + 1) * 60, word: w}
		case c >= 'K' && c <= 'M':
			return token{kind: kZone, n: (c - 'K' + 10) * 60, word: w}
		case c >= 'N' && c <= 'Y':
			return token{kind: kZone, n: -(c - 'N' + 1) * 60, word: w}
		}
	}
	if strings.Contains(w, ".") {
		return word(strings.ReplaceAll(w, ".", ""))
	}
	return token{kind: kUnknown, word: s}
}
