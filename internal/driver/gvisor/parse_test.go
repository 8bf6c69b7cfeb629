package gvisor

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/runsc/boot/filter"
	filterconfig "gvisor.dev/gvisor/runsc/boot/filter/config"
	"gvisor.dev/gvisor/runsc/config"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
)

// TestFilterIsGVisorsOwn renders a filter from our compiled form and compares it with the filter
// that gVisor builds from its rules in this process, instruction by instruction. It also shows that
// a sentry finds the compiled form under gVisor's own key.
func TestFilterIsGVisorsOwn(t *testing.T) {
	p, err := compileFilter()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "filter"))
	if err != nil {
		t.Fatal(err)
	}
	if err := writeFilter(f, p); err != nil {
		t.Fatal(err)
	}
	old := os.Args
	defer func() { os.Args = old }()
	fd, err := unix.Dup(int(f.Fd())) // takeFilter closes it
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	os.Args = []string{sentryName, filterArg + strconv.Itoa(fd), "boot"}
	takeFilter()
	if len(os.Args) != 2 || os.Args[1] != "boot" {
		t.Errorf("arguments left: %q", os.Args)
	}

	constructor, err := platform.Lookup(platformName)
	if err != nil {
		t.Fatal(err)
	}
	opt := filterconfig.Options{Platform: constructor.PrecompiledSeccompInfo()[0], ControllerFD: 77, CgoEnabled: config.CgoEnabled}
	taken, ok := filter.GetPrecompiled(opt.ConfigKey())
	if !ok {
		t.Fatalf("gVisor does not find %q among %v", opt.ConfigKey(), filter.ListPrecompiled())
	}
	got, err := taken.RenderInstructions(opt.Vars())
	if err != nil {
		t.Fatal(err)
	}
	rules, deny := filterconfig.Rules(opt)
	program := &seccomp.Program{
		RuleSets: []seccomp.RuleSet{{Rules: deny}, {Rules: rules, Action: seccomp.Allow}},
		Options:  filterconfig.SeccompOptions(opt),
	}
	want, _, err := program.Build()
	if err != nil {
		t.Fatal(err)
	}
	if len(got) == 0 || !slices.Equal(got, want) {
		t.Errorf("%d instructions, gVisor builds %d, or some differ", len(got), len(want))
	}
}

func FuzzReadFilter(f *testing.F) {
	f.Add([]byte("{\"Name\":\"x\",\"Words\":2,\"VarOffsets\":{\"a\":[1]}}\n\x01\x00\x00\x00\x02\x00\x00\x00"))
	f.Add([]byte("{\"Words\":99999999999}\n"))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := readFilter(bytes.NewReader(b))
		if err != nil && len(p.Bytecode32) > 0 {
			t.Error("instructions with an error")
		}
	})
}

// FuzzRecover feeds handles to a driver. None may be adopted, and none may crash it.
func FuzzRecover(f *testing.F) {
	f.Add([]byte(`{"v":1,"id":"iaaaaaaaaaaaaaaaaaaaa","pid":1}`))
	f.Add([]byte(`{"v":1,"id":"iaaaaaaaaaaaaaaaaaaaa","pid":-5,"sock":"/","dir":""}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		// Test only the checks that come before any action. The driver acts on the names in a
		// handle, because handles come from our own records.
		if rec, err := decode(driver.Handle(b)); err == nil && (rec.PID <= 1 || rec.ID == "") {
			t.Errorf("%q is accepted as %+v", b, rec)
		}
	})
}

func TestUIDsOfAContainer(t *testing.T) {
	for _, c := range []struct {
		name, uidMap string
		want         bool
	}{
		{"the host", "         0          0 4294967295\n", true},
		{"one id", "         0      54321          1\n", false},
		{"sub-ids", "         0       1000          1\n         1     100000      65536\n", false},
		{"in two pieces", "0 0 1950000000\n1950000000 1950000000 1000000000\n", false},
		{"nonsense", "a b c\n", false},
	} {
		if got := hosted.MapsIDs(c.uidMap, firstUID, uids); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
