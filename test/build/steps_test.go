package build

import (
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestSteps builds a template of each kind of step and looks at what a sandbox of it has.
func TestSteps(t *testing.T) {
	t.Parallel()
	perTier(t, func(t *testing.T, b *bench) {
		b.upload(sum("files"), archive(t, file{name: "app/main.sh", content: "echo main", mode: 0o755},
			file{name: "app/data.txt", content: "data"}, file{name: "app/link", link: "data.txt"}))
		all := steps("ENV GREETING=hello world", "USER root", "WORKDIR /srv/app",
			"RUN echo \"$GREETING\" from $(pwd) by $(id -un) > out.txt",
			"USER user", "WORKDIR sub", "RUN echo by $(id -un) in $(pwd) > out.txt")
		all = append(all, carrel.BuildInstruction{Type: "RUN",
			Args: []string{"id -un > /as-root", "root"}},
			carrel.BuildInstruction{Type: "RUN", Args: []string{"id -un > as-user"}},
			carrel.BuildInstruction{Type: "COPY", Args: []string{"app", "copied/", "", ""},
				FilesHash: sum("files")},
			carrel.BuildInstruction{Type: "COPY", Args: []string{"app/*.txt", "/etc/one.conf", "root",
				"0600"}, FilesHash: sum("files")})
		build := b.ready(carrel.BuildSpec{Name: "steps", Instructions: all})
		got := b.run("steps", `cat /srv/app/out.txt /srv/app/sub/out.txt /as-root as-user; pwd; id -un; echo "$GREETING"; sh copied/main.sh
			stat -c '%U %a' copied/main.sh copied/data.txt; readlink copied/link; cat copied/link; echo; stat -c '%U %a' /etc/one.conf; ls -A /; cat /etc/hostname`)
		want := "hello world from /srv/app by root\nby user in /srv/app/sub\nroot\nuser\n/srv/app/sub\nuser\nhello world\nmain\n" +
			"user 755\nuser 644\ndata.txt\ndata\nroot 600\n"
		if !strings.HasPrefix(got, want) {
			t.Errorf("the sandbox has:\n%s\nwant:\n%s", got, want)
		}
		if strings.Contains(got, ".carrel-build") {
			t.Errorf("files of the build stayed:\n%s", got)
		}
		if len(build.Steps) != len(all) || build.Steps[3].State != carrel.BuildReady ||
			build.Steps[3].Key == "" || build.Size == 0 {
			t.Errorf("the record is %+v", build)
		}
	})
}

// TestCache builds equal and nearly equal templates, and counts the steps that ran.
func TestCache(t *testing.T) {
	t.Parallel()
	oneTier(t, carrel.GVisor, func(t *testing.T, b *bench) {
		spec := carrel.BuildSpec{Name: "cached", Instructions: steps("RUN date +%N > ~/one",
			"RUN date +%N > ~/two", "RUN date +%N > ~/three")}
		first := b.ready(spec)
		was := b.run("cached", "cat ~/one ~/two ~/three")
		again := b.ready(spec)
		if again.TemplateID != first.TemplateID || again.ID == first.ID || again.Image != first.Image {
			t.Errorf("the second build is %+v, the first was %+v", again, first)
		}
		for _, s := range again.Steps {
			if !s.Cached {
				t.Errorf("step %q ran again", s.Text)
			}
		}
		if now := b.run("cached", "cat ~/one ~/two ~/three"); now != was {
			t.Errorf("an equal build gave %q, not %q", now, was)
		}
		// A changed last step runs alone.
		spec.Instructions = steps("RUN date +%N > ~/one", "RUN date +%N > ~/two",
			"RUN echo changed > ~/three")
		changed := b.ready(spec)
		if !changed.Steps[0].Cached || !changed.Steps[1].Cached || changed.Steps[2].Cached {
			t.Errorf("the steps are %+v", changed.Steps)
		}
		lines := strings.Fields(was)
		if now := strings.Fields(b.run("cached", "cat ~/one ~/two ~/three")); len(now) != 3 ||
			now[0] != lines[0] || now[1] != lines[1] || now[2] != "changed" {
			t.Errorf("the changed build gave %q, before it was %q", now, lines)
		}
		// A forced step runs, and all after it.
		spec.Instructions[1].Force = true
		forced := b.ready(spec)
		if !forced.Steps[0].Cached || forced.Steps[1].Cached || forced.Steps[2].Cached {
			t.Errorf("with force the steps are %+v", forced.Steps)
		}
		if now := strings.Fields(b.run("cached", "cat ~/one ~/two")); now[0] != lines[0] ||
			now[1] == lines[1] {
			t.Errorf("with force: %q, before it was %q", now, lines)
		}
		spec.NoCache = true
		if none := b.ready(spec); none.Steps[0].Cached {
			t.Errorf("without a cache the steps are %+v", none.Steps)
		}
	})
}

// TestFailures checks that a failed build names its step, says why, and leaves the template as it
// was.
func TestFailures(t *testing.T) {
	t.Parallel()
	oneTier(t, carrel.NS, func(t *testing.T, b *bench) {
		b.ready(carrel.BuildSpec{Name: "fragile", Instructions: steps("RUN echo good > ~/state")})
		for _, c := range []struct {
			name, step, want string
			spec             carrel.BuildSpec
		}{
			{"command", "2", "exit status 7: it broke",
				carrel.BuildSpec{Instructions: steps("RUN true", "RUN echo it broke >&2; exit 7")}},
			{"user", "2", "nobody-there", carrel.BuildSpec{Instructions: steps("USER nobody-there",
				"RUN id")}},
			{"template", "base", "no template", carrel.BuildSpec{FromTemplate: "not-there",
				Instructions: steps("RUN true")}},
			{"files", "1", "not uploaded",
				carrel.BuildSpec{Instructions: []carrel.BuildInstruction{{Type: "COPY",
					Args: []string{"a", "b"}, FilesHash: sum("never")}}}},
		} {
			t.Run(c.name, func(t *testing.T) {
				c.spec.Name = "fragile"
				build, logs := b.build(c.spec)
				if build.State != carrel.BuildError || build.Reason == nil || build.Reason.Step != c.step ||
					!strings.Contains(build.Reason.Message, c.want) {
					t.Errorf("the build is %s, %+v\n%s", build.State, build.Reason, text(logs))
				}
				if last := logs[len(logs)-1]; last.Level != "error" || last.Step != c.step {
					t.Errorf("the log ends with %+v", last)
				}
			})
		}
		if got := b.run("fragile", "cat ~/state"); got != "good" {
			t.Errorf("after the failures the template has %q", got)
		}
		b.nothingLeft()
	})
}

// nothingLeft checks that no sandbox of a build is left.
func (b *bench) nothingLeft() {
	b.t.Helper()
	page, err := b.List(b.t.Context(), carrel.ListOptions{Builds: true})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, sb := range page.Sandboxes {
		b.t.Errorf("sandbox %s is left: %v", sb.ID, sb.Metadata)
	}
}

// TestReadyCheck builds a template whose program never gets ready, with a health check that gives
// it three seconds.
func TestReadyCheck(t *testing.T) {
	oneTier(t, carrel.GVisor, func(t *testing.T, b *bench) {
		build, logs := b.build(carrel.BuildSpec{Name: "never", Dockerfile: `FROM template://small
CMD while sleep 1; do :; done
HEALTHCHECK --interval=1s --timeout=1s --start-period=1s --retries=1 CMD exit 7
`})
		if build.State != carrel.BuildError || build.Reason == nil ||
			!strings.Contains(build.Reason.Message, "within 3s") {
			t.Errorf("the build is %s: %+v\n%s", build.State, build.Reason, text(logs))
		}
		b.nothingLeft()
	})
}

// TestReadyCommands builds templates whose ready commands need what E2B's SDKs take for granted:
// programs that the image may lack, and time.
func TestReadyCommands(t *testing.T) {
	oneTier(t, carrel.GVisor, func(t *testing.T, b *bench) {
		build, logs := b.build(carrel.BuildSpec{Name: "lacking", Dockerfile: `FROM template://small
CMD while sleep 1; do :; done
HEALTHCHECK --interval=1s --timeout=1s --start-period=1s --retries=1 CMD [ -n "$(ss -Htuln sport = :8080)" ]
`})
		if build.State != carrel.BuildError || build.Reason == nil ||
			!strings.Contains(build.Reason.Message+build.Reason.Hint, "the image has no ss") {
			t.Errorf("the build is %s: %+v\n%s", build.State, build.Reason, text(logs))
		}
		if b.tier == carrel.GVisor { // where the start is a sandbox with its own end of memory
			build, logs = b.build(carrel.BuildSpec{Name: "greedy", MemoryMB: 256, FromTemplate: small,
				Start: `x=$(cat /dev/zero | tr '\0' x)`, Ready: "sleep 1; false"})
			if build.State != carrel.BuildError || build.Reason == nil ||
				!strings.Contains(build.Reason.Message, "out of memory") {
				t.Errorf("the build is %s: %+v\n%s", build.State, build.Reason, text(logs))
			}
		}
		build, logs = b.build(carrel.BuildSpec{Name: "failing", FromTemplate: small,
			Start: "echo why; exit 3", Ready: "sleep 60"})
		if build.State != carrel.BuildError || build.Reason == nil || build.Reason.Step != "finalize" ||
			!strings.Contains(build.Reason.Message, "exit status 3") ||
			!strings.Contains(build.Reason.Message, "why") {
			t.Errorf("the build is %s: %+v\n%s", build.State, build.Reason, text(logs))
		}
		b.nothingLeft()
		t.Run("slow", func(t *testing.T) {
			testenv.Long(t, "a ready command takes 20 seconds")
			b.ready(carrel.BuildSpec{Name: "slow", FromTemplate: small,
				Start: "while sleep 1; do :; done", Ready: "sleep 20"})
		})
	})
}

// TestUnknownUsers names users that no image has.
func TestUnknownUsers(t *testing.T) {
	oneTier(t, carrel.NS, func(t *testing.T, b *bench) {
		run := carrel.BuildInstruction{Type: "RUN", Args: []string{"whoami", "nobody123"}}
		for want, in := range map[string]carrel.BuildInstruction{
			"invalid username: \"; exit 1\"": steps("USER ; exit 1")[0],
			"failed to run command 'whoami': command failed: unauthenticated: " +
				"invalid username: 'nobody123'": run,
		} {
			build, logs := b.build(carrel.BuildSpec{Name: "users", Instructions: []carrel.BuildInstruction{in}})
			if build.State != carrel.BuildError || build.Reason == nil || build.Reason.Step != "1" ||
				!strings.Contains(build.Reason.Message, want) {
				t.Errorf("the build is %s: %+v\n%s", build.State, build.Reason, text(logs))
			}
		}
	})
}

// TestGroupOfUser runs a step and a sandbox's command as a user with a group.
func TestGroupOfUser(t *testing.T) {
	oneTier(t, carrel.NS, func(t *testing.T, b *bench) {
		b.ready(carrel.BuildSpec{Name: "grouped", Dockerfile: `FROM template://small
USER root
RUN echo 'crew:x:5000:' >> /etc/group
USER user:crew
RUN id -u > ~/ids; id -g >> ~/ids; id -G >> ~/ids
USER user:5001
`})
		if got := b.run("grouped",
			"cat ~/ids; stat -c %g ~/ids; id -un; id -g"); got != "1000\n5000\n5000\n5000\nuser\n5001" {
			t.Errorf("the groups are %q", got)
		}
	})
}

// TestInheritedEntrypoint gives a template's ENTRYPOINT another CMD, and then takes it away.
func TestInheritedEntrypoint(t *testing.T) {
	testenv.Need(t, "gvisor", tierWorks(t, carrel.GVisor))
	b := newBench(t, carrel.GVisor)
	for _, c := range []struct{ name, text, start string }{
		{"entry", "FROM template://small\nENTRYPOINT [\"serve\", \"--all\"]\nCMD [\"one\"]\n",
			"serve --all one"},
		{"again", "FROM template://entry\nCMD [\"two\"]\n", "serve --all two"},
		{"other", "FROM template://again\nENTRYPOINT [\"other\"]\n", "other"},
	} {
		built := b.ready(carrel.BuildSpec{Name: c.name, Dockerfile: c.text})
		if got, err := b.GetTemplate(t.Context(), built.Image); err != nil ||
			strings.Join(got.Start, " ") != c.start {
			t.Errorf("%s starts %q, %v; want %q", c.name, got.Start, err, c.start)
		}
	}
}
