package git

import (
	"path"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
)

type flagSet = tool.Flags

// input returns a user's file name in the form for OpenIn.
func (r *repo) input(name string) string {
	if name == "-" {
		return name
	}
	return r.path(name)
}

// edit opens a message in an editor and returns the result.
func (r *repo) edit(editor string) (string, error) {
	file := path.Join(r.git_, "COMMIT_EDITMSG")
	if err := r.write("COMMIT_EDITMSG", "\n# Please enter the commit message for your changes. Lines starting\n# with '#' will be ignored, and an empty message aborts the commit.\n"); err != nil {
		return "", err
	}
	if r.Run(tool.Child{Args: []string{"sh", "-c", editor + ` "$@"`, editor, file}, Dir: r.dir}) != 0 {
		r.warnf("error: There was a problem with the editor '%s'.\nPlease supply the message using either -m or -F option.", editor)
		return "", exit(1)
	}
	return tidy(r.read("COMMIT_EDITMSG"), true), nil
}

// gitDate returns a time in the format of git log.
func gitDate(t time.Time) string { return t.Format("Mon Jan 2 15:04:05 2006 -0700") }

// indent puts spaces before each line.
func indent(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i, l := range lines {
		if l != "" {
			lines[i] = "    " + l
		} else {
			lines[i] = "    "
		}
	}
	return strings.Join(lines, "\n")
}

type flagType = tool.Flag

func flag(letter byte, value string) flagType {
	return flagType{Letter: letter, Value: value, Has: true}
}
