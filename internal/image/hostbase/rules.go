package hostbase

import (
	"io/fs"
	"path"
	"slices"
	"strings"
)

// DefaultExclude lists the parts of /usr that are no toolchain. Patterns are those of path.Match on
// the absolute path. A match is left out with everything below it.
func DefaultExclude() []string {
	return []string{
		// Documentation.
		"/usr/share/doc", "/usr/share/doc-base", "/usr/share/man", "/usr/share/info", "/usr/share/gtk-doc",
		"/usr/share/help", "/usr/share/lintian", "/usr/share/bug", "/usr/share/gnome",
		// Themes of desktops.
		"/usr/share/icons", "/usr/share/sounds", "/usr/share/backgrounds", "/usr/share/wallpapers",
		"/usr/share/themes", "/usr/share/pixmaps", "/usr/share/applications",
		// Languages other than English; messages are then in English.
		"/usr/share/locale/*", "/usr/share/i18n/locales/*",
		// Sources, debug symbols, and the modules and firmware of the host's kernel.
		"/usr/src", "/usr/lib/debug", "/usr/lib/modules", "/usr/lib/firmware", "/usr/lib/linux-*",
		"/usr/share/dkms", "/usr/lib/perf-core", "/usr/libexec/perf-core",
		// Large platforms with their own updates; import an image to use them.
		"/usr/lib/google-cloud-sdk", "/usr/share/google-cloud-sdk", "/usr/lib/aws-cli", "/usr/share/az*",
		"/usr/lib/jvm", "/usr/share/java", "/usr/share/maven*", "/usr/lib/llvm-*", "/usr/lib64/llvm*",
		"/usr/include/llvm*", "/usr/include/clang*",
		"/usr/lib/*/libLLVM*", "/usr/lib/*/libclang*", "/usr/lib/snapd", "/usr/lib/docker", "/usr/libexec/docker",
		"/usr/lib/postgresql", "/usr/share/postgresql*", "/usr/lib/mysql", "/usr/lib/libreoffice",
		"/usr/lib/chromium*", "/usr/lib/firefox*", "/usr/lib/thunderbird*", "/usr/share/dotnet", "/usr/lib/dotnet",
		"/usr/lib/cuda*", "/usr/local/cuda*",
		// The host's services.
		"/usr/lib/systemd", "/usr/lib/udev", "/usr/share/polkit-1", "/usr/lib/polkit-1", "/usr/share/dbus-1",
		// The mark by which pip refuses to install beside the distribution's packages. A sandbox
		// needs no such protection.
		"/usr/lib*/python3*/EXTERNALLY-MANAGED", "/usr/local/lib*/python3*/EXTERNALLY-MANAGED",
		// Files for testing Go itself.
		"/usr/local/go/test", "/usr/local/go/api", "/usr/local/go/doc", "/usr/local/go/misc",
		"/usr/lib/go-*/test", "/usr/share/go-*/test",
	}
}

// kept lists files that are taken although an exclusion matches.
var kept = []string{
	"/usr/share/locale/C*", "/usr/share/locale/en", "/usr/share/locale/en_US*", "/usr/share/locale/en_GB*",
	"/usr/share/locale/locale.alias", "/usr/share/i18n/locales/C", "/usr/share/i18n/locales/POSIX",
	"/usr/share/i18n/locales/en_*", "/usr/share/i18n/locales/i18n*", "/usr/share/i18n/locales/iso14651*",
	"/usr/share/i18n/locales/translit_*",
}

// localKept lists the parts of /usr/local that are taken.
var localKept = []string{
	"/usr/local/bin", "/usr/local/sbin", "/usr/local/lib", "/usr/local/lib64", "/usr/local/libexec",
	"/usr/local/include", "/usr/local/go", "/usr/local/share/ca-certificates",
	"/usr/local/rustup", "/usr/local/cargo",
}

// localScripts are the scripts of /usr/local/bin and sbin that come with toolchains. Other scripts
// there are private and may hold anything.
var localScripts = []string{
	"2to3*", "idle3*", "pydoc3*", "python*-config", "pip", "pip2*", "pip3*", "wheel", "virtualenv", "pipx", "poetry", "pytest",
	"ipython*", "jupyter*", "flask", "black", "mypy", "pylint", "npm", "npx", "corepack", "yarn", "yarnpkg",
	"pnpm", "pnpx", "tsc", "tsserver", "ts-node", "gem", "bundle", "bundler", "rake", "irb", "erb", "rdoc", "ri", "composer",
	"pear", "pecl", "phpize", "php-config", "cpan*", "f2py*", "numpy-config",
}

// setIDKept are the programs whose set-uid and set-gid bits are kept.
var setIDKept = []string{"sudo", "su", "passwd", "newgrp", "chsh", "chfn", "gpasswd", "chage", "expiry", "unix_chkpwd"}

// linkRoots are the places that a copied link may lead to: those that are copied, and those that
// every sandbox has. A link to any other place would reveal the host's layout and lead nowhere.
var linkRoots = []string{"/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/dev", "/proc"}

// rules decides which files are copied.
type rules struct {
	exact map[string]bool
	globs []string
}

func newRules(exclude []string) *rules {
	r := &rules{exact: map[string]bool{}}
	for _, p := range exclude {
		if strings.ContainsAny(p, `*?[\`) {
			r.globs = append(r.globs, p)
		} else {
			r.exact[path.Clean(p)] = true
		}
	}
	return r
}

// excluded reports whether a path of the host is always left out.
func (r *rules) excluded(p string) bool {
	if rest, ok := strings.CutPrefix(p, "/usr/local/"); ok && rest != "share" && !slices.ContainsFunc(localKept, func(k string) bool { return within(p, k) }) {
		return true
	}
	return (r.exact[p] || matches(r.globs, p)) && !matches(kept, p)
}

// readable reports whether every user of the host may read a file of this mode.
func readable(m fs.FileMode) bool {
	if m.IsDir() {
		return m.Perm()&0o005 == 0o005
	}
	return m.Perm()&0o004 != 0
}

// linkOK reports whether a link in directory dir may be copied.
func linkOK(dir, target string) bool {
	if !path.IsAbs(target) {
		target = path.Join(dir, target)
	}
	target = path.Clean(target)
	return slices.ContainsFunc(linkRoots, func(r string) bool { return within(target, r) })
}

// localProgram reports whether a file in /usr/local/bin or sbin is a program of a toolchain: a
// binary or a known script. head is the file's first bytes.
func localProgram(name string, head []byte) bool {
	if strings.HasPrefix(string(head), "\x7fELF") {
		return true
	}
	return matches(localScripts, name)
}

func matches(patterns []string, p string) bool {
	for _, g := range patterns {
		if ok, _ := path.Match(g, p); ok {
			return true
		}
	}
	return false
}

// within reports whether p is dir or below it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
