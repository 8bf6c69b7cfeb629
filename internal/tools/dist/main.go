// Dist makes all files of a release: programs for each system, archives, packages for Debian and
// for RPM's systems, an image, bills of materials and checksums.
//
//	dist -o DIR -version 1.2.3 [-platforms linux/amd64,...] [-epoch SECONDS] [-lean]
//
// Run it in the repository's root, after "make build": it puts the interpreters and notices from
// there into the programs. The same commit gives the same bytes: all times are the commit's.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// platforms are the platforms of a release. Except on Linux, the program is only the clients.
var platforms = []platform{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"},
}

// platform is a system and a processor, as Go names them.
type platform struct{ os, arch string }

// String is system/processor.
func (p platform) String() string { return p.os + "/" + p.arch }

// file returns the platform as it appears in file names.
func (p platform) file() string { return p.os + "_" + p.arch }

// release is one run of this program.
type release struct {
	out     string // where what is released goes
	work    string // where everything else goes
	version string
	when    time.Time // of every file that is made
	lean    bool      // no bill of materials and no image
	made    []string  // names in out that need checksums
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r := &release{}
	flag.StringVar(&r.out, "o", "bin/dist", "directory to write; what an earlier run left there is removed")
	flag.StringVar(&r.version, "version", "", "version of the release, such as 1.2.3")
	chosen := flag.String("platforms", "", "only these, such as linux/amd64 (default: all)")
	epoch := flag.String("epoch", "", "seconds since 1970 that all files are dated with (default: the commit's)")
	flag.BoolVar(&r.lean, "lean", false, "only archives and packages: no bill of materials and no image")
	flag.Parse()
	if err := r.run(ctx, *chosen, *epoch); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

// versionForm is the form of a version that both kinds of packages accept.
var versionForm = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(~[0-9A-Za-z.]+)?$`)

// run makes the release.
func (r *release) run(ctx context.Context, chosen, epoch string) error {
	if !versionForm.MatchString(r.version) {
		return fmt.Errorf("-version %q: want three numbers, as in 1.2.3 or 1.2.3~rc.1", r.version)
	}
	list, err := choose(chosen)
	if err != nil {
		return err
	}
	if r.when, err = moment(ctx, epoch); err != nil {
		return err
	}
	if r.out, err = filepath.Abs(r.out); err != nil {
		return err
	}
	r.work = filepath.Join(r.out, ".work")
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.work, 0o755); err != nil {
		return err
	}
	if err := r.writeManuals(ctx); err != nil {
		return err
	}
	for _, p := range list {
		if err := r.makePlatform(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	if err := r.copyFile("dist/install.sh", "install.sh", 0o755); err != nil {
		return err
	}
	return errors.Join(r.sum(), os.RemoveAll(r.work))
}

// makePlatform makes all files of one platform.
func (r *release) makePlatform(ctx context.Context, p platform) error {
	fmt.Fprintf(os.Stderr, "dist: %s\n", p)
	program, err := r.build(ctx, p)
	if err != nil {
		return err
	}
	if !r.lean {
		if err := r.writeSBOM(ctx, p, program); err != nil {
			return err
		}
	}
	if err := r.archive(p, program); err != nil {
		return err
	}
	if p.os != "linux" {
		return nil
	}
	for _, kind := range []string{"deb", "rpm"} {
		if err := r.writePackage(ctx, kind, p, program); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	if r.lean {
		return nil
	}
	return r.image(p, program)
}

// choose returns the platforms that a list names.
func choose(list string) ([]platform, error) {
	if list == "" {
		return platforms, nil
	}
	var chosen []platform
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(platforms, func(p platform) bool { return p.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("-platforms: %q is none of %v", name, platforms)
		}
		chosen = append(chosen, platforms[i])
	}
	return chosen, nil
}

// moment returns the time for all files.
func moment(ctx context.Context, epoch string) (time.Time, error) {
	if epoch == "" {
		out, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("git log: %w", err)
		}
		epoch = strings.TrimSpace(string(out))
	}
	n, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("-epoch %q: want seconds since 1970", epoch)
	}
	return time.Unix(n, 0).UTC(), nil
}
