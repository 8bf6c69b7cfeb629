package box_test

import (
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// attack is one case of the escape suite.
type attack struct {
	name    string
	program string   // the attack program's name for it; "" is name
	flags   []string // of carrel run
	args    []string // "{project}" and the like are replaced, see expand
	// prepare makes canaries before anything runs, and returns more arguments.
	prepare func(w *world) []string
	// wrap changes the command's descriptors, environment or directory.
	wrap func(w *world, cmd *exec.Cmd)
	// harmed looks for harm afterwards; "" means none.
	harmed func(w *world) string
	// watch are paths whose state is compared; the default is the home without the project.
	watch []string
	// naive runs the program without the box, but in its own namespaces with its own masks.
	naive bool
	// immune gives, by user or "all", the reason why this kernel refuses the attack even without
	// the box.
	immune map[string]string
	// only is the only user for whom the attack makes sense.
	only string
	// dies means that the program may be killed before its end.
	dies bool
	// gap describes, by user or "all", the harm that a box does not prevent yet. The case is then
	// logged and does not fail.
	gap map[string]string
	// long is not for -short.
	long bool
}

// shortUser is the user of an attack with -short: the one who can do it without the box. If both
// can, or neither, the name decides, so that about half of the attacks are each one's.
func (a attack) shortUser() string {
	immune := func(name string) bool { return a.immune[name]+a.immune["all"]+a.gap[name] != "" }
	switch {
	case a.only != "":
		return a.only
	case immune("user") && !immune("root"):
		return "root"
	case immune("root") && !immune("user"):
		return "user"
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(a.name))
	return []string{"root", "user"}[sum.Sum32()%2]
}

// run tries the attack without the box, where it must do harm, and in the box, where it must not.
func (a attack) run(t *testing.T) {
	if a.long {
		testenv.Long(t, "the attack takes long")
	}
	bothOr(t, a.shortUser(), func(t *testing.T, w *world) {
		if a.only != "" && a.only != w.name {
			testenv.Inapplicable(t, "only for "+a.only)
		}
		t.Run("unboxed", func(t *testing.T) {
			w := newWorld(t, w.who)
			found, out := a.try(w, false)
			why := a.immune[w.name] + a.immune["all"]
			switch {
			case len(found) == 0 && why == "":
				t.Errorf("the attack does no harm without the box, so that this case shows nothing:\n%s", out)
			case len(found) == 0:
				t.Log("not even without the box: " + why)
			case testing.Verbose():
				t.Logf("%d harms, such as %.300s", len(found), strings.Join(found[:min(3, len(found))], "; "))
			}
		})
		t.Run("boxed", func(t *testing.T) {
			w := newWorld(t, w.who)
			needBox(t, w)
			found, out := a.try(w, true)
			gap := a.gap[w.name] + a.gap["all"]
			for _, h := range found {
				if gap != "" {
					t.Logf("known, %s: %.300s", gap, h)
					continue
				}
				t.Errorf("ESCAPED: %.500s", h)
			}
			if !a.dies && !strings.Contains(out, "\nend\n") {
				t.Errorf("the attack did not come to its end")
			}
			if t.Failed() {
				t.Logf("output:\n%.6000s", out)
			}
		})
	})
}

// try runs the program once and returns the harm.
func (a attack) try(w *world, boxed bool) (harms []string, output string) {
	t := w.t
	t.Helper()
	var more []string
	if a.prepare != nil {
		more = a.prepare(w)
	}
	watch := a.watch
	if watch == nil {
		watch = []string{"{home}", "-{project}", "-{home}/.local/state/carrel", "-{home}/bin"} // the state directory keeps files that carrel took away
	}
	before := w.state(watch)
	program := a.program
	if program == "" {
		program = a.name
	}
	line := []string{w.attack, program, "project=" + w.project, "file=" + w.canary, "secret=" + w.key}
	if a.naive && !boxed {
		line[1] = "naive"
	}
	for _, arg := range append(slices.Clone(a.args), more...) {
		line = append(line, w.expand(arg))
	}
	var cmd *exec.Cmd
	if boxed {
		line = append(line, "boxed=1")
		var flags []string
		for _, f := range a.flags {
			flags = append(flags, w.expand(f))
		}
		cmd = w.box(append(append(flags, "--"), line...)...)
	} else {
		if a.naive {
			line = append([]string{"unshare", "-Urm", "--propagation", "private", "--"}, line...)
		}
		cmd = w.command(line[0], line[1:]...)
	}
	if a.wrap != nil {
		a.wrap(w, cmd)
	}
	r := w.run(cmd)
	time.Sleep(20 * time.Millisecond) // for servers and victims to notice
	for line := range strings.Lines(r.out) {
		if strings.HasPrefix(line, "HARM") || strings.HasPrefix(line, "ASKED") && strings.Contains(line, "carried") {
			harms = append(harms, strings.TrimSpace(line))
		}
	}
	if i := strings.Index(r.all(), w.secret); i >= 0 {
		all := r.all()
		harms = append(harms, fmt.Sprintf("the secret was read: …%.200s", all[max(0, i-150):]))
	}
	harms = append(harms, diff(before, w.state(watch))...)
	harms = append(harms, w.heardAll()...)
	if a.harmed != nil {
		if h := a.harmed(w); h != "" {
			harms = append(harms, h)
		}
	}
	return harms, fmt.Sprintf("exit %d %v\n%s", r.code, r.signal, r.all())
}

// expand replaces "{home}", "{project}", "{outside}", "{secrets}", "{canary}", "{key}" in an
// argument.
func (w *world) expand(s string) string {
	return strings.NewReplacer("{home}", w.home, "{project}", w.project, "{outside}", w.outside, "{secrets}", w.secrets, "{canary}", w.canary, "{key}", w.key,
		"{attack}", w.attack, "{carrel}", w.carrel).Replace(s)
}

// state describes each file below paths; "-path" leaves a path out.
func (w *world) state(paths []string) map[string]string {
	out := make(map[string]string)
	var skip []string
	for _, p := range paths {
		if p[0] == '-' {
			skip = append(skip, w.expand(p[1:]))
		}
	}
	for _, p := range paths {
		if p[0] == '-' {
			continue
		}
		_ = filepath.WalkDir(w.expand(p), func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			if slices.Contains(skip, p) {
				return fs.SkipDir
			}
			info, err := d.Info()
			if err != nil {
				return nil
			}
			st := info.Sys().(*syscall.Stat_t)
			text := fmt.Sprintf("%v uid %d", info.Mode(), st.Uid)
			if !info.IsDir() {
				text += fmt.Sprintf(" %d links, inode %d", st.Nlink, st.Ino)
			}
			if info.Mode().IsRegular() {
				text += fmt.Sprintf(" at %v", info.ModTime())
				if info.Size() < 1<<16 {
					data, _ := os.ReadFile(p)
					text += fmt.Sprintf(" %q", data)
				} else {
					text += fmt.Sprint(" bytes ", info.Size())
				}
			}
			out[p] = text
			return nil
		})
	}
	return out
}

// diff says what changed.
func diff(before, after map[string]string) (all []string) {
	for p, text := range before {
		if now, ok := after[p]; !ok {
			all = append(all, p+" is gone")
		} else if now != text {
			all = append(all, fmt.Sprintf("%s changed: it was %.150s and is %.150s", p, text, now))
		}
	}
	for p, text := range after {
		if _, ok := before[p]; !ok {
			all = append(all, fmt.Sprintf("%s appeared: %.150s", p, text))
		}
	}
	slices.Sort(all)
	return all
}

// needBox fails if carrel run does not work here.
func needBox(t testing.TB, w *world) {
	t.Helper()
	if r := w.run(w.box("--", "true")); r.code != 0 {
		t.Fatalf("carrel run -- true: exit %d\n%s", r.code, r.all())
	}
}
