package daemon

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestAnnouncedWithoutInodes: a daemon on a disk without an inode is announced, whether the one
// before it ended in order or was killed.
func TestAnnouncedWithoutInodes(t *testing.T) {
	for name, end := range map[string]func(announcement){
		"in order": announcement.withdraw, "killed": func(announcement) {},
	} {
		t.Run(name, func(t *testing.T) {
			dir, take := testenv.FewInodes(t)
			a := announcement{dir}
			if err := a.write([]byte(strings.Repeat("x", 200) + "\n")); err != nil {
				t.Fatal(err)
			}
			end(a)
			take()
			for _, text := range []string{"second\n", strings.Repeat("third", 100) + "\n"} {
				if err := a.write([]byte(text)); err != nil {
					t.Fatal(err)
				}
				got, err := os.ReadFile(a.file())
				if err != nil || strings.TrimRight(string(got), " ") != text {
					t.Fatalf("it says %q, %v; want %q", got, err, text)
				}
				a.withdraw()
				if _, err := os.Stat(a.file()); !errors.Is(err, os.ErrNotExist) {
					t.Fatalf("it is there after its daemon: %v", err)
				}
				take()
			}
		})
	}
}
