package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// insideFiles is the number of files in the repository of the measurements inside boxes.
const insideFiles = 5000

// insideScript does work that agents do all day, and prints the time of each part. It runs in one
// box from beginning to end, so the start of a box is not in its figures. It leaves out parts that
// a box does not allow.
const insideScript = `import os, socket, subprocess, sys, time
n, only = int(sys.argv[1]), sys.argv[2:]
def show(name, f):
    if only and name not in only:
        return
    try:
        f()
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            count = f()
            times.append((time.perf_counter() - begin) / count)
    except (OSError, subprocess.CalledProcessError) as e:
        print('no', name, e, file=sys.stderr)
        return
    print(name + '\t' + str(sorted(times)[2] * 1e6))
def status():
    for _ in range(3):
        subprocess.run(['git', 'status', '--porcelain'], check=True, stdout=subprocess.DEVNULL)
    return 3
def files():
    for i in range(n):
        fd = os.open('made%d' % i, os.O_CREAT | os.O_WRONLY | os.O_EXCL)
        os.close(fd)
        os.unlink('made%d' % i)
    return n
def connects(family, address):
    with socket.socket(family) as s:
        s.bind(address)
        s.listen(8)
        at = s.getsockname()
        for i in range(n):
            with socket.socket(family) as c:
                c.connect(at)
                s.accept()[0].close()
    return n
def unixes():
    try:
        return connects(socket.AF_UNIX, 'own.sock')
    finally:
        if os.path.exists('own.sock'):
            os.unlink('own.sock')
show('git', status)
show('file', files)
show('unix', unixes)
show('tcp', lambda: connects(socket.AF_INET, ('127.0.0.1', 0)))
`

// insideWorks are the parts of the script.
var insideWorks = []struct {
	key, what string
	limit     float64 // of the ratio to the same work outside; 0 for none
}{
	{"git", fmt.Sprintf("git status on %d files", insideFiles), 1.1},
	{"file", "make and remove a file", 0},
	{"unix", "connect to a socket of its own", 0},
	{"tcp", "connect to a port of its own", 0},
}

// inside measures work in a box that already runs, against the same work outside and in the peers'
// boxes, in turns.
func (b *runBench) inside(ctx context.Context) ([]row, error) {
	old := b.work
	b.work = filepath.Join(b.dir, "home", "inside")
	defer func() { b.work = old }()
	if err := b.repository(ctx, insideFiles, 100); err != nil {
		return nil, err
	}
	if err := write(filepath.Join(b.dir, "home", "inside.py"), insideScript); err != nil {
		return nil, err
	}
	list := append([]*contestant{{name: "bare"}, {name: "carrel run", prefix: []string{b.carrel, "run", "-q", "--"}}}, b.peers(ctx)...)
	took := map[string]map[string][]float64{} // by work and contestant
	for i := range max(b.o.samples(15), 2) {
		for k := range list {
			c := list[(i+k)%len(list)]
			if c.rounds > 1 && i%c.rounds != 0 {
				continue
			}
			if err := b.insideOnce(ctx, c, took); err != nil {
				return nil, err
			}
		}
	}
	var rows []row
	for _, w := range insideWorks {
		bare := took[w.key]["bare"]
		for _, c := range list {
			if x := took[w.key][c.name]; len(x) > 0 {
				rows = append(rows, summarise(w.what+", inside: "+c.name, "µs", x))
			}
		}
		for _, c := range list[1:] {
			x := took[w.key][c.name]
			if len(x) == 0 {
				continue
			}
			r := ratio(w.what+": inside "+c.name+" / bare", x, bare)
			if c == list[1] {
				if r = r.key("run.inside." + w.key); w.limit > 0 {
					r = atMost(r, w.limit)
				}
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// insideOnce runs the script in one way, whole or in parts, and adds the printed times to took.
func (b *runBench) insideOnce(ctx context.Context, c *contestant, took map[string]map[string][]float64, only ...string) error {
	line := append(slices.Clone(c.prefix), "python3", filepath.Join(b.dir, "home", "inside.py"), strconv.Itoa(max(b.o.samples(1000), 50)))
	line = append(line, only...)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Dir, cmd.Env = b.work, append(slices.Clone(b.env), c.env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: work inside: %w: %.400s", c.name, err, said.String())
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		name, text, ok := strings.Cut(lines.Text(), "\t")
		us, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil {
			continue
		}
		if took[name] == nil {
			took[name] = map[string][]float64{}
		}
		took[name][c.name] = append(took[name][c.name], us)
	}
	if len(took) == 0 {
		return fmt.Errorf("%s: the work printed no figure: %.200s %.400s", c.name, out, said.String())
	}
	return nil
}

// repository makes a repository in the working directory, with this many files in this many
// directories.
func (b *runBench) repository(ctx context.Context, files, dirs int) error {
	for i := range files {
		if err := write(filepath.Join(b.work, fmt.Sprintf("d%03d", i%dirs), fmt.Sprintf("e%d", i%7), fmt.Sprintf("f%d.txt", i)), fmt.Sprintf("file %d\n", i)); err != nil {
			return err
		}
	}
	for _, line := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=Ann", "-c", "user.email=ann@example.com", "commit", "-q", "-m", "all"}} {
		cmd := exec.CommandContext(ctx, "git", line...)
		cmd.Dir, cmd.Env = b.work, b.env
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", line[0], err, out)
		}
	}
	return nil
}

// allowed compares the whole time of a command that does nothing, in a box with a network.
func (b *runBench) allowed(ctx context.Context) ([]row, error) {
	bare := &contestant{name: "bare"}
	ours := &contestant{name: "carrel run --allow", prefix: []string{b.carrel, "run", "--allow", "example.com", "--"}}
	if _, err := b.once(ctx, ours, "true"); err != nil {
		fmt.Fprintf(os.Stderr, "bench: left out: %v\n", err)
		return nil, nil
	}
	list := append([]*contestant{bare, ours}, b.peersWithNetwork(ctx)...)
	if err := b.race(ctx, b.o.samples(100), list, "true"); err != nil {
		return nil, err
	}
	rows := []row{summarise("with a network: \"true\", bare", "ms", bare.times), fewer("with a network: \"true\", carrel run --allow", "ms", ours.times, 30).key("run.allow")}
	for _, c := range list[2:] {
		rows = append(rows, summarise("with a network: \"true\", "+c.name, "ms", c.times),
			ratio("with a network: \"true\", "+c.name+" / carrel run --allow", c.times, ours.times))
	}
	return rows, nil
}
