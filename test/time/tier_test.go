package time

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// TestChangeTier takes a sandbox from the simulation to real programs, and from wall to wall.
func TestChangeTier(t *testing.T) {
	if os.Geteuid() != 0 { // "ns" sandboxes of others have one user
		testenv.Need(t, "root", os.ErrPermission)
	}
	changeTier(t, daemontest.Start(t), carrel.Sim, carrel.GVisor, carrel.NS, carrel.GVisor)
}

// TestMachineChangeTier takes one into a virtual machine and back.
func TestMachineChangeTier(t *testing.T) {
	changeTier(t, daemontest.Start(t, daemontest.Machines(t)...), carrel.Sim, carrel.GVisor, carrel.MicroVM, carrel.GVisor)
}

// decorate changes files of each kind: of the user's, of the template's, deleted and hidden ones.
const decorate = `set -e
echo mine > /home/user/mine && ln /home/user/mine /home/user/twin && ln -s mine /home/user/link
chown 1234:1234 /home/user/mine && chmod 4711 /home/user/mine
echo 'new:x:4242:4242::/:/bin/sh' >> /etc/passwd
rm -rf /etc/ld.so.conf.d /etc/os-release
rm -rf /etc/alternatives && mkdir /etc/alternatives && echo only > /etc/alternatives/only
python3 -c 'import os; os.setxattr("/home/user/mine", "user.color", b"red"); f = open("/home/user/holes", "wb"); f.truncate(20 << 20); f.seek(1 << 20); f.write(b"x")'
`

// changes prints what decorate has changed.
const changes = `cat /home/user/mine; stat -c '%h %u %g %a %n' /home/user/mine /home/user/twin; readlink /home/user/link
tail -n 1 /etc/passwd; ls -d /etc/ld.so.conf.d /etc/os-release 2>&1 | wc -l; ls -A /etc/alternatives
python3 -c 'import os; print(os.getxattr("/home/user/mine", "user.color").decode()); print(os.stat("/home/user/holes").st_size)'; sha256sum < /home/user/holes`

// changeTier takes a sandbox through tiers. The first is the simulation.
func changeTier(t *testing.T, d *daemontest.Daemon, first carrel.Tier, more ...carrel.Tier) {
	ctx, svc := t.Context(), connect(t, d)
	sb, err := svc.Create(ctx, carrel.CreateOptions{Tier: first, Timeout: time.Hour, Limits: carrel.Limits{MemoryMB: 512}})
	if err != nil {
		t.Fatal(err)
	}
	inside := func(script string) string {
		t.Helper()
		c, err := svc.Computer(ctx, sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Run(ctx, carrel.Command{Args: []string{"/bin/sh", "-c", script}, User: "root", Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Stderr) > 0 {
			t.Errorf("%s: %s", script, r.Stderr)
		}
		return strings.TrimSpace(string(r.Stdout))
	}
	inside("echo drawn > /home/user/drawn; mkdir /home/user/d; echo deep > /home/user/d/deep")
	var want string
	for i, tier := range more {
		got, err := svc.Promote(ctx, sb.ID, carrel.PromoteOptions{Tier: tier})
		if err != nil {
			t.Fatalf("to %s: %v (hint: %s)", tier, err, carrel.HintOf(err))
		}
		if got.ID != sb.ID || got.Tier != tier || got.State != carrel.Running {
			t.Fatalf("to %s: it is %+v", tier, got)
		}
		if text := inside("cat /home/user/drawn /home/user/d/deep"); text != "drawn\ndeep" {
			t.Errorf("in %s the simulation's files are %q", tier, text)
		}
		if i == 0 {
			inside(decorate)
			want = inside(changes)
			if lines := strings.Split(want, "\n"); len(lines) != 10 || lines[5] != "2" || lines[6] != "only" || lines[7] != "red" {
				t.Fatalf("the changes are %q", want)
			}
			continue
		}
		if text := inside(changes); text != want {
			t.Errorf("in %s the changes are\n%s\nand were\n%s", tier, text, want)
		}
		inside("echo " + string(tier) + " > /home/user/drawn2 && rm /home/user/drawn2")
	}
	last := more[len(more)-1]
	for tier, field := range map[carrel.Tier]string{last: "tier", carrel.Sim: "tier", "": "tier", "castle": "tier"} {
		if _, err := svc.Promote(ctx, sb.ID, carrel.PromoteOptions{Tier: tier}); carrel.KindOf(err) != carrel.Invalid && carrel.KindOf(err) != carrel.Unsupported || !strings.Contains(err.Error(), string(tier)) {
			t.Errorf("from %s to %q (%s): %v", last, tier, field, err)
		}
	}
	if got, err := svc.Get(ctx, sb.ID); err != nil || got.State != carrel.Running || got.Tier != last {
		t.Errorf("after refusals it is %+v, %v", got, err)
	}
}
