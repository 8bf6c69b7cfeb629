package quickjs

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestMain runs nothing in a tree without the interpreter, which make fetches.
func TestMain(m *testing.M) {
	if err := Missing(); err != nil && !strings.Contains(os.Getenv("CARREL_REQUIRE"), "quickjs") {
		fmt.Println("skipped:", err)
		return
	}
	os.Exit(m.Run())
}
