package quickjs

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestMain runs no tests if the interpreter is missing. make downloads it.
func TestMain(m *testing.M) {
	if err := Missing(); err != nil && !strings.Contains(os.Getenv("CARREL_REQUIRE"), "quickjs") {
		fmt.Println("skipped:", err)
		return
	}
	os.Exit(m.Run())
}
