package gvisor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	_ "unsafe" // for go:linkname

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/runsc/boot/filter"
	filterconfig "gvisor.dev/gvisor/runsc/boot/filter/config"
	"gvisor.dev/gvisor/runsc/config"

	"github.com/carrel-dev/carrel/internal/driver/hosted"
)

// gVisor's own build embeds the sentry's system call filter in compiled form. Its Go module does
// not, and a sentry needs some 17 ms to compile it. So the daemon has the very same rules compiled
// once, with gVisor's own code, and hands the result to its sentries. Some rules name the process's
// own number. A sentry is number 1 of its pid namespace, so the process that compiles is, too.

// sentryPrograms is where gVisor looks for compiled filters. If the filter is missing there, or has
// another name, gVisor compiles it itself: nothing can turn the filter off.
//
//go:linkname sentryPrograms gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var sentryPrograms map[string]precompiledseccomp.Program

// filterArg is the start of the sentry's first argument; the number of the descriptor with the
// compiled filter follows it.
const filterArg = "carrel-filter="

// platformRules are a platform's filter rules in which we choose the values of all variables. So
// the compiler can find the places of the variables.
type platformRules struct {
	platform.SeccompInfo
	vars precompiledseccomp.Values
}

// Variables returns the chosen values. They override the process's own in Options.Vars.
func (p platformRules) Variables() precompiledseccomp.Values { return p.vars }

// compileFilter compiles the filter for the sentries this package starts.
func compileFilter() (precompiledseccomp.Program, error) {
	none := precompiledseccomp.Program{}
	if err := registerPlatform(); err != nil {
		return none, err
	}
	constructor, err := platform.Lookup(platformName)
	if err != nil {
		return none, err
	}
	infos := constructor.PrecompiledSeccompInfo()
	if len(infos) != 1 {
		return none, fmt.Errorf("platform %s has %d filters", platformName, len(infos))
	}
	opt := filterconfig.Options{Platform: infos[0], CgoEnabled: config.CgoEnabled}
	var names []string
	for n := range opt.Vars() {
		names = append(names, n)
	}
	return precompiledseccomp.Precompile(opt.ConfigKey(), names, func(v precompiledseccomp.Values) *seccomp.Program {
		o := opt
		o.Platform = platformRules{infos[0], v}
		rules, deny := filterconfig.Rules(o)
		return &seccomp.Program{
			RuleSets: []seccomp.RuleSet{{Rules: deny.Copy()}, {Rules: rules.Copy(), Action: seccomp.Allow}},
			Options:  filterconfig.SeccompOptions(opt),
		}
	})
}

// filterHeader precedes the instructions in the file.
type filterHeader struct {
	Name       string
	Words      int
	VarOffsets map[string][]int
}

// writeFilter writes a compiled filter.
func writeFilter(w io.Writer, p precompiledseccomp.Program) error {
	b, err := json.Marshal(filterHeader{p.Name, len(p.Bytecode32), p.VarOffsets})
	if err != nil {
		return err
	}
	b = append(b, '\n')
	for _, word := range p.Bytecode32 {
		b = binary.LittleEndian.AppendUint32(b, word)
	}
	_, err = w.Write(b)
	return err
}

// filterPart is the process that compiles the filter. It writes the filter to descriptor 3.
func filterPart() {
	p, err := compileFilter()
	if err == nil && os.Getpid() != 1 {
		err = errors.New("not in a pid namespace of its own")
	}
	if err == nil {
		err = writeFilter(os.NewFile(3, "filter"), p)
	}
	if err != nil {
		os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}

// makeFilter has the filter compiled into an anonymous, sealed file.
func (d *Driver) makeFilter() (*os.File, error) {
	fd, err := unix.MemfdCreate("filter", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "filter")
	ctx, cancel := context.WithTimeout(context.Background(), hosted.UndoTime)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, d.program.path)
	cmd.Args, cmd.Env, cmd.Dir = []string{filterName}, []string{sentryEnv}, "/"
	cmd.Stdin, cmd.Stderr, cmd.ExtraFiles = d.program.null, &stderr, []*os.File{f}
	cmd.SysProcAttr = d.namespaces(d.sandboxUID(""))
	err = cmd.Run()
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("compile the system call filter: %w: %s", err, stderr.String())
	}
	return f, nil
}

// readFilter reads what writeFilter wrote.
func readFilter(r io.Reader) (precompiledseccomp.Program, error) {
	none := precompiledseccomp.Program{}
	br := bufio.NewReader(r)
	line, err := br.ReadBytes('\n')
	if err != nil {
		return none, err
	}
	var h filterHeader
	if err := json.Unmarshal(line, &h); err != nil {
		return none, err
	}
	const mostWords = 1 << 16 // two words for each of the 2^15 instructions offsets can reach
	if h.Words <= 0 || h.Words > mostWords {
		return none, fmt.Errorf("filter of %d words", h.Words)
	}
	b := make([]byte, 4*h.Words)
	if _, err := io.ReadFull(br, b); err != nil {
		return none, err
	}
	p := precompiledseccomp.Program{Name: h.Name, VarOffsets: h.VarOffsets, Bytecode32: make([]uint32, h.Words)}
	for i := range p.Bytecode32 {
		p.Bytecode32[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return p, nil
}

// takeFilter takes the compiled filter out of the arguments and puts it where gVisor finds it. It
// runs in the sentry.
func takeFilter() {
	if len(os.Args) < 2 {
		return
	}
	number, ok := strings.CutPrefix(os.Args[1], filterArg)
	if !ok {
		return
	}
	os.Args = append(os.Args[:1:1], os.Args[2:]...)
	fd, err := strconv.Atoi(number)
	if err != nil || fd < 3 {
		return
	}
	f := os.NewFile(uintptr(fd), "filter")
	defer f.Close()
	p, err := readFilter(io.NewSectionReader(f, 0, 1<<20)) // the offset is shared by all sentries
	if err != nil {
		return
	}
	filter.ListPrecompiled() // makes the map
	sentryPrograms[p.Name] = p
}
