package carrel_test

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
)

const module = "github.com/carrel-dev/carrel"

// floors are the floors of the house, bottom up; docs/ARCHITECTURE.md draws them. A package may
// import packages of lower floors. It may import a sibling only if siblings lists it. The longest
// known prefix of a package's path decides its floor.
var floors = []struct {
	number   int
	prefixes []string
}{
	{0, []string{"."}},
	{1, []string{
		"internal/cleanup", "internal/accept", "internal/atomicfile", "internal/reexec", "internal/keeper",
		"internal/version", "internal/testenv", "internal/datadir", "internal/linux",
		"internal/failpoint", "internal/pki", "internal/password", "internal/attempts",
		"internal/refusal", "internal/gitdir", "internal/pool", "internal/placement", "internal/cursor", "internal/admission", "internal/trace", "internal/rest", "internal/notices", "internal/openapi",
		"internal/reserve", "internal/shortage", "internal/readiness", "internal/quota", "internal/request", "internal/metrics",
	}},
	{2, []string{
		"internal/driver", "internal/driver/drivertest", "internal/driver/hosted", "internal/driver/microvm/boot", "internal/guest", "internal/image", "internal/state",
		"internal/snapshot", "internal/snapshot/blobtest", "internal/policy", "internal/inbox", "internal/linux/tap",
		"internal/box", "internal/settings",
		"internal/callback", "internal/scaling", "internal/build/plan", "internal/bundle",
		"internal/image/delta", "internal/ceiling", "internal/fleet",
	}},
	{3, []string{
		"internal/driver/sim", "internal/driver/gvisor", "internal/driver/ns", "internal/driver/microvm", "internal/seatbelt", "internal/guest/agent", "internal/guest/oshost",
		"internal/guest/sudo", "internal/guest/guestbin", "internal/guest/interpreter", "internal/wire",
		"internal/image/store", "internal/image/erofs", "internal/image/archive", "internal/image/registry", "internal/image/hostbase", "internal/image/locale", "internal/image/ocitar", "internal/image/stargz", "internal/image/filler",
		"internal/state/sqlite", "internal/state/memory", "internal/state/postgres",
		"internal/snapshot/disk", "internal/snapshot/apart", "internal/snapshot/s3",
		"internal/snapshot/store",
		"internal/vault", "internal/identity", "internal/provider", "internal/audit", "internal/certs",
		"internal/build/dockerfile", "internal/build/buildcontext", "internal/catalog",
		"internal/image/debian",
	}},
	{4, []string{"internal/service", "internal/access", "internal/build", "internal/ledger", "internal/engine"}},
	{5, []string{"internal/api", "internal/signin", "internal/console", "internal/gateway", "internal/hostdoor", "internal/sshdoor", "internal/pod", "internal/dashboard", "client", "internal/fleet/door", "internal/fleet/member"}},
	{6, []string{"internal/assembly", "internal/backup", "internal/run", "internal/config", "internal/daemon", "internal/front", "internal/cli", "cmd", "local", "carreltest", "internal/bench", "bench", "test", "internal/tools"}},
}

// siblings are the allowed imports within one floor. On floors 1, 2 and 6 packages of one idea
// build on each other; above them each import is listed.
var siblings = map[string][]string{
	// A simulated sandbox has the guest's services in the daemon's own process.
	"internal/driver/sim": {"internal/guest/agent", "internal/guest/interpreter"},
	// oshost is the agent's System on the real operating system.
	"internal/guest/oshost": {"internal/guest/agent"},
	// The code interpreter is one part: the server, its kernels, and the protocols of Jupyter's.
	"internal/guest/interpreter/jupyter": {"internal/guest/interpreter/zmtp"},
	"internal/guest/interpreter/kernel":  {"internal/guest/interpreter/jupyter"},
	// The image packages are one part: a store, its sources and its format.
	"internal/image/store":    {"internal/image"},
	"internal/image/archive":  {"internal/image"},
	"internal/image/registry": {"internal/image"},
	"internal/image/hostbase": {"internal/image"},
	"internal/image/debian":   {"internal/image"},
	"internal/image/filler":   {"internal/image"},
}

// shellUsers are the only packages outside the house of the simulated shell that may import it.
// shell/ has floors of its own, and imports nothing of Carrel's.
var shellUsers = []string{"internal/driver/sim", "internal/run/simshell", "cmd/carrel-play"}

// sameFloorFree are floors whose packages may import one another.
var sameFloorFree = []int{1, 2, 6}

// confined are heavy modules and the only packages that may import them.
var confined = map[string][]string{
	"gvisor.dev/gvisor/runsc":                {"internal/driver/gvisor", "bench/runsc"},
	"gvisor.dev/gvisor/pkg/tcpip":            {"internal/wire", "internal/driver/gvisor"},
	"gvisor.dev/gvisor":                      {"internal/driver/gvisor", "internal/wire"},
	"modernc.org/sqlite":                     {"internal/state/sqlite", "shell/tools/sqlite"},
	"github.com/jackc/pgx":                   {"internal/state/postgres"},
	"k8s.io/client-go":                       {"internal/driver/kube", "internal/tools/k8s"},
	"github.com/erofs/go-erofs":              {"internal/image", "internal/tools/guestimage"},
	"github.com/google/go-containerregistry": {"internal/image", "internal/tools/dist", "internal/bench", "test/daemontest", "test/k8s"},
	"github.com/mikelolasagasti/xz":          {"internal/image/debian"},
	"github.com/ProtonMail/go-crypto":        {"internal/tools/debianpins"},
	"github.com/minio/minio-go":              {"internal/snapshot/s3"},
	"github.com/coreos/go-systemd":           {"internal/daemon"},
	"github.com/spf13/cobra":                 {"internal/cli", "internal/tools/manpages", "internal/tools/k8s"},
	"github.com/caddyserver/certmagic":       {"internal/certs"},
	"golang.org/x/oauth2":                    {"internal/provider", "internal/cli"},
	"golang.org/x/crypto/ssh":                {"internal/sshdoor", "internal/cli"},
	"github.com/pkg/sftp":                    {"internal/sshdoor"},
	"github.com/moby/buildkit":               {"internal/build"},
	"github.com/moby/patternmatcher":         {"internal/build"},
	"github.com/tetratelabs/wazero":          {"shell/tools/script"},
	"github.com/modelcontextprotocol/go-sdk": {"shell/codemode", "internal/run/simshell"},
	"mvdan.cc/sh":                            {"shell"},
	"github.com/itchyny/gojq":                {"shell/tools/data"},
	"github.com/go-git/go-git":               {"shell/tools/git"},
	"github.com/JohannesKaufmann":            {"shell/tools/data"},
	"go.opentelemetry.io":                    {"internal/trace/otlp"},
	"github.com/prometheus/client_golang":    {"internal/metrics", "internal/trace/otlp"},
	"os/exec":                                {"internal/driver", "internal/guest/oshost", "internal/guest/interpreter/kernel", "internal/keeper", "internal/linux", "internal/box", "internal/run", "internal/cli", "internal/tools", "cmd", "internal/bench", "bench", "test", "internal/image", "internal/snapshot/s3/s3test", "internal/state/postgres/postgrestest", "shell/internal"},
}

// TestFloors fails when a package imports something above it, a sibling that is
// not a named exception, or a module confined to another package.
func TestFloors(t *testing.T) {
	for dir, imports := range packageImports(t, ".") {
		for _, imp := range imports {
			if err := checkImport(dir, imp); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestFloorsCanFail shows that the rules reject imports that cross a layer.
func TestFloorsCanFail(t *testing.T) {
	for _, c := range []struct{ from, imp string }{
		{".", module + "/internal/driver"},                        // the words import a contract
		{".", "golang.org/x/sys/unix"},                            // the words import a module
		{"internal/driver", module + "/internal/service"},         // up
		{"internal/wire", module + "/internal/driver/gvisor"},     // a sibling
		{"internal/service", module + "/internal/wire"},           // a part that must be injected
		{"internal/api", module + "/internal/service"},            // an API package imports what lies below the contracts
		{"internal/service", "gvisor.dev/gvisor/pkg/tcpip/stack"}, // a confined module
		{"internal/gateway", "modernc.org/sqlite"},                // another
		{"internal/guest/agent", "gvisor.dev/gvisor/runsc/boot"},  // and another
		{"shell/interp", module + "/internal/cleanup"},            // the shell imports ours
		{"internal/service", module + "/shell/interp"},            // ours imports the shell
		{"internal/cli", module + "/shell"},                       // the same, by the shell's root package
		{"shell/codemode", module},                                // the shell imports our contract
		{"internal/nowhere", "fmt"},                               // a package on no floor
	} {
		if checkImport(c.from, c.imp) == nil {
			t.Errorf("%s importing %s is not refused", c.from, c.imp)
		}
	}
	for _, c := range []struct{ from, imp string }{
		{"internal/driver/sim", module + "/shell/interp"},
		{"internal/service", module + "/internal/driver"},
		{"internal/daemon", module + "/internal/service"},
	} {
		if err := checkImport(c.from, c.imp); err != nil {
			t.Error(err)
		}
	}
}

// checkImport says why a package (a directory of this module) may not import imp.
func checkImport(dir, imp string) error {
	if within(dir, "shell") {
		return checkShellImport(dir, imp)
	}
	from, ok := floorOf(dir)
	if !ok {
		return fmt.Errorf("%s is on no floor: add it to floors", dir)
	}
	for prefix, allowed := range confined {
		if within(imp, prefix) && !mostSpecificConfined(imp, prefix) {
			continue
		}
		if within(imp, prefix) && !slices.ContainsFunc(allowed, func(a string) bool { return within(dir, a) }) {
			return fmt.Errorf("%s imports %s, which is confined to %v", dir, imp, allowed)
		}
	}
	rest, ours := strings.CutPrefix(imp, module)
	if !ours {
		if from == 0 && strings.Contains(strings.Split(imp, "/")[0], ".") {
			return fmt.Errorf("package carrel imports %s: the standard library only", imp)
		}
		return nil
	}
	target := strings.TrimPrefix(rest, "/")
	if target == "" {
		return nil // everyone may use the words
	}
	if within(target, "shell") {
		if !slices.ContainsFunc(shellUsers, func(u string) bool { return within(dir, u) }) {
			return fmt.Errorf("%s imports %s: only %v may", dir, target, shellUsers)
		}
		return nil
	}
	to, ok := floorOf(target)
	if !ok {
		return fmt.Errorf("%s is on no floor: add it to floors", target)
	}
	switch {
	case to > from:
		return fmt.Errorf("%s (floor %d) imports %s (floor %d), which is above it", dir, from, target, to)
	case from == 4 && to == 3, from == 5 && to >= 3:
		return fmt.Errorf("%s (floor %d) imports %s (floor %d): it must be injected", dir, from, target, to)
	case to == from && within(target, dir), to == from && within(dir, target):
		return nil // parts of one package tree
	case to == from && !slices.Contains(sameFloorFree, from) &&
		!slices.ContainsFunc(allowedSiblings(dir), func(s string) bool { return within(target, s) }):
		return fmt.Errorf("%s imports its sibling %s", dir, target)
	}
	return nil
}

// checkShellImport says why a package of the shell's house may not import imp. That house imports
// nothing of Carrel's.
func checkShellImport(dir, imp string) error {
	if rest, ours := strings.CutPrefix(imp, module); ours && !within(strings.TrimPrefix(rest, "/"), "shell") {
		return fmt.Errorf("%s imports %s: the shell's house imports nothing of Carrel's", dir, imp)
	}
	for prefix, allowed := range confined {
		if within(imp, prefix) && mostSpecificConfined(imp, prefix) && !slices.ContainsFunc(allowed, func(a string) bool { return within(dir, a) }) {
			return fmt.Errorf("%s imports %s, which is confined to %v", dir, imp, allowed)
		}
	}
	return nil
}

// allowedSiblings returns the allowed sibling imports of a package: its own, and those of a whole
// tree ("…/...").
func allowedSiblings(dir string) []string {
	for key, allowed := range siblings {
		if tree, ok := strings.CutSuffix(key, "/..."); ok && within(dir, tree) {
			return allowed
		}
	}
	return siblings[dir]
}

// mostSpecificConfined reports whether no longer confined prefix also matches imp.
func mostSpecificConfined(imp, prefix string) bool {
	for other := range confined {
		if len(other) > len(prefix) && within(imp, other) {
			return false
		}
	}
	return true
}

// floorOf finds the floor of a directory by its longest known prefix.
func floorOf(dir string) (int, bool) {
	best, floor := -1, 0
	for _, f := range floors {
		for _, p := range f.prefixes {
			if (p == dir || (p != "." && within(dir, p))) && len(p) > best {
				best, floor = len(p), f.number
			}
		}
	}
	return floor, best >= 0
}

// within reports whether path is prefix or below it.
func within(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

// packageImports lists the imports of each package's non-test files.
func packageImports(t *testing.T, root string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	eachPackage(t, root, func(dir string, files []string) {
		set := map[string]bool{}
		for _, name := range files {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range f.Imports {
				set[strings.Trim(s.Path.Value, `"`)] = true
			}
		}
		for imp := range set {
			out[dir] = append(out[dir], imp)
		}
		sort.Strings(out[dir])
	})
	return out
}

// eachPackage calls fn for each directory that holds non-test Go files.
func eachPackage(t *testing.T, root string, fn func(dir string, files []string)) {
	t.Helper()
	byDir := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); n == "node_modules" || n == "testdata" || (strings.HasPrefix(n, ".") && n != ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			byDir[filepath.Dir(path)] = append(byDir[filepath.Dir(path)], path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, files := range byDir {
		fn(filepath.ToSlash(dir), files)
	}
}

// TestDocumented fails for a package without a comment, and for an exported name
// without one, in hand-written code.
func TestDocumented(t *testing.T) {
	eachPackage(t, ".", func(dir string, names []string) {
		fset := token.NewFileSet()
		var files []*ast.File
		for _, name := range names {
			src, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(src), "\n// Code generated ") || strings.HasPrefix(string(src), "// Code generated ") {
				continue
			}
			f, err := parser.ParseFile(fset, name, src, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		if len(files) == 0 {
			return
		}
		p, err := doc.NewFromFiles(fset, files, module+"/"+dir)
		if err != nil {
			t.Fatal(err)
		}
		if p.Doc == "" {
			t.Errorf("%s: no package comment", dir)
		}
		for _, name := range undocumented(p) {
			t.Errorf("%s: %s has no comment", dir, name)
		}
	})
}

// undocumented lists the exported names of a package that have no comment. A
// comment on a group of constants or variables covers its members.
func undocumented(p *doc.Package) []string {
	var out []string
	value := func(vs []*doc.Value) {
		for _, v := range vs {
			if v.Doc != "" {
				continue
			}
			for _, s := range v.Decl.Specs {
				s, ok := s.(*ast.ValueSpec)
				if ok && s.Doc == nil && s.Comment == nil && slices.ContainsFunc(s.Names, func(n *ast.Ident) bool { return n.IsExported() && n.Name != "_" }) {
					out = append(out, s.Names[0].Name)
				}
			}
		}
	}
	funcs := func(fs []*doc.Func) {
		for _, f := range fs {
			if f.Doc == "" && ast.IsExported(f.Name) {
				out = append(out, f.Name)
			}
		}
	}
	value(p.Consts)
	value(p.Vars)
	funcs(p.Funcs)
	for _, typ := range p.Types {
		if typ.Doc == "" && ast.IsExported(typ.Name) {
			out = append(out, typ.Name)
		}
		value(typ.Consts)
		value(typ.Vars)
		funcs(typ.Funcs)
		if ast.IsExported(typ.Name) {
			funcs(methodsNeedingDocs(typ.Methods))
		}
	}
	return out
}

// methodsNeedingDocs leaves out methods whose meaning comes from an interface of the standard
// library or from the contract they implement.
func methodsNeedingDocs(ms []*doc.Func) []*doc.Func {
	known := []string{"Error", "Unwrap", "Is", "String", "Close", "Read", "Write", "Len", "Less", "Swap", "Push", "Pop",
		"ServeHTTP", "LocalAddr", "RemoteAddr", "SetDeadline", "SetReadDeadline", "SetWriteDeadline", "Network", "Seek", "MarshalJSON", "UnmarshalJSON"}
	return slices.DeleteFunc(slices.Clone(ms), func(f *doc.Func) bool { return slices.Contains(known, f.Name) })
}
