package sh

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// parseDate reads the dates people give to date -d and touch -d.
func parseDate(s string, now time.Time) (time.Time, error) {
	switch s {
	case "now", "today", "":
		return now, nil
	case "yesterday":
		return now.AddDate(0, 0, -1), nil
	case "tomorrow":
		return now.AddDate(0, 0, 1), nil
	}
	if n, err := strconv.ParseInt(strings.TrimPrefix(s, "@"), 10, 64); err == nil && s[0] == '@' {
		return time.Unix(n, 0).UTC(), nil
	}
	for _, l := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02", "2006/01/02", "15:04:05", "15:04", time.RFC1123} {
		if t, err := time.ParseInLocation(l, s, time.UTC); err == nil {
			return t, nil
		}
	}
	var n int
	var unit string
	if _, err := fmt.Sscanf(s, "%d %s", &n, &unit); err == nil {
		if strings.HasSuffix(s, "ago") {
			n = -n
		}
		switch strings.TrimSuffix(unit, "s") {
		case "second", "sec":
			return now.Add(time.Duration(n) * time.Second), nil
		case "minute", "min":
			return now.Add(time.Duration(n) * time.Minute), nil
		case "hour":
			return now.Add(time.Duration(n) * time.Hour), nil
		case "day":
			return now.AddDate(0, 0, n), nil
		case "week":
			return now.AddDate(0, 0, 7*n), nil
		case "month":
			return now.AddDate(0, n, 0), nil
		case "year":
			return now.AddDate(n, 0, 0), nil
		}
	}
	return time.Time{}, errors.New("invalid date")
}
