package daemontest

import (
	"archive/tar"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// smallTools are the programs of the small image. They and their libraries come from this machine.
var smallTools = []string{"sh", "bash", "cat", "cut", "date", "dd", "env", "find", "grep", "head",
	"id", "ln", "ls", "mkdir", "mv", "pwd", "readlink", "rm",
	"seq", "sha256sum", "sleep", "stat", "touch", "true", "wc", "tr"}

var libraryLine = regexp.MustCompile(`(/\S+) \(0x`)

// SmallRoot returns the archive of a small root filesystem: a shell, some tools, and the accounts
// root and user. It fails where there is no ldd.
var SmallRoot = sync.OnceValues(func() ([]byte, error) {
	files := map[string]string{} // name in the image → file of this machine
	for _, name := range smallTools {
		path, err := exec.LookPath(name)
		if err != nil {
			return nil, err
		}
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return nil, err
		}
		files["usr/bin/"+name] = path
		out, err := exec.Command("ldd", path).Output()
		if err != nil {
			return nil, err
		}
		for _, m := range libraryLine.FindAllStringSubmatch(string(out), -1) {
			files[strings.TrimPrefix(m[1], "/")] = m[1]
		}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	add := func(h *tar.Header, content []byte) error {
		h.ModTime, h.Size = time.Unix(1, 0), int64(len(content))
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}
	merged := false // /lib is a link to usr/lib
	if to, err := os.Readlink("/lib"); err == nil && strings.Trim(to, "/") == "usr/lib" {
		merged = true
		for _, d := range []string{"lib", "lib64"} {
			if err := add(&tar.Header{Name: d, Typeflag: tar.TypeSymlink, Linkname: "usr/" + d, Mode: 0o777},
				nil); err != nil {
				return nil, err
			}
		}
	}
	for name, path := range files {
		if merged && strings.HasPrefix(name, "lib") {
			name = "usr/" + name
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := add(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755}, content); err != nil {
			return nil, err
		}
	}
	for _, l := range []string{"bin"} {
		if err := add(&tar.Header{Name: l, Typeflag: tar.TypeSymlink, Linkname: "usr/bin", Mode: 0o777},
			nil); err != nil {
			return nil, err
		}
	}
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/bash\n",
		"etc/group":  "root:x:0:\nuser:x:1000:\n",
	} {
		if err := add(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644},
			[]byte(text)); err != nil {
			return nil, err
		}
	}
	if err := add(&tar.Header{Name: "home/user/", Typeflag: tar.TypeDir, Mode: 0o755, Uid: 1000,
		Gid: 1000}, nil); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
})
