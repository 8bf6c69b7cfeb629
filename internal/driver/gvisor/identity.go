package gvisor

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"gvisor.dev/gvisor/pkg/cpuid"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

// Short texts name the images that a snapshot depends on and the build that wrote it. They can be
// compared years later on another machine.

const (
	gvisorModule = "gvisor.dev/gvisor"
	// gvisorVersion is the version in our go.mod. It is used when a binary does not record the
	// versions of its modules, as test binaries don't. A test compares the two.
	gvisorVersion = "v0.0.0-20260905035102-160fafc42237"
	// snapshotFormat is the version of our own part of a snapshot with memory.
	snapshotFormat = 1
	// filesBuild names the form of a snapshot of files: gVisor's filesystem checkpoint. The form
	// holds plain facts about files and does not depend on the processor. It does not depend on the
	// build either, until gVisor changes the form. A test with files from an earlier build fails
	// then.
	filesBuild = "files-1 fscheckpoint-1"
)

// identities caches texts about files until the files change.
type identities struct {
	mu    sync.Mutex
	known map[fileKey]string
}

// fileKey is a version of a file. It leaves out the time of the file's status: each new link
// changes that time, and every sandbox and snapshot links its image.
type fileKey struct {
	dev, ino uint64
	size     int64
	mtime    syscall.Timespec
}

// of returns the result of make for the file. It calls make once for each version of the file.
func (c *identities) of(name string, make func(f *os.File, size int64) (string, error)) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return "", err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || !fi.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", name)
	}
	key := fileKey{uint64(st.Dev), st.Ino, st.Size, st.Mtim}
	c.mu.Lock()
	text, ok := c.known[key]
	c.mu.Unlock()
	if ok {
		return text, nil
	}
	if text, err = make(f, st.Size); err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[fileKey]string{}
	}
	c.known[key] = text
	return text, nil
}

// These parts of an image are hashed. A small image is hashed as a whole. Of a big one both ends
// are hashed, and blocks spread over the rest. The ends hold the superblock and the tables of
// inodes, with every file's size, owner and time of change.
const (
	imageEnds    = 2 << 20
	imageSamples = 256
	imageSample  = 4 << 10
)

// imageID names an image by its size and a hash of a few megabytes of it. It tells builds of a
// template apart. It does not detect an image that somebody forged.
func imageID(f *os.File, size int64) (string, error) {
	h := sha256.New()
	part := func(from, n int64) error {
		_, err := io.Copy(h, io.NewSectionReader(f, from, n))
		return err
	}
	var err error
	if size <= 2*imageEnds+imageSamples*imageSample {
		err = part(0, size)
	} else {
		err = part(0, imageEnds)
		step := (size - 2*imageEnds) / imageSamples
		for i := int64(0); i < imageSamples && err == nil; i++ {
			err = part((imageEnds+i*step)&^(imageSample-1), imageSample)
		}
		if err == nil {
			err = part(size-imageEnds, imageEnds)
		}
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d-%s", size, hex.EncodeToString(h.Sum(nil)[:16])), nil
}

// halfRoot stands for the name of an image that is not whole yet.
const halfRoot = "half"

// made is the sentry's build of a sandbox, and names its two images.
type made struct {
	kernel      *sentryBuild
	root, guest string
}

// madeOf finds the names for a spec, and this build's kernel.
func (d *Driver) madeOf(spec driver.Spec) (m made, err error) {
	if m.kernel, err = d.ownKernel(); err != nil {
		return m, err
	}
	if spec.Root.Whole != "" {
		m.root = halfRoot
	} else if m.root, err = d.ids.of(spec.Root.Image, imageID); err != nil {
		return m, err
	}
	m.guest, err = d.ids.of(spec.Guest, imageID)
	return m, err
}

// buildName names everything that must be equal for memory to be restored: the sentry's version,
// the settings that we give it, and the machine's architecture.
func (d *Driver) buildName() (string, error) {
	version, err := d.ids.of(d.program.path, func(*os.File, int64) (string, error) { return sentryVersion(d.program.path) })
	if err != nil {
		return "", err
	}
	told, err := json.Marshal(struct {
		Flags []string
		Spec  any
	}{fixedFlags, ociSpec(driver.Spec{}, carrel.Limits{})})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(told)
	if mark != "" {
		version += "+" + mark
	}
	return fmt.Sprintf("gvisor %s %s/%s %s carrel-%d-%s", version, runtime.GOOS, runtime.GOARCH, platformName,
		snapshotFormat, hex.EncodeToString(sum[:4])), nil
}

// sentryVersion is the version of gVisor in a binary.
func sentryVersion(exe string) (string, error) {
	info, err := buildinfo.ReadFile(exe)
	if err != nil {
		return "", fmt.Errorf("what %s is made of: %w", exe, err)
	}
	for _, m := range info.Deps {
		if m.Path != gvisorModule {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		return m.Version, nil
	}
	return gvisorVersion, nil
}

// newerFeatures are instruction sets that gVisor's own list lacks and that libraries choose by
// CPUID. Each is the beginning of a name in /proc/cpuinfo.
var newerFeatures = []string{"avx", "amx", "sha", "sm3", "sm4", "cmpccxadd", "raoint"}

// cpuFeatures lists the processor's features, always in the same order. Programs inside ask the
// processor itself, so they may use every feature.
var cpuFeatures = sync.OnceValue(func() string {
	cpuid.Initialize()
	names := strings.Fields(cpuid.HostFeatureSet().FlagString())
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		name, flags, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) != "flags" {
			continue
		}
		for _, flag := range strings.Fields(flags) {
			if slices.ContainsFunc(newerFeatures, func(p string) bool { return strings.HasPrefix(flag, p) }) {
				names = append(names, flag)
			}
		}
		break // all processors of a machine are alike
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), " ")
})

// missingFeatures returns the features in want that are not in have.
func missingFeatures(want, have string) []string {
	has := map[string]bool{}
	for _, n := range strings.Fields(have) {
		has[n] = true
	}
	var out []string
	for _, n := range strings.Fields(want) {
		if !has[n] {
			out = append(out, n)
		}
	}
	return out
}
