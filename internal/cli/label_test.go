package cli

import (
	"strings"
	"testing"
)

// TestLabel reads what is set and what goes, and refuses what is neither.
func TestLabel(t *testing.T) {
	for line, want := range map[string]string{
		"team=search old-":   `set map[team:search] remove ["old"]`,
		"a=b=c d= -x-":       `set map[a:b=c d:] remove ["-x"]`,
		"key-=value":         `set map[key-:value] remove []`,
		"team":               "neither KEY=VALUE nor KEY-",
		"=value":             "is not KEY=VALUE",
		"team=search x- x-y": "neither KEY=VALUE nor KEY-",
	} {
		f := &fake{}
		got := f.run(t, append([]string{"label", string(boxID), "--"}, strings.Fields(line)...)...)
		if all := strings.Join(got.calls, " ") + got.err; !strings.Contains(all, want) || (got.code == 0) != strings.HasPrefix(want, "set") {
			t.Errorf("label %s: %q, %v", line, all, got)
		}
	}
	f := past(0)
	f.run(t, "label", string(boxID)) // fills in the sandbox
	f.box.Metadata = map[string]string{"team": "search"}
	if got := f.run(t, "label", string(boxID)); got.code != 0 || !strings.Contains(got.out, "search") {
		t.Errorf("labels: %v", got)
	}
}
