package box_test

import (
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// secretBelow makes a secret file at a path in the home and returns it as the target.
func secretBelow(rel string) func(*world) []string {
	return func(w *world) []string {
		p := filepath.Join(w.home, rel)
		w.write(p, w.secret)
		return []string{"secret=" + p}
	}
}

// fileAttacks are attacks on files that may not be read or written.
func fileAttacks() []attack {
	return []attack{
		{name: "read secrets", program: "read", prepare: homeSecrets},
		{name: "read a denied file", program: "read", prepare: deniedPaths, flags: []string{"--no-read", "{home}/denied", "--no-read", "{project}/private.txt", "--no-read", "*.pem"}},
		{name: "read other homes", program: "read", only: "root", prepare: otherHome},
		{name: "read .env in a big tree", program: "read", prepare: bigTree, long: true}, // TestSecretsAtRest has one
		{name: "read secrets of odd names", program: "read", prepare: oddNames, flags: []string{"--no-read", "**/secret*"}},
		{name: "write outside", program: "write"},
		{name: "leave the working directory", program: "dotdot"},
		{name: "symlinks", program: "symlink"},
		{name: "rename a denied file's parents", program: "rename", prepare: secretBelow("project/a/b/c/secret.txt"), flags: []string{"--no-read", "{project}/a/b/c/secret.txt"}},
		{name: "rename parents of a denied directory", program: "rename", prepare: secretBelow("project/a/b/c/secret.txt"), flags: []string{"--no-read", "{project}/a/b/c"}},
		{name: "rename parents of a glob", program: "rename", prepare: secretBelow("project/a/b/c/secret.pem"), flags: []string{"--no-read", "**/*.pem"}},
		{name: "rename parents of .env", program: "rename", prepare: secretBelow("project/services/api/.env")},
		{name: "hard links", program: "links"},
		{name: "hard links to a denied file beside", program: "links", prepare: secretBelow("project/private.txt"), flags: []string{"--no-read", "{project}/private.txt"}},
		{name: "reopen for writing", program: "reopen", gap: everybody("modes of what standard input is can be changed through it"), wrap: stdinFrom(func(w *world) string { return w.canary })},
		{name: "read-only file in the working directory", program: "write", flags: []string{"--no-write", "{project}/fixed"}, watch: []string{"{project}/fixed"},
			prepare: func(w *world) []string {
				w.write(w.project+"/fixed/file", "fixed\n")
				return []string{"file=" + w.project + "/fixed/file"}
			}},
		{name: "open descriptors of the caller", program: "fds", wrap: leakDescriptors, prepare: func(w *world) []string {
			return []string{"below=" + strings.TrimPrefix(w.key, w.secrets)}
		}},
		{name: "overwrite the program that runs the box", program: "exe", args: []string{"program={carrel}"}, prepare: ownPrograms, watch: []string{"{home}/bin"}},
		{name: "file handles", program: "handle", prepare: fileHandle, immune: rootOnly("open_by_handle_at needs CAP_DAC_READ_SEARCH over the filesystem")},
		{name: "shared directories", program: "scratch", prepare: scratchNames, harmed: scratchFound},
		{name: "shared memory files", program: "shm", prepare: shmFile, harmed: func(w *world) string {
			p := "/dev/shm/" + w.tag()
			if _, err := os.Stat(p + ".new"); err == nil || w.read(p) != w.secret {
				return p + " was changed"
			}
			return ""
		}},
		{name: "core dump", program: "core"},
	}
}

// homeSecrets fills the home with usual secrets.
func homeSecrets(w *world) []string {
	var all []string
	for _, rel := range []string{".ssh/config", ".ssh/id_rsa", ".aws/credentials", ".gnupg/private-keys-v1.d/1.key", ".netrc", ".npmrc", ".pypirc", ".docker/config.json", ".kube/config",
		".config/gcloud/credentials.db", ".config/gh/hosts.yml", ".azure/msal_token_cache.json", ".git-credentials", ".cargo/credentials.toml", ".bash_history", ".zsh_history", ".python_history",
		".config/google-chrome/Default/Cookies", ".mozilla/firefox/x.default/logins.json", ".local/share/keyrings/login.keyring", ".vault-token", ".terraform.d/credentials.tfrc.json", ".password-store/x.gpg",
		".gem/credentials", ".m2/settings.xml", ".pgpass", ".my.cnf", ".config/op/config", ".config/rclone/rclone.conf", ".composer/auth.json", ".config/hub",
		"project/.env", "project/.env.local", "project/sub/.env.production"} {
		w.write(filepath.Join(w.home, rel), w.secret)
		all = append(all, filepath.Join(w.home, rel))
	}
	return []string{"paths=" + strings.Join(append(all, w.key), ":")}
}

// oddNames are secrets in directories with difficult names.
func oddNames(w *world) []string {
	var all []string
	for _, dir := range []string{"caf\xe9", "new\nline", " ", "*", "a\\b", "\x1b[31m", "ü", strings.Repeat("long", 50)} {
		for _, name := range []string{".env", "secret \xff.txt"} {
			p := filepath.Join(w.project, dir, name)
			w.write(p, w.secret)
			all = append(all, p)
		}
	}
	return []string{"paths=" + strings.Join(all, ":")}
}

// bigTree has a secret behind many files.
func bigTree(w *world) []string {
	files := 20
	if !testing.Short() {
		files = 200
	}
	for d := range 100 {
		dir := fmt.Sprintf("%s/packages/package-%02d/lib", w.project, d)
		w.mkdir(dir)
		for f := range files {
			if err := os.WriteFile(fmt.Sprintf("%s/file-%03d.js", dir, f), nil, 0o644); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	all := []string{w.project + "/zz/service/api/.env", w.project + "/packages/package-99/.env"}
	for _, p := range all {
		w.write(p, w.secret)
	}
	return []string{"paths=" + strings.Join(all, ":")}
}

// deniedPaths are paths that flags name.
func deniedPaths(w *world) []string {
	all := []string{w.home + "/denied/a", w.home + "/denied/sub/b", w.project + "/private.txt", w.project + "/key.pem", w.project + "/deep/er/key.pem"}
	for _, p := range all {
		w.write(p, w.secret)
		_ = unix.Setxattr(p, "user.secret", []byte(w.secret), 0)
	}
	if err := os.Symlink(w.secret, w.home+"/denied/link"); err != nil {
		w.t.Fatal(err)
	}
	all = append(all, w.home+"/denied", w.home+"/denied/link", w.home+"/denied/sub/../a", w.project+"/../denied/a", "/proc/self/root"+w.home+"/denied/a", "/proc/self/cwd/../denied/a")
	return []string{"paths=" + strings.Join(all, ":")}
}

// otherHome is another user's.
func otherHome(w *world) []string {
	dir, err := os.MkdirTemp(homes(), "carrel-box-other-")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.WriteFile(dir+"/notes.txt", []byte(w.secret), 0o644); err != nil {
		w.t.Fatal(err)
	}
	return []string{"paths=" + dir + "/notes.txt"}
}

// stdinFrom makes a file the standard input, open for reading.
func stdinFrom(name func(*world) string) func(*world, *exec.Cmd) {
	return func(w *world, cmd *exec.Cmd) {
		f, err := os.Open(name(w))
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = f.Close() })
		cmd.Stdin = f
	}
}

// leakDescriptors leaves descriptors open in the caller that a box must not inherit.
func leakDescriptors(w *world, cmd *exec.Cmd) {
	for _, p := range []string{w.secrets, w.key, "/", "/proc/self/ns/mnt", "/proc/self/ns/net"} {
		f, err := os.Open(p)
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = f.Close() })
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
}

// ownPrograms gives the user copies of the programs. An attack may destroy these.
func ownPrograms(w *world) []string {
	for _, p := range []string{w.carrel, w.attack} {
		data, err := os.ReadFile(p)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, err := range []error{os.Remove(p), os.WriteFile(p, data, 0o755), os.Chown(p, w.uid, w.uid)} {
			if err != nil {
				w.t.Fatal(err)
			}
		}
	}
	return nil
}

// fileHandle takes a handle of the secret.
func fileHandle(w *world) []string {
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, w.key, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return []string{"handle=" + hex.EncodeToString(h.Bytes()), fmt.Sprint("type=", h.Type())}
}

// scratchPaths are in the directories that everybody may write to.
func scratchPaths(w *world) (all []string) {
	for _, dir := range []string{"/tmp/", "/var/tmp/", "/dev/shm/", "/run/lock/"} {
		all = append(all, dir+w.tag())
	}
	return all
}

func scratchNames(w *world) []string {
	w.t.Cleanup(func() { scratchFound(w) })
	return []string{"paths=" + strings.Join(scratchPaths(w), ":")}
}

func scratchFound(w *world) string {
	var found []string
	for _, p := range scratchPaths(w) {
		if os.Remove(p) == nil {
			found = append(found, p)
		}
	}
	return strings.Join(found, " and ")
}

// shmFile is a file of the user in /dev/shm.
func shmFile(w *world) []string {
	p := "/dev/shm/" + w.tag()
	if err := os.WriteFile(p, []byte(w.secret), 0o644); err != nil {
		w.t.Fatal(err)
	}
	_ = os.Chown(p, w.uid, w.uid)
	w.t.Cleanup(func() { _ = os.Remove(p); _ = os.Remove(p + ".new") })
	return []string{"file=" + p}
}
