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

// A snapshot with memory holds the sandbox's files as objects of the sentry: the tree is part of
// its state, the contents are part of its pages. A snapshot of files, in gVisor's form, is a tar
// archive of the tree that names pages, and those pages. To make the second from the first, the
// code that encoded the state has to decode it.
//
// gVisor can also write a snapshot of files directly. We don't use that: it rounds the times of
// files to seconds, which breaks programs that compare them. So those snapshots, too, are made in
// this way.

// containerName is the sentry's name for its only container.
const containerName = "__no_name_0"

// rootID names the filesystem that holds the sandbox's writes.
var rootID = checkpoint.ResourceID{ContainerName: containerName, Path: "/"}

// Descriptors of the extracting part.
const (
	extractState    = 3 + iota // in: the sentry's state
	extractMeta                // in: places of pages
	extractRoot                // in: the root image
	extractGuest               // in: the guest's image
	extractPages               // in: the pages
	extractManifest            // out, like the following ones
	extractTar
	extractNewMeta
	extractNewPages // out: only pages of files; no regular file if they stay in place
)

// extractPart is the process that makes a snapshot of files from one with memory.
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

// protoRootID is rootID in the form of the manifest.
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

// emptyMemory returns a memory file into which nothing will be loaded.
func emptyMemory(name string, opts pgalloc.MemoryFileOpts) (*pgalloc.MemoryFile, error) {
	fd, err := memutil.CreateMemFD(name, 0)
	if err != nil {
		return nil, err
	}
	return pgalloc.NewMemoryFile(os.NewFile(uintptr(fd), name), opts)
}

// treeOf archives the filesystem that holds the sandbox's writes.
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

// withTimes sets the exact modification times in an archive. gVisor rounds them to seconds in its
// archive, but the filesystem still has the exact ones.
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
		// The times of entries that the sandbox can't see don't matter: removed files, directories
		// below a mount.
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
