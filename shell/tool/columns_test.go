package tool_test

import (
	"testing"

	"github.com/carrel-dev/carrel/shell/tool"
)

// TestColumns uses texts that have the same width on any terminal.
func TestColumns(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "abc": 3, "\x00\x1b\x7f": 0, "é": 1, "e\u0301": 1, "日本": 4, "한": 2, "ａ": 2, "ｱ": 1, "😀": 2, "a\u200bb": 2, "\xff\xfe": 2, "ж": 1, "\u00ad": 0, "〈": 2, "Ω": 1,
	} {
		if got := tool.Columns([]byte(text)); got != want {
			t.Errorf("%q takes %d columns, not %d", text, got, want)
		}
	}
}
