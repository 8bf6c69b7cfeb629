package script_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/shell/tools/script/quickjs"
)

// TestMain runs nothing in a tree without the interpreter, which make fetches.
func TestMain(m *testing.M) {
	if err := quickjs.Missing(); err != nil && !strings.Contains(os.Getenv("CARREL_REQUIRE"), "quickjs") {
		fmt.Println("skipped:", err)
		return
	}
	os.Exit(m.Run())
}
