package sshdoor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pkg/sftp"

	"github.com/carrel-dev/carrel"
)

// maxOpen bounds the open files of one SFTP session. Each may hold a window of its content.
const maxOpen = 32

// serveFiles speaks SFTP on a channel until it ends.
func serveFiles(ctx context.Context, ch io.ReadWriter, computer carrel.Computer, user string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // what is half written ends
	f := &fileServer{ctx: ctx, computer: computer, files: computer.Files(user), user: user, writing: map[string]*writer{}}
	home := "/"
	if info, err := f.files.Stat(ctx, "."); err == nil && path.IsAbs(info.Path) {
		home = info.Path
	}
	srv := sftp.NewRequestServer(keptOpen{ch}, sftp.Handlers{FileGet: f, FilePut: f, FileCmd: f, FileList: f}, sftp.WithStartDirectory(home))
	err := srv.Serve()
	_ = srv.Close()
	return err
}

// keptOpen is a channel that stays open after its SFTP session, because the exit status follows.
type keptOpen struct{ io.ReadWriter }

// Close implements io.Closer.
func (keptOpen) Close() error { return nil }

// fileServer answers SFTP's requests with [carrel.Files] where it can, and with small commands for
// the rest.
type fileServer struct {
	ctx      context.Context
	computer carrel.Computer
	files    carrel.Files
	user     string

	mu      sync.Mutex
	open    int
	writing map[string]*writer // by path; changes of attributes wait for the content
}

// enter counts an open file.
func (f *fileServer) enter() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open >= maxOpen {
		return fmt.Errorf("more than %d files are open", maxOpen)
	}
	f.open++
	return nil
}

func (f *fileServer) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open--
}

// status converts an error to one that SFTP has a code for.
func status(err error) error {
	switch carrel.KindOf(err) {
	case "":
		return nil
	case carrel.NotFound:
		return os.ErrNotExist
	case carrel.Forbidden, carrel.Unauthenticated:
		return os.ErrPermission
	case carrel.Unsupported:
		return sftp.ErrSSHFxOpUnsupported
	}
	return errors.New(publicText(err))
}

// run runs a program for an operation that Files does not have. Names are absolute, so none is
// taken for an option.
func (f *fileServer) run(args ...string) error {
	res, err := f.computer.Run(f.ctx, carrel.Command{Args: args, User: f.user, Dir: "/", Timeout: time.Minute})
	if err != nil {
		return status(err)
	}
	if res.ExitCode != 0 {
		return fmt.Errorf("%s: %s", args[0], bytes.TrimSpace(res.Stderr))
	}
	return nil
}

// Fileread implements sftp.FileReader.
func (f *fileServer) Fileread(r *sftp.Request) (io.ReaderAt, error) {
	info, err := f.follow(r.Filepath)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, errors.New("it is a directory")
	}
	if err := f.enter(); err != nil {
		return nil, err
	}
	return &reader{f: f, name: r.Filepath}, nil
}

// Filewrite implements sftp.FileWriter.
func (f *fileServer) Filewrite(r *sftp.Request) (io.WriterAt, error) {
	flags := r.Pflags()
	info, err := f.follow(r.Filepath)
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil, err
	case err != nil && !flags.Creat:
		return nil, os.ErrNotExist
	case err == nil && flags.Creat && flags.Excl:
		return nil, errors.New("it is there already")
	case err == nil && info.IsDir():
		return nil, errors.New("it is a directory")
	case flags.Append, err == nil && !flags.Trunc && info.Size() > 0: // to be changed in the middle
		return nil, sftp.ErrSSHFxOpUnsupported
	}
	if err := f.enter(); err != nil {
		return nil, err
	}
	w := newWriter(f, r.Filepath)
	f.mu.Lock()
	f.writing[r.Filepath] = w
	f.mu.Unlock()
	return w, nil
}

// Filecmd implements sftp.FileCmder.
func (f *fileServer) Filecmd(r *sftp.Request) error {
	switch r.Method {
	case "Setstat":
		return f.setAttributes(r)
	case "Rename":
		if _, err := f.files.Stat(f.ctx, r.Target); err == nil {
			return errors.New("the target is there already")
		}
		return status(f.files.Move(f.ctx, r.Filepath, r.Target))
	case "Rmdir":
		return f.run("rmdir", r.Filepath)
	case "Mkdir":
		return status(f.files.MakeDir(f.ctx, r.Filepath))
	case "Link":
		return f.run("ln", r.Filepath, r.Target)
	case "Symlink":
		to := r.Filepath
		if strings.HasPrefix(to, "-") {
			to = "./" + to
		}
		return f.run("ln", "-s", to, r.Target)
	case "Remove":
		info, err := f.files.Stat(f.ctx, r.Filepath)
		if err != nil {
			return status(err)
		}
		if info.Mode.IsDir() {
			return errors.New("it is a directory")
		}
		return status(f.files.Remove(f.ctx, r.Filepath))
	}
	return sftp.ErrSSHFxOpUnsupported
}

// PosixRename implements sftp.PosixRenameFileCmder. It replaces the target.
func (f *fileServer) PosixRename(r *sftp.Request) error {
	return status(f.files.Move(f.ctx, r.Filepath, r.Target))
}

// setAttributes sets the attributes in a request. For a file that is being written, it does so
// after the writing.
func (f *fileServer) setAttributes(r *sftp.Request) error {
	var commands [][]string
	flags, a := r.AttrFlags(), r.Attributes()
	if flags.Size {
		commands = append(commands, []string{"truncate", "-s", strconv.FormatUint(a.Size, 10), r.Filepath})
	}
	if flags.UidGid {
		commands = append(commands, []string{"chown", fmt.Sprintf("%d:%d", a.UID, a.GID), r.Filepath})
	}
	if flags.Permissions {
		commands = append(commands, []string{"chmod", strconv.FormatUint(uint64(a.Mode&0o7777), 8), r.Filepath})
	}
	if flags.Acmodtime {
		commands = append(commands, []string{"touch", "-m", "-d", "@" + strconv.FormatUint(uint64(a.Mtime), 10), r.Filepath})
	}
	f.mu.Lock()
	if w := f.writing[r.Filepath]; w != nil {
		w.after = append(w.after, commands...)
		commands = nil
	}
	f.mu.Unlock()
	return f.runAll(commands)
}

func (f *fileServer) runAll(commands [][]string) error {
	for _, c := range commands {
		if err := f.run(c...); err != nil {
			return err
		}
	}
	return nil
}

// Filelist implements sftp.FileLister.
func (f *fileServer) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	if r.Method == "Stat" {
		info, err := f.follow(r.Filepath)
		return entries{info}, err
	}
	if r.Method != "List" {
		return nil, sftp.ErrSSHFxOpUnsupported
	}
	list, err := f.files.List(f.ctx, r.Filepath, 1)
	if err != nil {
		return nil, status(err)
	}
	out := make(entries, 0, len(list))
	for _, i := range list {
		out = append(out, fileInfo{i})
	}
	return out, nil
}

// Lstat implements sftp.LstatFileLister.
func (f *fileServer) Lstat(r *sftp.Request) (sftp.ListerAt, error) {
	info, err := f.files.Stat(f.ctx, r.Filepath)
	if err != nil {
		return nil, status(err)
	}
	return entries{fileInfo{info}}, nil
}

// Readlink implements sftp.ReadlinkFileLister.
func (f *fileServer) Readlink(name string) (string, error) {
	info, err := f.files.Stat(f.ctx, name)
	if err != nil {
		return "", status(err)
	}
	if info.Mode&fs.ModeSymlink == 0 {
		return "", errors.New("it is no symbolic link")
	}
	return info.Target, nil
}

// follow returns the file that a name leads to.
func (f *fileServer) follow(name string) (fileInfo, error) {
	for range 40 {
		info, err := f.files.Stat(f.ctx, name)
		if err != nil {
			return fileInfo{}, status(err)
		}
		if info.Mode&fs.ModeSymlink == 0 {
			return fileInfo{info}, nil
		}
		if info.Target == "" {
			return fileInfo{}, os.ErrNotExist
		}
		if path.IsAbs(info.Target) {
			name = info.Target
		} else {
			name = path.Join(path.Dir(name), info.Target)
		}
	}
	return fileInfo{}, errors.New("too many symbolic links")
}

// fileInfo is a carrel.FileInfo in the library's form.
type fileInfo struct{ carrel.FileInfo }

// Name implements fs.FileInfo.
func (i fileInfo) Name() string { return i.FileInfo.Name }

// Size implements fs.FileInfo.
func (i fileInfo) Size() int64 { return i.FileInfo.Size }

// Mode implements fs.FileInfo.
func (i fileInfo) Mode() fs.FileMode { return i.FileInfo.Mode }

// ModTime implements fs.FileInfo.
func (i fileInfo) ModTime() time.Time { return i.Modified }

// IsDir implements fs.FileInfo.
func (i fileInfo) IsDir() bool { return i.FileInfo.Mode.IsDir() }

// Sys implements fs.FileInfo.
func (i fileInfo) Sys() any { return nil }

// entries is a listing.
type entries []fileInfo

// ListAt implements sftp.ListerAt.
func (e entries) ListAt(out []os.FileInfo, at int64) (int, error) {
	if at >= int64(len(e)) {
		return 0, io.EOF
	}
	n := 0
	for ; n < len(out) && int(at)+n < len(e); n++ {
		out[n] = e[int(at)+n]
	}
	if int(at)+n == len(e) {
		return n, io.EOF
	}
	return n, nil
}
