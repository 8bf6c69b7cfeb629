package jq

import (
	"math"
	"time"

	"github.com/itchyny/timefmt-go"
)

// Times are in UTC, the only zone of the machine.

func addTime(add func(string, int, func(m *vm, v any, a []any) (any, error))) {
	add("now", 0, func(m *vm, _ any, _ []any) (any, error) {
		if m.opts.Now == nil {
			return 0.0, nil
		}
		return m.opts.Now(), nil
	})
	add("mktime", 0, func(_ *vm, v any, _ []any) (any, error) {
		t, err := broken(v, "mktime")
		if err != nil {
			return nil, err
		}
		return float64(t.Unix()), nil
	})
	breakUp := func(name string) {
		add(name, 0, func(_ *vm, v any, _ []any) (any, error) {
			f, ok := number(v)
			if !ok {
				return nil, errorf("%s() requires a number", name)
			}
			return parts(f), nil
		})
	}
	breakUp("gmtime")
	breakUp("localtime")
	format := func(name string) {
		add(name, 1, func(m *vm, v any, a []any) (any, error) {
			if f, ok := number(v); ok {
				v = parts(f)
			} else if _, ok := v.([]any); !ok {
				return nil, errorf("%s/1 requires parsed datetime inputs", name)
			}
			layout, ok := a[0].(string)
			if !ok {
				return nil, errorf("%s/1 requires a string format", name)
			}
			t, err := broken(v, name+"/1")
			if err != nil {
				return nil, err
			}
			return m.str(timefmt.Format(t, layout))
		})
	}
	format("strftime")
	format("strflocaltime")
	add("strptime", 1, func(_ *vm, v any, a []any) (any, error) {
		s, ok := v.(string)
		if !ok {
			return nil, errorf("strptime/1 requires string inputs and arguments")
		}
		layout, ok := a[0].(string)
		if !ok {
			return nil, errorf("strptime/1 requires string inputs and arguments")
		}
		t, err := timefmt.Parse(s, layout)
		if err != nil {
			return nil, errorf(`date "%s" does not match format "%s"`, s, layout)
		}
		return split(t.UTC(), 0), nil
	})
}

// parts returns a time as an array: year, month from 0, day, hours, minutes, seconds, day of the
// week, day of the year from 0.
func parts(f float64) []any {
	whole := math.Floor(f)
	return split(time.Unix(toInt(min(max(whole, -1<<55), 1<<55)), 0).UTC(), f-whole)
}

func split(t time.Time, frac float64) []any {
	return []any{float64(t.Year()), float64(t.Month() - 1), float64(t.Day()), float64(t.Hour()), float64(t.Minute()),
		float64(t.Second()) + frac, float64(t.Weekday()), float64(t.YearDay() - 1)}
}

func broken(v any, name string) (time.Time, error) {
	list, ok := v.([]any)
	if !ok || len(list) < 6 {
		return time.Time{}, errorf("%s requires array of 6 numbers", name)
	}
	var n [6]int
	for i := range n {
		f, ok := number(list[i])
		if !ok {
			return time.Time{}, errorf("%s requires parsed datetime inputs", name)
		}
		n[i] = int(min(max(f, -1<<40), 1<<40))
	}
	return time.Date(n[0], time.Month(n[1]+1), n[2], n[3], n[4], n[5], 0, time.UTC), nil
}
