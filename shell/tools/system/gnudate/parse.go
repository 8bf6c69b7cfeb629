package gnudate

import (
	"errors"
	"strings"
	"time"
)

var errDate = errors.New("invalid date")

// parser is the state of one Parse.
type parser struct {
	toks []token

	year, month, day          int64
	yearDigits                int
	hour, min, sec            int64
	nsec                      int
	meridian                  int64 // 0 am, 1 pm, 2 none
	zone                      int64 // seconds
	dayOrdinal, dayNumber     int64
	rel                       [8]int64 // by unit
	relNsec                   int64
	epoch                     time.Time
	dates, times, days, zones int
	rels, isEpoch             bool
}

// Parse reads a date relative to now, in the zone of now.
func Parse(s string, now time.Time) (time.Time, error) {
	const maxLength = 4096
	if len(s) > maxLength {
		return time.Time{}, errDate
	}
	s = strings.TrimLeft(s, " \t\n")
	if rest, ok := strings.CutPrefix(s, `TZ="`); ok {
		name, more, ok := strings.Cut(rest, `"`)
		if !ok {
			return time.Time{}, errDate
		}
		s, now = more, now.In(Location(name))
	}
	p := &parser{toks: lex(s), year: int64(now.Year()), month: int64(now.Month()), day: int64(now.Day()),
		hour: int64(now.Hour()), min: int64(now.Minute()), sec: int64(now.Second()), nsec: now.Nanosecond(), meridian: 2}
	for len(p.toks) > 0 {
		if !p.item() {
			return time.Time{}, errDate
		}
	}
	return p.result(now.Location())
}

// at returns the token n places further on.
func (p *parser) at(n int) token {
	if n < len(p.toks) {
		return p.toks[n]
	}
	return token{}
}

func (p *parser) punct(n int, c byte) bool {
	t := p.at(n)
	return t.kind == kPunct && t.ch == c
}

func (p *parser) skip(n int) bool {
	p.toks = p.toks[n:]
	return true
}

// item reads one part: a date, a time, a day, a zone, a relative item or a number.
func (p *parser) item() bool {
	t := p.at(0)
	switch t.kind {
	case kPunct:
		switch t.ch {
		case '@':
			return p.seconds()
		case ',':
			return false
		case 'T':
			if p.at(1).kind == kNumber && p.at(2).ch == ':' {
				p.skip(1)
				return p.time()
			}
			p.zones++ // the military's T
			p.zone = -7 * 3600
			return p.skip(1)
		}
		return false
	case kMonth:
		return p.monthFirst()
	case kDay:
		p.days++
		p.dayOrdinal, p.dayNumber = 0, t.n
		if p.punct(1, ',') {
			p.skip(1)
		}
		return p.skip(1)
	case kOrdinal:
		switch p.at(1).kind {
		case kDay:
			p.days++
			p.dayOrdinal, p.dayNumber = t.n, p.at(1).n
			return p.skip(2)
		case kUnit:
			return p.relative(t.n, 0, 1)
		}
		return false
	case kUnit:
		return p.relative(1, 0, 0)
	case kShift:
		p.rels = true
		p.rel[uDay] += t.n
		return p.skip(1)
	case kZone:
		p.zones++
		p.zone = t.n * 60
		p.skip(1)
		if p.at(0).kind == kSigned && p.at(1).kind != kUnit {
			off, n, ok := p.offset(0)
			if !ok {
				return false
			}
			p.zone += off
			p.skip(n)
		}
		if p.at(0).kind == kDST {
			p.zone += 3600
			p.skip(1)
		}
		return true
	case kSigned:
		if p.at(1).kind == kUnit {
			return p.relative(t.n, 0, 1)
		}
		return false
	case kDecimal:
		if u := p.at(1); u.kind == kUnit && u.n == uSecond {
			return p.relative(t.n, int64(t.nsec), 1)
		}
		return false
	case kNumber:
		return p.number()
	}
	return false
}

// seconds reads @N.
func (p *parser) seconds() bool {
	t := p.at(1)
	if t.kind != kNumber && t.kind != kSigned && t.kind != kDecimal || len(p.toks) != 2 || p.dates+p.times+p.days+p.zones > 0 || p.rels {
		return false
	}
	if t.n > 1<<55 || t.n < -1<<55 {
		return false
	}
	p.isEpoch, p.epoch = true, time.Unix(t.n, int64(t.nsec))
	return p.skip(2)
}

// relative adds n units. The token of the unit is ahead places further on.
func (p *parser) relative(n, nsec int64, ahead int) bool {
	u := p.at(ahead).n
	p.skip(ahead + 1)
	if p.at(0).kind == kAgo {
		n, nsec = -n, -nsec
		p.skip(1)
	}
	if n > 1<<40 || n < -1<<40 {
		return false
	}
	p.rels = true
	p.rel[u] += n
	p.relNsec += nsec
	return true
}

// monthFirst reads Nov 22[, 2026] and Nov-22-2026.
func (p *parser) monthFirst() bool {
	d := p.at(1)
	p.dates++
	p.month = p.at(0).n
	switch {
	case d.kind == kSigned && d.neg && p.at(2).kind == kSigned:
		p.day = -d.n
		p.setYear(-p.at(2).n, p.at(2).digits)
		return p.skip(3)
	case d.kind == kNumber:
		p.day = d.n
		if p.punct(2, ',') && p.at(3).kind == kNumber && !p.punct(4, ':') {
			p.setYear(p.at(3).n, p.at(3).digits)
			return p.skip(4)
		}
		if p.punct(2, ',') {
			return false
		}
		return p.skip(2)
	}
	return false
}

func (p *parser) setYear(n int64, digits int) {
	if digits == 2 {
		if n += 1900; n < 1969 {
			n += 100
		}
	}
	p.year, p.yearDigits = n, digits
}

// number reads an item that begins with digits.
func (p *parser) number() bool {
	t, next := p.at(0), p.at(1)
	switch {
	case next.kind == kPunct && next.ch == ':' || next.kind == kMeridian:
		return p.time()
	case next.kind == kPunct && next.ch == '/' && p.at(2).kind == kNumber:
		p.dates++
		if p.punct(3, '/') && p.at(4).kind == kNumber {
			if t.digits >= 4 { // 2026/11/22
				p.setYear(t.n, t.digits)
				p.month, p.day = p.at(2).n, p.at(4).n
			} else {
				p.month, p.day = t.n, p.at(2).n
				p.setYear(p.at(4).n, p.at(4).digits)
			}
			return p.skip(5)
		}
		p.month, p.day = t.n, p.at(2).n
		return p.skip(3)
	case next.kind == kMonth:
		p.dates++
		p.day, p.month = t.n, next.n
		y := p.at(2)
		switch {
		case y.kind == kSigned && y.neg && p.at(3).kind != kUnit:
			p.setYear(-y.n, y.digits)
			return p.skip(3)
		case y.kind == kNumber && !p.punct(3, ':') && p.at(3).kind != kUnit && p.at(3).kind != kMeridian:
			p.setYear(y.n, y.digits)
			return p.skip(3)
		}
		return p.skip(2)
	case next.kind == kSigned && next.neg && p.at(2).kind == kSigned && p.at(2).neg && p.at(3).kind != kUnit:
		p.dates++
		p.setYear(t.n, t.digits)
		p.month, p.day = -next.n, -p.at(2).n
		p.skip(3)
		if p.punct(0, 'T') {
			p.skip(1)
			return p.time()
		}
		return true
	case next.kind == kUnit:
		return p.relative(t.n, 0, 1)
	case next.kind == kDay:
		p.days++
		p.dayOrdinal, p.dayNumber = t.n, next.n
		return p.skip(2)
	}
	return p.bare(t)
}

// bare reads digits without a unit or separator.
func (p *parser) bare(t token) bool {
	switch {
	case p.dates > 0 && p.yearDigits == 0 && !p.rels && (p.times > 0 || t.digits > 2):
		p.setYear(t.n, t.digits)
	case t.digits > 4:
		p.dates++
		p.day, p.month = t.n%100, t.n/100%100
		p.setYear(t.n/10000, t.digits-4)
	default:
		p.times++
		p.hour, p.min, p.sec, p.nsec, p.meridian = t.n, 0, 0, 0, 2
		if t.digits > 2 {
			p.hour, p.min = t.n/100, t.n%100
		}
	}
	return p.skip(1)
}

// time reads 10[:30[:15.5]] with am or pm, or with an offset after it.
func (p *parser) time() bool {
	p.times++
	h := p.at(0)
	if h.kind != kNumber {
		return false
	}
	p.hour, p.min, p.sec, p.nsec, p.meridian = h.n, 0, 0, 0, 2
	p.skip(1)
	if p.punct(0, ':') {
		m := p.at(1)
		if m.kind != kNumber {
			return false
		}
		p.min = m.n
		p.skip(2)
		if p.punct(0, ':') {
			s := p.at(1)
			if s.kind != kNumber && s.kind != kDecimal || s.signed {
				return false
			}
			p.sec, p.nsec = s.n, s.nsec
			p.skip(2)
		}
	}
	if p.at(0).kind == kMeridian {
		p.meridian = p.at(0).n
		return p.skip(1)
	}
	if p.at(0).kind == kSigned {
		off, n, ok := p.offset(0)
		if !ok {
			return false
		}
		p.zones++
		p.zone = off
		p.skip(n)
	}
	return true
}

// offset reads +2, +0200 or +02:00.
func (p *parser) offset(n int) (secs int64, used int, ok bool) {
	t := p.at(n)
	v := max(t.n, -t.n)
	mins := v * 60
	used = 1
	switch {
	case p.punct(n+1, ':') && p.at(n+2).kind == kNumber:
		mins += p.at(n + 2).n
		used = 3
	case t.digits > 2:
		mins = v/100*60 + v%100
	}
	if mins > 24*60 {
		return 0, 0, false
	}
	if t.neg {
		mins = -mins
	}
	return mins * 60, used, true
}

// result combines all items, in the same order as GNU date.
func (p *parser) result(loc *time.Location) (time.Time, error) {
	if p.isEpoch {
		return p.epoch.In(loc), nil
	}
	if p.times > 1 || p.dates > 1 || p.days > 1 || p.zones > 1 {
		return time.Time{}, errDate
	}
	hour, min, sec, nsec := int64(0), int64(0), int64(0), 0
	if p.times > 0 || p.rels && p.dates == 0 && p.days == 0 {
		hour, min, sec, nsec = p.hour, p.min, p.sec, p.nsec
		switch {
		case p.meridian == 2:
			if hour > 23 && p.times > 0 {
				return time.Time{}, errDate
			}
		case hour < 1 || hour > 12:
			return time.Time{}, errDate
		default:
			hour = hour%12 + 12*p.meridian
		}
	}
	if min > 59 || sec > 60 || p.month < 1 || p.month > 12 || p.day < 1 || p.day > 31 || p.year > 1<<30 {
		return time.Time{}, errDate
	}
	base := loc
	if p.zones > 0 {
		base = time.FixedZone("", int(p.zone))
	}
	on := func(y, mo, d int64) time.Time {
		return time.Date(int(y), time.Month(mo), int(d), int(hour), int(min), int(sec), nsec, base)
	}
	t := on(p.year, p.month, p.day)
	if p.dates > 0 && (t.Day() != int(p.day) || t.Month() != time.Month(p.month)) {
		return time.Time{}, errDate // the 31st of June
	}
	if p.zones == 0 && (t.Hour() != int(hour) || t.Minute() != int(min)) && p.times > 0 && p.rel == [8]int64{} {
		return time.Time{}, errDate // daylight saving time skips this hour
	}
	y, mo, d := p.year, p.month, p.day
	if p.days > 0 && p.dates == 0 {
		wday := int64(t.Weekday())
		skip := int64(0)
		if p.dayOrdinal > 0 && wday != p.dayNumber {
			skip = 1
		}
		d += (p.dayNumber-wday+7)%7 + 7*(p.dayOrdinal-skip)
		t = on(y, mo, d)
	}
	if days := p.rel[uDay] + 7*p.rel[uWeek] + 14*p.rel[uFortnight]; p.rel[uYear] != 0 || p.rel[uMonth] != 0 || days != 0 {
		t = on(y+p.rel[uYear], mo+p.rel[uMonth], d+days)
	}
	secs := p.rel[uHour]*3600 + p.rel[uMinute]*60 + p.rel[uSecond]
	t = time.Unix(t.Unix()+secs, int64(t.Nanosecond())+p.relNsec)
	if y := t.Year(); y > 1<<31 || y < -1<<31 {
		return time.Time{}, errDate
	}
	return t.In(loc), nil
}
