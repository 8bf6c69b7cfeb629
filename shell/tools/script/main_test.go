package script_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/shell/tools/script/quickjs"
)

// TestMain runs no tests if the interpreter is missing. make downloads it.
func TestMain(m *testing.M) {
	if err := quickjs.Missing(); err != nil && !strings.Contains(os.Getenv("CARREL_REQUIRE"), "quickjs") {
		fmt.Println("skipped:", err)
		return
	}
	os.Exit(m.Run())
}
