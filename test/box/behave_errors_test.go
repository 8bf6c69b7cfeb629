package box_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestErrors shows that a command that can't be run names its mistake once, and names the flag or
// the file.
func TestErrors(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		w.write(w.project+"/wrong.yaml", "read: {alow: [x]}\n")
		w.write(w.project+"/ports.yaml", "network: {publish: [\"1:x\"]}\n")
		w.mkdir(w.project + "/dir.yaml")
		for _, c := range []struct{ line, names string }{
			{"--memory 4X -- true", "--memory"}, {"--timeout 0s -- true", "--timeout"}, {"--tier foo -- true", "--tier"}, {"--publish x -- true", "--publish"}, {"--publish 1:x -- true", "--publish"},
			{"--publish 1.2.3:4:x -- true", "--publish"}, {"--report /nonexistent/x -- true", "--report"}, {"--profile nope -- true", "--profile"}, {"--write /nonexist -- true", "--write"}, {"--read /nonexist -- true", "--read"},
			{"--allow http:// -- true", "--allow"}, {"--deny , -- true", "--deny"}, {"--env = -- true", "--env"}, {"", "command"}, {"--settings /nope -- true", "/nope"}, {"--settings wrong.yaml -- true", "wrong.yaml"},
			{"--settings ports.yaml -- true", "ports.yaml"}, {"--settings dir.yaml -- true", "dir.yaml"}, {"--policy nope -- true", "--policy"}, {"--read a[b -- true", "--read"}, {"--trust -- true", "--trust"}, {"--write **/x** -- true", "--write"},
			{"--cpu -1 -- true", "--cpu"}, {"--cpu x -- true", "--cpu"}, {"--pids 0 -- true", "--pids"}, {"--open-files 0 -- true", "--open-files"}, {"--tmp-size x -- true", "--tmp-size"}, {"--copy-max 1G -- true", "--copy-max"},
			{"--tier sim --copy-max 0 -- true", "--copy-max"}, {"--protect ** -- true", "--protect"}, {"--nosuch -- true", "--nosuch"}, {"--tier sim --copy-max 1x -- true", "--copy-max"},
		} {
			r := w.run(w.box(strings.Fields(c.line)...))
			first, _, _ := strings.Cut(r.err, "\n")
			if usage := strings.Contains(c.line, "--nosuch") || c.line == "--cpu x -- true"; r.code != 125 && !(usage && r.code == 2) || !strings.Contains(first, c.names) {
				t.Errorf("%s: exit %d %s", c.line, r.code, r.err)
			}
			parts := strings.Split(first, ": ")
			for i, p := range parts {
				again := func(later string) bool {
					return later == p || regexp.MustCompile(`(^|\s)`+regexp.QuoteMeta(p)+`($|\s)`).MatchString(later) && (i > 0 && strings.ContainsAny(p, "/-.") || len(p) < 3)
				}
				if slices.ContainsFunc(parts[i+1:], again) || strings.HasPrefix(p, "flags") || strings.Contains(p, "flags:") {
					t.Errorf("%s says it twice, or in other words than were written: %s", c.line, first)
				}
			}
		}
	})
}
