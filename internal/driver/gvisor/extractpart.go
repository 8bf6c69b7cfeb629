package gvisor

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/protobuf/proto"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/cpuid"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/memutil"
	"gvisor.dev/gvisor/pkg/sentry/checkpoint"
	fspb "gvisor.dev/gvisor/pkg/sentry/fscheckpoint/fscheckpoint_proto_go_proto"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/host"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/tmpfs"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/usage"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/state/statefile"

	"github.com/carrel-dev/carrel/internal/driver"
)

// A snapshot with memory holds the sandbox's files as objects of the sentry: the
// tree among its state, the contents among its pages. gVisor's form of a snapshot of
// files is a tar archive of the tree that names pages, and those pages. To make one
// of the other the state has to be decoded by the code that encoded it.
//
// A snapshot of files is taken this way, too, though gVisor can write one directly:
// that one rounds the times of files to seconds, which breaks what compares them.

// containerName is what the sentry calls the one container it has.
const containerName = "__no_name_0"

// rootID names the filesystem of what the sandbox wrote.
var rootID = checkpoint.ResourceID{ContainerName: containerName, Path: "/"}

// Descriptors of the extracting part.
const (
	extractState    = 3 + iota // in: the sentry's state
	extractMeta                // in: where pages are
	extractRoot                // in: the root image
	extractGuest               // in: the guest's image
	extractPages               // in: the pages
	extractManifest            // out, and so on
	extractTar
	extractNewMeta
	extractNewPages // out: the pages of files only; no regular file if they are to stay where they are
)

// extractPart writes a snapshot of files from one with memory.
func extractPart() error {
	meta, err := io.ReadAll(io.NewSectionReader(os.NewFile(extractMeta, "meta"), 0, 1<<40))
	if err != nil {
		return err
	}
	at, err := findFilePages(meta)
	if err != nil {
		return err
	}
	tree, err := loadTree()
	if err != nil {
		return err
	}
	start := at.start
	out := os.NewFile(extractNewPages, "pages")
	if fi, err := out.Stat(); err != nil {
		return err
	} else if fi.Mode().IsRegular() {
		in := io.NewSectionReader(os.NewFile(extractPages, "pages"), int64(at.start), int64(at.size))
		n, err := io.Copy(out, in)
		if err != nil {
			return err
		}
		if n != int64(at.size) {
			return fmt.Errorf("the pages end %d bytes early", int64(at.size)-n)
		}
		start = 0
	}
	manifest, err := proto.Marshal(&fspb.Manifest{
		Version: 1, PageSize: hostarch.PageSize, Endian: hostarch.EndianString(),
		MemoryFiles: []*fspb.MemoryFile{{ResourceId: protoRootID(), PagesMetadataEnd: uint64(len(at.meta)), PagesStart: start}},
		Tmpfs:       []*fspb.Tmpfs{{ResourceId: protoRootID(), TarEnd: uint64(tree.Len())}},
	})
	if err != nil {
		return err
	}
	for fd, b := range map[uintptr][]byte{extractManifest: manifest, extractTar: tree.Bytes(), extractNewMeta: at.meta} {
		if _, err := os.NewFile(fd, "out").Write(b); err != nil {
			return err
		}
	}
	return nil
}

// protoRootID is rootID as the manifest has it.
func protoRootID() *fspb.ResourceID {
	return &fspb.ResourceID{ContainerName: rootID.ContainerName, Path: rootID.Path}
}

// loadTree decodes the sentry's state and returns the archive of the tree.
func loadTree() (*bytes.Buffer, error) {
	if err := usage.Init(); err != nil {
		return nil, err
	}
	k := &kernel.Kernel{Platform: noPlatform{}}
	mf, err := emptyMemory("memory", pgalloc.MemoryFileOpts{DisableIMAWorkAround: true})
	if err != nil {
		return nil, err
	}
	k.SetMemoryFile(mf)
	files, err := emptyMemory("files", pgalloc.MemoryFileOpts{DisableIMAWorkAround: true, DiskBackedFile: true, ResourceID: rootID})
	if err != nil {
		return nil, err
	}
	fds := map[checkpoint.ResourceID]int{
		rootID: extractRoot,
		{ContainerName: containerName, Path: driver.GuestMount}: extractGuest,
	}
	for i := range 3 {
		fds[host.MakeResourceID(containerName, i)] = 0
	}
	ctx := context.WithValues(k.SupervisorContext(), map[any]any{
		vfs.CtxRestoreFilesystemFDMap: fds,
		pgalloc.CtxMemoryFileMap:      map[checkpoint.ResourceID]*pgalloc.MemoryFile{rootID: files},
	})
	r, _, err := statefile.NewReader(os.NewFile(extractState, "state"), nil)
	if err != nil {
		return nil, err
	}
	var features cpuid.FeatureSet
	if _, err := state.Load(ctx, r, &features); err != nil {
		return nil, err
	}
	if _, err := state.Load(ctx, r, k); err != nil {
		return nil, err
	}
	return treeOf(ctx, k)
}

// emptyMemory is a memory file that nothing will be loaded into.
func emptyMemory(name string, opts pgalloc.MemoryFileOpts) (*pgalloc.MemoryFile, error) {
	fd, err := memutil.CreateMemFD(name, 0)
	if err != nil {
		return nil, err
	}
	return pgalloc.NewMemoryFile(os.NewFile(uintptr(fd), name), opts)
}

// treeOf archives the filesystem of what the sandbox wrote.
func treeOf(ctx context.Context, k *kernel.Kernel) (*bytes.Buffer, error) {
	for _, fs := range k.VFS().GetFilesystems() {
		mf := tmpfs.MemoryFileOf(fs)
		if mf == nil || mf.ResourceID() != rootID {
			continue
		}
		var rough bytes.Buffer
		if err := tmpfs.FSCheckpointWrite(ctx, fs, &rough); err != nil {
			return nil, err
		}
		return withTimes(ctx, k, &rough)
	}
	return nil, errors.New("the state holds no filesystem that the sandbox wrote to")
}

// withTimes sets the exact times of change in an archive. gVisor's archive has them
// rounded to seconds; the filesystem knows them.
func withTimes(ctx context.Context, k *kernel.Kernel, rough io.Reader) (*bytes.Buffer, error) {
	root := k.GlobalInit().Leader().MountNamespace().Root(ctx)
	defer root.DecRef(ctx)
	creds := auth.NewRootCredentials(k.RootUserNamespace())
	var out bytes.Buffer
	tr, tw := tar.NewReader(rough), tar.NewWriter(&out)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return &out, tw.Close()
		}
		if err != nil {
			return nil, err
		}
		st, err := k.VFS().StatAt(ctx, creds, &vfs.PathOperation{Root: root, Start: root, Path: fspath.Parse(h.Name)},
			&vfs.StatOptions{Mask: linux.STATX_MTIME})
		exact := time.Unix(st.Mtime.Sec, int64(st.Mtime.Nsec))
		// What the sandbox can't see (a removed file, a directory below a mount) has no
		// time that matters.
		if err == nil && exact.Sub(h.ModTime).Abs() <= time.Second {
			h.ModTime, h.Format = exact, tar.FormatPAX
		}
		if err := tw.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := io.Copy(tw, tr); err != nil {
			return nil, err
		}
	}
}
