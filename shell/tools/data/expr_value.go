package data

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

func apply(op string, x, y any) (any, error) {
	switch op {
	case "eq", "ne", "lt", "le", "gt", "ge":
		c := strings.Compare(textOf(x), textOf(y))
		return ordered(op, c), nil
	case "==", "!=", "<", "<=", ">", ">=":
		a, ok1 := numberOf(x)
		b, ok2 := numberOf(y)
		c := strings.Compare(textOf(x), textOf(y))
		if ok1 && ok2 {
			switch {
			case a < b:
				c = -1
			case a > b:
				c = 1
			default:
				c = 0
			}
		}
		return ordered(op, c), nil
	case "++":
		return textOf(x) + textOf(y), nil
	case "in", "not in":
		found := false
		if list, ok := y.([]any); ok {
			found = slices.ContainsFunc(list, func(e any) bool { return textOf(e) == textOf(x) })
		} else {
			found = strings.Contains(textOf(y), textOf(x))
		}
		return found == (op == "in"), nil
	}
	a, ok1 := numberOf(x)
	b, ok2 := numberOf(y)
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("cannot compute %q %s %q", textOf(x), op, textOf(y))
	}
	switch op {
	case "+":
		return a + b, nil
	case "-":
		return a - b, nil
	case "*":
		return a * b, nil
	case "/":
		return a / b, nil
	case "//":
		return math.Floor(a / b), nil
	case "%":
		return math.Mod(a, b), nil
	}
	return math.Pow(a, b), nil
}

func ordered(op string, c int) bool {
	switch op {
	case "==", "eq":
		return c == 0
	case "!=", "ne":
		return c != 0
	case "<", "lt":
		return c < 0
	case "<=", "le":
		return c <= 0
	case ">", "gt":
		return c > 0
	}
	return c >= 0
}

func truthy(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case float64:
		return v != 0
	case string:
		return v != "" && v != "false"
	}
	return true
}

func textOf(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case float64:
		return formatFloat(v)
	case []any:
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = textOf(x)
		}
		return strings.Join(parts, "|")
	}
	return ""
}

func formatFloat(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

func numberOf(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case bool:
		return map[bool]float64{true: 1}[v], true
	case string:
		f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		return f, err == nil
	}
	return 0, false
}
