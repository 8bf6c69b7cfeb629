package hostbase

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"sort"
	"strings"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/image/erofs"
)

// etcCopied lists everything that is taken from the host's /etc, as patterns of path.Match on one
// level, or deeper if a deeper path is named. Each file is public and says nothing about this
// machine: certificates that everybody trusts, the tables of protocols, files that the loader, PAM
// and interpreters need to start. Files that may hold credentials (gitconfig, npmrc, pip.conf,
// apt.conf, environment, ssh) are not on it.
var etcCopied = []string{
	"os-release", "debian_version", "redhat-release", "alpine-release", "lsb-release",
	"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "timezone", "locale.alias",
	"ssl/certs", "ssl/openssl.cnf", "ssl/cert.pem", "ca-certificates", "ca-certificates.conf",
	"pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf", "pki/ca-trust/extracted", "crypto-policies",
	"python", "python2*", "python3*", "perl", "java*", "magic", "magic.mime", "mime.types", "mailcap",
	"protocols", "services", "rpc", "ethertypes", "fonts", "terminfo", "inputrc", "nanorc", "vim",
	"bash_completion", "bash_completion.d", "login.defs", "pam.d", "pam.conf", "security/access.conf", "security/limits.conf",
	"security/namespace.conf", "security/pam_env.conf", "security/time.conf", "security/group.conf", "security/faillock.conf",
	"xattr.conf", "ImageMagick-*", "gprofng.rc", "gai.conf", "netconfig", "libnl-3", "selinux/semanage.conf", "shells", "xml", "sgml",
	"apt/trusted.gpg.d", "apt/keyrings",
}

// etc copies the listed parts of the host's /etc.
func (b *builder) etc(ctx context.Context) error {
	for _, pattern := range etcCopied {
		parent := path.Join("/etc", path.Dir(pattern))
		entries, err := os.ReadDir(b.host(parent))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			if ok, _ := path.Match(path.Base(pattern), e.Name()); !ok {
				continue
			}
			dir := b.root.MkdirAll(parent, 0o755)
			if dir == nil {
				return fmt.Errorf("%s is not a directory", parent)
			}
			if err := b.entry(ctx, dir, path.Join(parent, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// env is the default environment of commands.
func (b *builder) env() map[string]string {
	p := []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
	for _, extra := range []string{"/usr/local/go/bin", "/usr/local/cargo/bin"} {
		if b.root.Lookup(extra) != nil {
			p = append(p, extra)
		}
	}
	return map[string]string{"PATH": strings.Join(p, ":"), "LANG": "C.UTF-8"}
}

// write makes everything that is not copied: accounts, names, homes and the empty directories.
func (b *builder) write() error {
	dirs := maps.Clone(skeleton)
	if b.reaches("/usr/bin/apt-get") {
		maps.Copy(dirs, aptDirs)
	}
	for dir, perm := range dirs {
		d := b.root.MkdirAll(dir, 0o755)
		if d == nil {
			return fmt.Errorf("%s is not a directory", dir)
		}
		d.Mode = fs.ModeDir | perm
	}
	b.root.Lookup("var").Set("run", erofs.NewSymlink("/run"))
	b.root.Lookup("var").Set("lock", erofs.NewSymlink("/run/lock"))
	b.root.Lookup("etc").Set("mtab", erofs.NewSymlink("/proc/self/mounts"))
	b.namePython()
	files := b.files()
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names) // one machine, one image
	for _, name := range names {
		dir := b.root.MkdirAll(path.Dir(name), 0o755)
		if dir == nil {
			return fmt.Errorf("%s is not a directory", path.Dir(name))
		}
		f := files[name]
		n, err := b.w.AddFile(dir, path.Base(name), f.perm, []byte(f.text))
		if err != nil {
			return err
		}
		n.GID = f.gid
	}
	home := b.root.Lookup("home/user")
	home.UID, home.GID = userID, userID
	for _, name := range home.Names() {
		home.Child(name).UID, home.Child(name).GID = userID, userID
	}
	mail := b.root.Lookup("var/mail")
	mail.GID = 8
	return nil
}

// namePython adds the name "python" beside python3 if the host has none. Commands that people and
// models write mostly use that name.
func (b *builder) namePython() {
	for _, p := range []string{"usr/local/bin", "usr/bin"} {
		dir := b.root.Lookup(p)
		if dir == nil {
			continue
		}
		if b.reaches("/" + p + "/python") {
			return
		}
		if b.reaches("/" + p + "/python3") {
			dir.Set("python", erofs.NewSymlink("python3"))
			return
		}
	}
}

// userID is the uid and gid of the account that runs commands.
const userID = 1000

// skeleton lists every directory that is made new.
var skeleton = map[string]fs.FileMode{
	"dev": 0o755, "proc": 0o555, "sys": 0o555, "run": 0o755, "run/lock": 0o777 | fs.ModeSticky,
	"tmp": 0o777 | fs.ModeSticky, "mnt": 0o755, "media": 0o755, "opt": 0o755, "srv": 0o755, "boot": 0o755,
	"root": 0o700, "home": 0o755, "home/user": 0o755, "etc": 0o755, "usr": 0o755, "usr/local": 0o755,
	"usr/local/bin": 0o755, "usr/local/lib": 0o755, "usr/local/share": 0o755,
	"var": 0o755, "var/cache": 0o755, "var/lib": 0o755, "var/lib/dpkg": 0o755, "var/lib/dpkg/info": 0o755,
	"var/lib/dpkg/updates": 0o755, "var/lib/misc": 0o755, "var/local": 0o755, "var/log": 0o755,
	"var/mail": 0o775 | fs.ModeSetgid, "var/opt": 0o755, "var/spool": 0o755, "var/tmp": 0o777 | fs.ModeSticky,
	strings.TrimPrefix(driver.GuestMount, "/"): 0o755,
}

// text is a file written by us.
type text struct {
	perm fs.FileMode
	gid  uint32
	text string
}

// files returns every file that this package writes.
func (b *builder) files() map[string]text {
	const shadowGroup = 42
	out := map[string]text{
		"etc/passwd":           {perm: 0o644, text: passwd()},
		"etc/group":            {perm: 0o644, text: group},
		"etc/shadow":           {perm: 0o640, gid: shadowGroup, text: shadow()},
		"etc/gshadow":          {perm: 0o640, gid: shadowGroup},
		"etc/hostname":         {perm: 0o644, text: "carrel\n"},
		"etc/hosts":            {perm: 0o644, text: Hosts},
		"etc/resolv.conf":      {perm: 0o644, text: Resolv},
		"etc/nsswitch.conf":    {perm: 0o644, text: nsswitch},
		"etc/host.conf":        {perm: 0o644, text: "multi on\n"},
		"etc/machine-id":       {perm: 0o444},
		"etc/fstab":            {perm: 0o644},
		"etc/environment":      {perm: 0o644, text: "PATH=\"" + b.env()["PATH"] + "\"\n"},
		"etc/profile":          {perm: 0o644, text: strings.ReplaceAll(profile, "@PATH@", b.env()["PATH"])},
		"etc/bash.bashrc":      {perm: 0o644, text: bashrc},
		"var/lib/dpkg/status":  {perm: 0o644},
		"home/user/.bashrc":    {perm: 0o644, text: homeBashrc},
		"home/user/.profile":   {perm: 0o644, text: homeProfile},
		"root/.bashrc":         {perm: 0o644, text: homeBashrc},
		"root/.profile":        {perm: 0o644, text: homeProfile},
		"etc/skel/.bashrc":     {perm: 0o644, text: homeBashrc},
		"etc/skel/.profile":    {perm: 0o644, text: homeProfile},
		"etc/profile.d/README": {perm: 0o644, text: "*.sh here is read by login shells.\n"},
	}
	if b.root.Lookup("etc/shells") == nil {
		out["etc/shells"] = text{perm: 0o644, text: "/bin/sh\n/bin/bash\n"}
	}
	if b.reaches("/usr/bin/apt-get") {
		maps.Copy(out, b.aptSources())
	}
	if b.root.Lookup("usr/bin/sudo") != nil {
		out["etc/sudoers"] = text{perm: 0o440, text: strings.ReplaceAll(sudoers, "@PATH@", b.env()["PATH"])}
		out["etc/sudoers.d/README"] = text{perm: 0o440, text: "# Files here are read by sudo.\n"}
	}
	return out
}
