package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/backup"
)

// backupCommands are the commands that copy a data directory.
type backupCommands struct{ *app }

// backupCommand is "carrel backup".
func (a backupCommands) backupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE|-",
		Short: "Write a data directory into one file, while its daemon runs",
		Long: `Writes all that lasts of a data directory into one file: records, snapshots and so every
paused sandbox, templates, secrets, keys. Of a running sandbox only its snapshots are in it:
pause it first, or see carrel drain. What lies in an object store is not in it.

The file holds secrets and the memory of sandboxes. It is written for its owner alone.
Run this as the user of the daemon.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			out, finish, err := a.outFile(args[0])
			if err != nil {
				return err
			}
			sum, err := backup.Write(c.Context(), a.dataDirectory(), out)
			if err := finish(err); err != nil {
				return err
			}
			return a.printBackup("wrote", sum, args[0] == "-")
		},
	}
}

// restoreCommand is "carrel restore".
func (a backupCommands) restoreCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "restore FILE|-",
		Short: "Make a data directory of a backup",
		Long: `Makes a new data directory of what carrel backup wrote. The directory (--data-dir) must not
exist, or be empty. A backup that is cut off or damaged restores nothing.

The new directory is another one: its daemon touches nothing of the original's, and both then
have paused sandboxes with the same IDs.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			in := io.Reader(a.in)
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return usage(err)
				}
				defer func() { _ = f.Close() }()
				in = f
			}
			sum, err := backup.Restore(c.Context(), in, a.dataDirectory())
			if err != nil {
				return err
			}
			return a.printBackup("restored", sum, false)
		},
	}
}

// outFile opens a file that gets its name when it is complete. finish takes the error of the
// writing.
func (a backupCommands) outFile(name string) (io.Writer, func(error) error, error) {
	if name == "-" {
		return a.out, func(err error) error { return err }, nil
	}
	if _, err := os.Lstat(name); err == nil {
		return nil, nil, &carrel.Error{Op: "back up", Kind: carrel.AlreadyExists, Err: fmt.Errorf("%s is there already", name), Hint: "give another name, or remove it"}
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*") // readable for its owner alone
	if err != nil {
		return nil, nil, usage(err)
	}
	return f, func(err error) error {
		if err == nil {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
		if err == nil {
			err = os.Rename(f.Name(), name)
		}
		if err != nil {
			_ = os.Remove(f.Name())
		}
		return err
	}, nil
}

// printBackup prints a summary of a backup. If the backup itself goes to stdout, the summary goes
// to stderr.
func (a backupCommands) printBackup(verb string, s backup.Summary, aside bool) error {
	out := a.out
	if aside {
		out = a.err
	}
	if a.json && !aside {
		return a.printJSON(s)
	}
	_, err := fmt.Fprintf(out, "%s %d files, %s: %d snapshots, %d paused sandboxes\n", verb, s.Files, bytesText(s.Bytes), s.Snapshots, s.Paused)
	if s.Running > 0 {
		_, err = fmt.Fprintf(a.err, "carrel: %d sandboxes ran: of them only snapshots are in it (pause them first, or all with carrel drain)\n", s.Running)
	}
	return err
}
