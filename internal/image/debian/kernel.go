package debian

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/internal/driver/microvm/boot"
)

// moreModules are the modules that a machine gets beside [boot.Wanted] and the packet filters. Its
// kernel asks for them when somebody makes networks as Docker does, mounts filesystems or opens
// devices.
var moreModules = strings.Fields(`
	bridge br_netfilter 8021q veth tun tap dummy macvlan macvtap ipvlan vxlan ifb
	wireguard ipip ip_gre sit ip6_tunnel
	fuse loop binfmt_misc autofs4 squashfs isofs vfat nls_ascii nls_cp437 nls_utf8 nls_iso8859_1
	tcp_bbr udp_diag unix_diag netlink_diag
	sch_ingress sch_htb sch_netem sch_tbf sch_fq cls_bpf act_bpf cls_u32 act_mirred`)

// filterPatterns match the modules of packet filters, below the directory of modules.
var filterPatterns = []string{"net/netfilter/nf*", "net/netfilter/x*", "net/ipv4/netfilter/*",
	"net/ipv6/netfilter/*"}

// notFilters end the names of modules that filterPatterns match and that nobody needs: the helpers
// of single protocols are large.
var notFilters = []string{"_sip", "_h323", "_amanda", "_pptp", "_irc", "_sane", "_snmp", "_snmp_basic",
	"_netbios_ns", "xt_ipvs"}

// maxKernelParts bounds what is kept in memory of a kernel's package, in bytes.
const maxKernelParts = 256 << 20

// Names in a directory of a kernel, as package driver/microvm reads them.
const (
	kernelImage   = "vmlinuz"
	kernelModules = "modules"
)

// kernelParts are the parts of a kernel's package that count for a machine.
type kernelParts struct {
	image   []byte
	modules map[string]kernelModule // by their names
	builtIn map[string]bool
	left    int64 // bytes that may still be kept
}

// kernelModule is a module's file as the package has it, mostly compressed.
type kernelModule struct {
	place string // below the directory of modules, without suffix
	data  []byte
}

// unpackKernel writes the kernel of a package into a directory that is there: the file vmlinuz, and
// modules/NAME.ko. Nothing is durable yet. pin is the package that r has.
func unpackKernel(r io.Reader, pin Pin, dir string) error {
	parts, err := readKernel(r, pin)
	if err != nil {
		return err
	}
	modules := filepath.Join(dir, kernelModules)
	if err := os.Mkdir(modules, 0o755); err != nil {
		return err
	}
	err = parts.choose(func(name string, data []byte) error {
		return os.WriteFile(filepath.Join(modules, name+boot.ModuleSuffix), data, 0o644)
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, kernelImage), parts.image, 0o644)
}

// readKernel reads a kernel's package.
func readKernel(r io.Reader, pin Pin) (*kernelParts, error) {
	p := &kernelParts{modules: map[string]kernelModule{}, builtIn: map[string]bool{}, left: maxKernelParts}
	c, err := readDeb(r, func(_ *control, h *tar.Header, body io.Reader) error {
		name, err := place(h.Name)
		if err != nil || h.Typeflag != tar.TypeReg {
			return err
		}
		return p.add(strings.TrimPrefix(name, "usr/"), body)
	})
	if err != nil {
		return nil, err
	}
	if got := c.field("Package"); got != pin.Name || c.field("Version") != pin.Version {
		return nil, fmt.Errorf("it says that it is %.100s %.100s", got, c.field("Version"))
	}
	if p.image == nil {
		return nil, errors.New("it has no kernel")
	}
	return p, nil
}

// add takes a file of the package, if it counts. Its name is that without links: /lib is /usr/lib.
func (p *kernelParts) add(name string, body io.Reader) error {
	if strings.HasPrefix(name, "boot/"+kernelImage+"-") {
		data, err := p.read(body)
		p.image = data
		return err
	}
	rest, ok := strings.CutPrefix(name, "lib/modules/")
	_, rest, deeper := strings.Cut(rest, "/") // the kernel's version
	if !ok || !deeper {
		return nil
	}
	if rest == "modules.builtin" {
		data, err := p.read(body)
		for line := range strings.Lines(string(data)) {
			p.builtIn[boot.ModuleName(path.Base(strings.TrimSpace(line)))] = true
		}
		return err
	}
	rest, ok = strings.CutPrefix(rest, "kernel/")
	file, _, module := strings.Cut(rest, boot.ModuleSuffix)
	if !ok || !module {
		return nil
	}
	data, err := p.read(body)
	p.modules[boot.ModuleName(path.Base(file))] = kernelModule{file, data}
	return err
}

// read reads a part and counts it.
func (p *kernelParts) read(body io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(body, p.left+1))
	if p.left -= int64(len(data)); err == nil && p.left < 0 {
		err = errTooMuch
	}
	return data, err
}

// isFilter reports whether a module belongs to the packet filters that machines get.
func isFilter(place string) bool {
	match := func(pattern string) bool {
		ok, _ := path.Match(pattern, place) // the patterns are correct
		return ok
	}
	return slices.ContainsFunc(filterPatterns, match) && !slices.ContainsFunc(notFilters,
		func(end string) bool { return strings.HasSuffix(place, end) })
}

// choose calls write with every module that machines get, unpacked, and with those that they depend
// on. Error: a module that is neither in the package nor built into the kernel.
func (p *kernelParts) choose(write func(name string, data []byte) error) error {
	names := slices.Concat(boot.Wanted, moreModules)
	for name, m := range p.modules {
		if isFilter(m.place) {
			names = append(names, name)
		}
	}
	seen := map[string]bool{}
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		if seen[name] {
			continue
		}
		seen[name] = true
		m, ok := p.modules[name]
		if !ok {
			if p.builtIn[name] {
				continue
			}
			return fmt.Errorf("the kernel has no module %.100q", name)
		}
		data, err := unpackModule(m.data)
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		info, err := boot.ParseModule(data)
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		if err := write(name, data); err != nil {
			return err
		}
		names = append(names, info.Needs...)
	}
	return nil
}

// unpackModule undoes the compression of a module's file.
func unpackModule(data []byte) ([]byte, error) {
	plain, done, err := decompress(bufio.NewReader(bytes.NewReader(data)))
	if err != nil {
		return nil, err
	}
	defer done()
	out, err := io.ReadAll(io.LimitReader(plain, boot.MaxModule+1))
	if err == nil && len(out) > boot.MaxModule {
		err = errTooMuch
	}
	return out, err
}
