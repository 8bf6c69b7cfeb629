package landlock

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// stranger is the uid of the unprivileged tests. No account has it.
const stranger = 54321

func TestMain(m *testing.M) {
	if reexec.Run(reexec.Parts{"carrel-landlocked": landlocked}) {
		return
	}
	os.Exit(m.Run())
}

// order holds the operations of a restricted child: each is a name and its operands.
type order struct {
	Ruleset  Ruleset
	NoNewOff bool // without no_new_privs
	Layers   int
	Do       [][]string
}

// landlocked restricts its thread, tries the operations, and prints one error number a line.
func landlocked() {
	runtime.LockOSThread()
	var o order
	if err := json.Unmarshal([]byte(os.Args[1]), &o); err != nil {
		panic(err)
	}
	if !o.NoNewOff {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			panic(err)
		}
	}
	for range max(o.Layers, 1) {
		if missing, err := Restrict(o.Ruleset); err != nil || len(missing) > 0 {
			fmt.Println(missing, err)
			return
		}
	}
	for _, op := range o.Do {
		var errno unix.Errno
		if err := operate(op); err != nil && !errors.As(err, &errno) {
			fmt.Println(op, err)
			continue
		}
		fmt.Println(unix.ErrnoName(errno))
	}
}

func operate(op []string) error {
	closing := func(fd int, err error) error {
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	}
	switch op[0] {
	case "read":
		return closing(unix.Open(op[1], unix.O_RDONLY, 0))
	case "list":
		return closing(unix.Open(op[1], unix.O_RDONLY|unix.O_DIRECTORY, 0))
	case "write":
		return closing(unix.Open(op[1], unix.O_WRONLY, 0))
	case "create":
		return closing(unix.Open(op[1], unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600))
	case "empty":
		return unix.Truncate(op[1], 0)
	case "remove":
		return unix.Unlink(op[1])
	case "mkdir":
		return unix.Mkdir(op[1], 0o700)
	case "fifo":
		return unix.Mkfifo(op[1], 0o600)
	case "device":
		return unix.Mknod(op[1], unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
	case "link":
		return unix.Link(op[1], op[2])
	case "symlink":
		return unix.Symlink(op[1], op[2])
	case "move":
		return unix.Rename(op[1], op[2])
	case "execute":
		return exec.Command(op[1]).Run()
	case "thread": // a thread from before
		got := make(chan error)
		go func() { got <- closing(unix.Open(op[1], unix.O_RDONLY, 0)) }()
		return <-got
	case "tty":
		fd, err := unix.Open(op[1], unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		_, err = unix.IoctlGetInt(fd, unix.RNDGETENTCNT)
		return err
	}
	return reach(op)
}

// reach tries operations without files.
func reach(op []string) error {
	switch op[0] {
	case "connect", "fast", "bind":
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		var port int
		fmt.Sscan(op[1], &port)
		to := &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
		switch op[0] {
		case "connect":
			return unix.Connect(fd, to)
		case "bind":
			return unix.Bind(fd, to)
		}
		return unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN, to)
	case "abstract":
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + op[1]})
	case "signal":
		return unix.Kill(os.Getppid(), 0)
	}
	return errors.New("no such operation")
}

// restricted runs a child and returns its lines.
func restricted(t *testing.T, uid int, o order) []string {
	t.Helper()
	if ABI() == 0 {
		testenv.Need(t, "landlock", errors.New("a kernel with it"))
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	if uid != os.Geteuid() {
		if os.Geteuid() != 0 {
			testenv.Need(t, "root", errors.New("root, to become another user"))
		}
		own, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		cmd.Path = shared(t) + "/test"
		if err := os.WriteFile(cmd.Path, own, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	cmd.Dir = "/"
	cmd.Args = []string{"carrel-landlocked", string(text)}
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// shared returns a temporary directory that every user may enter.
func shared(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && len(d) > 1; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755)
	}
	return dir
}

// expect runs operations and compares their errors, "" for none.
func expect(t *testing.T, uid int, o order, want []string) {
	t.Helper()
	got := restricted(t, uid, o)
	for i, op := range o.Do {
		if i >= len(got) || got[i] != want[i] {
			t.Errorf("uid %d: %v: want %q, got %q", uid, op, want[i], got[min(i, len(got)-1)])
		}
	}
}

func TestFiles(t *testing.T) {
	for _, uid := range []int{os.Geteuid(), stranger} {
		dir := shared(t)
		for _, d := range []string{"ro", "rx", "wf", "rw", "all", "no", "rw/sub"} {
			for _, err := range []error{os.MkdirAll(dir+"/"+d, 0o755), os.WriteFile(dir+"/"+d+"/f", nil, 0o755), os.WriteFile(dir+"/"+d+"/g", nil, 0o755),
				os.Chown(dir+"/"+d, uid, uid), os.Chown(dir+"/"+d+"/f", uid, uid), os.Chown(dir+"/"+d+"/g", uid, uid)} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := os.Symlink(dir+"/no/f", dir+"/rw/out"); err != nil {
			t.Fatal(err)
		}
		r := Ruleset{Files: true, Rules: []Rule{{dir + "/ro", ReadOnly}, {dir + "/rx", ReadExec}, {dir + "/wf", WriteFile}, {dir + "/rw", ReadWrite},
			{dir + "/all", Everything}, {dir + "/nowhere", ReadWrite}, {dir + "/ro/f/below", ReadOnly}, {"/dev/null", WriteFile}}}
		p := func(s string) string { return dir + "/" + s }
		var do [][]string
		var want []string
		add := func(errno string, op ...string) {
			for i := 1; i < len(op); i++ {
				if !strings.HasPrefix(op[i], "/") {
					op[i] = p(op[i])
				}
			}
			do, want = append(do, op), append(want, errno)
		}
		add("EACCES", "read", "no/f")
		add("EACCES", "read", "rw/out") // a link out
		add("EACCES", "list", "no")
		add("EACCES", "write", "no/f")
		add("EACCES", "create", "no/n")
		add("EACCES", "empty", "no/f")
		add("", "thread", "no/f") // Go starts new threads from one that was never restricted
		add("", "read", "ro/f")
		add("", "list", "ro")
		add("EACCES", "write", "ro/f")
		add("EACCES", "empty", "ro/f")
		add("EACCES", "execute", "ro/f")
		add("EACCES", "remove", "ro/f")
		add("", "read", "rx/f")
		add("EACCES", "write", "rx/f")
		add("", "write", "wf/f")
		add("", "empty", "wf/f")
		add("EACCES", "create", "wf/n")
		add("EACCES", "remove", "wf/f")
		add("", "create", "rw/n")
		add("", "mkdir", "rw/d")
		add("", "fifo", "rw/p")
		add("", "symlink", "/etc", "rw/s")
		add("", "link", "rw/f", "rw/sub/hard")
		add("", "move", "rw/n", "rw/sub/n")
		add("", "remove", "rw/sub/n")
		add("EACCES", "device", "rw/dev")
		add("EACCES", "link", "ro/f", "rw/stolen") // rw allows more than ro
		add("EACCES", "move", "rw/f", "no/f")
		add("EACCES", "move", "no/g", "rw/g2")
		add("", "write", "/dev/null")
		add("EACCES", "tty", "/dev/urandom")
		if uid == 0 {
			add("", "device", "all/dev")
		}
		// When one directory allows less, a link between the two is EXDEV or EACCES; the kernel
		// chooses.
		got := restricted(t, uid, order{Ruleset: r, Do: do})
		for i, op := range do {
			if i >= len(got) || got[i] != want[i] && (got[i] != "EXDEV" || op[0] != "link" && op[0] != "move" || want[i] == "") {
				t.Errorf("uid %d: %v: want %q, got %q", uid, op, want[i], got[min(i, len(got)-1)])
			}
		}
	}
}

// TestWriting shows that rules which restrict only writing leave reading as it is, and still
// restrict writing.
func TestWriting(t *testing.T) {
	dir := shared(t)
	for _, d := range []string{"/rw", "/no"} {
		for _, err := range []error{os.MkdirAll(dir+d, 0o755), os.WriteFile(dir+d+"/f", nil, 0o755), os.Chown(dir+d, stranger, stranger), os.Chown(dir+d+"/f", stranger, stranger)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	r := Ruleset{Files: true, Writing: true, Rules: []Rule{{dir + "/rw", ReadWrite}, {"/dev/null", WriteFile}}} // package exec writes there
	do := [][]string{{"read", dir + "/no/f"}, {"list", dir + "/no"}, {"execute", dir + "/no/f"}, {"write", dir + "/no/f"}, {"create", dir + "/no/n"}, {"mkdir", dir + "/no/d"},
		{"move", dir + "/no/f", dir + "/rw/g"}, {"link", dir + "/no/f", dir + "/rw/g"}, {"remove", dir + "/no/f"}, {"write", dir + "/rw/f"}, {"create", dir + "/rw/n"}, {"empty", dir + "/rw/f"}}
	want := []string{"", "", "", "EACCES", "EACCES", "EACCES", "EACCES", "EACCES", "EACCES", "", "", ""}
	got := restricted(t, stranger, order{Ruleset: r, Do: do})
	for i, op := range do {
		if i >= len(got) || got[i] != want[i] && (got[i] != "EXDEV" || want[i] == "") && (op[0] != "execute" || got[i] == "EACCES") {
			t.Errorf("%v: want %q, got %q", op, want[i], got[min(i, len(got)-1)])
		}
	}
}

func TestNetwork(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	text := fmt.Sprint(port)
	expect(t, stranger, order{Ruleset: Ruleset{TCP: true}, Do: [][]string{{"connect", text}, {"bind", "0"}}}, []string{"EACCES", "EACCES"})
	expect(t, stranger, order{Ruleset: Ruleset{TCP: true, Connect: []uint16{port}, Bind: []uint16{0}}, Do: [][]string{{"connect", text}, {"bind", "0"}, {"connect", "9"}, {"bind", text}}},
		[]string{"", "", "EACCES", "EACCES"})
	t.Logf("with a fast open: %q (a known gap of the kernel's if empty)", restricted(t, stranger, order{Ruleset: Ruleset{TCP: true}, Do: [][]string{{"fast", text}}}))
}

func TestScopes(t *testing.T) {
	name := fmt.Sprintf("carrel-landlock-%d", os.Getpid())
	l, err := net.Listen("unix", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	uid := os.Geteuid()
	do := [][]string{{"abstract", name}, {"signal"}}
	expect(t, uid, order{Ruleset: Ruleset{ScopeSockets: true}, Do: do}, []string{"EPERM", ""})
	expect(t, uid, order{Ruleset: Ruleset{ScopeSignals: true}, Do: do}, []string{"", "EPERM"})
	expect(t, uid, order{Ruleset: Ruleset{}, Do: do}, []string{"", ""})
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name, want string
		o          order
	}{
		{"privileges", "no_new_privs", order{NoNewOff: true, Ruleset: Ruleset{TCP: true}}},
		{"layers", "16 boxes", order{Layers: 17, Ruleset: Ruleset{TCP: true}}},
		{"access", `rule for "/": no such access: 9`, order{Ruleset: Ruleset{Files: true, Rules: []Rule{{"/", 9}}}}},
		{"loop", "too many levels of symbolic links", order{Ruleset: Ruleset{Files: true, Rules: []Rule{{loop(t), ReadOnly}}}}},
	} {
		if got := restricted(t, stranger, c.o); !strings.Contains(got[0], c.want) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

func loop(t *testing.T) string {
	dir := shared(t)
	if err := os.Symlink("loop", dir+"/loop"); err != nil {
		t.Fatal(err)
	}
	return dir + "/loop"
}

// TestPlan checks, for each version of Landlock, the planned rights and the parts reported as
// missing.
func TestPlan(t *testing.T) {
	all := Ruleset{Files: true, TCP: true, ScopeSockets: true, ScopeSignals: true}
	lacking := []int{4, 6, 5, 4, 3, 2, 0, 0}
	if a, missing := plan(Ruleset{Files: true, Writing: true}, 7); a.fs&(execute|readFile|readDir|truncate) != 0 || a.fs&writeFile == 0 || missing != nil {
		t.Errorf("of writing alone: %+v %q", a, missing)
	}
	for abi, want := range lacking {
		a, missing := plan(all, abi)
		if len(missing) != want {
			t.Errorf("version %d misses %q", abi, missing)
		}
		if (a.fs == 0) != (abi == 0) || (a.net == 0) != (abi < 4) || (a.scoped == 0) != (abi < 6) || (a.fs&truncate == 0) != (abi < 3) || a.fs&refer != 0 && abi < 2 {
			t.Errorf("version %d: %+v", abi, a)
		}
		if _, missing := plan(Ruleset{}, abi); missing != nil {
			t.Errorf("version %d misses %q of nothing", abi, missing)
		}
	}
	if !slices.IsSorted([]uint64{rights[ReadOnly], rights[ReadExec] | 1<<20}) || rights[ReadWrite]&^rights[Everything] != 0 || rights[WriteFile]&^rights[ReadWrite] != 0 {
		t.Error("rights are not within one another")
	}
}

func BenchmarkRestrict(b *testing.B) {
	var r Ruleset
	r.Files, r.TCP, r.ScopeSignals, r.ScopeSockets = true, true, true, true
	for range 15 {
		r.Rules = append(r.Rules, Rule{"/usr", ReadExec}, Rule{"/tmp", ReadWrite})
	}
	var spent time.Duration
	for b.Loop() {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends
			if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
				done <- err
				return
			}
			begin := time.Now()
			_, err := Restrict(r)
			spent += time.Since(begin)
			done <- err
		}()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), "restrict-ns/op") // without the thread
}
